"""Every estimator that takes private rows is found by itself, and has a recipe by which the contract is checked."""

import ast
from pathlib import Path

from cases import RECIPES, estimators

import dpadapt
from dpadapt.methods import METHODS

SOURCE = Path(dpadapt.__file__).parent


def test_every_estimator_has_a_recipe():
    missing = {cls.__name__ for cls in estimators()} - RECIPES.keys()
    assert missing == set(), "add a recipe to tests/contract/cases.py"


def test_the_search_finds_methods_and_what_the_table_of_methods_leaves_out():
    found = {cls.__name__ for cls in estimators()}
    assert {method.path.rpartition(".")[2] for method in METHODS} <= found
    assert {"PDADPMDMean", "DPAMBSSGD", "ProjectedDPSGD", "SubsampleTestReweigh", "SBest", "LeastSquaresProbe"} <= found
    assert "LinearClassifier" not in found  # a base class


def test_the_search_misses_no_class_whose_fit_takes_a_ledger():
    takers = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            # Audits fit what they are given.
            if isinstance(node, ast.ClassDef) and "audit" not in path.parts and fits_with_a_ledger(node):
                takers.add(node.name)
    assert len(takers) > 15
    known = {base.__name__ for cls in estimators() for base in cls.__mro__}
    assert takers - known <= {"PrivateNetwork"}  # which needs torch


def fits_with_a_ledger(node):
    methods = [part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "fit"]
    return any(argument.arg == "ledger" for method in methods for argument in method.args.kwonlyargs)
