"""Planted privacy bugs: the list fits the code, every room has some, and the tests find those of the quick subset.

`make mutants` tries all of them.
"""

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tools.mutants import (
    LISTS,
    PACKAGE,
    ROOT,
    Mutant,
    Source,
    batches_of_tests,
    failing_without,
    read_mutants,
    try_mutant,
)

# Not all fields are needed to name tests: to find the file of each mutant takes a second.
QUICK = [
    fields["id"]
    for path in LISTS.glob("*.toml")
    for fields in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    if fields.get("quick")
]
# Rooms that neither read private rows nor say anything about them.
NOTHING_PRIVATE = {"datasets", "demo", "report"}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return Source(tmp_path_factory.mktemp("mutants"))


@pytest.fixture(scope="module")
def mutants():
    return read_mutants()


@pytest.mark.thorough
@pytest.mark.parametrize("name", QUICK)
def test_the_tests_find_a_planted_bug(name, source, mutants):
    (mutant,) = (mutant for mutant in mutants if mutant.id == name)
    outcome = try_mutant(mutant, source, Path(sys.executable))
    assert outcome.verdict == "killed", outcome.by


def test_mutants_fit_the_code_and_their_tests_exist(mutants):
    for mutant in mutants:
        assert mutant.new != mutant.old, mutant.id
        assert mutant.applied(), mutant.id
        assert re.fullmatch(r"[A-Z`\d].*\.", mutant.leak), mutant.id
        assert mutant.tests, mutant.id
        for test in mutant.tests:
            file, _, function = test.partition("::")
            assert function.partition("[")[0] in functions(file), mutant.id


@pytest.mark.thorough
def test_mutants_are_python(mutants):
    for mutant in mutants:
        ast.parse(mutant.applied())


@pytest.mark.thorough
def test_parameters_in_the_names_of_tests_exist(mutants):
    """A test that was renamed would leave its mutants untried; those of networks are found by `make mutants` alone."""
    named = {test for mutant in mutants if mutant.environment == ".venv" for test in mutant.tests if "[" in test}
    files = sorted({test.partition("::")[0] for test in named})
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", *files]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.splitlines()
    assert sorted(named - set(listed)) == []


@cache
def functions(file):
    defined = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
    return {node.name for node in defined if isinstance(node, ast.FunctionDef)}


def test_there_are_enough_mutants_in_every_room(mutants):
    assert len({mutant.id for mutant in mutants}) == len(mutants) >= 90
    rooms = {path.name for path in (ROOT / PACKAGE).iterdir() if path.is_dir() and path.name != "__pycache__"}
    rooms |= {f"papers/{path.name}" for path in (ROOT / PACKAGE / "papers").iterdir() if path.is_dir()}
    for room in rooms - NOTHING_PRIVATE - {"papers/__pycache__"}:
        assert any(mutant.file.startswith(f"{room}/") for mutant in mutants), room
    assert 8 <= len(QUICK) <= 16


# The runner itself.

HARMLESS = Mutant(
    "harmless",
    "mechanisms/adjacency.py",
    'REPLACE_ONE = "replace-one"',
    'REPLACE_ONE = "replace-one"  # a comment',
    "Nothing.",
    ("tests/mechanisms/test_adjacency.py::test_the_factor_is_the_sensitivity_of_a_sum_of_terms_of_length_one",),
)


def changed(**fields):
    return Mutant(**{**vars(HARMLESS), **fields})


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("mutant", "verdict"),
    [
        (HARMLESS, "SURVIVED"),
        (changed(old="return 2.0 if self is", new="return 3.0 if self is"), "killed"),
        (changed(old="return 2.0 if self is", new="return missing if self is"), "broken"),
        (changed(old="from enum import Enum", new="from enum import Enumm"), "broken"),
        (changed(tests=("tests/mechanisms/test_adjacency.py::test_there_is_no_such_test",)), "broken"),
    ],
    ids=["harmless", "wrong", "missing name", "import error", "no such test"],
)
def test_a_mutant_is_killed_by_a_failed_check_alone(mutant, verdict, source):
    before = (source.folder / PACKAGE / mutant.file).read_bytes()
    assert try_mutant(mutant, source, Path(sys.executable)).verdict == verdict
    assert (source.folder / PACKAGE / mutant.file).read_bytes() == before == (ROOT / PACKAGE / mutant.file).read_bytes()


@pytest.mark.thorough
def test_tests_that_fail_without_a_mutant_are_found(source):
    missing = "tests/mechanisms/test_adjacency.py::test_there_is_no_such_test"
    assert failing_without(HARMLESS.tests, source, Path(sys.executable)) == set()
    assert failing_without([missing], source, Path(sys.executable)) == {missing}
    assert failing_without([missing, *HARMLESS.tests], source, Path(sys.executable)) == {missing}


def test_text_that_occurs_not_once_is_refused():
    with pytest.raises(ValueError, match="occurs 0 times"):
        changed(old="no such text").applied()
    with pytest.raises(ValueError, match=r"occurs [2-9]"):
        changed(old="return").applied()


def test_every_test_is_in_one_batch_of_its_environment(mutants):
    batches = batches_of_tests(mutants, 3)
    assert sorted(test for _, tests in batches for test in tests) == sorted({t for m in mutants for t in m.tests})
    assert all(
        ("tests/networks/" in test) == (environment == ".venv-torch")
        for environment, tests in batches
        for test in tests
    )
