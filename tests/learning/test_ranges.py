"""Ranges: no record moves a released statistic further than its noise assumes, and ranges shrink to where rows lie."""

import itertools
import math

import numpy as np
import pytest

from dpadapt.accounting.ledger import Ledger
from dpadapt.learning.base import Budget
from dpadapt.learning.ranges import (
    ROWS_RANGE,
    TARGET_RANGE,
    plan_ranges,
    shrunk_geometry,
    target_range,
)
from dpadapt.learning.scaling import declared_geometry
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.rows import InMemory, Part

BOTH = ROWS_RANGE | TARGET_RANGE
random = np.random.default_rng(21)
X = random.uniform(-1, 1, (5000, 4))
y = random.uniform(-1, 1, 5000)


def released(X, y, *, bounds=(-1.0, 1.0), adjacency="zero-out", epsilon=1.0, n_rows=5000, exact=None):
    """Return scale of the rows, mean and shrinkage of the target; `exact` collects every statistic and its noise."""
    budget = Budget.of(epsilon, 1e-6, n_rows, adjacency)
    plan = plan_ranges(budget, BOTH)
    ledger = Ledger(epsilon, 1e-6, adjacency=Adjacency.of(adjacency), random_state=0)
    draw = ledger._draw

    def spy(mechanism, bounded, scale, random):
        if exact is not None:
            exact.append((bounded.value.astype(float), scale / mechanism.noise_multiplier))
            # The same release for all neighbours, so that later statistics are those of the same question.
            return np.full(bounded.value.shape, 10.0)
        return draw(mechanism, bounded, scale, random)

    ledger._draw = spy
    rows_run, mean_run, range_run = ledger.start_all(plan.charges)
    rows = InMemory([Part(X[:1], y[:1]), Part(X[1:], y[1:])], len(X))
    geometry = shrunk_geometry(rows_run, declared_geometry(X.shape[1]), rows, plan)
    return geometry.scale[0], *target_range(mean_run, range_run, rows, bounds, plan)


EXTREME = [0.0, -0.0, 1.0, -1.0, 0.3, 5e-324, 1e-160, 1e8, -1e8, 1e160, -1e300, 1e308, math.nan, math.inf, -math.inf]
NULL = (math.nan, 0.0)
RECORDS = [NULL, *itertools.product(EXTREME, EXTREME)]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("adjacency", ["zero-out", "add-remove", "replace-one"])
def test_no_record_moves_a_range_further_than_its_noise_assumes(adjacency, dtype):
    def statistics(*records):
        rows = np.array([[0.2, -0.4], *([x, x / 3] for x, _ in records)])
        exact = []
        with np.errstate(over="ignore"):
            rows = rows.astype(dtype)
        with np.errstate(all="raise"):
            released(rows, np.array([0.5, *(t for _, t in records)]), adjacency=adjacency, exact=exact)
        return exact

    # Under replace-one every pair is one of neighbours; the differences from a fixed record would show half of it.
    firsts = {"zero-out": [(NULL,)], "add-remove": [()], "replace-one": [(record,) for record in RECORDS[::17]]}
    furthest = np.zeros(3)
    for first in firsts[adjacency]:
        before = statistics(*first)
        for record in RECORDS:
            for place, ((old, bound), (new, same)) in enumerate(zip(before, statistics(record), strict=True)):
                assert bound == same
                furthest[place] = max(furthest[place], np.linalg.norm(new - old) / bound)
    assert np.all(furthest <= 1 + 1e-9)
    # The bounds are reached: lengths and distances in other bins, and targets at both ends.
    assert np.all(furthest > 0.7)


def test_ranges_follow_from_the_releases_alone():
    first, second = released(X, y, exact=[]), released(0.01 * X, 0.01 * y + 0.5, exact=[])
    assert first == second


