"""Options that several commands have."""

from dpadapt.cli.options import AdjacencyName, parse_epsilons
from dpadapt.mechanisms.adjacency import Adjacency


def test_adjacency_choices_are_those_of_the_library():
    assert [name.value for name in AdjacencyName] == [member.value for member in Adjacency]


def test_budgets_are_sorted_and_listed_once():
    assert parse_epsilons("3, 1,0.3,1") == [0.3, 1.0, 3.0]
