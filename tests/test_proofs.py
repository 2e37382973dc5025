"""The register of proofs: no `Bounded` without a claim, a test and a planted bug, and the page fits the code."""

import re

import pytest

from tools.mutants import ROOT, Mutant
from tools.proofs import PAGE, claims, entries, escaped, makers, package, page, register, unmarked

# Claims that no planted bug breaks. The page says so for each; this number may only fall.
MOST_WITHOUT_A_PLANTED_BUG = 7


@pytest.fixture(scope="module")
def marks():
    return register()


def test_the_page_is_what_the_code_says(marks):
    assert PAGE.read_text(encoding="utf-8") == page(marks), "run `python tools/proofs.py --write`"


def test_every_bounded_statistic_has_a_claim():
    assert unmarked(package()) == []


def test_the_claim_of_a_bounded_statistic_has_an_inequality_a_planted_bug_and_a_test_that_exists(marks):
    known = {(entry.place.file, entry.place.name): entry for entry in marks}
    places = [place for file, source in package().items() for place in makers(file, source)]
    assert len(places) > 25
    for place in places:
        names = (place.name, *(place.name.rsplit(".", n)[0] for n in range(1, place.name.count(".") + 1)))
        entry = next(known[place.file, name] for name in names if (place.file, name) in known)
        assert any(re.search(r"<=|=", claim.statement) for claim in entry.claims), place.name
        assert entry.mutants, f"{place.file}: {place.name} has no planted bug"
        assert entry.tests
        for test in entry.tests:
            file, _, name = test.partition("::")
            assert f"def {name.partition('[')[0]}(" in (ROOT / file).read_text(encoding="utf-8")


def test_few_claims_have_no_planted_bug(marks):
    assert sum(not entry.mutants for entry in marks) <= MOST_WITHOUT_A_PLANTED_BUG


@pytest.mark.parametrize(
    "line",
    [
        "return Bounded(total, l2=1.0)",
        "return bounded.Bounded(total)",
        "return replace(known, value=total)",
        "return dataclasses.replace(known, l2=0.5)",
        "return known.with_value(total)",
        "return object.__new__(Bounded)",
    ],
)
def test_a_bounded_statistic_without_a_claim_is_found(line):
    source = f"def planted(total, known):\n    # |total - total'| <= 1.\n    {line}\n"
    file = "mechanisms/planted.py"
    assert unmarked({file: source}) == [f"{file}: planted"]
    assert unmarked({file: source.replace("# |", "# Claim: |")}) == []


def test_a_claim_that_is_taken_away_is_missed():
    file = "mechanisms/bounded.py"
    source = package()[file]
    start = source.index("def histogram(")
    without = source[:start] + source[start:].replace("# Claim: ", "# ", 1)
    assert unmarked({file: without}) == [f"{file}: histogram"]
    assert page(entries({file: without}, [])) != page(entries({file: source}, []))


SOURCE = '''
LIMIT = 1.0


def plain(x):
    """Return x.

    Claim: |x| <= 1. It is
    clipped.
    """

    def inner(x):
        return helper(x)

    return inner(x)


def helper(x):
    return min(x, LIMIT)


def other(x):
    # First a remark.
    # Claim: x = x_1 * 2. By `plain`.
    # Not proved: that it matters,
    # if at all.
    return 2 * x
'''


def test_a_claim_has_a_statement_a_proof_and_what_is_not_proved():
    first, second = claims("file.py", SOURCE)
    assert (first.place.name, first.statement, first.proof) == ("plain", "|x| <= 1.", "It is clipped.")
    assert first.unproved == ""
    assert (second.place.name, second.statement, second.proof) == ("other", "x = x_1 * 2.", "By `plain`.")
    assert second.unproved == "that it matters, if at all."
    assert escaped(second.statement) == r"x = x\_1 \* 2."


def test_a_claim_outside_of_any_function_is_refused():
    with pytest.raises(ValueError, match="line 1: a claim must stand in"):
        claims("file.py", "# Claim: 1 <= 2.\n\n\nx.y = 1\n")


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("return inner(x)", "return x", "plain"),
        ("return helper(x)", "return x", "plain"),
        ("min(x, LIMIT)", "x", "plain"),
        ("LIMIT = 1.0", "LIMIT = 2.0", "plain"),
        ("return 2 * x", "return 3 * x", "other"),
    ],
)
def test_a_planted_bug_belongs_to_the_claim_of_the_function_that_it_changes_or_that_uses_it(old, new, name):
    mutant = Mutant("a-bug", "file.py", old, new, "It leaks.", ("tests/test_proofs.py::test_x",))
    touched = [entry.place.name for entry in entries({"file.py": SOURCE}, [mutant]) if entry.mutants]
    assert touched == [name]


def test_the_page_says_which_command_runs_a_test(marks):
    text = page(marks)
    for command in ("make audit", "make test-networks", "make test-scale"):
        assert re.search(rf"^- `tests/\S+::\w+.*` \(`{command}`\)$", text, flags=re.MULTILINE), command
