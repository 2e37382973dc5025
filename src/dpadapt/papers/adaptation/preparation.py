"""Weighted ridge and logistic regression on standardised rows: what every reweighing method fits in the end."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from dpadapt import checks
from dpadapt.errors import PrivacyError
from dpadapt.learning.estimator import Budget, PrivateEstimator
from dpadapt.learning.preparation import Geometry
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded_losses import LimitedRows, limited_rows

# What the paper takes for granted, from public data: rows no longer than 1 and targets in [-1, 1].
#
# The paper assumes |x| <= r and |y| <= 1 without saying how. Here columns are centred and scaled by public rows, a
# constant feature is appended, rows are divided by a public length (so r = 1), and `limited_rows` or a clipped sum
# enforces the bounds on private rows.


Array = NDArray[np.float64]

MAX_NORM = 1.0
MAX_TARGET = 1.0


def unit_geometry(n_features: int, X_public: Array | None) -> Geometry:
    """Return how rows are brought to length 1 at most: by public rows, or as features declared to lie in [-1, 1].

    A column that is constant in public has no public scale and is left out.
    """
    k = n_features + 1
    center, scale, length = np.zeros(n_features), np.ones(n_features), math.sqrt(k)
    if X_public is not None:
        center, spread = X_public.mean(axis=0), X_public.std(axis=0)
        scale = np.where(spread > 1e-12 * np.maximum(1.0, np.abs(center)), spread, np.inf)
        # A twentieth of the public rows is longer and will be shortened: one odd row must not shrink all others.
        rows = Geometry(center, scale, np.eye(k), np.ones(k), 1.0, 1.0).extend(X_public)
        length = float(np.quantile(np.linalg.norm(rows, axis=1), 0.95))
    return Geometry(center, scale, np.eye(k) / length, np.full(k, 1 / k), MAX_NORM, MAX_NORM)


@dataclass(frozen=True)
class TargetScale:
    """The affine map that takes targets to [-1, 1]."""

    middle: float
    half: float

    def apply(self, y: NDArray[Any]) -> Array:
        """Return scaled targets; too large ones come out infinite, without a warning."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray((y - self.middle) / self.half, dtype=np.float64)


def target_scale(bounds: Any, y_public: Array | None) -> TargetScale:
    """Return the scale of declared `bounds`, else that of public labels, else (-1, 1).

    With public labels their mean becomes 0: steps start there, and a start far from all labels would have to be
    unlearned at the noise's price. Without bounds, one public label in a hundred lies outside.
    """
    middle = None if y_public is None else float(y_public.mean())
    if bounds is None and y_public is not None and middle is not None:
        half = float(np.quantile(np.abs(y_public - middle), 0.99))
        return TargetScale(middle, half if half > 0 else max(1.0, abs(middle)))
    try:
        low, high = (-1.0, 1.0) if bounds is None else (float(bound) for bound in bounds)
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"target_bounds must be a pair (low, high) of finite numbers with low < high, got {bounds!r}.")
    middle = (low + high) / 2 if middle is None else min(max(middle, low), high)
    return TargetScale(middle, max(high - middle, middle - low))


def bounded_rows(Z: Array, targets: Array) -> LimitedRows:
    """Return rows of length at most 1; a longer one is shortened with its target, which keeps their linear relation."""
    # A numerical warning or error would tell of an extreme row, whatever the caller's settings are.
    with np.errstate(all="ignore"):
        targets = np.clip(targets, -MAX_TARGET, MAX_TARGET) * np.minimum(1.0, MAX_NORM / np.linalg.norm(Z, axis=1))
    # Row by row, so that the bounds that `limited_rows` enforces are still those of one record.
    return limited_rows(Z, targets, max_norm=MAX_NORM, max_target=MAX_TARGET)


class AdaptationEstimator(PrivateEstimator):
    """A private estimator that also has a form without privacy, at epsilon = inf."""

    @property
    def _protects(self) -> bool:
        return not (isinstance(self.epsilon, float) and self.epsilon == math.inf)

    def _budget(self, n_rows: int) -> Budget:
        """Return what may be spent; at epsilon = inf, everything."""
        if self._protects:
            return super()._budget(n_rows)
        checks.delta(self.delta)
        if self.n_rows is not None:
            n_rows = checks.count(self.n_rows, "n_rows")
        return Budget(math.inf, float(n_rows), 1.0)

    def _notes(self, claim: Any) -> list[str]:
        """Return what a reader of the receipt should know: no privacy, or the paper's claim beside the truth."""
        if not self._protects:
            return ["epsilon = inf: no noise was added; this model is not private and must not be shared"]
        if claim is None:
            return []
        return [
            f"noise='paper': the paper claims epsilon = {claim.claimed:.4g}; with the sensitivities of its Lemma 4.2 "
            f"the noise costs {claim.method_epsilon:.4g}, with the tight ones what this receipt says"
        ]


