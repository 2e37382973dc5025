"""Bounded statistics and the mechanisms that add noise to them. Only the ledger draws (`dpadapt.accounting.ledger`)."""

from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import (
    Bounded,
    clipped_gram,
    clipped_outer_sum,
    clipped_sum,
    histogram,
    responses,
    soft_histogram,
    votes,
)
from dpadapt.mechanisms.choices import ExponentialMechanism, PermuteAndFlip, RandomizedResponse
from dpadapt.mechanisms.mechanism import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace, Mechanism, NonPrivate

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
    "soft_histogram",
    "votes",
]
