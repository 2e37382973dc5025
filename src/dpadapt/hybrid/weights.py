"""Weights of the curator's records: multiplicative updates, the dense projection, and a normaliser that is released.

A record's weight falls with the number of rounds that got it right. `dense_weights` is the projection of the paper,
eq. (2), whose normaliser c is computed from all records: one record then moves every other one's weight. Ours takes c
from a noisy histogram instead, so that a record's weight depends on itself and on what was released, on nothing else.
"""

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def normaliser(log_weights: Array, counts: Array, density: float) -> float:
    """Return log c for the smallest c with sum of counts * min(1, c * weight) = density * sum of counts.

    Parameters
    ----------
    log_weights : ndarray
        Logarithms of different weights.
    counts : ndarray
        How many records have each; what is not positive counts as none.
    density : float
        In (0, 1].

    Examples
    --------
    >>> log_c = normaliser(np.log([1.0, 0.5]), np.array([1.0, 3.0]), 0.5)
    >>> np.minimum(1.0, np.exp(log_c) * np.array([1.0, 0.5])).round(3)
    array([0.8, 0.4])
    """
    order = np.argsort(-log_weights, kind="stable")
    logs, amounts = log_weights[order], np.maximum(counts[order], 0.0)
    present = amounts > 0
    if not present.any():
        return 0.0
    logs, amounts = logs[present], amounts[present]
    # Relative to the heaviest, so that nothing underflows after many rounds.
    relative = np.exp(logs - logs[0])
    wanted = density * amounts.sum()
    # If the first j kinds are held at 1, the rest must make up for what they leave.
    held = np.concatenate([[0.0], np.cumsum(amounts)[:-1]])
    rest = np.cumsum((amounts * relative)[::-1])[::-1]
    with np.errstate(divide="ignore"):
        candidates = np.maximum(wanted - held, 0.0) / np.maximum(rest, 1e-300)
    # The first j for which no further kind would exceed 1 is the solution.
    fits = candidates * relative <= 1 + 1e-12
    j = int(np.argmax(fits)) if fits.any() else len(logs) - 1
    return math.log(max(candidates[j], 1e-300)) - float(logs[0])


def dense_weights(weights: Array, density: float) -> Array:
    """Return the projection of `weights` that is dense, eq. (2): min(1, c * weight), adding up to density * n.

    No weight exceeds 1 / density times the average. For the paper's algorithms; the normaliser is not protected.

    Examples
    --------
    >>> dense_weights(np.array([8.0, 1.0, 1.0, 1.0]), 0.5)
    array([1.        , 0.33333333, 0.33333333, 0.33333333])
    """
    weights = np.asarray(weights, dtype=np.float64)
    check_density(density, len(weights))
    with np.errstate(divide="ignore"):
        logs = np.log(weights)
    return record_weights(logs, normaliser(logs, np.ones(len(logs)), density))


def record_weights(log_weights: Array, log_c: float) -> Array:
    """Return min(1, c * weight) for each record: a function of that record and of the released c."""
    return np.asarray(np.exp(np.minimum(log_weights + log_c, 0.0)))


def released_weights(noisy: Array, learning_rate: float, density: float, noise: float | None) -> tuple[Array, float]:
    """Return the weight for each number of rounds got right, and the weights' sum over records, from noisy counts.

    Everything here follows from the release: entry b of `noisy` estimates how many records b rounds got right. `noise`
    is its standard deviation; with None the weights add up to density times the number of records, as in the paper,
    even where they could all be larger.
    """
    logs = -learning_rate * np.arange(len(noisy), dtype=np.float64)
    counts = np.maximum(noisy, 0.0)
    log_c = normaliser(logs, counts, density)
    # A sum that no cap limits can be scaled up until the heaviest records that seem to exist have weight 1: the noise
    # of what is learned from the weighted records does not grow with them.
    if noise is not None:
        exists = noisy > max(2.0 * noise, 0.05 * density * counts.sum())
        log_c = max(log_c, -float(logs[np.argmax(exists)])) if exists.any() else log_c
    weights = record_weights(logs, log_c)
    return weights, float(max(counts @ weights, density * counts.sum(), 1.0))


def check_density(density: float, n_rows: float) -> None:
    """Refuse a density that would put all weight on less than one record."""
    if not 0 < density <= 1:
        raise ValueError(f"density must lie in (0, 1], got {density!r}.")
    if density * n_rows < 1:
        raise ValueError(
            f"density times the number of rows must be at least 1, got {density * n_rows:.3g}: one record could carry "
            f"all the weight. Raise density, lower divergence, or bring more rows."
        )
