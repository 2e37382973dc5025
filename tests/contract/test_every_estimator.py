"""Every estimator that takes private rows is found by itself, and must be in a battery."""

import importlib
import pkgutil
import re
from pathlib import Path

import dpadapt
from dpadapt.learning.estimator import PrivateEstimator
from dpadapt.methods import PREDICTORS

TESTS = Path(__file__).parents[1]
EXTRAS = ("dpadapt.networks", "dpadapt.hybrid.flower")  # they need torch or Flower, and are tested there


def estimators():
    """Return the classes of the package that derive from `PrivateEstimator` and that no other class derives from."""
    for module in pkgutil.walk_packages(dpadapt.__path__, "dpadapt.", onerror=lambda name: None):
        if not module.name.startswith(EXTRAS):
            importlib.import_module(module.name)
    todo, leaves = [PrivateEstimator], []
    while todo:
        cls = todo.pop()
        children = [child for child in cls.__subclasses__() if child.__module__.startswith("dpadapt.")]
        todo += children
        if not children and not cls.__module__.startswith(EXTRAS):
            leaves.append(cls)
    return leaves


def is_replayed(name):
    """Return whether a test file replays the class on neighbouring data, which finds what leaves past the ledger."""
    texts = (path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py"))
    return any(re.search(rf"\b{name}\b", text) and re.search(r"\bleaks\(", text) for text in texts)


def test_the_search_finds_products_and_papers():
    names = {cls.__name__ for cls in estimators()}
    assert {"PrivateTransferRegressor", "PrivateProbe", "CnvxAdap", "NNA", "SubsampleTestReweigh"} <= names


def test_every_estimator_is_in_a_battery():
    listed = {method.path.rpartition(".")[2] for method in PREDICTORS}
    for cls in estimators():
        unprotected = any(base.__name__.startswith("Unprotected") for base in cls.__mro__)
        # Baselines without privacy charge epsilon = inf and refuse a ledger with a finite cap.
        assert unprotected or cls.__name__ in listed or is_replayed(cls.__name__), f"{cls.__name__} is in no battery"
