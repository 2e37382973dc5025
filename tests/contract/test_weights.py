"""The contract where private rows have weights: every estimator whose `fit` takes `sample_weight`, found by itself.

The weight of a record is as private as the record. Each fit is made for rows and for persons with several rows.
"""

import inspect
import itertools
import math
from functools import lru_cache

import numpy as np
import pytest
from cases import CASES, N_FEATURES, made_up
from requirements import HUGE, SECRET, share_of_bound

from dpadapt import Adjacency, Ledger, Public, audit
from dpadapt.audit.replay import differing

WEIGHTED = [case for case in CASES if "sample_weight" in inspect.signature(case.cls.fit).parameters]
MAIN = [case for case in WEIGHTED if not case.recipe.variant]
EVERY = [
    (case, adjacency, unit)
    for case in WEIGHTED
    for adjacency in case.recipe.adjacencies
    # Persons under one adjacency: tests/contract/test_persons.py has all of them, and weights only make shares smaller.
    for unit in (("row", "person") if adjacency == "zero-out" else ("row",))
]
# The largest weight, and weights of the last record. Most are far above it, and bad ones count as 0.
MOST = 3.0
EXTREME = (1e9, 0.5, MOST, 1e300, math.nan, -5.0)
BOUNDS = {"max_weight": MOST, "mean_weight": 1.5}


def fit(case, data, *, adjacency="zero-out", ledger=None, **params):
    X, *y, weights, ids = data
    beside = case.recipe.beside() | ({} if ids is None else {"persons": ids})
    model = case.make(adjacency, **{**BOUNDS, **params})
    return model.fit(X, *y, sample_weight=weights, ledger=ledger, **beside)


def fit_of(case, adjacency):
    return lambda data, ledger: fit(case, data, adjacency=adjacency, ledger=ledger)


@lru_cache
def others(case, unit, seed=3):
    """Return all records but the last: one row each, or persons of one to three rows; weights from 0 to above MOST."""
    random = np.random.default_rng(seed)
    sizes = np.ones(case.recipe.n_rows - 1, dtype=int)
    sizes = random.integers(1, 4, len(sizes)) if unit == "person" else sizes
    X, y = made_up(case.recipe.rows, int(sizes.sum()), seed=seed)
    ids = np.repeat([f"p{i}" for i in range(len(sizes))], sizes) if unit == "person" else None
    return X, *([] if y is None else [y]), random.uniform(0, 1.2 * MOST, len(X)), ids


def with_record(case, unit, records, weights):
    """Return the private data with one more record: a row, or a person with these rows."""
    X, *y, known, ids = others(case, unit)
    rows = np.array([row for row, _ in records], dtype=float).reshape(-1, N_FEATURES)
    labels = [np.concatenate([y[0], [label for _, label in records]])] if y else []
    more = None if ids is None else np.append(ids, np.full(len(records), "the last person"))
    return np.vstack([X, rows]), *labels, np.append(known, weights), more


def neighbours(case, adjacency, unit):
    """Return data in which the last record is null, missing or extreme, and data in which it is extreme otherwise."""
    n = 3 if unit == "person" else 1
    extreme = [
        with_record(case, unit, [record] * n, np.resize(weights, n))
        for record, weights in zip(
            itertools.cycle(case.records()), (*EXTREME, *[(1e9, 0.1, MOST)] * (n > 1)), strict=False
        )
    ]
    if adjacency == "replace-one":
        return extreme[0], extreme[1:]
    if adjacency == "add-remove":
        return others(case, unit), extreme
    return with_record(case, unit, [(np.full(N_FEATURES, HUGE), case.classes[0])], [2.0]), extreme


@lru_cache(maxsize=4)
def recorded(case, adjacency, unit):
    relation = Adjacency.of(adjacency)
    return audit.record(fit_of(case, adjacency), neighbours(case, adjacency, unit)[0], adjacency=relation, unit=unit)


@lru_cache(maxsize=4)
def replayed(case, adjacency, unit):
    """Return fits with the same releases on the neighbours, and on strangers with other weights."""
    data = others(case, unit, seed=8)
    if adjacency != "add-remove":
        data = tuple(None if part is None else np.append(part, part[-1:], axis=0) for part in data)
        if data[-1] is not None:
            data[-1][-1] = "the last person"
    data = (*data[:-2], data[-2] ** 4 - 7.0, data[-1])
    relation, poisons = Adjacency.of(adjacency), itertools.cycle((math.nan, 1e300))
    tape = recorded(case, adjacency, unit)
    return [
        audit.replay(fit_of(case, adjacency), other, tape, adjacency=relation, samples=1, poison=poison, unit=unit)
        for other, poison in zip([*neighbours(case, adjacency, unit)[1], data], poisons, strict=False)
    ]


