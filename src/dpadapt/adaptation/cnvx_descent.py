"""The descent of Algorithm 1 of private domain adaptation in d² operations a step.

R. Bassily, C. Cortes, A. Mao, M. Mohri. Differentially Private Domain Adaptation with Theoretical Guarantees. ICML
2024. A gradient in the coefficients is a matrix times a vector once the weighted sums of products of rows are known.
They change with the weights only, which move by at most `_DRIFT` between two renewals.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpadapt.accounting.ledger import Run
from dpadapt.adaptation.problem import Array, Penalties, weight_gradient
from dpadapt.mechanisms.bounded_losses import LimitedRows, Moments, own_losses, squared_loss_gradient

# How far weights may move, relative to themselves, before sums are renewed.
_DRIFT = 2e-4


@dataclass(frozen=True)
class Schedule:
    """Noise, step lengths and renewals of one fit; all public.

    Parameters
    ----------
    n_source : int
    n_rows : float
        A public number of private rows.
    alpha, radius, n_steps, penalties
        As in `CnvxAdap`.
    loss_bound : float
        B: the most that a loss can be.
    gradient_noise : float
        Noise multiplier of a gradient sum.
    weight_noise : float or None
        Noise multiplier of the losses that move the private weights; None: those weights stay.
    discrepancy_epsilon : float
    source_moves : bool
        Whether the public weights move.
    block, source_blocks : int
        Steps between two renewals of the private sums, and how many such blocks between two of the public ones.
    coef_step, source_step, target_step : float
        Step lengths in the coefficients and in the inverse weights.
    first : int
        Iterates from this one on are averaged.
    """

    n_source: int
    n_rows: float
    alpha: float
    radius: float
    n_steps: int
    penalties: Penalties
    loss_bound: float
    gradient_noise: float
    weight_noise: float | None
    discrepancy_epsilon: float
    source_moves: bool
    block: int
    source_blocks: int
    coef_step: float
    source_step: float
    target_step: float
    first: int


def schedule(
    *,
    width: int,
    n_source: int,
    n_rows: float,
    alpha: float,
    radius: float,
    n_steps: int,
    penalties: Penalties,
    lipschitz: float,
    loss_bound: float,
    gradient_noise: float,
    gradient_reach: float,
    weight_noise: float | None,
    discrepancy_epsilon: float,
    source_moves: bool,
    tail: bool,
) -> Schedule:
    """Return the step lengths of line 4 of Algorithm 1, and how often sums are renewed."""
    rest, m, n, T = 1 - alpha, n_source, n_rows, n_steps
    most = loss_bound + penalties.total
    # sigma 1 and sigma 2 of the algorithm, from the noise multipliers of the sums that are released.
    gradient_sigma = rest / n * gradient_noise * gradient_reach
    weight_sigma = (rest / n) ** 2 * loss_bound * (weight_noise or 0.0)
    source_moves = source_moves and alpha > 0
    target_moves = weight_noise is not None and rest > 0
    # Such steps move 1 / weight by at most 1 / sqrt(m T) and 1 / sqrt(n T), of at least m / alpha and n / (1 - alpha).
    source_block = _steps_between(alpha / (m**1.5 * math.sqrt(T)) if source_moves else 0.0, T)
    target_block = _steps_between(rest / (n**1.5 * math.sqrt(T)) if target_moves else 0.0, T)
    block = min(source_block, target_block)
    return Schedule(
        n_source=n_source,
        n_rows=n_rows,
        alpha=alpha,
        radius=radius,
        n_steps=n_steps,
        penalties=penalties,
        loss_bound=loss_bound,
        gradient_noise=gradient_noise,
        weight_noise=weight_noise if target_moves else None,
        discrepancy_epsilon=discrepancy_epsilon,
        source_moves=source_moves,
        block=block,
        source_blocks=source_block // block,
        coef_step=radius / math.sqrt(T * (lipschitz**2 + width * gradient_sigma**2)),
        source_step=m**1.5 / (math.sqrt(T) * alpha**2 * (loss_bound + most)) if source_moves else 0.0,
        target_step=n**1.5 / math.sqrt(T * (rest**4 * most**2 + n**4 * weight_sigma**2)) if target_moves else 0.0,
        first=T // 2 if tail else 0,
    )


def _steps_between(drift: float, n_steps: int) -> int:
    """Return how many steps of relative `drift` come to `_DRIFT`; at least 1, at most all."""
    return max(1, int(_DRIFT / drift)) if drift * n_steps > _DRIFT else n_steps


def descend(
    run: Run | None,
    weight_runs: Sequence[Run],
    rows: LimitedRows,
    source: LimitedRows | None,
    work: Schedule,
    discrepancy: float,
) -> Array:
    """Return the average iterate.

    Parameters
    ----------
    run : Run or None
        Pays for the gradients; None if the target has no weight.
    weight_runs : sequence of Run
        Pay for the losses that move the private weights: whole blocks, then what is left.
    rows, source : LimitedRows
        Private target and public source.
    work : Schedule
    discrepancy : float
        Released before; added to the source's losses.
    """
    width = rows.X.shape[1]
    weights = _Weights(rows, source, work, discrepancy)
    coef, total = np.zeros(width), np.zeros(width)
    pending = [pays for pays in weight_runs for _ in range(pays.left)]
    pull, offset = weights.source_sums()
    unit = weights.p_target if run is not None else 1.0
    length_of_step, limit, first = work.coef_step * unit, work.radius**2, work.first
    for start in range(0, work.n_steps, work.block):
        steps = min(work.block, work.n_steps - start)
        # The source's part of the gradient, in units of the target's weights, is public: it joins the sum for free.
        moments = weights.target_moments().plus(pull / unit, offset / unit)
        visited = np.empty((steps if weights.moves else 0, width))
        for step in range(steps):
            if weights.moves:
                visited[step] = coef
            if run is not None:
                gradient = run.release(squared_loss_gradient(moments, coef, work.radius))
            else:
                gradient = 2 * (pull @ coef - offset)
            gradient *= length_of_step
            coef = coef - gradient
            square = coef.dot(coef)
            if square > limit:
                coef *= math.sqrt(limit / square)
            if start + step >= first:
                total += coef
        if weights.moves and weights.move(visited, pending.pop(0) if pending else None):
            pull, offset = weights.source_sums()
    return total / (work.n_steps - work.first)


class _Weights:
    """The inverse weights u of both samples, and the sums over rows that follow from them."""

    def __init__(self, rows: LimitedRows, source: LimitedRows | None, work: Schedule, discrepancy: float) -> None:
        self._rows, self._source, self._work, self._discrepancy = rows, source, work, discrepancy
        self.p_source = work.alpha / work.n_source if source is not None else 0.0
        self.p_target = (1 - work.alpha) / work.n_rows
        self._inverse_source = np.full(work.n_source if self.p_source else 0, 1 / max(self.p_source, 1e-300))
        # Private weights that stay still count in the length of all weights, by their public number.
        self._moving = work.weight_noise is not None
        self.moves = self._moving or work.source_moves
        size = len(rows.y) if self._moving else round(work.n_rows)
        self._inverse_target = np.full(size if self.p_target else 0, 1 / max(self.p_target, 1e-300))
        self._blocks = self._steps = 0
        self._second: Any = 0.0
        self._first: Any = 0.0

    def source_sums(self) -> tuple[Array, Array]:
        """Return the weighted sums of x x' and x y over the source."""
        width = self._rows.X.shape[1]
        if self._source is None or not self.p_source:
            return np.zeros((width, width)), np.zeros(width)
        sums = self._source.moments(1 / (self.p_source * self._inverse_source))
        return self.p_source * sums.gram, self.p_source * sums.cross

    def target_moments(self) -> Moments:
        """Return the weighted sums over private rows."""
        return self._rows.moments(1 / (self.p_target * self._inverse_target) if self._moving else None)

    def move(self, visited: Array, run: Run | None) -> bool:
        """Take lines 8 to 11 for all steps at `visited` at once; tell whether the source's weights moved."""
        work, steps = self._work, len(visited)
        if run is not None:
            # The paper adds noise to losses over u² with u >= 1 / p. Once they are released, dividing is free.
            factors = (self.p_target * self._inverse_target) ** -2.0
            losses = _mean_losses(self._rows, visited.T @ visited / steps, visited.mean(axis=0))
            noisy = run.release(own_losses(losses, work.loss_bound, factors)) / factors
            slope = self._slope(np.zeros(len(self._inverse_source)), noisy)[len(self._inverse_source) :]
            moved = self._inverse_target - steps * work.target_step * slope
            self._inverse_target = np.maximum(moved, 1 / self.p_target)
        if self._source is None or not work.source_moves:
            return False
        self._blocks, self._steps = self._blocks + 1, self._steps + steps
        self._second, self._first = self._second + visited.T @ visited, self._first + visited.sum(axis=0)
        if self._blocks < work.source_blocks:
            return False
        losses = _mean_losses(self._source, self._second / self._steps, self._first / self._steps) + self._discrepancy
        slope = self._slope(losses, np.zeros(len(self._inverse_target)))[: len(losses)]
        moved = self._inverse_source - self._steps * work.source_step * slope
        self._inverse_source = np.maximum(moved, 1 / self.p_source)
        self._blocks, self._steps, self._second, self._first = 0, 0, 0.0, 0.0
        return True

    def _slope(self, losses_source: Array, losses_target: Array) -> Array:
        """Return the derivative of problem (6) in all inverse weights."""
        inverse = np.concatenate([self._inverse_source, self._inverse_target])
        reference = np.repeat([self.p_source, self.p_target], [len(losses_source), len(losses_target)])
        losses = np.concatenate([losses_source, losses_target])
        return weight_gradient(losses, inverse, reference, self._work.penalties, 0.0)


def _mean_losses(rows: LimitedRows, second: Array, first: Array) -> Array:
    """Return each row's mean squared loss over coefficients whose mean is `first` and mean square `second`."""
    squares = np.einsum("ij,ij->i", rows.X @ second, rows.X)
    return np.asarray(squares - 2 * rows.y * (rows.X @ first) + rows.y**2)