@pytest.mark.parametrize("adjacency", ["zero-out", "add-remove", "replace-one"])
def test_the_ranges_and_what_they_leave_cost_the_budget(adjacency):
    budget = Budget.of(1.0, 1e-6, 9000, adjacency)
    plan = plan_ranges(budget, BOTH)
    costs = [1 / mechanism.noise_multiplier**2 for mechanism, _ in plan.charges]
    assert sum(costs) + plan.rest.mu**2 == pytest.approx(budget.mu**2, rel=1e-12)
    assert sum(costs) < 0.061 * budget.mu**2


def test_a_larger_budget_spends_a_smaller_share_on_ranges():
    plans = [plan_ranges(Budget.of(1.0, 1e-6, n, "zero-out"), BOTH) for n in (2000, 20_000, 200_000)]
    shares = [1 - (plan.rest.mu / Budget.of(1.0, 1e-6, 1, "zero-out").mu) ** 2 for plan in plans]
    assert shares[0] > 5 * shares[1] > 25 * shares[2] > 0


@pytest.mark.parametrize(("n_rows", "epsilon"), [(100, 1.0), (900, 1.0), (1000, 0.3), (5000, 0.1)])
def test_ranges_that_would_be_noise_are_not_released(n_rows, epsilon):
    budget = Budget.of(epsilon, 1e-6, n_rows, "zero-out")
    plan = plan_ranges(budget, BOTH)
    assert plan.charges == ()
    assert plan.rest == budget


@pytest.mark.parametrize("adjacency", ["zero-out", "add-remove", "replace-one"])
def test_exact_bounds_stay(adjacency):
    scale, mean, shrinkage = released(X, y, adjacency=adjacency, epsilon=2.0)
    assert scale == 1.0
    assert abs(mean) < 0.1
    assert shrinkage == 1.0


@pytest.mark.parametrize(("factor", "epsilon"), [(0.1, 1.0), (0.02, 1.0), (0.05, 50.0)])
def test_ranges_shrink_to_where_the_rows_and_targets_lie(factor, epsilon):
    scale, mean, shrinkage = released(factor * X, factor * y, epsilon=epsilon)
    # At epsilon 1, noise might hide too many long rows for rows to be stretched more than 11 times.
    assert factor / 1.5 < scale < max(1.5 * factor, 0.1 if epsilon == 1.0 else 0.0)
    assert abs(mean) < 0.03
    # The mean is noisy, and targets lie up to its error further from it.
    assert 0.9 * factor < shrinkage < 1.5 * (factor + abs(mean))


def test_targets_far_from_the_middle_are_found():
    _, mean, shrinkage = released(X, 6 + 3 * y, bounds=(0.0, 100.0))
    assert mean == pytest.approx(6.0, abs=1.5)
    assert 2.5 / 50 < shrinkage < 8 / 50


def test_a_wrong_number_of_rows_moves_the_mean_little():
    _, mean, _ = released(X, 6 + 3 * y, bounds=(0.0, 100.0), adjacency="add-remove", n_rows=4000)
    assert mean == pytest.approx(6.0, abs=2.0)


def test_bounds_that_are_too_narrow_stay():
    scale, mean, shrinkage = released(5 * X, 5 * y)
    assert scale == 1.0
    assert shrinkage == 1.0
    assert abs(mean) <= 1.0


def test_rows_that_are_mostly_zero_are_stretched_only_as_far_as_noise_can_hide_long_ones():
    rare = np.where(np.arange(5000) % 50 == 0, 1.0, 0.0)[:, None] * np.ones((5000, 4))
    scale, _, _ = released(rare, y)
    stretched = np.mean(np.sum((rare / scale) ** 2, axis=1))
    assert stretched < 6 * 4 / 2


def test_empty_ranges_raise_nothing():
    with np.errstate(all="raise"):
        released(np.zeros((5000, 2)), np.zeros(5000), bounds=(0.0, 5e-324))
        scale, _, shrinkage = released(np.full((5000, 2), 1e200), np.zeros(5000))
    assert 0 < scale <= 1
    assert 0 < shrinkage <= 1
