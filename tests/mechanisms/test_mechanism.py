"""Mechanisms and plans: their events, their scales, what is refused; and that all noise has the stated scale.

Each test of noise is shown to reject a wrong scale. False-alarm rates are stated.
"""

import math

import numpy as np
import pytest
from scipy.stats import chisquare, kstest, laplace, norm

from dpadapt.errors import PrivacyError
from dpadapt.mechanisms import (
    Adjacency,
    Bounded,
    DiscreteGaussian,
    DiscreteLaplace,
    ExponentialMechanism,
    Gaussian,
    Laplace,
    NonPrivate,
    PermuteAndFlip,
    RandomizedResponse,
    clipped_sum,
    histogram,
    votes,
)
from dpadapt.mechanisms.events import (
    BoundedRangeEvent,
    ConcentratedEvent,
    Event,
    GaussianEvent,
    LaplaceEvent,
    NonPrivateEvent,
    PureEvent,
)
from dpadapt.mechanisms.mechanism import Repeated, Sampled, as_plan
from dpadapt.mechanisms.randomness import SecureRandom, SeededRandom
from dpadapt.papers.adaptation.bounded_losses import own_losses

N = 4000
ZERO = Adjacency.ZERO_OUT
SWAP = Adjacency.REPLACE_ONE

# False-alarm rates. Fixed seeds make the first kind deterministic. The secure source has no seed, so its tests fail by
# chance once in a million runs.
ALARM = 1e-3
SECURE_ALARM = 1e-6


def test_only_gaussian_and_laplace_noise_can_be_sampled():
    for mechanism in (DiscreteLaplace(1.0), DiscreteGaussian(1.0), ExponentialMechanism(1.0), NonPrivate()):
        with pytest.raises(TypeError, match="can be sampled"):
            Sampled(mechanism, rate=0.1)


def test_mechanisms_name_their_events():
    assert Gaussian(2).event() == GaussianEvent(2.0)
    assert Laplace(2).event() == LaplaceEvent(2.0)
    assert DiscreteLaplace(2).event() == PureEvent(0.5)
    assert DiscreteGaussian(2).event() == ConcentratedEvent(0.125)
    assert RandomizedResponse(2).event() == PureEvent(2.0)
    assert ExponentialMechanism(2).event() == BoundedRangeEvent(2.0)
    assert PermuteAndFlip(2).event() == PureEvent(2.0)
    assert NonPrivate().event() == NonPrivateEvent()
    assert str(Sampled(Gaussian(2), rate=0.5).event()) == "Sampled(event=Gaussian(noise_multiplier=2), rate=0.5)"
    assert issubclass(GaussianEvent, Event)


@pytest.mark.parametrize("steps", [0, -1, 1.5, True])
def test_plans_count_whole_steps(steps):
    for make in (lambda: Repeated(Gaussian(1.0), steps), lambda: Sampled(Gaussian(1.0), 0.5, steps)):
        with pytest.raises(ValueError, match="steps must be a whole number"):
            make()


def test_as_plan_accepts_only_mechanisms_and_plans():
    assert as_plan(Gaussian(1.0)) == Repeated(Gaussian(1.0), 1)
    with pytest.raises(TypeError, match="expected a mechanism"):
        as_plan(GaussianEvent(1.0))


def test_a_deliberate_leak_returns_a_copy_of_the_value():
    bounded = histogram([0, 1, 1], 2)
    released = NonPrivate()._apply(bounded, scale=0.0, random=SeededRandom(0))
    assert released.tolist() == [1, 2]
    released[0] = 9
    assert bounded.value.tolist() == [1, 2]


@pytest.mark.parametrize("mechanism", [Gaussian, Laplace, DiscreteLaplace, DiscreteGaussian])
def test_small_float_types_do_not_lose_the_noise(mechanism):
    """A multiplier of float16 made the product with a small sensitivity, and so the noise, 0."""
    made = mechanism(np.float16(10))
    assert type(made.noise_multiplier) is float
    value = Bounded(np.zeros(1), l1=1e-8, l2=1e-8)
    if mechanism in (Gaussian, Laplace):
        assert made.scale(value, Adjacency.ZERO_OUT) == pytest.approx(1e-7, rel=1e-3)


