"""Every mechanism and every method: the bound is below the claim, and above it when the noise is halved.

Mechanisms and fits are seeded in the default run, so it is deterministic. The full size runs on secure noise; its
false-alarm rate is 1e-4 for each bound whose claim is exact.
"""

import pytest

from dpadapt import mechanisms
from dpadapt.audit import ReleaseScores, audit_all, lower_bound
from dpadapt.audit.battery import estimator_cases, mechanism_cases, table
from dpadapt.mechanisms import Mechanism, NonPrivate
from dpadapt.methods import PREDICTORS

MECHANISMS = mechanism_cases()


def check(row, share=0.0):
    assert row.holds, f"{row.name}: claimed {row.claimed:.3f}, but {row.measured}"
    assert row.caught, f"{row.name}: half the noise was not detected: claimed {row.claimed:.3f}, {row.halved}"
    if row.tight:
        assert row.measured.epsilon_lower >= share * row.claimed


@pytest.mark.parametrize("case", MECHANISMS, ids=[case.name for case in MECHANISMS])
def test_mechanisms_keep_their_claim_and_half_the_noise_is_caught(case):
    (row,) = audit_all(runs=4000, confidence=0.99, seed=1, cases=[case])
    check(row, share=0.7)


@pytest.mark.parametrize("name", ["Gaussian", "Laplace", "DiscreteLaplace"])
def test_plain_releases_reach_four_fifths_of_the_claim(name):
    (case,) = [case for case in MECHANISMS if case.name == name]
    (row,) = audit_all(runs=20_000, confidence=0.99, seed=2, cases=[case])
    check(row, share=0.8)


@pytest.mark.parametrize("method", PREDICTORS, ids=[method.name for method in PREDICTORS])
def test_methods_keep_their_claim_and_half_the_noise_is_caught(method):
    for case in estimator_cases((40,)):
        if case.name.startswith(method.name):
            (row,) = audit_all(fits=48, confidence=0.95, seed=3, cases=[case])
            check(row)
            assert row.measured.epsilon_lower > 0


def test_fitted_coefficients_reveal_no_more_than_the_releases():
    (case,) = [case for case in estimator_cases((40,)) if case.name.startswith("linear")]
    seeds = iter(range(10**6))

    def fit(data):
        X, y = data
        return PREDICTORS[0].estimator(epsilon=case.claimed, delta=case.delta, random_state=next(seeds)).fit(X, y)

    bound = lower_bound(fit, case.D, case.D_neighbour, delta=case.delta, runs=90, method="gaussian")
    assert not bound.refutes(case.claimed)


def test_every_mechanism_is_audited():
    audited = " ".join(case.name for case in MECHANISMS)
    for name in mechanisms.__all__:
        kind = getattr(mechanisms, name)
        if isinstance(kind, type) and issubclass(kind, Mechanism) and kind not in (Mechanism, NonPrivate):
            assert name in audited


def test_every_method_is_audited():
    names = [case.name for case in estimator_cases((40,))]
    assert all(any(name.startswith(method.name) for name in names) for method in PREDICTORS)


def test_release_scores_are_what_methods_are_audited_by():
    case = estimator_cases((40,))[0]
    assert isinstance(case.fit(1.0, 0), ReleaseScores)


@pytest.mark.slow
@pytest.mark.parametrize("case", MECHANISMS, ids=[case.name for case in MECHANISMS])
def test_full_audit_of_mechanisms_on_secure_noise(case):
    (row,) = audit_all(runs=60_000, confidence=0.9999, cases=[case])
    check(row, share=0.8)


@pytest.mark.slow
def test_full_audit_of_methods(capsys):
    rows = audit_all(fits=250, confidence=0.9999, cases=estimator_cases())
    with capsys.disabled():
        from rich.console import Console

        Console().print(table(rows))
    for row in rows:
        check(row)
