"""The contract where persons are protected: every estimator whose `fit` takes `persons`, found by itself.

A person is blanked out, removed or replaced with all rows. How many rows a person has is private too, so neighbours
have different numbers of rows.
"""

import inspect
import itertools
import math
from functools import lru_cache

import numpy as np
import pytest
from cases import ADJACENCIES, CASES, N_FEATURES, made_up
from requirements import HUGE, SECRET, share_of_bound

from dpadapt import Adjacency, Ledger, PrivacyError, audit
from dpadapt.audit.replay import differing
from dpadapt.mechanisms.events import SampledEvent

TAKING = [case for case in CASES if "persons" in inspect.signature(case.cls.fit).parameters]
# The bound on the cost of a clustering protects single sources alone, so that persons are refused there.
REFUSING = [case for case in TAKING if case.recipe.params.get("certificate_share")]
PERSONS = [case for case in TAKING if case not in REFUSING]
MAIN = [case for case in PERSONS if not case.recipe.variant]
# A row too long to be a number is a null row, but an encoder makes features of it: it has no null row to compare with.
EVERY = [
    (case, adjacency)
    for case in PERSONS
    for adjacency in case.recipe.adjacencies
    if adjacency != "zero-out" or "encoder" not in case.recipe.params
]
LAST = "the last person"


def fit(case, data, *, adjacency="zero-out", **kwargs):
    X, *y, ids = data
    return case.make(adjacency).fit(X, *y, persons=ids, **case.recipe.beside(), **kwargs)


def fit_of(case, adjacency):
    return lambda data, ledger: fit(case, data, adjacency=adjacency, ledger=ledger)


