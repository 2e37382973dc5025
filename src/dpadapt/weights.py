"""Sample weights: a private row that stands for many people counts more than one that stands for few.

A weight w becomes the factor min(w, max_weight) / max_weight. It lies in [0, 1] and depends on the row's own weight and
on a public maximum alone. The row's share is multiplied by it, after clipping. So the shares of a unit's rows are still
at least 0 and still add up to at most 1, which is all that the makers in `mechanisms/bounded.py` ask of them: every
bound holds as it is, for rows and for persons, and noise and cost do not change.

What changes is how much the rows amount to. The factors f of n rows add up to n times their mean, which is the number
that a sum must be divided by, and the number of rows that a plan has to reckon with: the noise of a weighted mean is
that of a mean over Σ f rows, and its sampling error is at most that, because the effective sample size (Kish)
(Σ f)² / Σ f² is at least Σ f where no f exceeds 1. The exact Σ f is private. The public n * mean_weight / max_weight
takes its place; without `mean_weight`, n does, which is never too small: steps that are too short leave more of the
public model, steps that are too long could diverge.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt import checks
from dpadapt.persons import Shares

_NO_WEIGHTS = "sample_weight must hold one number for each private row."
_NO_MAXIMUM = (
    "max_weight must be given with sample_weight: the largest weight, known without looking at the private weights. "
    "Larger weights count as this one."
)


def weighted(shares: Shares, weights: Any, *, max_weight: Any, mean_weight: Any = None) -> Shares:
    """Return the shares, each times the factor of its row's weight.

    A weight that is negative or no finite number counts as 0, without a message: it would tell something about a row.

    Parameters
    ----------
    shares : Shares
    weights : array-like of shape (n_rows,)
        Private. No message shows one.
    max_weight : float
        Public. Larger weights count as this one.
    mean_weight : float, optional
        Public; see `mean_factor`.

    Examples
    --------
    >>> from dpadapt.persons import row_shares
    >>> shares = weighted(row_shares(np.ones(4)), [1.0, 8.0, -1.0, np.nan], max_weight=4.0, mean_weight=2.0)
    >>> shares.values, shares.counted
    (array([0.25, 1.  , 0.  , 0.  ]), 0.5)
    """
    counted = mean_factor(max_weight, mean_weight)
    own = _numbers(weights, len(shares.values))
    with np.errstate(all="ignore"):
        # Claim: 0 <= factor <= 1, so that no share grows. w <= M gives w / M <= 1 also when rounded.
        # Not proved: that max_weight is public.
        factors = np.clip(np.where(np.isfinite(own), own, 0.0), 0.0, max_weight) / max_weight
        return replace(shares, values=shares.values * factors, counted=counted)


def mean_factor(max_weight: Any, mean_weight: Any = None) -> float:
    """Return what the mean factor of the rows is assumed to be, or refuse bounds of weights; all are public.

    Examples
    --------
    >>> mean_factor(10.0, 2.0), mean_factor(10.0)
    (0.2, 1.0)
    """
    if max_weight is None:
        raise ValueError(_NO_MAXIMUM)
    most = checks.scale(max_weight, "max_weight")
    if mean_weight is None:
        return 1.0
    mean = checks.scale(mean_weight, "mean_weight")
    if mean > most:
        raise ValueError(f"mean_weight must be at most max_weight, {most:g}, got {mean:g}.")
    return mean / most


def weights_assumption(max_weight: float, mean_weight: float | None) -> str:
    """Return what weights assume to be public, for receipts."""
    mean = "" if mean_weight is None else f", and their mean, {mean_weight:g}"
    return f"the largest sample weight, {max_weight:g}{mean}; larger weights count as the largest"


def _numbers(weights: Any, n_rows: int) -> NDArray[np.float64]:
    """Return the weights in float64, or refuse them without showing one."""
    numbers: NDArray[np.float64] | None = None
    try:
        array = np.ma.filled(weights.astype(np.float64), np.nan) if isinstance(weights, np.ma.MaskedArray) else weights
        array = np.asarray(checks.cells(array))
        if array.shape == (n_rows,) and array.dtype.kind == "O":
            numbers = np.array([_number_of(weight) for weight in array], dtype=np.float64)
        elif array.shape == (n_rows,) and array.dtype.kind in "biuf":
            numbers = array.astype(np.float64)
    except Exception:
        numbers = None
    if numbers is None:
        # Outside the handler, and in words of our own: the original error may quote a weight. The number of rows may be
        # private, so it is not shown.
        raise ValueError(_NO_WEIGHTS)
    return numbers


def _number_of(weight: Any) -> float:
    """Return one weight; NaN if it is missing or larger than any float, an error if it is no number."""
    if weight is None:
        return math.nan
    if isinstance(weight, complex | np.complexfloating | np.datetime64 | np.timedelta64):
        raise TypeError
    try:
        return float(weight)
    except OverflowError:
        return math.nan
