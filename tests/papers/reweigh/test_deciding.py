"""Tests by one bit from each person keep their errors exactly, with as few people as possible."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from dpadapt.errors import PrivacyError
from dpadapt.hybrid.agents import SimulatedAgents
from dpadapt.hybrid.questions import Question
from dpadapt.papers.reweigh import deciding
from dpadapt.papers.reweigh.deciding import decide, people_needed

CASES = [
    (0.16, 0.32, 1e-9, 0.5),
    (0.16, 0.32, 1e-2, 1.0),
    (0.0, 0.1, 1e-3, 3.0),
    (0.3, 1.0, 0.1, 0.1),
    (0, 1, 0.2, 50.0),
]


class Loss(Question):
    """The person's loss is the first feature."""

    def value(self, X, y, coins):
        return 2 * X[:, 0] - 1


def people(loss, epsilon, n=10**7, **settings):
    """People of whom a share `loss` has loss 1."""
    rows = (np.arange(1000) < 1000 * loss).astype(float).reshape(-1, 1)
    return SimulatedAgents(rows, None, epsilon, n_people=n, **settings)


def chance(loss, epsilon):
    """Return the probability of a bit of +1, from the definition of randomized response."""
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    return loss * truth + (1 - loss) * (1 - truth)


def exact_errors(low, high, error, epsilon, batch, bounds):
    """Return the probability of each wrong decision and the expected number of people, summed over all counts."""
    errors = []
    for loss in (low, high):
        alive, first, n, accepted, rejected, expected = np.ones(1), 0, 0, 0.0, 0.0, 0.0
        while n < bounds.cut and alive.size:
            step = min(batch, bounds.cut - n)
            expected += step * alive.sum()
            alive = np.convolve(alive, binom.pmf(np.arange(step + 1), step, chance(loss, epsilon)))
            n += step
            count = first + np.arange(alive.size)
            ratio = count * bounds.plus + (n - count) * bounds.minus
            yes, no = ratio <= bounds.accept, ratio >= bounds.reject
            if n == bounds.cut:
                yes |= ~no & (count <= bounds.most)
                no = ~yes
            accepted, rejected = accepted + alive[yes].sum(), rejected + alive[no].sum()
            left = np.flatnonzero(~(yes | no))
            first, alive = (first + left[0], alive[left[0] : left[-1] + 1]) if left.size else (0, alive[:0])
        errors.append((rejected if loss == low else accepted, expected))
    return errors


def test_a_test_at_one_in_a_billion_needs_at_most_23_100_people():
    assert people_needed(0.16, 0.32, 1e-9, 0.5) <= 23_100


@pytest.mark.parametrize(("low", "high", "error", "epsilon"), CASES)
def test_the_fixed_test_keeps_both_errors_and_no_smaller_one_does(low, high, error, epsilon):
    size, most = deciding._fixed(low, high, error, epsilon)
    assert size == people_needed(low, high, error, epsilon)
    p, q = chance(low, epsilon), chance(high, epsilon)
    assert binom.sf(most, size, p) <= error
    assert binom.cdf(most, size, q) <= error
    for smaller in range(max(1, size - (200 if size < 1000 else 20)), size):
        counts = np.arange(-1, smaller + 1)
        assert np.maximum(binom.sf(counts, smaller, p), binom.cdf(counts, smaller, q)).min() > error


@pytest.mark.parametrize("batch", [1, 7, 500])
@pytest.mark.parametrize(("low", "high", "error", "epsilon"), CASES[1:])
def test_the_sequential_test_keeps_both_errors_exactly_whatever_the_batches(low, high, error, epsilon, batch):
    for wrong, _ in exact_errors(low, high, error, epsilon, batch, deciding._bounds(low, high, error, epsilon)):
        assert wrong <= error


def test_the_sequential_test_asks_a_third_of_the_people_even_at_one_in_a_billion():
    size, bounds = people_needed(*CASES[0]), deciding._bounds(*CASES[0])
    for wrong, expected in exact_errors(*CASES[0], size // 50, bounds):
        assert wrong <= 1e-9
        assert expected < 0.33 * size
    assert bounds.cut < 1.1 * size


def test_narrower_bounds_would_exceed_the_error():
    low, high, error, epsilon = CASES[1]
    good = deciding._bounds(low, high, error, epsilon)
    narrow = deciding._Bounds(good.plus, good.minus, good.accept + 1, good.reject - 1, good.cut, good.most)
    assert min(wrong for wrong, _ in exact_errors(low, high, error, epsilon, 1, narrow)) > error


@pytest.mark.parametrize("sequential", [True, False])
def test_simulated_people_decide_wrongly_no_more_often_than_claimed(sequential):
    # 600 trials: the error of 0.05 gives 30 wrong decisions, and 55 by chance with probability 1e-5.
    wrong = {0.1: 0, 0.5: 0}
    for loss in wrong:
        agents = people(loss, 3.0, random_state=1)
        for _ in range(600):
            verdict = decide(agents, Loss(), 0.1, 0.5, error=0.05, sequential=sequential, batch=2)
            wrong[loss] += verdict.accepted != (loss == 0.1)
    assert max(wrong.values()) < 55


def test_too_few_people_are_not_asked_at_all():
    need = people_needed(0.1, 0.5, 1e-3, 1.0)
    agents = people(0.1, 1.0, n=need - 1, random_state=0)
    with pytest.raises(PrivacyError, match=f"needs {need} people.*{need - 1} are left. Nobody"):
        decide(agents, Loss(), 0.1, 0.5, error=1e-3)
    assert agents.asked == 0
    assert agents.record == ()
