"""The descent of Algorithm 2 of private domain adaptation, step by step as printed.

R. Bassily, C. Cortes, A. Mao, M. Mohri. Differentially Private Domain Adaptation with Theoretical Guarantees. ICML
2024, Appendix D.2.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.accounting.ledger import Run
from dpadapt.adaptation.problem import Array, Penalties, weight_gradient
from dpadapt.adaptation.smooth_losses import SmoothLoss
from dpadapt.learning.descent import gradient_weights
from dpadapt.mechanisms.bounded import clipped_outer_sum
from dpadapt.mechanisms.bounded_losses import own_losses
from dpadapt.rows import Rows


@dataclass(frozen=True, eq=False)
class Labelled:
    """Rows of length at most 1 and their class codes."""

    Z: Array = field(repr=False)
    codes: NDArray[np.int64] = field(repr=False)

    def losses(self, loss: SmoothLoss, listed: Array) -> Array:
        """Return each row's loss under each of the `listed` coefficients, one column for each."""
        return np.column_stack([loss.losses(self.Z @ coef, self.codes) for coef in listed])


@dataclass(frozen=True, eq=False)
class Settings:
    """What Algorithm 2 needs to know beside the rows; all public."""

    shape: tuple[int, ...]
    loss: SmoothLoss
    n_source: int
    n_rows: float
    alpha: float
    radius: float
    n_steps: int
    penalties: Penalties
    sharpness: float
    lipschitz: float
    loss_bound: float
    gradient_noise: float
    weight_noise: float | None
    source_moves: bool
    average: str
    random_state: int | None

    @property
    def step(self) -> float:
        """One over the smoothness of the objective."""
        n_scores = 1 if len(self.shape) == 1 else self.shape[1]
        return 1 / smoothness_of(
            self.loss.smoothness(n_scores),
            self.lipschitz,
            self.loss_bound,
            max(self.n_source, 1),
            self.n_rows,
            self.alpha,
            self.penalties,
            self.sharpness,
        )


def smoothness_of(
    curvature: float,
    lipschitz: float,
    loss_bound: float,
    m: int,
    n: float,
    alpha: float,
    penalties: Penalties,
    sharpness: float,
) -> float:
    """Return the smoothness of problem (7): equations (19), (20) and (21) of the paper."""
    rest, one, two, top = 1 - alpha, penalties.one, penalties.two, penalties.infinity
    in_weights = (
        two * alpha**3 / m**2
        + 2 * alpha**3 * (abs(2 * loss_bound - one) + two * math.sqrt(n) + top) / m**2.5
        + top * sharpness * alpha**4 * (m**-3.0 + m**-3.5)
        + two * rest**3 / n**2
        + 2 * rest**3 * (abs(loss_bound - one) + two * math.sqrt(m) + top) / n**2.5
        + top * sharpness * rest**4 * (n**-3.0 + n**-3.5)
        + 2 * top * sharpness * alpha**2 * rest**2 / (m**1.5 * n**1.5)
    )
    return float(curvature + in_weights + lipschitz * (alpha**2 / m**1.5 + rest**2 / n**1.5))


