"""Every check of the contract on every private estimator, with labelled, unlabelled and no public data, with people."""

import pickle

import pytest
from cases import CASES
from requirements import CHECKS, EXEMPTIONS, OF_RELEASES, concerns
from sklearn.model_selection import GridSearchCV, cross_val_score

from dpadapt import Ledger

EVERY = [
    pytest.param(case, name, id=f"{case}-{name}", marks=[pytest.mark.slow] if case.recipe.slow else [])
    for case in CASES
    for name in CHECKS
    if concerns(name, case)
]


@pytest.mark.parametrize(("case", "name"), EVERY)
def test_contract(case, name):
    CHECKS[name](case)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "exempt"), [(name, exempt) for name, reasons in EXEMPTIONS.items() for exempt in reasons]
)
def test_every_exemption_is_needed(name, exempt):
    """A case that is exempt from a check fails it; if it passes, the exemption must go."""
    concerned = [
        case
        for case in CASES
        if exempt in (str(case), *(base.__name__ for base in case.cls.__mro__))
        and not case.recipe.slow
        and (not case.recipe.variant or name in OF_RELEASES)
    ]
    assert concerned
    for case in concerned:
        with pytest.raises((Exception, pytest.fail.Exception)):
            CHECKS[name](case)


# Cross-validation: one entry per fit.
LINEAR = next(case for case in CASES if str(case) == "PrivateLinearRegression, labelled public")
ALONE = next(case for case in CASES if str(case) == "PrivateLinearRegression, no public")


def test_every_cross_validation_fit_is_charged():
    ledger = Ledger(epsilon=50.0, delta=1e-5)
    cross_val_score(LINEAR.make(), *LINEAR.data(), cv=4, params={"ledger": ledger, **LINEAR.recipe.beside()})
    assert len(ledger.entries) == 4


def test_every_grid_search_fit_is_charged():
    ledger = Ledger(epsilon=100.0, delta=1e-5)
    grid = GridSearchCV(ALONE.make(epsilon=1.0), {"target_bounds": [(-1, 1), (-3, 3)]}, cv=3)
    grid.fit(*ALONE.data(), ledger=ledger)
    assert len(ledger.entries) == 2 * 3 + 1  # and the refit


def test_parallel_cross_validation_fails_loudly_with_a_ledger_in_memory():
    params = {"ledger": Ledger(epsilon=50.0, delta=1e-5), **LINEAR.recipe.beside()}
    with pytest.raises(pickle.PicklingError) as failure:
        cross_val_score(LINEAR.make(), *LINEAR.data(), cv=2, n_jobs=2, params=params)
    assert "n_jobs=1" in str(failure.value.__cause__)


def test_parallel_cross_validation_with_a_durable_ledger_charges_every_fit(tmp_path):
    ledger = Ledger.open(tmp_path / "a.ledger", epsilon=50.0, delta=1e-5)
    params = {"ledger": ledger, **LINEAR.recipe.beside()}
    cross_val_score(LINEAR.make(), *LINEAR.data(), cv=2, n_jobs=2, params=params)
    assert len(ledger.entries) == 2
