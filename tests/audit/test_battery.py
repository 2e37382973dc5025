"""Verdicts: refuted, holding only if half the noise was detected, and otherwise undecided, with what would decide."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dpadapt.audit import AuditRow, Pace, audit_all, lower_bound
from dpadapt.audit.battery import TimeUp, audit_case, summary
from dpadapt.audit.battery_cases import mechanism_cases

GAUSSIAN, ANY, *_ = mechanism_cases()


def audited(case, **options):
    (row,) = audit_all(cases=[case], seed=1, **options)
    return row


def test_a_claim_holds_if_half_the_noise_is_detected():
    row = audited(GAUSSIAN, runs=2000)
    assert (row.verdict, row.words, row.holds, row.caught) == ("holds", "holds", True, True)


def test_a_claim_that_is_too_low_is_refuted():
    row = audited(replace(GAUSSIAN, claim=lambda: GAUSSIAN.claimed / 2), runs=2000)
    assert (row.verdict, row.words) == ("refuted", "REFUTED")


def test_too_few_runs_are_undecided_and_the_number_that_is_named_decides():
    row = audited(ANY, runs=200)
    assert row.verdict == "undecided"
    assert row.words.startswith("too few runs to decide (about ")
    needed = int("".join(c for c in row.words if c.isdigit()))
    assert needed > 200
    assert audited(ANY, runs=2 * needed).verdict == "holds"


def test_the_number_that_is_named_is_that_of_the_option():
    halves = replace(ANY, effort=0.5), replace(ANY, effort=1.0)
    words = [audited(case, runs=round(200 / case.effort)).words for case in halves]
    numbers = [int("".join(c for c in text if c.isdigit())) for text in words]
    # The same 200 runs: half the effort asks for twice the option, up to rounding.
    assert numbers[0] == pytest.approx(2 * numbers[1], rel=0.1)


def test_an_attack_that_can_never_decide_says_so():
    row = audited(replace(GAUSSIAN, claim=lambda: 30.0), runs=3000)
    assert row.verdict == "undecided"
    assert "more runs would not help" in row.words


def test_fits_are_called_fits():
    row = audited(replace(ANY, heavy=True), fits=60)
    assert row.words.startswith("too few fits to decide")


def test_the_risk_is_shared_by_all_cases():
    rows = audit_all(runs=300, confidence=0.9, seed=1, cases=[GAUSSIAN] * 5)
    assert {round(row.measured.confidence, 12) for row in rows} == {0.98}


def test_effort_multiplies_the_runs():
    assert audited(replace(GAUSSIAN, effort=0.5), runs=400).measured.runs == 200
    assert audited(replace(GAUSSIAN, effort=2.0, heavy=True), fits=50).measured.runs == 100


def test_rows_are_json_ready():
    facts = audited(GAUSSIAN, runs=300).to_dict()
    assert facts["name"] == "Gaussian"
    assert facts["claimed"] > facts["measured"] > 0
    assert facts["runs"] == 300


@pytest.mark.parametrize(
    "bad", [{"runs": 0}, {"runs": 29}, {"fits": -1}, {"confidence": 1.0}, {"confidence": 0.5}, {"confidence": math.nan}]
)
def test_arguments_are_checked_before_anything_runs(bad):
    case = replace(GAUSSIAN, fit=lambda noise, seed: pytest.fail("it ran"))
    with pytest.raises(ValueError, match=next(iter(bad))):
        audit_all(cases=[case], **bad)


def test_what_is_not_finished_in_time_is_undecided():
    case = replace(GAUSSIAN, fit=lambda noise, seed: lambda data: np.random.default_rng().standard_normal())
    rows = audit_all(runs=10**9, cases=[replace(case, name="first"), replace(case, name="second")], pace=Pace(0.2))
    assert [(row.name, row.verdict) for row in rows] == [("first", "undecided"), ("second", "undecided")]
    assert "time was up" in rows[0].words
    facts = rows[1].to_dict()
    assert (facts["measured"], facts["claimed"]) == (None, None)


def test_rows_that_were_finished_in_time_are_kept():
    slow = replace(GAUSSIAN, fit=lambda noise, seed: lambda data: np.random.default_rng().standard_normal())
    rows = audit_all(runs=20_000, seed=1, cases=[GAUSSIAN, replace(slow, effort=10**4)], pace=Pace(5.0))
    assert [row.verdict for row in rows] == ["holds", "undecided"]


def test_progress_grows_from_nothing_to_everything():
    shown = []
    audit_all(runs=300, seed=1, cases=[GAUSSIAN, ANY], pace=Pace(show=lambda what, share: shown.append((what, share))))
    shares = [share for _, share in shown]
    assert shares == sorted(shares)
    assert (shares[0], round(shares[-1], 6)) == (0.0, 1.0)
    assert "2 of 2: Gaussian, any mechanism" in [what for what, _ in shown]


def test_pace_ends_after_its_time():
    pace = Pace(1e-9)
    with pytest.raises(TimeUp):
        pace.report("anything", 0.0)


def test_the_summary_counts_verdicts():
    held, few = audited(GAUSSIAN, runs=2000), audited(ANY, runs=60)
    assert summary([held, few, few]) == "1 of 3 claims hold, refuted: 0, undecided: 2."


def test_a_case_can_be_audited_alone():
    row = audit_case(GAUSSIAN, 600, 0.99, seed=1)
    assert isinstance(row, AuditRow)
    assert row.verdict == "holds"


def test_a_correct_mechanism_is_refuted_no_more_often_than_stated():
    # The claim is exact for this pair. At confidence 0.6 of 40 audits at most 16 are expected to be refuted; more than
    # 25 have a probability below 0.002, and the seeds are fixed.
    refuted = sum(
        lower_bound(
            GAUSSIAN.fit(1.0, seed),
            GAUSSIAN.D,
            GAUSSIAN.D_neighbour,
            delta=1e-5,
            runs=90,
            confidence=0.6,
            method="gaussian",
        ).refutes(GAUSSIAN.claimed)
        for seed in range(40)
    )
    assert refuted <= 25
