"""What the estimators of paper 1 share: public scales and base classes.

The paper assumes |x| <= r and |y| <= 1 without saying how. Here columns are centred and scaled by public rows, a
constant feature is appended, rows are divided by a public length (so r = 1), and `limited_rows` or a clipped sum
enforces the bounds on private rows.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from dpadapt import checks
from dpadapt.accounting.ledger import Ledger, Run
from dpadapt.errors import PrivacyError
from dpadapt.learning.base import Budget, PrivateEstimator, RegressionInput
from dpadapt.learning.scaling import Geometry, centre_and_scale
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.mechanism import Gaussian, Laplace, NonPrivate, Plan, Repeated
from dpadapt.papers.adaptation.bounded_losses import LimitedRows, limited_rows
from dpadapt.papers.adaptation.noise import PaperClaim, exact_spending, paper_multiplier, require_valid_claim

Array = NDArray[np.float64]

# The largest length of a row and the largest target, after scaling: r and 1 in the paper.
MAX_NORM = 1.0
MAX_TARGET = 1.0
# Quantile of the lengths of public rows that becomes length 1; longer rows are shortened. At the largest length, one
# odd row would shrink all others; at a low quantile, many rows lose weight. Chosen by hand; neighbours not compared.
_ROW_LENGTH_QUANTILE = 0.95
# Quantile of the distances of public labels from their mean that becomes 1; targets beyond are moved to the end. Over
# the whole range a few labels far out would stretch the scale, and the noise with it. Chosen by hand.
_LABEL_RANGE_QUANTILE = 0.99
# Least epsilon for the discrepancy: below it the noise is a billion times the sensitivity. Chosen by hand.
_LEAST_DISCREPANCY_EPSILON = 1e-9


# Public scales.


def unit_geometry(n_features: int, X_public: Array | None) -> Geometry:
    """Return the map of rows to length 1 at most: by public rows, or for features declared to lie in [-1, 1].

    A column that is constant in public has no public scale and is left out.
    """
    k = n_features + 1
    center, scale, length = np.zeros(n_features), np.ones(n_features), math.sqrt(k)
    if X_public is not None:
        center, scale = centre_and_scale(X_public)
        rows = Geometry(center, scale, np.eye(k), np.ones(k), 1.0, 1.0).extend(X_public)
        length = float(np.quantile(np.linalg.norm(rows, axis=1), _ROW_LENGTH_QUANTILE))
    return Geometry(center, scale, np.eye(k) / length, np.full(k, 1 / k), MAX_NORM, MAX_NORM)


def unit_rows(geometry: Geometry, X: Array) -> Array:
    """Return `geometry.transform(X)` for a `unit_geometry`, whose basis is a multiple of the identity."""
    with np.errstate(all="ignore"):
        rows = geometry.extend(X)
        rows *= geometry.basis[0, 0]
        return rows


@dataclass(frozen=True)
class TargetScale:
    """The affine map that takes targets to [-1, 1]."""

    middle: float
    half: float

    def apply(self, y: NDArray[Any]) -> Array:
        """Return scaled targets; an overflow gives infinity, without a warning."""
        with np.errstate(all="ignore"):
            return np.asarray((y - self.middle) / self.half, dtype=np.float64)


def target_scale(bounds: Any, y_public: Array | None) -> TargetScale:
    """Return the scale of declared `bounds`, else that of public labels, else (-1, 1).

    With public labels their mean becomes 0. The descent starts there: from a start far from all labels, noisy steps
    would first have to cover the distance.
    """
    middle = None if y_public is None else float(y_public.mean())
    if bounds is None and y_public is not None and middle is not None:
        half = float(np.quantile(np.abs(y_public - middle), _LABEL_RANGE_QUANTILE))
        return TargetScale(middle, half if half > 0 else max(1.0, abs(middle)))
    low, high = checks.bounds(bounds, "target_bounds")
    middle = (low + high) / 2 if middle is None else min(max(middle, low), high)
    return TargetScale(middle, max(high - middle, middle - low))


def bounded_rows(Z: Array, targets: Array) -> LimitedRows:
    """Return rows of length at most 1; a longer row is shortened together with its target.

    Shortening both by the same factor keeps their linear relation.
    """
    # A numerical warning or error would tell of an extreme row, whatever the caller's settings are.
    with np.errstate(all="ignore"):
        targets = np.clip(targets, -MAX_TARGET, MAX_TARGET) * np.minimum(1.0, MAX_NORM / np.linalg.norm(Z, axis=1))
    # Row by row, so that the bounds that `limited_rows` enforces are still those of one record.
    return limited_rows(Z, targets, max_norm=MAX_NORM, max_target=MAX_TARGET)


# Base classes of the private estimators.


class AdaptationRegressor(RegressorMixin, PrivateEstimator):  # type: ignore[misc]
    """What the private regressions of paper 1 do after their releases."""

    coef_: Array
    intercept_: float

    def predict(self, X: Any) -> Array:
        """Return predictions for rows of `X`."""
        return self._scores(X)

    def _finish(
        self,
        data: RegressionInput,
        coef: Array,
        intercept: Any,
        scale: TargetScale,
        assumed: Sequence[str],
        notes: Sequence[str] = (),
    ) -> None:
        """Write the receipt, then the coefficients, which are given for scaled targets."""
        # The receipt first: an interrupted refit must not leave new coefficients under an old receipt.
        self.privacy_ = self._receipt(data.ledger, data.budget, assumed, notes=notes)
        self.coef_, self.intercept_ = coef * scale.half, float(intercept) * scale.half + scale.middle


@dataclass(frozen=True)
class NoisePlan:
    """Noise of everything that Algorithm 1 or 2 releases.

    Parameters
    ----------
    gradient : float
        Noise multiplier of each gradient in the coefficients.
    weights : float or None
        Noise multiplier of each gradient in the private weights; None: these weights stay at their reference.
    discrepancy_epsilon : float
        What the discrepancy costs by Laplace noise; 0: it is not released with noise.
    """

    gradient: float
    weights: float | None
    discrepancy_epsilon: float


class AdaptationEstimator(PrivateEstimator):
    """Budget, noise and charges of Algorithms 1 and 2, which also have a form without privacy, at epsilon = inf."""

    noise: str

    def _check_combination(self, public: Any) -> None:
        if self._protects:
            super()._check_combination(public)

    @property
    def _protects(self) -> bool:
        return not (isinstance(self.epsilon, float) and self.epsilon == math.inf)

    def _budget(self, n_rows: int) -> Budget:
        """Return what may be spent; at epsilon = inf, everything."""
        if self._protects:
            return super()._budget(n_rows)
        return Budget(math.inf, float(n_rows if self.n_rows is None else self.n_rows), 1.0)

    def _noise_plan(self, share: float, n_steps: int, printed_bound: float, bound: float) -> NoisePlan:
        """Return the noise of all releases.

        Parameters
        ----------
        share : float
            The part of epsilon that the discrepancy gets.
        n_steps : int
        printed_bound, bound : float
            Sensitivity of a gradient sum as the paper prints it, and as it is under `adjacency`, in one unit.
        """
        if not self._protects:
            return NoisePlan(0.0, 0.0, 0.0)
        if 0 < share * self.epsilon < _LEAST_DISCREPANCY_EPSILON:
            raise ValueError(
                f"discrepancy_share must be larger, or 0: it leaves less than {_LEAST_DISCREPANCY_EPSILON:g} of "
                f"epsilon for the discrepancy, got {share!r}."
            )
        adjacency = Adjacency.of(self.adjacency)
        if self.noise == "exact":
            spending = exact_spending(self.epsilon, self.delta, share, adjacency)
            return NoisePlan(math.sqrt(n_steps) / spending.mu, None, spending.discrepancy_epsilon)
        if adjacency is Adjacency.ADD_REMOVE:
            raise PrivacyError(
                "noise='paper' releases one weight per private row, which tells their number; add-remove protects it. "
                "Use noise='exact', or replace-one adjacency as in the paper."
            )
        # The algorithm runs at what the discrepancy leaves of epsilon.
        printed = paper_multiplier((1 - share) * self.epsilon, self.delta, n_steps)
        return NoisePlan(printed * printed_bound / bound, printed, share * self.epsilon)

    def _require_valid_claim(self, share: float) -> PaperClaim | None:
        """Return the paper's claim if its printed noise is used, or refuse an epsilon at which the claim is false."""
        if self.noise == "exact" or not self._protects:
            return None
        return require_valid_claim(self.epsilon, self.delta, share=share)

    def _start(
        self, ledger: Ledger, noise: NoisePlan, gaussian: Mapping[str, tuple[float, int]], *, has_source: bool
    ) -> dict[str, Run]:
        """Charge all releases at once and return their runs by label.

        `gaussian` gives the noise multiplier and the number of each kind of release besides the discrepancy.
        """
        plans: dict[str, Plan] = {}
        if noise.discrepancy_epsilon:
            plans["discrepancy"] = Repeated(Laplace(1 / noise.discrepancy_epsilon))
        elif not self._protects and has_source:
            plans["discrepancy"] = Repeated(NonPrivate())
        for label, (multiplier, times) in gaussian.items():
            plans[label] = Repeated(Gaussian(multiplier) if self._protects else NonPrivate(), times)
        return dict(zip(plans, ledger.start_all([(plan, label) for label, plan in plans.items()]), strict=True))

    def _notes(self, claim: PaperClaim | None) -> list[str]:
        """Return notes for the receipt: no privacy, or the paper's claim beside the true cost."""
        if not self._protects:
            return ["epsilon = inf: no noise was added; this model is not private and must not be shared"]
        if claim is None:
            return []
        return [
            f"noise='paper': the paper claims epsilon = {claim.claimed:.4g}; with the sensitivities of its Lemma 4.2 "
            f"the noise costs {claim.method_epsilon:.4g}, with the tight ones what this receipt says"
        ]