@pytest.mark.parametrize("mechanism", [RandomizedResponse, ExponentialMechanism, PermuteAndFlip])
def test_small_float_types_of_epsilon_become_floats(mechanism):
    assert type(mechanism(np.float16(0.5)).epsilon) is float


def test_a_statistic_with_an_entry_per_row_is_refused_on_a_sample():
    """Its length would show whether a row was drawn, so sampling would not lower the cost."""
    for mechanism in (Gaussian(1.0), Laplace(1.0)):
        assert mechanism.scale(own_losses([0.5], 1.0), Adjacency.ZERO_OUT) > 0
        for adjacency in (Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE):
            with pytest.raises(PrivacyError, match="an entry per row"):
                mechanism.scale(own_losses([0.5], 1.0), adjacency, sampled=True)


def sums(n=N, clip_norm=1.0):
    return clipped_sum(np.zeros((1, n)), clip_norm)


def ballots(n=N):
    return votes(np.zeros((1, n)))


def counts(n=N):
    return histogram([], n)


def drawn(mechanism, bounded, random, *, factor=1.0):
    return mechanism._apply(bounded, scale=mechanism.scale(bounded, ZERO) * factor, random=random)


def discrete_pvalue(noise, log_weight, reach):
    """Chi-squared test of integers against P(k) proportional to exp(log_weight(k))."""
    support = np.arange(-50 * reach, 50 * reach + 1)
    weights = np.exp(log_weight(support.astype(float)))
    probabilities = weights / weights.sum()
    inner = np.abs(support) <= reach
    expected = np.append(probabilities[inner], probabilities[~inner].sum()) * len(noise)
    seen = np.append([(noise == k).sum() for k in support[inner]], (np.abs(noise) > reach).sum())
    return chisquare(seen, expected).pvalue


@pytest.mark.parametrize(("random", "alarm"), [(SeededRandom(0), ALARM), (SecureRandom(), SECURE_ALARM)])
def test_gaussian_noise_has_the_stated_scale(random, alarm):
    noise = drawn(Gaussian(2.0), sums(clip_norm=3.0), random)
    assert kstest(noise, norm(scale=6.0).cdf).pvalue > alarm
    assert kstest(noise, norm(scale=6.0 * 2 / 3).cdf).pvalue < 1e-6  # the test can fail


@pytest.mark.parametrize("order", ["C", "F"])
def test_secure_noise_has_the_stated_scale_in_any_order_of_memory(order):
    matrix = sums(clip_norm=3.0)
    matrix = matrix.with_value(np.zeros((50, 80), order=order))
    released = Gaussian(2.0)._apply(matrix, scale=6.0, random=SecureRandom())
    assert released.shape == (50, 80)
    assert kstest(released.ravel(), norm(scale=6.0).cdf).pvalue > SECURE_ALARM
    assert kstest(released.ravel(), norm(scale=4.0).cdf).pvalue < 1e-6  # the test can fail


def test_a_seed_gives_the_same_noise_in_any_order_of_memory():
    both = [
        Gaussian(2.0)._apply(sums().with_value(np.zeros((5, 8), order=order)), scale=6.0, random=SeededRandom(0))
        for order in ("C", "F")
    ]
    assert np.array_equal(*both)


@pytest.mark.parametrize(("random", "alarm"), [(SeededRandom(0), ALARM), (SecureRandom(), SECURE_ALARM)])
def test_laplace_noise_has_the_stated_scale(random, alarm):
    # One record moves each of N candidates by 1, so the l1 sensitivity is N.
    noise = drawn(Laplace(2.0), ballots(), random)
    assert kstest(noise, laplace(scale=2.0 * N).cdf).pvalue > alarm
    assert kstest(noise, laplace(scale=2.0 * N * 2 / 3).cdf).pvalue < 1e-6


@pytest.mark.parametrize(("random", "alarm"), [(SeededRandom(0), ALARM), (SecureRandom(), SECURE_ALARM)])
def test_discrete_laplace_noise_has_the_stated_distribution(random, alarm):
    noise = drawn(DiscreteLaplace(2.0), counts(), random)
    assert noise.dtype == np.int64
    assert discrete_pvalue(noise, lambda k: -np.abs(k) / 2.0, 8) > alarm
    assert discrete_pvalue(noise, lambda k: -np.abs(k) / (2.0 * 2 / 3), 8) < 1e-6