def refuse_add_remove(adjacency: str) -> None:
    """Refuse the paper's private weights where the number of rows is private: there is one of them for each row."""
    if Adjacency.of(adjacency) is Adjacency.ADD_REMOVE:
        raise PrivacyError(
            "noise='paper' releases one weight per private row, which tells their number; add-remove protects it. "
            "Use noise='exact', or replace-one adjacency as in the paper."
        )


Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Standard:
    """How columns are centred and scaled. A constant column has an infinite scale, which leaves it out."""

    center: Vector
    scale: Vector

    def apply(self, X: NDArray[Any]) -> Vector:
        """Return standardised rows."""
        return np.asarray((X - self.center) / self.scale, dtype=np.float64)

    def undo(self, coef: Vector, intercept: Any) -> tuple[Vector, Any]:
        """Return coefficients (last axis: features) and intercept for raw rows."""
        raw = coef / self.scale
        return raw, intercept - raw @ self.center


def standard(X: NDArray[Any]) -> Standard:
    """Return the mean and spread of the columns of `X`."""
    X = np.asarray(X, dtype=np.float64)
    center, scale = X.mean(axis=0), X.std(axis=0)
    return Standard(center, np.where(scale > 1e-12 * np.maximum(1.0, np.abs(center)), scale, np.inf))


def weighted_ridge(Z: Vector, y: Vector, weights: Vector, ridge: float) -> tuple[Vector, float]:
    """Return coefficients and intercept that minimise the weighted squared error plus a ridge.

    `ridge` is relative to the average eigenvalue of the weighted second moment; the intercept is not penalised.
    """
    total = float(weights.sum())
    if total <= 0:
        return np.zeros(Z.shape[1]), 0.0
    share = weights / total
    middle, level = share @ Z, float(share @ y)
    centred = Z - middle
    gram = (centred * share[:, None]).T @ centred
    cross = centred.T @ (share * (y - level))
    # Whatever the columns are, the sum of `gram` and this is positive definite.
    strength = ridge * max(float(np.trace(gram)) / len(gram), 1e-12)
    coef = np.asarray(np.linalg.solve(gram + strength * np.eye(len(gram)), cross), dtype=np.float64)
    return coef, level - float(middle @ coef)


def weighted_logistic(
    Z: Vector, codes: NDArray[np.int64], weights: Vector, ridge: float, n_classes: int
) -> tuple[Vector, Vector]:
    """Return coefficients and intercepts, one row per score, that minimise the weighted log-loss plus a ridge.

    `ridge` is relative to the average weighted square of a column. A class that has no weight gets a score of -inf's
    stand-in: so low that it is never the answer.
    """
    total = float(weights.sum())
    n_scores = 1 if n_classes == 2 else n_classes
    coef, intercept = np.zeros((n_scores, Z.shape[1])), np.zeros(n_scores)
    used = weights > 0
    present = np.unique(codes[used])
    if len(present) == 0:
        return coef, intercept
    if len(present) == 1:
        # One class only: the answer is that class, whatever the row.
        intercept[:] = -_NEVER
        intercept[0 if n_scores == 1 else present[0]] = _NEVER if n_scores > 1 or present[0] == 1 else -_NEVER
        return coef, intercept
    share = weights[used] / total
    rows = Z[used]
    strength = ridge * max(float(share @ np.mean(rows**2, axis=1)), 1e-12)
    # scikit-learn minimises C Σ weight loss + |w|²/2; the weights here add up to 1.
    solver = LogisticRegression(C=1.0 / strength, solver="newton-cholesky", max_iter=200, tol=1e-8)
    solver.fit(rows, codes[used], sample_weight=share)
    if n_scores == 1:
        return np.asarray(solver.coef_), np.asarray(solver.intercept_)
    if len(present) == 2:
        # Two of several classes: half the score for one, minus half for the other.
        halves = np.array([[-0.5], [0.5]])
        coef[present], found = halves * solver.coef_, (halves * solver.intercept_)[:, 0]
    else:
        coef[present], found = solver.coef_, solver.intercept_
    intercept[:] = -_NEVER
    intercept[present] = found
    return coef, intercept


# A score that no row outweighs: exp(-_NEVER) is 0 in floating point.
_NEVER = 1e3
