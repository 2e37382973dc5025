"""The contract of a private estimator, as checks that take a case and raise an AssertionError where it is broken.

`test_estimators.py` runs every check on every case; `test_planted_leaks.py` shows that broken estimators fail them.
"""

import datetime
import itertools
import math
import pickle
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pytest
from cases import ADJACENCIES, N_FEATURES, Case

from dpadapt import Adjacency, BudgetExceeded, Ledger, PrivacyError, Public, audit
from dpadapt.audit import Release, Tape
from dpadapt.audit.replay import differing
from dpadapt.mechanisms.events import (
    BoundedRangeEvent,
    ConcentratedEvent,
    GaussianEvent,
    LaplaceEvent,
    PureEvent,
    SampledEvent,
)

CHECKS: dict[str, Callable[[Case], None]] = {}
SECRET = "ZEBRA7731"
HUGE = 1e200  # its square overflows, so that a row of it is null


def check(function: Callable[[Case], None]) -> Callable[[Case], None]:
    """Make a function part of the contract."""
    CHECKS[function.__name__] = function
    return function


def under_each_adjacency(function: Callable[[Case, str], None]) -> Callable[[Case, str], None]:
    """Make a function part of the contract, once per adjacency."""
    for adjacency in ADJACENCIES:
        CHECKS[f"{function.__name__}, {adjacency}"] = partial(function, adjacency=adjacency)
    return function


# One fit per case and adjacency, with all its releases, which most checks look at.


def fit_of(case: Case, adjacency: str) -> Callable[[Any, Ledger], Any]:
    return lambda data, ledger: case.fit(data, ledger=ledger, adjacency=adjacency)


@lru_cache(maxsize=8)
def recorded(case: Case, adjacency: str = "zero-out") -> Tape:
    """Return a fit on the first of the case's neighbouring data sets."""
    return audit.record(fit_of(case, adjacency), neighbours(case, adjacency)[0], adjacency=Adjacency.of(adjacency))


def neighbours(case: Case, adjacency: str) -> tuple[tuple[Any, ...], list[tuple[Any, ...]]]:
    """Return the case's data and some of its neighbours; all differ in the last record alone."""
    extreme = [case.with_record(*record) for record in case.records()]
    if adjacency == "replace-one":
        return extreme[0], extreme[1:]
    if adjacency == "zero-out":
        return case.with_record(np.full(N_FEATURES, HUGE), case.classes[0]), extreme
    return tuple(part[:-1] for part in extreme[0]), extreme


# What is spent.


@check
def receipt_stays_within_the_budget_and_verifies(case: Case) -> None:
    receipt = recorded(case).result.privacy_
    assert 0 < receipt.epsilon <= case.epsilon * (1 + 1e-9)
    assert receipt.delta == case.delta
    assert receipt.seeded
    verdict = receipt.verify()
    assert verdict.lower <= receipt.epsilon * (1 + 1e-6) <= verdict.upper * (1 + 1e-3)


@check
def the_whole_budget_is_used(case: Case) -> None:
    assert recorded(case).result.privacy_.epsilon == pytest.approx(case.epsilon, rel=1e-3)


@check
def the_number_of_rows_is_on_the_receipt(case: Case) -> None:
    assert any("number of rows" in fact for fact in recorded(case).result.privacy_.assumptions)


@check
def a_fit_is_one_charge(case: Case) -> None:
    for adjacency in case.recipe.adjacencies:
        assert len(recorded(case, adjacency).charges) == 1


@check
def everything_that_is_drawn_was_charged(case: Case) -> None:
    tape = recorded(case)
    charged: Counter[Any] = Counter()
    for entry in tape.entries:
        charged[entry.event.event if isinstance(entry.event, SampledEvent) else entry.event] += entry.times
    assert Counter(release.event for release in tape.releases) <= charged


@check
def the_callers_ledger_is_charged_what_the_receipt_says(case: Case) -> None:
    ledger = Ledger(epsilon=10 * case.epsilon, delta=case.delta)
    model = case.fit(case.data(), ledger=ledger)
    receipt = model.privacy_
    name = type(getattr(model, "model_", model)).__name__
    assert [(e.event, e.times) for e in ledger.entries] == [(e.event, e.times) for e in receipt.entries]
    # A model of tables says first which column it predicts.
    first = f"predict {model.label}: {name}: " if hasattr(model, "model_") else f"{name}: "
    assert all(entry.label.startswith(first) for entry in ledger.entries)
    assert ledger.spent() == pytest.approx(receipt.epsilon, rel=1e-6)


