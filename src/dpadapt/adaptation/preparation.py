"""What the paper takes for granted, from public data: rows no longer than 1 and targets in [-1, 1].

The paper assumes |x| <= r and |y| <= 1 without saying how. Here columns are centred and scaled by public rows, a
constant feature is appended, rows are divided by a public length (so r = 1), and `limited_rows` or a clipped sum
enforces the bounds on private rows.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt import _validate
from dpadapt.errors import PrivacyError
from dpadapt.learning.base import Budget, PrivateEstimator
from dpadapt.learning.geometry import Geometry
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded_losses import LimitedRows, limited_rows

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
        _validate.delta(self.delta)
        if self.n_rows is not None:
            n_rows = _validate.count(self.n_rows, "n_rows")
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
