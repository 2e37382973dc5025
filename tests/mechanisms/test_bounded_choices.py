"""No neighbour moves a candidate's score further than stated, for every maker of scores and every adjacency."""

import inspect
import math
from dataclasses import replace

import numpy as np
import pytest

from dpadapt.mechanisms import Adjacency, bounded_choices
from dpadapt.mechanisms.bounded_choices import threshold_votes, weighted_votes

HOSTILE = [0.0, 1.0, 0.5, -3.0, 1e300, math.nan, math.inf, -math.inf, 5e-324]
RULES, THRESHOLDS = 3, 4


def record(rng):
    """Return a weight, whether it belongs inside, and a rank for each rule: any integer."""
    weight = rng.choice(HOSTILE) if rng.random() < 0.5 else rng.uniform(-0.5, 1.5)
    return [weight, rng.integers(2), *rng.choice([-5, 0, 1, 2, 3, 4, 9, 10**9], RULES)]


def make_votes(table):
    return weighted_votes([table[:, 2 + rule] > 1 for rule in range(RULES)], table[:, 0])


def make_thresholds(table):
    return threshold_votes(table[:, 2:].astype(np.int64), table[:, 1] > 0, table[:, 0], THRESHOLDS)


MAKERS = {"weighted_votes": make_votes, "threshold_votes": make_thresholds}
# A null record has no weight.
NULL = [0.0, 0, *[0] * RULES]


def pair(rng, adjacency):
    records = [record(rng) for _ in range(int(rng.integers(1, 6)))]
    at = int(rng.integers(len(records)))
    other = records.copy()
    if adjacency is Adjacency.ADD_REMOVE:
        del other[at]
    else:
        other[at] = NULL if adjacency is Adjacency.ZERO_OUT else record(rng)
    return [np.array(part, dtype=float).reshape(-1, 2 + RULES) for part in (records, other)]


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_no_neighbour_moves_further_than_the_bound(name, adjacency):
    rng = np.random.default_rng(0)
    furthest = 0.0
    for _ in range(300):
        first, second = (MAKERS[name](table) for table in pair(rng, adjacency))
        gap = np.abs(first.value - second.value)
        assert first.value.shape == second.value.shape
        assert np.isfinite(first.value).all()
        assert gap.max() <= first.sensitivity("linf", adjacency) * (1 + 1e-12) + 1e-12
        assert gap.sum() <= first.sensitivity("l1", adjacency) * (1 + 1e-12) + 1e-12
        furthest = max(furthest, gap.max() / first.sensitivity("linf", adjacency))
        if adjacency is not Adjacency.REPLACE_ONE:
            assert (first.value >= second.value - 1e-12).all()  # monotone
    assert furthest > 0.999  # a smaller bound would have been caught


def test_scores_are_the_weights_of_those_got_right():
    rng = np.random.default_rng(1)
    n = 50
    ranks, inside, weights = rng.integers(0, 6, (n, 2)), rng.random(n) < 0.4, rng.random(n)
    found = threshold_votes(ranks, inside, weights, 5).value
    for rule in range(2):
        for threshold in range(5):
            right = (ranks[:, rule] <= threshold) == inside
            assert found[rule, threshold] == pytest.approx(weights[right].sum())


def test_every_maker_is_in_the_battery():
    public = {
        name
        for name, value in vars(bounded_choices).items()
        if inspect.isfunction(value) and value.__module__ == bounded_choices.__name__ and not name.startswith("_")
    }
    assert public - {"held_weights"} == MAKERS.keys()


def test_replacement_doubles_nothing():
    scores = make_votes(np.array([[1.0, 1, 2, 0, 0]]))
    assert scores.sensitivity("linf", Adjacency.REPLACE_ONE) == 1.0
    assert replace(scores, replaced={}).sensitivity("linf", Adjacency.REPLACE_ONE) == 2.0


def test_ranks_must_be_a_table():
    with pytest.raises(ValueError, match="axes"):
        threshold_votes([0, 1], [True, False], [1.0, 1.0], 3)
