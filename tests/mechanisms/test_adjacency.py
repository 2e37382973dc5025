"""Adjacency: members by name; factor and words agree with what is protected."""

import pytest

from dpadapt.mechanisms import Adjacency, clipped_sum
from dpadapt.rows import UNITS


def test_adjacency_by_name():
    assert Adjacency.of("replace-one") is Adjacency.REPLACE_ONE
    assert Adjacency.of(Adjacency.ADD_REMOVE) is Adjacency.ADD_REMOVE
    with pytest.raises(ValueError, match="adjacency must be one of 'zero-out'"):
        Adjacency.of("neighbour")


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_the_factor_is_the_sensitivity_of_a_sum_of_terms_of_length_one(adjacency):
    assert clipped_sum([[1.0]], 1.0).sensitivity("l2", adjacency) == adjacency.factor


def test_words_name_what_is_protected():
    assert {a: a.counted() for a in Adjacency} == {
        Adjacency.ZERO_OUT: "the number of rows is public",
        Adjacency.ADD_REMOVE: "the number of rows is private",
        Adjacency.REPLACE_ONE: "the number of rows is public",
    }
    words = [getattr(a, name)(unit) for name in ("protects", "question") for unit in UNITS for a in Adjacency]
    assert len(set(words)) == 12
    assert "one person" in Adjacency.ZERO_OUT.protects("person")
    assert Adjacency.ZERO_OUT.counted("person") == "the number of persons is public"