@check
def too_small_a_cap_raises_before_any_draw(case: Case) -> None:
    cap = 0.9 * recorded(case).result.privacy_.epsilon
    ledger = Ledger(epsilon=cap, delta=case.delta)
    drawn: list[Any] = []
    ledger._draw = lambda *release: drawn.append(release)
    with pytest.raises(BudgetExceeded, match="cap"):
        case.fit(case.data(), ledger=ledger)
    assert drawn == []
    assert ledger.entries == []


@check
def a_hopeless_budget_spends_nothing_and_says_so(case: Case) -> None:
    ledger = Ledger(epsilon=5.0, delta=1e-5)
    model = case.fit(case.data(), epsilon=1e-4, delta=1e-9, ledger=ledger)
    assert ledger.entries == []
    assert model.privacy_.epsilon == 0.0
    assert any("nothing was spent" in text for text in model.privacy_.warnings)


@check
def a_large_delta_is_said_on_the_receipt(case: Case) -> None:
    assert any("1/n" in text for text in case.fit(case.data(), delta=0.01).privacy_.warnings)
    assert not any("1/n" in text for text in recorded(case).result.privacy_.warnings)


@check
def a_ledger_of_another_adjacency_is_refused(case: Case) -> None:
    ledger = Ledger(epsilon=math.inf, delta=1e-5, adjacency=Adjacency.REPLACE_ONE)
    with pytest.raises(PrivacyError, match="agree"):
        case.fit(case.data(), ledger=ledger)
    assert ledger.entries == []


@check
def a_bad_epsilon_is_named(case: Case) -> None:
    for epsilon in (0.0, -1.0, math.nan, "1"):
        with pytest.raises(ValueError, match="epsilon must be a positive number"):
            case.fit(case.data(), epsilon=epsilon)


@check
def a_bad_delta_is_named(case: Case) -> None:
    for delta in (-0.1, 1.0, math.nan):
        with pytest.raises(ValueError, match="delta must"):
            case.fit(case.data(), delta=delta)


# What leaves.


@lru_cache(maxsize=8)
def replayed(case: Case, adjacency: str) -> list[Tape]:
    """Return fits on the neighbours, and on other rows altogether, with the releases of the recorded fit.

    They draw other samples, and exact values are overwritten after their release: by NaN, with which every comparison
    is false, and by a huge number, in turn.
    """
    stranger = case.stranger()
    if adjacency == "add-remove":
        stranger = tuple(part[:-5] for part in stranger)
    others = [*neighbours(case, adjacency)[1], stranger]
    poisons = itertools.cycle((math.nan, 1e300))
    return [
        audit.replay(
            fit_of(case, adjacency),
            other,
            recorded(case, adjacency),
            adjacency=Adjacency.of(adjacency),
            samples=1,
            poison=poison,
        )
        for other, poison in zip(others, poisons, strict=False)
    ]


@under_each_adjacency
def nothing_depends_on_private_rows_except_through_releases(case: Case, adjacency: str) -> None:
    """Other rows, other samples and overwritten exact values leave the path and every attribute as they are."""
    for played in replayed(case, adjacency):
        assert differing(recorded(case, adjacency).result, played.result) == []


@under_each_adjacency
def no_record_moves_a_release_further_than_its_noise_assumes(case: Case, adjacency: str) -> None:
    fit, tape = fit_of(case, adjacency), recorded(case, adjacency)
    if any(isinstance(entry.event, SampledEvent) for entry in tape.entries):
        # Only with the samples of the recorded fit are the values those of neighbours.
        others, relation = neighbours(case, adjacency)[1], Adjacency.of(adjacency)
        neighbouring = [audit.replay(fit, other, tape, adjacency=relation) for other in others]
    else:
        neighbouring = replayed(case, adjacency)[:-1]
    shares = [
        share_of_bound(before, after)
        for played in neighbouring
        for before, after in zip(tape.releases, played.releases, strict=True)
    ]
    assert max(shares) <= 1 + 1e-5
    assert max(shares) > 0.1  # the records do matter


