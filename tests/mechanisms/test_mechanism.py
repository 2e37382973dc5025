"""Mechanisms and plans: their events, their scales, and what is refused."""

import numpy as np
import pytest

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
    histogram,
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
from dpadapt.mechanisms.randomness import SeededRandom
from dpadapt.papers.adaptation.bounded_losses import own_losses


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
