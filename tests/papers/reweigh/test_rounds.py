"""The rounds: weights are the paper's dense projection, their normaliser must be released, and tests are few."""

import math

import numpy as np
import pytest

from dpadapt import Ledger, PrivacyError
from dpadapt.mechanisms import Gaussian
from dpadapt.mechanisms.mechanism import Repeated
from dpadapt.papers.reweigh.learners import DescentLearner, Facts
from dpadapt.papers.reweigh.rounds import (
    Protocol,
    _reweigh,
    dense_weights,
    normaliser,
    record_weights,
    released_normaliser,
    run_rounds,
)


@pytest.mark.parametrize("density", [0.02, 0.1, 0.5, 1.0])
def test_projection_is_dense_and_adds_up(density):
    rng = np.random.default_rng(0)
    for n in (60, 200):
        weights = np.exp(-3 * rng.exponential(size=n))
        projected = dense_weights(weights, density)
        assert projected.sum() == pytest.approx(density * n)
        assert projected.max() <= 1
        assert density * projected.max() <= projected.mean() * (1 + 1e-9)
        # Below the cap, all weights are multiplied by the same c.
        free = projected < 1
        if free.any():
            assert np.ptp(projected[free] / weights[free]) == pytest.approx(0, abs=1e-9)


def test_one_record_moves_the_distribution_by_at_most_one_over_kappa_n():
    """TV(mu, mu') <= 1 / (kappa n), the heart of Claim 4.1; and no smaller bound holds."""
    rng = np.random.default_rng(1)
    furthest = 0.0
    for _ in range(400):
        n, density = int(rng.integers(4, 40)), float(rng.uniform(0.3, 0.9))
        weights = rng.uniform(0, 1, n) ** rng.uniform(0.2, 6)
        other = weights.copy()
        other[0] = rng.choice([1e-12, 1.0, rng.uniform()])
        mu, mu_other = (dense_weights(w, density) / (density * n) for w in (weights, other))
        furthest = max(furthest, np.abs(mu - mu_other).sum() / 2 * density * n)
    assert furthest <= 1 + 1e-9
    assert furthest > 0.95


def test_a_normaliser_computed_from_the_records_doubles_what_a_record_moves():
    """The same for full batches: the weighted sum of gradients moves by 2, twice the bound of one record's term."""
    signs = np.append(np.ones(200), -1.0)
    logs, present = np.append(np.full(200, -5.0), 0.0), np.append(np.ones(200), 1.0)
    absent = np.append(np.ones(200), 0.0)
    density = 0.02
    sums = []
    for counts in (present, absent):
        # The same sum of weights with and without the record, as Eq. (2) has it.
        log_c = normaliser(logs, counts, density * 200 / counts.sum())
        sums.append(float((record_weights(logs, log_c) * signs * counts).sum()))
    assert abs(sums[0] - sums[1]) == pytest.approx(2.0)
    weights = record_weights(logs, normaliser(logs, present, density))
    kept = [float((weights * signs * counts).sum()) for counts in (present, absent)]
    assert abs(kept[0] - kept[1]) <= 1


def released_weights(noisy, rate, density, noise):
    """Return the weight of each bin and their sum over records."""
    log_c, total = released_normaliser(noisy, rate, density, noise)
    return record_weights(-rate * np.arange(len(noisy)), log_c), total


def test_released_weights_follow_from_the_counts_alone_and_never_exceed_one():
    rng = np.random.default_rng(2)
    for noise in (0.0, 20.0, None):
        noisy = np.array([30.0, 500.0, 4000.0]) + (noise or 0.0) * rng.standard_normal(3)
        weights, total = released_weights(noisy, 1.0, 0.1, noise)
        assert ((weights > 0) & (weights <= 1)).all()
        assert (np.diff(weights) <= 0).all()
        assert total == pytest.approx(np.maximum(noisy, 0) @ weights)
        assert total >= 0.1 * noisy.sum() * (1 - 1e-9)


def fixed_run(plan, noisy):
    """Return a run that releases these numbers whatever the records are, and overwrites the exact ones."""

    def draw(mechanism, bounded, scale, random):
        bounded.value[...] = -1
        return np.resize(noisy, bounded.value.shape).astype(np.float64)

    ledger = Ledger(math.inf, random_state=0)
    ledger._draw = draw
    return ledger.start(plan, label="test")


def test_the_weights_of_a_round_follow_from_the_released_histogram_alone():
    protocol = Protocol(4, 1.0, 0.1, 0.1, 0.2, 1e-3)
    noisy = np.array([400.0, 90.0, 10.0])
    expected = released_normaliser(noisy, 1.0, 0.1, math.sqrt(2) * 3.0)
    for counts in ([0] * 10, [0, 1, 2, 2, 2, 2, -1], [2] * 500):
        run = fixed_run(Repeated(Gaussian(3.0), 1), noisy)
        assert _reweigh(run, np.array(counts, dtype=float), 2, protocol) == expected


