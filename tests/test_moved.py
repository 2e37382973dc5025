"""Imports from the paths of version 0.1 fail with the new path in the message."""

import importlib
from importlib.util import find_spec

import pytest

from dpadapt import moved


@pytest.mark.parametrize(
    "old", ["dpadapt.learning.transfer_regression", "dpadapt.adaptation", "dpadapt.clustering.nas"]
)
def test_an_old_path_names_the_new_one(old):
    with pytest.raises(ModuleNotFoundError, match=f"{old} has moved to {moved.MOVED[old]}"):
        importlib.import_module(old)


def test_the_message_says_that_benchmarks_are_outside_the_package():
    with pytest.raises(ModuleNotFoundError, match="in the repository but not in the installed package"):
        importlib.import_module("dpadapt.benchmarks")


def test_other_missing_modules_raise_the_usual_error():
    with pytest.raises(ModuleNotFoundError, match=r"No module named .dpadapt\.nothing"):
        importlib.import_module("dpadapt.nothing_of_this_name")


def test_every_new_path_exists():
    for new in set(moved.MOVED.values()):
        if not new.startswith("dpadapt.networks"):  # they need torch
            assert find_spec(new), new