def descend(
    run: Run | None,
    weight_run: Run | None,
    rows: Labelled | None,
    source: Labelled | None,
    work: Settings,
    discrepancy: float,
) -> Array:
    """Return the iterate, or the average of iterates, that `work` asks for.

    Parameters
    ----------
    run, weight_run : Run or None
        Pay for the gradients in the coefficients and for the losses that move the private weights.
    rows, source : Labelled or None
        Private target and public source; without rows the descent is on the source alone.
    work : Settings
    discrepancy : float
        Released before; added to the source's losses.
    """
    step = work.step
    p_source = work.alpha / work.n_source if source is not None and work.alpha else 0.0
    p_target = (1 - work.alpha) / work.n_rows
    private = None if rows is None or run is None else Rows(rows.Z, rows.codes)
    inverse_source = np.full(work.n_source, 1 / p_source) if p_source else np.zeros(0)
    inverse_target = (
        np.full(len(rows.codes), 1 / p_target) if rows is not None and weight_run is not None else np.zeros(0)
    )
    coef, total = np.zeros(work.shape), np.zeros(work.shape)
    kept = _kept(work)
    for t in range(work.n_steps):
        gradient = np.zeros(work.shape)
        losses_source, losses_target = np.zeros(len(inverse_source)), np.zeros(len(inverse_target))
        if source is not None and p_source:
            scores = source.Z @ coef
            if work.source_moves:
                losses_source = work.loss.losses(scores, source.codes) + discrepancy
            weights = work.loss.weights(scores, source.codes)
            gradient += source.Z.T @ (weights.T / inverse_source).T
        if private is not None and run is not None and rows is not None:
            if weight_run is not None:
                private.leverage = 1 / (p_target * inverse_target)
                losses = work.loss.losses(rows.Z @ coef, rows.codes)
                factors = private.leverage**2
                losses_target = weight_run.release(own_losses(losses, work.loss_bound, factors)) / factors
            # No row is longer than 1, so its gradient is no longer than the Lipschitz constant: nothing is clipped.
            total_gradient = clipped_outer_sum(private, gradient_weights(_Scored(work.loss), coef), work.lipschitz)
            gradient += p_target * run.release(total_gradient)
        coef = coef - step * gradient
        length = float(np.linalg.norm(coef))
        if length > work.radius:
            coef *= work.radius / length
        if kept[t]:
            total += coef
        inverse_source, inverse_target = _move_weights(
            inverse_source, inverse_target, losses_source, losses_target, work, step
        )
    return np.asarray(total / kept.sum())


def _kept(work: Settings) -> NDArray[np.bool_]:
    """Return which iterates are averaged: all, the last half, or one that is drawn without looking at any data."""
    kept = np.ones(work.n_steps, dtype=bool)
    if work.average == "tail":
        kept[: work.n_steps // 2] = False
    elif work.average == "paper":
        kept[:] = False
        kept[np.random.default_rng(work.random_state).integers(work.n_steps)] = True
    return kept


@dataclass(frozen=True)
class _Scored:
    """A smooth loss where only its derivative is asked for."""

    loss: SmoothLoss

    def weights(self, scores: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
        return self.loss.weights(scores, y)

    def value(self, scores: NDArray[Any], y: NDArray[Any]) -> float:
        return float(np.mean(self.loss.losses(scores, y)))


def _move_weights(
    inverse_source: Array,
    inverse_target: Array,
    losses_source: Array,
    losses_target: Array,
    work: Settings,
    step: float,
) -> tuple[Array, Array]:
    """Return the inverse weights after one step: lines 8 to 11."""
    if not work.source_moves and not len(inverse_target):
        return inverse_source, inverse_target
    m = len(inverse_source)
    p_source = work.alpha / work.n_source if m else 0.0
    p_target = (1 - work.alpha) / work.n_rows
    # Private weights that stay still count in the penalties, by their public number.
    resting = np.full(0 if len(inverse_target) or not p_target else round(work.n_rows), 1 / max(p_target, 1e-300))
    inverse = np.concatenate([inverse_source, inverse_target, resting])
    reference = np.repeat([p_source, p_target], [m, len(inverse) - m])
    losses = np.concatenate([losses_source, losses_target, np.zeros(len(resting))])
    moved = inverse - step * weight_gradient(losses, inverse, reference, work.penalties, work.sharpness)
    moved = np.maximum(moved, 1 / np.maximum(reference, 1e-300))
    after_source = moved[:m] if work.source_moves else inverse_source
    return after_source, moved[m : m + len(inverse_target)]


def public_list(source: Labelled, work: Settings, *, size: int = 64) -> Array:
    """Return coefficients to compare mean losses at: fixed directions and means of public classes, on the sphere."""
    rng = np.random.default_rng(0)
    listed = rng.standard_normal((size, *work.shape))
    signs = 2.0 * source.codes - 1.0 if len(work.shape) == 1 else np.eye(work.shape[1])[source.codes]
    towards = source.Z.T @ signs
    listed[0], listed[1] = towards, -towards
    lengths = np.sqrt(np.sum(listed**2, axis=tuple(range(1, listed.ndim)), keepdims=True))
    return np.asarray(listed * (work.radius / np.maximum(lengths, 1e-300)))