@pytest.mark.parametrize(("random", "alarm"), [(SeededRandom(0), ALARM), (SecureRandom(), SECURE_ALARM)])
@pytest.mark.parametrize("scale", [0.7, 2.0])
def test_discrete_gaussian_noise_has_the_stated_distribution(random, alarm, scale):
    noise = drawn(DiscreteGaussian(scale), counts(), random)
    reach = math.ceil(2.5 * scale)
    assert discrete_pvalue(noise, lambda k: -(k**2) / (2 * scale**2), reach) > alarm
    assert discrete_pvalue(noise, lambda k: -(k**2) / (2 * (scale * 2 / 3) ** 2), reach) < 1e-6


@pytest.mark.parametrize("mechanism", [Gaussian(1.0), Laplace(1.0), DiscreteLaplace(1.0), DiscreteGaussian(1.0)])
def test_coordinates_are_independent(mechanism):
    bounded = counts() if "Discrete" in type(mechanism).__name__ else ballots()
    noise = drawn(mechanism, bounded, SeededRandom(1)).astype(float)
    noise /= noise.std()
    # The correlation of n independent pairs has standard deviation 1 / sqrt(n). False-alarm rate at four of them: 6e-5.
    assert abs(np.mean(noise[1:] * noise[:-1])) < 4 / math.sqrt(N)


def test_scales_follow_the_sensitivity_of_the_adjacency():
    assert Gaussian(2.0).scale(sums(clip_norm=3.0), ZERO) == 6.0
    assert Gaussian(2.0).scale(sums(clip_norm=3.0), SWAP) == 12.0
    assert Gaussian(2.0).scale(counts(3), SWAP) == 2.0 * math.sqrt(2)
    assert Gaussian(2.0).scale(counts(3), SWAP, sampled=True) == 4.0
    assert DiscreteLaplace(1.5).scale(counts(3), ZERO) == 1.5
    assert DiscreteLaplace(1.5).scale(counts(3), SWAP) == 3.0
    assert NonPrivate().scale(counts(3), SWAP) == 0.0


def test_gaussian_results_are_rounded_to_a_grid():
    noisy = drawn(Gaussian(1.0), sums(), SeededRandom(2))
    # A scale in [1, 2) has a grid of 2^-23.
    assert np.array_equal(noisy * 2.0**23, np.rint(noisy * 2.0**23))


def test_laplace_noise_is_never_below_the_requested_scale():
    for multiplier in (0.01, 0.5, 1.0, 7.3, 1e4):
        for width in (1, 3, 100):
            scale = Laplace(multiplier).scale(ballots(width), ZERO)
            assert multiplier * width < scale < multiplier * width * (1 + 1e-4)


def test_laplace_refuses_more_coordinates_than_its_grid_covers():
    with pytest.raises(ValueError, match="too large for this many coordinates"):
        Laplace(1e9).scale(ballots(1000), ZERO)


def test_discrete_noise_refuses_scales_that_could_leave_the_range_of_integers():
    for mechanism in (DiscreteLaplace, DiscreteGaussian):
        assert mechanism(2.0**50).scale(counts(2), ZERO) == 2.0**50
        with pytest.raises(ValueError, match="too large for integers"):
            mechanism(2.0**51).scale(counts(2), ZERO)


def test_discrete_noise_refuses_reals():
    for mechanism in (DiscreteLaplace(1.0), DiscreteGaussian(1.0)):
        with pytest.raises(TypeError, match="integer statistic"):
            mechanism.scale(ballots(2), ZERO)


def test_noise_is_added_to_the_value():
    bounded = votes([[1.0, 0.25], [1.0, 0.5]])
    for mechanism in (Gaussian(1e-9), Laplace(1e-9)):
        assert drawn(mechanism, bounded, SeededRandom(0)) == pytest.approx([2.0, 0.75], abs=1e-6)
    assert drawn(DiscreteLaplace(1e-3), histogram([0, 0, 1], 2), SeededRandom(0)).tolist() == [2, 1]
    assert drawn(DiscreteGaussian(1e-3), histogram([0, 0, 1], 2), SeededRandom(0)).tolist() == [2, 1]


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("mechanism", [Gaussian, Laplace, DiscreteLaplace, DiscreteGaussian])
def test_multipliers_must_be_positive(mechanism, bad):
    with pytest.raises(ValueError, match="noise_multiplier must be a positive number"):
        mechanism(bad)