@check
def a_records_part_in_a_release_depends_on_that_record_alone(case: Case) -> None:
    """The same change of one record, in two data sets that have no other row in common, moves every statistic alike.

    What is computed from all rows, such as a mean to subtract or a total to divide by, may move a statistic only a
    little when one record changes, and is still a leak.
    """
    adjacency = "zero-out"
    fit, tape = fit_of(case, adjacency), recorded(case, adjacency)

    def values(data: tuple[Any, ...]) -> tuple[Release, ...]:
        return audit.replay(fit, data, tape, adjacency=Adjacency.of(adjacency)).releases

    def joined(rows: tuple[Any, ...], record: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(np.concatenate([part[:-1], last[-1:]]) for part, last in zip(rows, record, strict=True))

    null, ordinary, stranger = neighbours(case, adjacency)[0], case.data(), case.stranger()
    here = tape.releases, values(joined(null, ordinary))
    there = values(joined(stranger, null)), values(joined(stranger, ordinary))
    changes = [
        [replace(new, value=new.value - old.value) for old, new in zip(before, after, strict=True)]
        for before, after in (here, there)
    ]
    # Sums in float32 are rounded by about a millionth of the bound.
    assert max(share_of_bound(*pair) for pair in zip(*changes, strict=True)) < 1e-5


def share_of_bound(before: Release, after: Release) -> float:
    """Return how far a release of neighbouring data moved, as a share of what its cost and its noise allow."""
    event, scale = before.event, before.scale
    if before.kind in ("RandomParity", "RandomizedResponse"):
        # One record is one row of the value: at most one may differ. Their noise is tested with the mechanisms.
        n = min(len(before.value), len(after.value))
        differing_rows = np.any(np.atleast_2d((before.value[:n] != after.value[:n]).T), axis=0)
        return float(differing_rows.sum() + abs(len(before.value) - len(after.value)))
    gap = (np.asarray(before.value, dtype=np.float64) - np.asarray(after.value, dtype=np.float64)).ravel()
    l1, l2 = float(np.abs(gap).sum()), float(np.linalg.norm(gap))
    match event:
        case GaussianEvent(noise_multiplier):
            return l2 / scale * noise_multiplier
        case LaplaceEvent(noise_multiplier):
            return l1 / scale * noise_multiplier
        case ConcentratedEvent(rho) if before.kind == "DiscreteGaussian":
            return l2 / scale / math.sqrt(2 * rho)
        case PureEvent(epsilon) if before.kind == "DiscreteLaplace":
            return l1 / scale / epsilon
        case PureEvent(epsilon) | BoundedRangeEvent(epsilon):
            # A choice does not change if all scores move together.
            return float(gap.max() - gap.min()) / scale / epsilon
    raise TypeError(f"{before.kind} releases have no rule here: add one.")


@check
def extreme_rows_raise_nothing_and_change_no_charge(case: Case) -> None:
    X, *y = case.data()
    rows = np.array([[1e300, -1e300, 1e200, 0.0], [5e-324] * 4, [1e-160] * 4, [1e160, 1e-160, -5e-324, -1e300]])
    X[5:9] = rows
    X[20:40] = 1e8
    if case.recipe.rows == "regression":
        y[0][9:13] = 1e300, -1e300, 5e-324, -1e-160
    # Whatever the caller's settings are; warnings are errors already.
    with np.errstate(all="raise"):
        model = case.fit((X, *y))
    assert np.isfinite(shown(case, model)).all()
    assert model.privacy_.entries == case.fit(case.data()).privacy_.entries


def shown(case: Case, model: Any) -> np.ndarray:
    """Return what a fitted model is for: predictions for rows like the private ones, else its mean or its centres."""
    if hasattr(model, "predict"):
        return np.asarray(model.predict(case.to_predict()), dtype=np.float64)
    if hasattr(model, "mean_"):
        return np.asarray(model.mean_)
    return np.hstack(list(model.centers_.values()) if isinstance(model.centers_, dict) else [model.centers_])


@check
def non_finite_rows_are_refused_and_nothing_is_spent(case: Case) -> None:
    for bad in (math.nan, math.inf):
        X, *y = case.data()
        X[3, 1] = bad
        refused(case, (X, *y), match=r"NaN|infinity|finite")


CELLS = [
    SECRET,
    f'it\'s {SECRET} "or so"',
    f"'\n{SECRET}\"",
    SECRET.encode(),
    {SECRET: 1},
    datetime.date(1977, 3, 1),
    10**400,
]


@check
def a_refusal_shows_no_cell_of_the_features(case: Case) -> None:
    for cell in CELLS:
        X, *y = case.data()
        X = X.astype(object)
        X[3, 1] = cell
        refused(case, (X, *y))


@check
def a_refusal_shows_no_label(case: Case) -> None:
    for cell in CELLS:
        X, y = case.data()
        y = y.astype(object)
        y[3] = cell
        refused(case, (X, y))


@check
def a_refusal_does_not_show_the_number_of_rows_where_it_is_private(case: Case) -> None:
    X, *y = (part[:-9] for part in case.data())
    ragged = [list(row) for row in X]
    ragged[4] = ragged[4][:2]
    inputs = [(ragged, *y), (X[:, 0], *y)]
    if y:
        inputs.append((X, y[0][:-1]))
    for data in inputs:
        error = refused(case, data, adjacency="add-remove")
        for number in (len(X), len(X) - 1):
            assert str(number) not in str(error)


def refused(case: Case, data: tuple[Any, ...], *, match: str | None = None, adjacency: str = "zero-out") -> Exception:
    """Return the error of a fit that must be refused before anything is charged, without showing a cell."""
    ledger = Ledger(epsilon=math.inf, delta=case.delta, adjacency=Adjacency.of(adjacency))
    with pytest.raises((ValueError, TypeError), match=match) as failure:
        case.fit(data, ledger=ledger, adjacency=adjacency)
    error = failure.value
    text = "".join(traceback.format_exception(error))
    assert SECRET not in text
    assert "1977" not in text.replace(__file__, "")
    # Some loggers walk the chain whether it is suppressed or not.
    assert error.__context__ is None
    assert error.__cause__ is None
    assert ledger.entries == []
    return error


# Public data.


@check
def the_private_rows_are_refused_as_public_ones(case: Case) -> None:
    X, *y = case.data()
    refused_public(case, (X, *y), Public(X, *y), PrivacyError, "public holds the private|private X")


@check
def raw_arrays_are_refused_as_public_data(case: Case) -> None:
    refused_public(case, case.data(), case.data(), TypeError, "Public")


@check
def public_columns_must_match(case: Case) -> None:
    X, *y = case.data()
    refused_public(case, (X, *y), Public(X[:, :3].copy(), *y), ValueError, "columns?")


def refused_public(case: Case, data: tuple[Any, ...], public: Any, error: type[Exception], match: str) -> None:
    ledger = Ledger(epsilon=math.inf, delta=case.delta)
    with pytest.raises(error, match=match):
        case.fit(data, beside={"public": public}, ledger=ledger)
    assert ledger.entries == []


# What stays.


@check
def a_pickled_model_is_the_same(case: Case) -> None:
    model = recorded(case).result
    copy = pickle.loads(pickle.dumps(model))
    assert differing(model, copy) == []
    assert np.array_equal(shown(case, copy), shown(case, model))


@check
def a_seed_repeats_a_fit(case: Case) -> None:
    first, second = (case.fit(case.data()) for _ in range(2))
    assert differing(first, second) == []


@check
def without_a_seed_every_draw_differs(case: Case) -> None:
    drawn = [[], []]
    for draws in drawn:
        ledger = Ledger(epsilon=10 * case.epsilon, delta=case.delta)
        original = ledger._draw

        def draw(mechanism: Any, *rest: Any, draws: Any = draws, original: Any = original) -> Any:
            noisy = original(mechanism, *rest)
            # Integers and choices may well be drawn twice.
            if np.asarray(noisy).dtype.kind == "f":
                draws.append(noisy)
            return noisy

        ledger._draw = draw
        assert not case.fit(case.data(), random_state=None, ledger=ledger).privacy_.seeded
    assert all(not np.array_equal(a, b) for a, b in zip(*drawn, strict=False))


# Cases that a check is not for, by class or base class or by class and recipe, each with its reason.
EXEMPTIONS: dict[str, dict[str, str]] = {
    "a_hopeless_budget_spends_nothing_and_says_so": {
        "ProxyClustering": "the paper's algorithms release at any budget",
        "PrivateSourceTargetClustering": "it judges by the released counts whether the sources are of use",
    },
    "a_large_delta_is_said_on_the_receipt": {
        "ProxyClustering": "it uses no number of rows, not even a public one",
        "PrivateSourceTargetClustering": "it uses no number of rows, not even a public one",
    },
    "a_records_part_in_a_release_depends_on_that_record_alone": {
        "CnvxAdap, discrepancy": "the discrepancy is a largest value, not a sum",
        "NCnvxAdap, discrepancy": "the discrepancy is a largest value, not a sum",
        "PrivateSourceTargetClustering, bound on the cost": "a source counts where no other source is nearer",
    },
    "non_finite_rows_are_refused_and_nothing_is_spent": {
        "PrivateProbe, encoder": "the encoder makes a finite feature of an infinite cell",
        "ProxyClustering": "a source that is not finite counts as absent",
        "PrivateSourceTargetClustering": "a source that is not finite counts as absent",
        "TableModel": "a cell that is not finite is filled in, without a message",
    },
    "a_refusal_shows_no_cell_of_the_features": {
        "TableModel": "no cell is refused: tests/tables/test_model.py shows that such cells leave no trace",
    },
    "a_refusal_does_not_show_the_number_of_rows_where_it_is_private": {
        "TableModel": "a data frame has columns of one length; tests/tables/test_model.py has labels of another one",
    },
    "a_refusal_shows_no_label": {
        "ProxyClustering": "sources have no labels",
        "PrivateSourceTargetClustering": "sources have no labels",
        "PDADPMDMean": "the rows have no labels",
        # tests/tables/test_model.py and tests/cli: nothing is said about such a label.
        "TableModel": "a label that can't be read makes a null row: it is not refused",
    },
    **{
        name: {
            "PrivateHybridClassifier": "people answer in place of public data",
            "SubsampleTestReweigh": "people answer in place of public data",
        }
        for name in (
            "the_private_rows_are_refused_as_public_ones",
            "raw_arrays_are_refused_as_public_data",
            "public_columns_must_match",
        )
    },
}
EXEMPTIONS["public_columns_must_match"]["FeatureMapAdaptation"] = "it maps public rows with other columns"
for _name in (
    "nothing_depends_on_private_rows_except_through_releases, add-remove",
    "no_record_moves_a_release_further_than_its_noise_assumes, add-remove",
):
    EXEMPTIONS[_name] = dict.fromkeys(
        ("CnvxAdap, paper's noise", "NCnvxAdap, paper's noise"), "a weight per row tells their number: it is refused"
    )
EXEMPTIONS["no_record_moves_a_release_further_than_its_noise_assumes, zero-out"] = {
    "DescentProbe, Poisson samples": "rows are scaled to unit length, so that no row of numbers is a null row",
    "TableModel": "the huge row is clipped to the ranges of the schema, so that it is no null row",
    **dict.fromkeys(
        ("PrivateProbe, encoder", "PrivateProbe, encoder alone"),
        "the encoder makes ordinary features of the huge row, so that it is no null row",
    ),
}


# Of a variant only the charge and what leaves are checked.
OF_RELEASES = [
    name
    for name in CHECKS
    if name.startswith(("a_fit_is", "everything", "too_small", "nothing_depends", "no_record", "a_records", "extreme"))
]


def concerns(name: str, case: Case) -> bool:
    """Return whether the check of this name is for the case."""
    return (not case.recipe.variant or name in OF_RELEASES) and exemption(name, case) is None


def exemption(name: str, case: Case) -> str | None:
    """Return why the case is exempt from the check of this name, or None."""
    names = [str(case), *(base.__name__ for base in case.cls.__mro__)]
    return next((EXEMPTIONS[name][known] for known in names if known in EXEMPTIONS.get(name, {})), None)
