"""Estimators that break one rule each: the contract finds every one of them, and passes the one that breaks none."""

import math
from functools import partial

import numpy as np
import pytest
from cases import Case, Recipe, nothing
from requirements import CHECKS

from dpadapt import Ledger
from dpadapt.audit import PathDiffers
from dpadapt.learning.base import PrivateEstimator
from dpadapt.mechanisms import Bounded, Gaussian, clipped_sum, histogram
from dpadapt.mechanisms.mechanism import Repeated, Sampled

EDGES = np.array([0.5, 1.0, 2.0, 4.0])
RATE, STEPS = 0.25, 6


class Clean(PrivateEstimator):
    """A mean by steps on Poisson samples, clipped to a norm and weighted by a released histogram of the rows' lengths.

    Subclasses break one rule each.
    """

    def __init__(self, epsilon=2.0, delta=1e-5, *, adjacency="zero-out", n_rows=None, random_state=None):
        self.epsilon = epsilon
        self.delta = delta
        self.adjacency = adjacency
        self.n_rows = n_rows
        self.random_state = random_state

    def fit(self, X, y=None, *, public=None, ledger=None):
        X = self.read(X)
        budget = self._budget(len(X))
        child = self._ledger(ledger)
        lengths, sums = self.charge(child)
        counts = self.counts(lengths, X)
        current = self.start(X)
        for batch in sums.batches(len(X)):
            drawn = []
            noisy = self.release(sums, batch.of(partial(self.statistic, X, current, self.norm(counts, X), drawn)))
            current = current + noisy / self.size(budget, drawn[0], counts, X)
            if self.stops(X, current):
                break
        self.privacy_ = self._receipt(child, budget, [])
        self.mean_ = current
        return self

    def read(self, X):
        refusal = None
        try:
            X = np.asarray(X, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            refusal = ValueError("X must hold numbers.")
        if refusal is not None:
            raise refusal
        if X.ndim != 2 or not np.isfinite(X).all():
            raise ValueError("X must be a table of finite numbers.")
        self.n_features_in_ = X.shape[1]
        return X

    def charge(self, ledger):
        return ledger.start_all([(Gaussian(8.0), "lengths"), (Sampled(Gaussian(3.0), RATE, STEPS), "sums")])

    def codes(self, X):
        with np.errstate(all="ignore"):
            lengths = np.linalg.norm(X, axis=1)
        # A null row is in no bin.
        return np.where(np.isfinite(lengths), np.digitize(lengths, EDGES), -1)

    def counts(self, run, X):
        return run.release(histogram(self.codes(X), 5))

    def start(self, X):
        return np.zeros(X.shape[1])

    def norm(self, counts, X):
        return float([0.5, *EDGES][int(np.argmax(counts))])

    def statistic(self, X, current, norm, drawn, index):
        drawn.append(index)
        with np.errstate(all="ignore"):
            return clipped_sum(X[index] - current, norm)

    def release(self, run, statistic):
        return run.release(statistic)

    def size(self, budget, index, counts, X):
        return RATE * budget.n_rows

    def stops(self, X, current):
        return False


class SampledIndices(Clean):
    def size(self, budget, index, counts, X):
        self.last_batch_ = index
        return super().size(budget, index, counts, X)


class BatchSize(Clean):
    def size(self, budget, index, counts, X):
        return max(1, len(index))


class MedianStart(Clean):
    def start(self, X):
        return np.median(X, axis=0)


class ReadsExactValue(Clean):
    def release(self, run, statistic):
        noisy = run.release(statistic)
        return noisy if np.linalg.norm(noisy) < 1e9 * np.linalg.norm(statistic.value) else np.zeros_like(noisy)


class TwoCharges(Clean):
    def charge(self, ledger):
        return [
            ledger.start(Gaussian(8.0), label="lengths"),
            ledger.start(Sampled(Gaussian(3.0), RATE, STEPS), label="sums"),
        ]


class StopsByTheRows(Clean):
    def stops(self, X, current):
        return np.linalg.norm(np.clip(X, -1, 1).mean(axis=0) - current) < 0.3


class HalfTheBound(Clean):
    def statistic(self, X, current, norm, drawn, index):
        statistic = super().statistic(X, current, norm, drawn, index)
        return Bounded(statistic.value, l2=norm / 2)


class NoClipping(Clean):
    def statistic(self, X, current, norm, drawn, index):
        drawn.append(index)
        kept = X[index][np.abs(X[index]).max(axis=1) < 1e9] - current
        return Bounded(kept.sum(axis=0), l2=norm)


class BoundOfAnAddedRow(Clean):
    """Claims that replacing a row moves a sum no further than adding one: wrong by a factor 2 under replace-one."""

    def charge(self, ledger):
        return ledger.start_all([(Gaussian(8.0), "lengths"), (Repeated(Gaussian(8.0), STEPS), "sums")])

    def statistic(self, X, current, norm, drawn, index):
        statistic = super().statistic(X, current, norm, drawn, index)
        return Bounded(statistic.value, l2=norm, replaced={"l2": norm})


class NormOfAnExactHistogram(Clean):
    def norm(self, counts, X):
        return super().norm(np.bincount(self.codes(X) + 1, minlength=6)[1:], X)


class WeightsOfAnExactHistogram(Clean):
    """Weights the rows by how frequent their length is: the weights' sum, which is divided by, is not released."""

    def statistic(self, X, current, norm, drawn, index):
        drawn.append(index)
        weights = self.weights(X)[index]
        with np.errstate(all="ignore"):
            return clipped_sum(np.where(weights[:, None] > 0, X[index] - current, 0.0) * weights[:, None], norm)

    def weights(self, X):
        codes = self.codes(X)
        shares = np.bincount(codes + 1, minlength=6) / len(codes)
        return np.where(codes < 0, 0.0, 1 - shares[codes + 1])

    def size(self, budget, index, counts, X):
        return RATE * self.weights(X).sum()


class CentresOnTheRows(Clean):
    """Subtracts a little of the mean of all rows, by which no record moves a sum beyond its bound."""

    def statistic(self, X, current, norm, drawn, index):
        return super().statistic(X, current + 0.01 * np.clip(X, -1, 1).mean(axis=0), norm, drawn, index)


class KeepsRows(Clean):
    def stops(self, X, current):
        self._rows = {"cache": [X]}
        return False


class ChangesAParameter(Clean):
    def stops(self, X, current):
        self.n_rows = None if X.mean() > 0 else self.n_rows
        self.epsilon = 2.0 + float(X.mean())
        return False


class OwnLedger(Clean):
    def _ledger(self, ledger):
        return Ledger(self.epsilon, self.delta, adjacency=super()._ledger(ledger).adjacency, random_state=0)


class FixedSeed(Clean):
    def _ledger(self, ledger):
        return ledger.child(self.epsilon, self.delta, label=type(self).__name__, random_state=7)


class RefusesExtremes(Clean):
    def read(self, X):
        X = super().read(X)
        if np.abs(X).max() > 1e100:
            raise ValueError("X holds a number beyond 1e100.")
        return X


class WarnsOfExtremes(Clean):
    def codes(self, X):
        with np.errstate(all="raise"):
            return np.digitize((X**2).sum(axis=1), EDGES**2)


class ShowsACell(Clean):
    def read(self, X):
        return np.asarray(X, dtype=np.float64)


class ShowsTheNumberOfRows(Clean):
    def read(self, X):
        if np.ndim(X) != 2:
            raise ValueError(f"X must be a table, got {len(X)} rows.")
        return super().read(X)


LEAKS = "nothing_depends_on_private_rows_except_through_releases"
MOVES = "no_record_moves_a_release_further_than_its_noise_assumes"
CAUGHT_BY = {
    SampledIndices: f"{LEAKS}, zero-out",
    BatchSize: f"{LEAKS}, replace-one",
    MedianStart: f"{LEAKS}, add-remove",
    ReadsExactValue: f"{LEAKS}, zero-out",
    TwoCharges: "a_fit_is_one_charge",
    StopsByTheRows: f"{LEAKS}, zero-out",
    HalfTheBound: f"{MOVES}, add-remove",
    NoClipping: f"{MOVES}, zero-out",
    BoundOfAnAddedRow: f"{MOVES}, replace-one",
    NormOfAnExactHistogram: f"{LEAKS}, zero-out",
    WeightsOfAnExactHistogram: f"{LEAKS}, zero-out",
    CentresOnTheRows: "a_records_part_in_a_release_depends_on_that_record_alone",
    KeepsRows: f"{LEAKS}, replace-one",
    ChangesAParameter: f"{LEAKS}, replace-one",
    OwnLedger: "the_callers_ledger_is_charged_what_the_receipt_says",
    FixedSeed: "without_a_seed_every_draw_differs",
    RefusesExtremes: "extreme_rows_raise_nothing_and_change_no_charge",
    WarnsOfExtremes: "extreme_rows_raise_nothing_and_change_no_charge",
    ShowsACell: "a_refusal_shows_no_cell_of_the_features",
    ShowsTheNumberOfRows: "a_refusal_does_not_show_the_number_of_rows_where_it_is_private",
}

# What the check raises, where it is no failed assertion.
RAISES = {RefusesExtremes: ValueError, WarnsOfExtremes: FloatingPointError}


def case_of(cls):
    return Case(cls, Recipe("planted", "unlabelled", nothing))


CLEAN = case_of(Clean)


@pytest.mark.parametrize("check", sorted(set(CAUGHT_BY.values()) | {f"{MOVES}, replace-one", f"{MOVES}, zero-out"}))
def test_an_estimator_that_breaks_no_rule_passes(check):
    CHECKS[check](CLEAN)


@pytest.mark.parametrize(("planted", "check"), CAUGHT_BY.items(), ids=[cls.__name__ for cls in CAUGHT_BY])
def test_an_estimator_that_breaks_a_rule_fails(planted, check):
    case = case_of(planted)
    case.fit(case.data(), ledger=Ledger(math.inf))  # by itself it shows nothing unusual
    with pytest.raises(RAISES.get(planted, (AssertionError, PathDiffers))):
        CHECKS[check](case)


def test_a_bound_that_holds_under_one_adjacency_fails_under_another():
    case = case_of(BoundOfAnAddedRow)
    CHECKS[f"{MOVES}, add-remove"](case)
    with pytest.raises(AssertionError):
        CHECKS[f"{MOVES}, replace-one"](case)
