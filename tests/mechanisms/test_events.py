"""Events: their descriptions, the way to JSON and back, what is refused. Costs: `test_cost.py`, `test_filter.py`."""

import json
import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpadapt.mechanisms.events import (
    BoundedRangeEvent,
    ConcentratedEvent,
    GaussianEvent,
    LaplaceEvent,
    NonPrivateEvent,
    PureEvent,
    SampledEvent,
    from_dict,
)

positive = st.floats(1e-6, 1e6)
plain = st.one_of(
    st.builds(GaussianEvent, positive),
    st.builds(LaplaceEvent, positive),
)
events = st.one_of(
    plain,
    st.builds(ConcentratedEvent, positive),
    st.builds(PureEvent, positive),
    st.builds(BoundedRangeEvent, positive),
    st.builds(SampledEvent, plain, st.floats(1e-6, 1.0)),
    st.builds(NonPrivateEvent),
)


@given(events)
def test_events_survive_json_with_equal_hashes(event):
    back = from_dict(json.loads(json.dumps(event.to_dict())))
    assert back == event
    assert hash(back) == hash(event)
    assert type(back) is type(event)


def test_events_of_different_kinds_are_never_equal():
    assert GaussianEvent(1.0) != LaplaceEvent(1.0)
    assert PureEvent(1.0) != BoundedRangeEvent(1.0)


@pytest.mark.parametrize("fields", [{}, {"kind": "Event"}, {"kind": "Nothing"}, {"kind": None}])
def test_unknown_kinds_are_refused(fields):
    with pytest.raises(ValueError, match="unknown event kind"):
        from_dict(fields)


@pytest.mark.parametrize("kind", [GaussianEvent, LaplaceEvent, ConcentratedEvent, PureEvent, BoundedRangeEvent])
@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, "1", None, True])
def test_event_parameters_must_be_positive(kind, bad):
    with pytest.raises(ValueError, match="must be a positive number"):
        kind(bad)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, math.nan])
def test_sampling_rates_are_probabilities(rate):
    with pytest.raises(ValueError, match="rate must lie in"):
        SampledEvent(GaussianEvent(1.0), rate)


def test_only_gaussian_and_laplace_noise_can_be_sampled():
    for event in (PureEvent(1.0), NonPrivateEvent(), SampledEvent(GaussianEvent(1.0), 0.5)):
        with pytest.raises(TypeError, match="can be sampled"):
            SampledEvent(event, 0.5)


def test_an_event_inherits_no_cost():
    with pytest.raises(TypeError, match="subclass of Event itself"):

        @dataclass(frozen=True)
        class CheaperEvent(GaussianEvent):
            """Has less noise than its base."""
