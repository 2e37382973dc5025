"""The table of data sets is complete, and the documentation lists all of it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import data
from benchmarks.data.loading import available, load

DOCS = Path(__file__).parents[3] / "docs" / "papers" / "data.md"


def test_every_set_of_the_collection_is_listed():
    names = set(
        "wind gas news slice airline_nyc13 adult german accent mnist fashion_mnist cifar10 superconductivity "
        "office_caltech10 amazon_reviews wikitext2 california_housing fresh".split()
    )
    assert {source.name for source in available()} == names


def test_parts_are_unique_and_checksums_well_formed():
    keys = [(source.name, source.part) for source in available()]
    assert len(keys) == len(set(keys))
    for source in available():
        assert bool(source.file) == bool(re.fullmatch("[0-9a-f]{64}", source.sha256))
        assert source.file or source.remotes
        assert source.what
        assert source.note
        assert source.origin
        assert source.licence


def test_unknown_names_and_parts_are_errors_that_list_the_choices():
    with pytest.raises(ValueError, match=r"name must be one of wind, .*, got 'winds'"):
        load("winds")
    with pytest.raises(ValueError, match="part of 'gas' must be one of 'batches', 'ethanol', got 'all'"):
        load("gas", "all")


def test_documentation_lists_every_file_and_every_split():
    text = DOCS.read_text(encoding="utf-8")
    for source in available():
        assert f"`{source.name}`" in text
        assert f"`{source.part}`" in text
        assert source.file in text
    for name in data.__all__:
        if "_by_" in name:
            assert f"`{name}" in text


def test_import_is_light():
    code = (
        "import dpadapt, sys; before = set(sys.modules); import dpadapt.datasets, benchmarks.data; "
        "new = set(sys.modules) - before; "
        "heavy = [m for m in new if m.startswith(('statsmodels', 'sklearn.datasets', 'rich'))]; "
        "print(*heavy)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