@lru_cache
def others(case, seed=3):
    """Return rows of as many persons, less one, as the recipe has rows; a person has one to four."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 5, case.recipe.n_rows - 1)
    ids = np.repeat([f"p{i}" for i in range(len(sizes))], sizes)
    X, y = made_up(case.recipe.rows, len(ids), seed=seed)
    order = random.permutation(len(ids))
    return tuple(part[order] for part in (X, *([] if y is None else [y]), ids))


def with_person(case, records, ids=LAST):
    """Return the private data with one more person, who has these rows."""
    X, *y, known = others(case)
    rows = np.array([row for row, _ in records], dtype=float).reshape(-1, N_FEATURES)
    labels = [np.concatenate([y[0], [label for _, label in records]])] if y else []
    return (np.vstack([X, rows]), *labels, np.append(known, np.full(len(records), ids)))


def neighbours(case, adjacency):
    """Return data in which the last person is null, missing or extreme, and data in which he has other extreme rows."""
    records = case.records()
    extreme = [with_person(case, [record] * n) for record, n in zip(records, (1, 6, 3, 2), strict=False)]
    extreme.append(with_person(case, records * 2))
    if adjacency == "replace-one":
        return extreme[0], extreme[1:]
    if adjacency == "add-remove":
        return others(case), extreme
    return with_person(case, [(np.full(N_FEATURES, HUGE), case.classes[0])]), extreme


@lru_cache(maxsize=4)
def recorded(case, adjacency):
    relation = Adjacency.of(adjacency)
    return audit.record(fit_of(case, adjacency), neighbours(case, adjacency)[0], adjacency=relation, unit="person")


@lru_cache(maxsize=4)
def replayed(case, adjacency):
    """Return fits with the same releases on the neighbours, and on strangers with other numbers of rows."""
    stranger = others(case, seed=8)
    if adjacency != "add-remove":
        stranger = tuple(np.append(part, part[-1:], axis=0) for part in stranger)
        stranger[-1][-1] = LAST
    fits = [*neighbours(case, adjacency)[1], stranger]
    relation, poisons = Adjacency.of(adjacency), itertools.cycle((math.nan, 1e300))
    tape = recorded(case, adjacency)
    return [
        audit.replay(fit_of(case, adjacency), data, tape, adjacency=relation, samples=1, poison=poison, unit="person")
        for data, poison in zip(fits, poisons, strict=False)
    ]


def test_the_estimators_of_tables_take_persons():
    names = {case.cls.__name__ for case in PERSONS}
    assert names >= {
        "PrivateTransferRegressor",
        "PrivateTransferClassifier",
        "PrivateLinearRegression",
        "PrivateLogisticRegression",
        "PrivateProbe",
        "PrivateSourceTargetClustering",
    }


@pytest.mark.parametrize("case", REFUSING, ids=str)
def test_fits_that_protect_single_rows_alone_refuse_persons_before_anything_is_charged(case):
    ledger = Ledger(epsilon=100.0, delta=1e-4, unit="person")
    with pytest.raises(ValueError, match="with persons"):
        fit(case, others(case), ledger=ledger)
    assert ledger.entries == []


@pytest.mark.parametrize(("case", "adjacency"), EVERY, ids=str)
def test_nothing_depends_on_persons_except_through_releases(case, adjacency):
    """Other rows, another order and other numbers of rows per person leave the path and every attribute as they are."""
    for played in replayed(case, adjacency):
        assert differing(recorded(case, adjacency).result, played.result) == []


def replayed_with_the_same_samples(case, adjacency):
    """Return the fits on the neighbours; on Poisson samples of persons, those of the recorded fit."""
    tape, options = recorded(case, adjacency), {"adjacency": Adjacency.of(adjacency), "unit": "person"}
    if not any(isinstance(entry.event, SampledEvent) for entry in tape.entries):
        return replayed(case, adjacency)[:-1]
    return [audit.replay(fit_of(case, adjacency), data, tape, **options) for data in neighbours(case, adjacency)[1]]


@pytest.mark.parametrize(("case", "adjacency"), EVERY, ids=str)
def test_no_person_moves_a_release_further_than_its_noise_assumes(case, adjacency):
    tape = recorded(case, adjacency)
    shares = [
        share_of_bound(before, after)
        for played in replayed_with_the_same_samples(case, adjacency)
        for before, after in zip(tape.releases, played.releases, strict=True)
    ]
    assert max(shares) <= 1 + 1e-5
    assert max(shares) > 0.1  # the person does matter


@pytest.mark.parametrize("case", MAIN, ids=str)
def test_without_persons_the_same_rows_exceed_the_bound(case):
    """The battery would find an estimator that passes its persons over."""
    adjacency = "zero-out"

    def rows_only(data, ledger):
        X, *y, _ = data
        return case.make(adjacency).fit(X, *y, **case.recipe.beside(), ledger=ledger)

    null = (np.full(N_FEATURES, HUGE), case.classes[0])
    tape = audit.record(rows_only, with_person(case, [null] * 20))
    moved = [
        share_of_bound(before, after)
        for record in case.records()
        for played in [audit.replay(rows_only, with_person(case, [record] * 20), tape)]
        for before, after in zip(tape.releases, played.releases, strict=True)
    ]
    assert max(moved) > 1.5


@pytest.mark.parametrize("case", MAIN, ids=str)
def test_a_row_without_an_id_counts_nothing(case):
    adjacency = "zero-out"
    tape = recorded(case, adjacency)
    X, *y, ids = neighbours(case, adjacency)[0]
    nameless = with_person(case, case.records(), ids="")
    data = tuple(
        np.concatenate([part, more[-len(case.records()) :]]) for part, more in zip((X, *y, ids), nameless, strict=True)
    )
    played = audit.replay(fit_of(case, adjacency), data, tape, unit="person")
    for before, after in zip(tape.releases, played.releases, strict=True):
        assert share_of_bound(before, after) < 1e-6


@pytest.mark.parametrize("case", MAIN, ids=str)
def test_the_receipt_says_that_persons_are_protected(case):
    receipt = recorded(case, "zero-out").result.privacy_
    assert receipt.unit == "person"
    assert "the number of persons" in receipt.assumptions
    assert "protects: one person (all rows with one id), used or left blank; the number of persons is public" in str(
        receipt
    )
    assert "one row" in str(case.fit(case.data()).privacy_)


@pytest.mark.parametrize("case", MAIN, ids=str)
def test_a_ledger_and_a_fit_protect_the_same(case):
    of_persons, of_rows = (Ledger(epsilon=100.0, delta=1e-4, unit=unit) for unit in ("person", "row"))
    with pytest.raises(PrivacyError, match="persons="):
        case.fit(case.data(), ledger=of_persons)
    with pytest.raises(PrivacyError, match="protects rows, this fit persons"):
        fit(case, others(case), ledger=of_rows)
    assert of_persons.entries == of_rows.entries == []
    model = fit(case, others(case), ledger=of_persons)
    assert [(e.event, e.times) for e in of_persons.entries] == [(e.event, e.times) for e in model.privacy_.entries]


@pytest.mark.parametrize("case", MAIN, ids=str)
def test_bad_ids_are_refused_before_anything_is_charged(case):
    X, *y, ids = others(case)
    ledger = Ledger(epsilon=100.0, delta=1e-4, unit="person")
    for bad in (ids[:-1], SECRET, np.full((len(ids), 2), SECRET), 7, set(ids)):
        with pytest.raises(ValueError, match=r"persons (must hold|holds)") as failure:
            fit(case, (X, *y, bad), ledger=ledger)
        assert SECRET not in str(failure.value)
        assert str(len(ids)) not in str(failure.value)
        assert failure.value.__context__ is None
    assert ledger.entries == []


@pytest.mark.parametrize("case", MAIN, ids=str)
def test_rows_in_float32_are_summed_in_float64(case):
    X, *y, ids = others(case)
    for adjacency in ADJACENCIES:
        fit(case, (X.astype(np.float32), *y, ids), adjacency=adjacency)
