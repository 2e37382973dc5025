"""Every estimator that takes private rows is found by itself, and has a recipe by which the contract is checked."""

import ast
import importlib.util
import inspect
import sys
from pathlib import Path

import pytest
from cases import CASES, RECIPES, estimators

import dpadapt
from dpadapt.accounting.ledger import Run
from dpadapt.methods import METHODS

SOURCE = Path(dpadapt.__file__).parent


def test_every_estimator_has_a_recipe():
    missing = {cls.__name__ for cls in estimators()} - RECIPES.keys()
    assert missing == set(), "add a recipe to tests/contract/cases.py"


def test_the_search_finds_methods_and_what_the_table_of_methods_leaves_out():
    names = {cls.__name__ for cls in estimators()}
    assert {method.path.rpartition(".")[2] for method in METHODS} <= names
    assert {"PDADPMDMean", "DPAMBSSGD", "SubsampleTestReweigh", "DescentProbe"} <= names
    assert "LinearClassifier" not in names  # a base class


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


# Parameters whose check needs the data: their columns or classes, or public rows.
NEED_DATA = {"basis", "bounds", "class_weight", "classes", "decision_threshold", "encoder", "groups", "initial_map"}
NEED_DATA |= {"learner", "loss", "module", "public_model"}


class Unreadable:
    """Rows that fail when anything is asked of them."""

    def __getattribute__(self, name):
        pytest.fail("a row was read")


@pytest.mark.parametrize("cls", estimators(), ids=lambda cls: cls.__name__)
def test_every_parameter_is_checked_before_a_row_is_read(cls):
    parameters = {} if cls.__name__ == "TableModel" else inspect.signature(cls).parameters
    needed = {name: 2 for name, parameter in parameters.items() if parameter.default is parameter.empty}
    for name in parameters.keys() - NEED_DATA:
        with pytest.raises((ValueError, TypeError), match=name):
            cls(**{**needed, name: object()}).fit(Unreadable())


# Files whose releases no estimator makes, and who does.
ELSEWHERE = {"evaluation.py": "a function that takes a ledger; its own tests replay it"}


@pytest.mark.thorough
def test_every_release_of_the_package_is_made_by_a_recipe(monkeypatch):
    """A line that releases something and is reached by no recipe is a line that the contract does not check."""
    lines = {place: set() for place in releasing_lines()}
    original = Run.release

    def release(run, bounded):
        frame = sys._getframe(1)
        while "accounting" in Path(frame.f_code.co_filename).parts:
            frame = frame.f_back
        for file, first, last in lines:
            if frame.f_code.co_filename.endswith(file) and first <= frame.f_lineno <= last:
                lines[file, first, last].add(case)
        return original(run, bounded)

    monkeypatch.setattr(Run, "release", release)
    for case in CASES:
        if not case.recipe.slow:
            case.fit(case.data())
    assert len(lines) > 30
    assert ELSEWHERE.keys() <= {file for file, *_ in releasing_lines(ELSEWHERE)}
    assert {place for place, makers in lines.items() if not makers} == set()


def releasing_lines(files=()):
    """Return file, first and last line of every call of a method `release`: in `files`, or in all that are checked."""
    for path in sorted(SOURCE.rglob("*.py")):
        file = path.relative_to(SOURCE).as_posix()
        apart = file.startswith(("accounting/", "audit/", *(() if has_torch() else ("networks/",))))
        if apart or (file in ELSEWHERE) != (file in files):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "release":
                yield file, node.lineno, node.end_lineno


def has_torch():
    return importlib.util.find_spec("torch") is not None
