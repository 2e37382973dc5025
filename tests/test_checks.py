"""Checks return the value in its type, and refuse everything else with the argument's name."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from dpadapt import checks


@pytest.mark.parametrize("good", [1, 0.5, np.float32(0.5), np.int64(2)])
def test_positive_numbers_become_floats(good):
    assert checks.positive(good, "clip_norm") == float(good)
    assert type(checks.positive(good, "clip_norm")) is float


@pytest.mark.parametrize("bad", [0, -1.0, math.nan, math.inf, True, "1", None, [1.0]])
def test_positive_refuses_everything_else(bad):
    with pytest.raises(ValueError, match="clip_norm must be a positive number, got"):
        checks.positive(bad, "clip_norm")


def test_positive_accepts_infinity_only_on_request():
    assert checks.positive(math.inf, "epsilon", infinite=True) == math.inf
    with pytest.raises(ValueError, match="epsilon must be a positive number"):
        checks.positive(math.nan, "epsilon", infinite=True)


@pytest.mark.parametrize("bad", [5e-324, 10**400, -(10**400), Fraction(1, 2), Decimal(1)])
def test_numbers_that_no_float_holds_are_refused(bad):
    for check in (checks.positive, checks.scale, checks.penalty, checks.unit, checks.delta):
        with pytest.raises(ValueError, match=r"size must .*, got"):
            check(bad, "size")
    with pytest.raises(ValueError, match="size must be a whole number"):
        checks.count(bad, "size")


def test_scales_and_penalties_are_of_usual_size():
    assert checks.scale(2, "radius") == 2.0
    assert checks.penalty(0, "ridge") == 0.0
    for bad in (1e61, 1e-61, -1.0, math.inf, math.nan, True, None):
        with pytest.raises(ValueError, match="radius must be a positive number"):
            checks.scale(bad, "radius")
        with pytest.raises(ValueError, match="ridge must be a number of at least 0"):
            checks.penalty(bad, "ridge")
    with pytest.raises(ValueError, match="radius must be a positive number"):
        checks.scale(0.0, "radius")


def test_flags_are_true_or_false():
    assert checks.flag(np.True_, "whiten") is True
    for bad in (1, "yes", None, np.ones(2)):
        with pytest.raises(ValueError, match="whiten must be True or False"):
            checks.flag(bad, "whiten")


def test_a_refused_value_is_shown_on_one_short_line():
    for bad in (10**5000, np.ones((50, 50)), "a\n" * 90):
        with pytest.raises(ValueError, match="size must be") as failure:
            checks.positive(bad, "size")
        assert len(str(failure.value)) < 120
        assert "\n" not in str(failure.value)


def test_one_of_names_the_choices():
    assert checks.one_of("a", ("a", "b"), "kind") == "a"
    with pytest.raises(ValueError, match="kind must be one of 'a', 'b', got 'c'"):
        checks.one_of("c", ("a", "b"), "kind")


@pytest.mark.parametrize(
    ("check", "good", "bad", "words"),
    [
        (checks.unit, [1, 0.5], [0, 1.01, -0.5, math.nan, True], r"must lie in \(0, 1\]"),
        (checks.share, [0, 0.5, np.float64(0.99)], [1.0, -0.1, math.nan, True, "0.5", None], r"must lie in \[0, 1\)"),
        (checks.delta, [0, 0.5], [1, -1e-9, math.nan, "0", False], r"must lie in \[0, 1\)"),
        (checks.count, [np.int32(3), 1], [0, 1.0, True, "3", None], "must be a whole number of at least 1"),
    ],
)
def test_numbers_of_a_range_are_accepted_and_others_refused_by_name(check, good, bad, words):
    assert [check(value, "size") for value in good] == [float(value) for value in good]
    for value in bad:
        with pytest.raises(ValueError, match=f"size {words}"):
            check(value, "size")
    assert checks.count(0, "steps", least=0) == 0


def test_bounds_are_a_pair_and_minus_one_to_one_by_default():
    assert checks.bounds(None, "target_bounds") == (-1.0, 1.0)
    assert checks.bounds([0, 5], "target_bounds") == (0.0, 5.0)


@pytest.mark.parametrize(
    "bad", [(1, 0), (0, 0), (0, math.inf), (math.nan, 1), (-1e308, 1e308), (0, 10**400), ("0", "1"), (0, 1, 2), "ab", 3]
)
def test_other_bounds_are_refused(bad):
    with pytest.raises(ValueError, match="target_bounds must be a pair"):
        checks.bounds(bad, "target_bounds")