def test_the_estimators_of_tables_take_weights():
    names = {case.cls.__name__ for case in WEIGHTED}
    assert names == {
        "PrivateTransferRegressor",
        "PrivateTransferClassifier",
        "PrivateLinearRegression",
        "PrivateLogisticRegression",
    }


@pytest.mark.parametrize(("case", "adjacency", "unit"), EVERY, ids=str)
def test_weights_leave_only_through_releases_and_no_record_exceeds_its_bound(case, adjacency, unit):
    tape, played = recorded(case, adjacency, unit), replayed(case, adjacency, unit)
    for fitted in played:
        assert differing(tape.result, fitted.result) == []
    shares = [
        share_of_bound(before, after)
        for fitted in played[:-1]
        for before, after in zip(tape.releases, fitted.releases, strict=True)
    ]
    assert max(shares) <= 1 + 1e-5
    assert max(shares) > 0.1  # the record does matter


@pytest.mark.parametrize("case", MAIN, ids=str)
def test_a_record_of_no_weight_counts_nothing(case):
    tape = recorded(case, "zero-out", "row")
    for weight in (0.0, -1.0, math.nan):
        blank = with_record(case, "row", case.records()[:1], [weight])
        played = audit.replay(fit_of(case, "zero-out"), blank, tape)
        for before, after in zip(tape.releases, played.releases, strict=True):
            assert share_of_bound(before, after) < 1e-6


@pytest.mark.parametrize("case", MAIN, ids=str)
def test_weights_change_what_is_released_and_equal_ones_do_not(case):
    X, *y, weights, _ = others(case, "row")
    bounds = {"max_weight": 2.0, "mean_weight": 2.0}
    plain, equal, unequal = (
        audit.record(lambda data, ledger: fit(case, data, ledger=ledger, **bounds), (X, *y, some, None)).releases
        for some in (None, np.full(len(X), 2.0), weights)
    )
    for before, after in zip(plain, equal, strict=True):
        assert np.allclose(before.value, after.value, rtol=1e-9)
    assert not np.allclose(plain[0].value, unequal[0].value)


@pytest.mark.parametrize("case", MAIN, ids=str)
def test_the_bounds_of_weights_are_on_the_receipt(case):
    receipt = recorded(case, "zero-out", "row").result.privacy_
    assert any("largest sample weight, 3, and their mean, 1.5" in fact for fact in receipt.assumptions)
    assert not any("weight" in fact for fact in case.fit(case.data(), max_weight=3.0).privacy_.assumptions)
    # A large delta is judged by the number of rows, whatever they count.
    assert any("1/n" in text for text in fit(case, others(case, "row"), delta=0.004).privacy_.warnings)


@pytest.mark.parametrize("case", MAIN, ids=str)
def test_bad_weights_are_refused_before_anything_is_charged(case):
    X, *y, weights, _ = others(case, "row")
    ledger = Ledger(epsilon=100.0, delta=1e-4)
    for bad in (weights[:-1], SECRET, np.full(len(X), SECRET), np.column_stack([weights, weights]), 7):
        with pytest.raises(ValueError, match="sample_weight must hold one number") as failure:
            fit(case, (X, *y, bad, None), ledger=ledger)
        assert SECRET not in str(failure.value)
        assert failure.value.__context__ is None
    for params in ({"max_weight": None}, {"max_weight": 0.0}, {"mean_weight": 5.0}):
        with pytest.raises(ValueError, match=r"(max|mean)_weight must"):
            fit(case, (X, *y, weights, None), ledger=ledger, **params)
    assert ledger.entries == []


DECIDING = [case for case in MAIN if hasattr(case.make(), "decision_threshold") and "no public" not in case.recipe.name]


@pytest.mark.parametrize("case", DECIDING, ids=str)
def test_thresholds_and_class_weights_leave_only_through_releases(case):
    """Also with two classes, for which alone there are thresholds; strangers have other class frequencies."""
    binary = case.recipe.beside()["public"]
    public = Public(binary.X, None if binary.y is None else (np.asarray(binary.y) > 0).astype(int))
    params = {"classes": [0, 1], "decision_threshold": "f1", "class_weight": {0: 1.0, 1: 4.0}}
    if public.y is not None:
        params["class_weight"] = "balanced"

    def decide(data, ledger):
        X, y = data
        return case.make(**params).fit(X, y, public=public, ledger=ledger)

    X, y = case.data()
    tape = audit.record(decide, (X, (y > 0).astype(int)))
    assert 0 < tape.result.decision_threshold_ < 1
    for stranger in ((5.0 * X[::-1], (y > 1).astype(int)), (X - 0.5, np.zeros(len(y), dtype=int))):
        assert differing(tape.result, audit.replay(decide, stranger, tape, poison=math.nan).result) == []
