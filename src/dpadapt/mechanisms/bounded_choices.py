"""`Bounded` scores of candidates: how much weight records give to each, without a table of records by candidates."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpadapt import _validate
from dpadapt.mechanisms.bounded import Bounded

Array = NDArray[np.float64]


def weighted_votes(ballots: Iterable[NDArray[Any]], weights: ArrayLike) -> Bounded:
    """Add up, for each candidate, the weights of the records that vote for it; weights are held to [0, 1].

    Parameters
    ----------
    ballots : iterable of bool arrays
        One per candidate, with an entry per record.
    weights : array of shape (n_records,)
        What is not finite counts as 0.

    Examples
    --------
    >>> weighted_votes([np.array([True, True]), np.array([False, True])], [1.0, 0.25]).value
    array([1.25, 0.25])
    """
    held = held_weights(weights)
    # A vote is a yes or a no: anything else would be another weight.
    scores = np.array([float(held[np.asarray(ballot, dtype=bool)].sum()) for ballot in ballots], dtype=np.float64)
    return _scores(scores)


def threshold_votes(ranks: ArrayLike, inside: ArrayLike, weights: ArrayLike, n_thresholds: int) -> Bounded:
    """Add up the weights of the records that each of several rules with each of several thresholds gets right.

    Parameters
    ----------
    ranks : int array of shape (n_records, n_rules)
        The first threshold that has the record inside, from 0; `n_thresholds` if none has.
    inside : bool array of shape (n_records,)
        Whether the record belongs inside.
    weights : array of shape (n_records,)
        Held to [0, 1]; what is not finite counts as 0.
    n_thresholds : int

    Returns
    -------
    Bounded
        Of shape (n_rules, n_thresholds).

    Examples
    --------
    >>> threshold_votes([[0], [1], [2]], [True, True, False], [1.0, 1.0, 0.5], 3).value
    array([[1.5, 2.5, 2. ]])
    """
    n_thresholds = _validate.count(n_thresholds, "n_thresholds")
    table = np.clip(np.asarray(ranks, dtype=np.int64), 0, n_thresholds)
    if table.ndim != 2:
        raise ValueError(f"ranks must have one row per record and one column per rule, got {table.ndim} axes.")
    belongs, held = np.asarray(inside, dtype=bool), held_weights(weights)
    scores = np.empty((table.shape[1], n_thresholds))
    for rule in range(table.shape[1]):
        ins = np.bincount(table[belongs, rule], held[belongs], minlength=n_thresholds + 1)[:n_thresholds]
        outs = np.bincount(table[~belongs, rule], held[~belongs], minlength=n_thresholds + 1)[::-1]
        # Inside records are right from their rank on, outside ones before it.
        scores[rule] = np.cumsum(ins) + np.cumsum(outs)[::-1][1:]
    return _scores(scores)


def held_weights(weights: ArrayLike) -> Array:
    """Return weights held to [0, 1]; what is not finite becomes 0."""
    held = np.array(weights, dtype=np.float64)
    held[~np.isfinite(held)] = 0.0
    return np.clip(held, 0.0, 1.0, out=held)


def _scores(scores: Array) -> Bounded:
    # A record adds between 0 and 1 to each candidate: zeroing, adding or replacing it moves each by at most 1, and a
    # further record lowers none.
    n = float(scores.size)
    return Bounded(scores, l1=n, linf=1.0, replaced={"l1": n, "linf": 1.0}, monotone=True)