def test_private_rounds_refuse_to_draw_records_by_their_weights():
    X, y = np.zeros((40, 1)), np.zeros(40, dtype=int)
    learner, facts = DescentLearner(n_steps=1), Facts(40.0, 1, np.array([0, 1]))
    protocol = Protocol(1, 1.0, 0.1, 0.1, 0.2, 1e-3, draws=10)
    run = Ledger(math.inf, random_state=0).start(Repeated(Gaussian(1.0), 1), label="test")
    with pytest.raises(PrivacyError, match="only without noise"):
        run_rounds(
            learner, X, X, y, y, facts, protocol, learner_runs=[[run]], histogram_run=None, agents=None,
            generator=np.random.default_rng(0),
        )  # fmt: skip
    assert run.left == 1


def test_a_histogram_has_a_bin_for_each_number_of_rounds_and_none_for_null_records():
    released = []

    def draw(mechanism, bounded, scale, random):
        released.append((bounded.value.tolist(), scale))
        return bounded.value.astype(float)

    ledger = Ledger(math.inf, random_state=0)
    ledger._draw = draw
    run = ledger.start(Repeated(Gaussian(3.0), 1), label="test")
    _reweigh(run, np.array([0.0, 2, 2, -1, 1]), 2, Protocol(4, 1.0, 0.1, 0.1, 0.2, 1e-3))
    assert released == [([1, 1, 2], 3.0)]


def test_a_histogram_of_sums_of_losses_puts_each_record_into_the_nearest_of_four_bins_a_round():
    released = []

    def draw(mechanism, bounded, scale, random):
        released.append((bounded.value.tolist(), scale))
        return bounded.value.astype(float)

    ledger = Ledger(math.inf, random_state=0)
    ledger._draw = draw
    run = ledger.start(Repeated(Gaussian(3.0), 1), label="test")
    protocol = Protocol(4, 1.0, 0.1, 0.1, 0.2, 1e-3, by_loss=True)
    log_c, total = _reweigh(run, np.array([0.0, 0.1, 0.24, 0.99, -1.0, 2.0]), 2, protocol)
    assert released == [([2, 1, 0, 0, 1, 0, 0, 0, 1], 3.0)]
    # Bins are a quarter of a round apart, and so are their weights.
    expected = released_normaliser(np.array(released[0][0], dtype=float), 0.25, 0.1, math.sqrt(2) * 3.0)
    assert (log_c, total) == expected


def test_algorithm_1_has_no_projection_its_weights_are_those_of_multiplicative_weights():
    """Against the paper's loop, by brute force: w <- w exp(-alpha / 8 (1 - loss)), drawn in proportion to w."""
    rng = np.random.default_rng(3)
    alpha, n, rounds = 0.01, 200, 40
    losses = (rng.random((rounds, n)) < rng.random(n)).astype(float)
    weights = np.ones(n)
    for row in losses:
        weights *= np.exp(-alpha / 8 * (1 - row))
    scores = (1 - losses).sum(axis=0)
    log_c, total = released_normaliser(
        np.bincount(scores.astype(int), minlength=rounds + 1) * 1.0, alpha / 8, 0.0, None
    )
    ours = record_weights(-alpha / 8 * scores, log_c)
    assert np.allclose(ours / ours.sum(), weights / weights.sum(), rtol=1e-12)
    assert ours.max() == 1.0
    assert total == pytest.approx(ours.sum())


@pytest.mark.parametrize("density", [0.05, 0.3])
def test_weights_by_losses_are_algorithm_4s(density):
    """Against the paper's loop with exact counts: projected w <- w exp(-alpha / (8 L D) (L D - loss))."""
    rng = np.random.default_rng(4)
    alpha, reach, n, rounds = 0.08, 2.5, 5000, 60
    losses = rng.uniform(0, reach, n) * rng.random((rounds, n))
    weights = np.full(n, density)
    for row in losses:
        weights *= np.exp(-alpha / (8 * reach) * (reach - row))
    expected = dense_weights(weights, density)
    scores = (1 - losses / reach).sum(axis=0)
    ledger = Ledger(math.inf, random_state=0)
    ledger._draw = lambda mechanism, bounded, scale, random: bounded.value.astype(float)
    run = ledger.start(Repeated(Gaussian(1.0), 1), label="test")
    protocol = Protocol(rounds, alpha / 8, density, 0.1, 0.2, 1e-3, paper=True, by_loss=True)
    log_c, total = _reweigh(run, scores, rounds, protocol)
    # Bins are alpha / 32 apart in the logarithm, and half of that is the most that rounding moves the normaliser.
    assert np.abs(np.log(record_weights(-alpha / 8 * scores, log_c) / expected)).max() <= alpha / 64 + 1e-9
    assert total == pytest.approx(expected.sum(), rel=alpha / 64)


def test_released_weights_are_as_large_as_possible():
    weights, total = released_weights(np.array([0.0, 0.0, 900.0]), 1.0, 0.1, 5.0)
    assert weights[2] == 1.0
    assert total == pytest.approx(900.0)
    weights, total = released_weights(np.array([0.0, 0.0, 900.0]), 1.0, 0.1, None)
    assert weights[2] == pytest.approx(0.1)  # the paper's: they add up to density times n
