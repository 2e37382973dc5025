"""Mechanisms: where noise is made. They draw only when the ledger calls them (`dpadapt.accounting.ledger`)."""

from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import (
    Bounded,
    clipped_gram,
    clipped_outer_sum,
    clipped_sum,
    histogram,
    responses,
    votes,
)
from dpadapt.mechanisms.gaussian import DiscreteGaussian, Gaussian
from dpadapt.mechanisms.laplace import DiscreteLaplace, Laplace
from dpadapt.mechanisms.mechanism import Mechanism, NonPrivate
from dpadapt.mechanisms.randomized_response import RandomizedResponse
from dpadapt.mechanisms.selection import ExponentialMechanism, PermuteAndFlip

__all__ = [
    "Adjacency",
    "Bounded",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "ExponentialMechanism",
    "Gaussian",
    "Laplace",
    "Mechanism",
    "NonPrivate",
    "PermuteAndFlip",
    "RandomizedResponse",
    "clipped_gram",
    "clipped_outer_sum",
    "clipped_sum",
    "histogram",
    "responses",
    "votes",
]
