"""One private second moment of rows and targets, and the ridge regressions that follow from it.

The statistics follow Y.-X. Wang, "Revisiting differentially private linear regression", UAI 2018 (AdaSSP), in one joint
release. Everything after the release is post-processing, so it may be solved as often as one likes.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpadapt.accounting.ledger import Ledger
from dpadapt.learning.base import Budget
from dpadapt.learning.geometry import Geometry
from dpadapt.mechanisms.bounded import clipped_gram
from dpadapt.mechanisms.gaussian import Gaussian

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Moment:
    """The average outer product of rows (z, e), z a row in the final coordinates and e its target, and its noise.

    Parameters
    ----------
    value : ndarray of shape (k + 1, k + 1)
    noise : float
        Standard deviation of the noise in each entry before it was made symmetric; 0 for public rows.
    """

    value: Array
    noise: float = 0.0

    def scaled(self, factor: float) -> "Moment":
        """Return `factor` times this moment."""
        return Moment(factor * self.value, factor * self.noise)

    def mixed(self, other: "Moment", share: float) -> "Moment":
        """Return `share` parts of this moment and 1 - share parts of another."""
        return Moment(
            share * self.value + (1 - share) * other.value,
            math.hypot(share * self.noise, (1 - share) * other.noise),
        )

    def solution(self) -> Array:
        """Return the ridge coefficients, with AdaSSP's ridge: what the noise can take from the smallest eigenvalue."""
        k = len(self.value) - 1
        values, vectors = np.linalg.eigh(self.value[:k, :k])
        spectral = self.noise * math.sqrt(2 * k)
        # A ten-thousandth of the average keeps directions that no row has ever shown from blowing up.
        floor = 1e-4 * max(float(values.mean()), 0.0) + 1e-12
        ridge = max(0.0, spectral - float(values[0])) + floor
        return np.asarray(vectors @ ((vectors.T @ self.value[:k, k]) / (values + ridge)))


def public_moment(Z: Array, e: Array) -> Moment:
    """Return the moment of public rows, as they are."""
    joint = np.column_stack([Z, e])
    return Moment(joint.T @ joint / len(Z))


def kept_share(Z: Array, e: Array, clip_norm: float) -> float:
    """Return how much of the size of public rows is left when they are shortened as private ones are."""
    squares = np.einsum("ij,ij->i", Z, Z) + e**2
    return float(np.minimum(squares, clip_norm**2).sum() / max(float(squares.sum()), 1e-300))


def private_moment(ledger: Ledger, budget: Budget, Z: Array, e: Array, clip_norm: float) -> Moment:
    """Release the moment of private rows, all of the budget at once."""
    # `clipped_gram` shortens each joint row to clip_norm and states the bound: |rr'|_F <= clip_norm², and sqrt 2 times
    # that between two rows.
    joint = clipped_gram(np.column_stack([Z, e]), clip_norm)
    released = ledger.release(Gaussian(1.0 / budget.mu), joint, label="second moment")
    return Moment((released + released.T) / (2 * budget.n_rows), moment_noise(budget, clip_norm))


def moment_noise(budget: Budget, clip_norm: float) -> float:
    """Return the noise in each entry of an average of outer products, if the whole budget goes into it."""
    # Under replace-one the bound is sqrt 2 clip_norm², where `Budget.noise` counts twice.
    return budget.noise(clip_norm**2) / (math.sqrt(2) if budget.factor == 2.0 else 1.0)


def joint_length(geometry: Geometry) -> float:
    """Return where joint rows are cut off, for targets on the scale of a feature: a little below a typical length.

    Shortening a joint row keeps its linear relation: a least-squares weight, no bias. Noise and signal shrink alike
    once most rows are shortened, so there is nothing to gain from a longer bound.
    """
    return 0.8 * math.hypot(geometry.typical_norm, 1.0)
