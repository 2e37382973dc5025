"""Exact solvers of the problems (5), (6) and (7) of private domain adaptation, without privacy.

R. Bassily, C. Cortes, A. Mao, M. Mohri. Differentially Private Domain Adaptation with Theoretical Guarantees. ICML
2024. arXiv:2306.08838. `dpadapt.papers.adaptation.problem` states the problems.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_array, check_X_y

from dpadapt import checks
from dpadapt.papers.adaptation.bounded_losses import minimise_in_ball
from dpadapt.papers.adaptation.problem import (
    Array,
    CrossEntropy,
    Penalties,
    SmoothLoss,
    checked_loss,
    mixture_share,
    reference_weights,
)

Form = Literal["convex", "original"]
FORMS = ("convex", "original")


def objective(losses: Array, weights: Array, reference: Array, penalties: Penalties, form: Form) -> float:
    """Return the objective of (6) ("convex") or of (3) and (5) ("original").

    `losses` already include the discrepancy on the source rows. Rows of reference weight 0 are left out.
    """
    used = reference > 0
    q, p = weights[used], reference[used]
    distance = float(np.sum(p**2 / q)) - 1 if form == "convex" else float(np.abs(q - p).sum() + 1 - p.sum())
    spread = penalties.two * float(np.linalg.norm(q)) + penalties.infinity * float(q.max(initial=0.0))
    return float(losses[used] @ q) + penalties.one * distance + spread


# The exact solver. For given coefficients the best weights follow from one or two scalar roots (`best_weights`). What
# remains is a function of the coefficients, which is convex in problem (6). With penalties two = infinity = 0 it is
# Huber's loss: a source row counts sqrt(residual² + d), and both kinds of rows are quadratic up to sqrt(one) and linear
# beyond.


@dataclass(frozen=True, eq=False)
class Solution:
    """Coefficients and weights, with a bound on how far they are from the minimum.

    Parameters
    ----------
    coef : ndarray of shape (n_features,)
    weights : ndarray of shape (n_source + n_target,)
        Source rows first.
    objective : float
    gap : float
        For problem (6): the objective exceeds its minimum by at most this. For (5), which is not jointly convex: the
        most by which other coefficients could improve the objective at these weights; the weights are the best for
        these coefficients.
    rounds : int
    form : {"convex", "original"}
    """

    coef: Array = field(repr=False)
    weights: Array = field(repr=False)
    objective: float
    gap: float
    rounds: int
    form: str


def solve(
    X_source: ArrayLike | None,
    y_source: ArrayLike | None,
    X_target: ArrayLike,
    y_target: ArrayLike,
    *,
    alpha: float = 0.5,
    radius: float = 1.0,
    discrepancy: float = 0.0,
    penalties: Penalties | None = None,
    form: Form = "convex",
    tolerance: float = 1e-10,
    max_rounds: int = 200,
) -> Solution:
    """Minimise (6), or (5), over coefficients of length at most `radius` and sample weights together. Not private.

    For public rows, for baselines, and as the reference that private algorithms are compared with.

    Parameters
    ----------
    X_source, y_source : array-like or None
        Source rows, neither scaled nor extended here: scale them and append a constant feature first. None: no source.
    X_target, y_target : array-like
        Target rows.
    alpha : float, default=0.5
        The source's share of the reference weights.
    radius : float, default=1.0
    discrepancy : float, default=0.0
        Added to the loss of each source row.
    penalties : Penalties, optional
        Default: Penalties().
    form : {"convex", "original"}, default="convex"
        Problem (6), or problem (5).
    tolerance : float, default=1e-10
        Stop once `gap` is below this share of the objective.
    max_rounds : int, default=200

    Examples
    --------
    >>> X = np.array([[1.0], [2.0], [1.0]])
    >>> solution = solve(X[:2], [1.0, 2.0], X[2:], [0.5], alpha=0.5, radius=2.0)
    >>> bool(solution.gap < 1e-9)
    True
    >>> solution.coef.round(3)
    array([0.857])
    """
    penalties = Penalties() if penalties is None else penalties
    checks.one_of(form, FORMS, "form")
    radius = checks.positive(radius, "radius")
    if form == "convex" and penalties.one == 0:
        raise ValueError("penalty 'one' must be positive in problem (6): at 0 all weights vanish. Use form='original'.")
    discrepancy = checks.penalty(discrepancy, "discrepancy")
    X, y, n_source = stack(X_source, y_source, X_target, y_target)
    alpha = mixture_share(alpha) if n_source else 0.0
    p = reference_weights(n_source, len(X) - n_source, alpha)
    extra = np.where(np.arange(len(X)) < n_source, float(discrepancy), 0.0)
    return _alternate(X, y, extra, p, radius, penalties, form, tolerance, max_rounds)


def stack(
    X_source: Any, y_source: Any, X_target: Any, y_target: Any
) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    """Return source rows above target rows, their labels, and the number of source rows."""
    X, y = check_X_y(X_target, y_target, dtype=np.float64, y_numeric=True, estimator="target rows")
    if X_source is None:
        return X, y.astype(np.float64), 0
    above = check_array(X_source, dtype=np.float64, input_name="X_source", estimator="source rows")
    if above.shape[1] != X.shape[1]:
        raise ValueError(f"X_source must have the target's {X.shape[1]} columns, got {above.shape[1]}.")
    labels = np.asarray(y_source, dtype=np.float64).ravel()
    if len(labels) != len(above) or not np.isfinite(labels).all():
        raise ValueError(f"y_source must hold one finite number per source row, {len(above)} in all.")
    return np.vstack([above, X]), np.concatenate([labels, y]), len(above)


def _alternate(
    X: Array,
    y: Array,
    extra: Array,
    p: Array,
    radius: float,
    penalties: Penalties,
    form: Form,
    tolerance: float,
    most: int,
) -> Solution:
    """Minimise with the weights eliminated, by Newton steps; where a Newton step fails, by an alternating step."""

    def evaluate(coef: Array) -> tuple[Array, Array, float]:
        residual = X @ coef - y
        losses = residual**2 + extra
        q = best_weights(losses, p, penalties, form)
        return residual, q, objective(losses, q, p, penalties, form)

    coef = _weighted_fit(X, y, p, radius)
    residual, q, value = evaluate(coef)
    best = Solution(coef, q, value, math.inf, 0, form)
    stalled = 0
    for rounds in range(1, most + 1):
        # The best value over the weights has this derivative (envelope theorem); a convex function lies above its
        # tangent, so it can't fall by more than the tangent does in the ball.
        slope = 2 * (X.T @ (q * residual))
        gap = max(0.0, float(slope @ coef) + radius * float(np.linalg.norm(slope)))
        if gap < best.gap:
            best = Solution(coef, q, value, gap, rounds, form)
        if gap <= tolerance * max(abs(value), 1e-12) or stalled > 2:
            break
        chosen = None
        for candidate in _candidates(X, y, coef, residual, slope, q, p, radius, penalties, form):
            evaluated = evaluate(candidate)
            if chosen is None or evaluated[2] < chosen[1][2]:
                chosen = candidate, evaluated
            # If a step gains a fair part of what its quadratic model predicts, no other step is tried.
            if evaluated[2] < value - 0.05 * max(0.0, float(slope @ (coef - candidate))):
                break
        if chosen is None or not chosen[1][2] <= value + 1e-15 * abs(value):
            break
        # Near the minimum the value no longer falls in floating point, but the gap may.
        stalled += not chosen[1][2] < value
        coef, (residual, q, value) = chosen
    return best


def _candidates(
    X: Array,
    y: Array,
    coef: Array,
    residual: Array,
    slope: Array,
    q: Array,
    p: Array,
    radius: float,
    penalties: Penalties,
    form: Form,
) -> Iterator[Array]:
    """Yield the next coefficients to try: the Newton step, then the alternating step, which never raises the value."""
    if form == "convex":
        # q moves against the loss of its own row: d q / d loss = -1 / (2 one p² / q³ + two / |q|) below its bound.
        bend = 2 * penalties.one * p**2 / np.maximum(q, 1e-100) ** 3 + penalties.two / np.linalg.norm(q)
        free = q < p * (1 - 1e-12)
        if penalties.infinity:
            free &= q < q.max() * (1 - 1e-12)
        curvature = 2 * q - np.where(free, 4 * residual**2 / np.where(bend > 0, bend, 1.0), 0.0)
        hessian = (X * np.maximum(curvature, 0.0)[:, None]).T @ X / 2
        hessian[np.diag_indices(len(coef))] += 1e-12 * max(float(np.trace(hessian)) / len(coef), 1e-300)
        # Minimise slope'(w - coef) + (w - coef)' hessian (w - coef) in the ball; hessian is half the second derivative.
        yield minimise_in_ball(hessian, hessian @ coef - slope / 2, radius)
    yield _weighted_fit(X, y, q, radius)


def _weighted_fit(X: Array, y: Array, weights: Array, radius: float) -> Array:
    """Return the weighted least-squares coefficients of length at most `radius`."""
    scaled = X * weights[:, None]
    return minimise_in_ball(scaled.T @ X, scaled.T @ y, radius)


def huber_objective(residual: Array, extra: Array, p: Array, one: float) -> float:
    """Return problem (6) at penalties two = infinity = 0 with the weights eliminated: a Huber loss.

    With t = sqrt(one) and s = sqrt(residual² + extra) a row counts p times s² + t² up to t, 2 t s beyond it.
    """
    size = np.sqrt(residual**2 + extra)
    t = math.sqrt(one)
    return float(np.sum(p * np.where(size <= t, size**2 + one, 2 * t * size))) - one


def best_weights(losses: Array, p: Array, penalties: Penalties, form: Form, sharpness: float = 0.0) -> Array:
    """Return the weights that minimise the objective for given losses; problem (7)'s if `sharpness` is positive."""
    used = p > 0
    q = np.zeros_like(p)
    if not used.any():
        return q
    inner = _Weights(losses[used], p[used], penalties, form, sharpness)
    q[used] = inner.best()
    return q


@dataclass(frozen=True, eq=False)
class _Weights:
    """The problem in the weights alone: separable except for their length and their maximum, two scalars."""

    losses: Array
    p: Array
    penalties: Penalties
    form: Form
    sharpness: float = 0.0

    def best(self) -> Array:
        """Return the best weights."""
        two = self.penalties.two
        if not two:
            return self._capped(0.0)
        # two |q| = min over t of two (|q|² / t + t) / 2. The value is convex in t and stationary where |q(t)| = t, so
        # |q(t)| / t falls through 1 there.
        high = float(np.linalg.norm(self.p))
        low = high * 1e-12

        def excess(log_t: float) -> float:
            t = math.exp(log_t)
            return math.log(max(float(np.linalg.norm(self._capped(two / t))), 1e-300)) - log_t

        if excess(math.log(low)) <= 0:
            # Only in problems (5) and (7): no weight is worth its penalty.
            return self._capped(two / low) * (self.form == "convex")
        return self._capped(two / math.exp(_root(excess, math.log(low), math.log(high))))

    def _capped(self, ridge: float) -> Array:
        """Return the best weights if two |q|_2 is replaced by ridge |q|² / 2."""
        free = self._separate(ridge)
        infinity = self.penalties.infinity
        if not infinity:
            return free
        if self.sharpness:
            return self._softly_capped(ridge)

        def relief(cap: float) -> float:
            return float(np.maximum(-self._slope(np.full_like(self.p, cap), ridge)[free > cap], 0.0).sum()) - infinity

        # At the best cap, the gains that the weights at the cap would have from raising it add up to the penalty on it.
        top = float(free.max())
        low = top * 1e-9
        if top <= 0 or relief(low) <= 0:
            return np.zeros_like(free)
        return np.minimum(free, _root(relief, low, top))

    def _softly_capped(self, ridge: float) -> Array:
        """Return the best weights if the smooth maximum of (7) is in place of the largest weight."""
        gain, rate = self.penalties.one - self.losses, self.sharpness

        def at(log_sum: float) -> Array:
            # gain = ridge q + pull exp(rate q): increasing and convex in q, so that Newton's method falls to the root
            # from any point beyond it.
            pull = self.penalties.infinity * math.exp(-log_sum)
            q = np.where(gain > pull, self.p, 0.0)
            for _ in range(60):
                lift = pull * np.exp(rate * q)
                step = np.where(q > 0, np.maximum(ridge * q + lift - gain, 0.0) / (ridge + rate * lift), 0.0)
                q = np.maximum(q - step, 0.0)
                if np.all(step <= 1e-15 * self.p):
                    break
            return q

        def excess(log_sum: float) -> float:
            return math.log(float(np.exp(rate * at(log_sum)).sum())) - log_sum

        # log S = min over s of S exp(-s) + s - 1. The value is convex in s and stationary where log S(s) = s, so
        # log S(s) - s falls through 0 there.
        low, high = math.log(len(self.p)), math.log(float(np.exp(rate * self.p).sum()))
        return at(low if excess(low) <= 0 else _root(excess, low, high))

    def _slope(self, q: Array, ridge: float) -> Array:
        """Return the derivative of the objective in each weight, without the penalty on the largest."""
        one = self.penalties.one
        return self.losses + ridge * q - (one * (self.p / q) ** 2 if self.form == "convex" else one)

    def _separate(self, ridge: float) -> Array:
        """Return each row's best weight, without the penalty on the largest weight."""
        one = self.penalties.one
        if self.form == "original":
            gain = one - self.losses
            if not ridge:
                return np.where(gain > 0, self.p, 0.0)
            return np.clip(gain / ridge, 0.0, self.p)
        if not ridge:
            return self.p * np.minimum(1.0, np.sqrt(one / np.maximum(self.losses, 1e-300)))
        # ridge q³ + losses q² = one p², from above: Newton's method on this increasing, convex function of q > 0
        # falls to the root from any point beyond it.
        target = one * self.p**2
        q = np.minimum(np.cbrt(target / ridge), np.sqrt(target / np.maximum(self.losses, 1e-300)))
        for _ in range(60):
            step = (ridge * q**3 + self.losses * q**2 - target) / (3 * ridge * q**2 + 2 * self.losses * q)
            q = q - step
            if np.all(np.abs(step) <= 1e-15 * q):
                break
        return np.minimum(q, self.p)


def _root(f: Callable[[float], float], low: float, high: float) -> float:
    """Return the root of a falling function in [low, high]; `high` if the function is not negative there."""
    from scipy.optimize import brentq

    if f(high) >= 0:
        return high
    return float(brentq(f, low, high, xtol=1e-300, rtol=1e-14, maxiter=300))


# The solver of (7). For given coefficients the best weights are exact (`best_weights`); for given weights and a convex
# loss the best coefficients are (`_weighted_minimum`). Problem (7) is not jointly convex, so alternating ends where
# neither block improves, which need not be the least value; several starts are tried.


def smooth_objective(losses: Array, weights: Array, reference: Array, penalties: Penalties, sharpness: float) -> float:
    """Return the objective of (7); `losses` include the discrepancy. Rows of reference weight 0 are left out."""
    used = reference > 0
    q = weights[used]
    plain = objective(losses, weights, reference, Penalties(penalties.one, penalties.two), "original")
    top = float(q.max(initial=0.0))
    return plain + penalties.infinity * (top + math.log(float(np.exp(sharpness * (q - top)).sum())) / sharpness)


def solve_smooth(
    X_source: ArrayLike | None,
    codes_source: ArrayLike | None,
    X_target: ArrayLike,
    codes_target: ArrayLike,
    *,
    n_classes: int = 2,
    loss: SmoothLoss | None = None,
    alpha: float = 0.5,
    radius: float = 1.0,
    discrepancy: float = 0.0,
    penalties: Penalties | None = None,
    sharpness: float | None = None,
    tolerance: float = 1e-9,
    max_rounds: int = 100,
) -> Solution:
    """Minimise (7) over coefficients of length at most `radius` and sample weights, for a convex loss. Not private.

    Parameters
    ----------
    X_source, codes_source : array-like or None
        Source rows, neither scaled nor extended here, and their classes 0 ... n_classes - 1. None: no source.
    X_target, codes_target : array-like
        Target rows.
    n_classes : int, default=2
    loss : SmoothLoss, optional
        A convex one. Default: CrossEntropy().
    alpha, radius, discrepancy, penalties, tolerance, max_rounds
        As in `solve`.
    sharpness : float, optional
        Default: the root of the number of all rows.

    Returns
    -------
    Solution
        `gap` is the most by which other coefficients could improve the objective at these weights; the weights are the
        best for these coefficients.

    Examples
    --------
    >>> X = np.array([[1.0], [-1.0], [1.0], [-1.0]])
    >>> solution = solve_smooth(X[:2], [1, 0], X[2:], [1, 1], alpha=0.5, radius=5.0, penalties=Penalties(10.0))
    >>> solution.coef.round(4)  # the log-odds of 3 to 1
    array([1.0986])
    """
    penalties = Penalties() if penalties is None else penalties
    radius, discrepancy = checks.positive(radius, "radius"), checks.penalty(discrepancy, "discrepancy")
    n_scores = 1 if checks.count(n_classes, "n_classes", least=2) == 2 else n_classes
    loss = CrossEntropy() if loss is None else checked_loss(loss, n_scores, radius)
    X, labels, m = stack(X_source, codes_source, X_target, codes_target)
    codes = labels.astype(np.int64)
    if not np.array_equal(codes, labels) or codes.min() < 0 or codes.max() >= n_classes:
        raise ValueError(f"codes must be whole numbers from 0 to {n_classes - 1}.")
    p = reference_weights(m, len(X) - m, mixture_share(alpha) if m else 0.0)
    mu = checks.positive(math.sqrt(len(X)) if sharpness is None else sharpness, "sharpness")
    extra = np.where(np.arange(len(X)) < m, float(discrepancy), 0.0)
    shape = (X.shape[1],) if n_scores == 1 else (X.shape[1], n_scores)
    source, solutions = np.arange(len(X)) < m, []
    for q in (p, np.where(source, 0.0, p), np.where(source, p, 0.0)):
        coef, value, rounds = np.zeros(shape), math.inf, 0
        while rounds < max_rounds and q.any():
            coef, _ = _weighted_minimum(X, codes, q, coef, loss, radius, tolerance)
            losses = loss.losses(X @ coef, codes) + extra
            q = best_weights(losses, p, penalties, "original", mu)
            last, value, rounds = value, smooth_objective(losses, q, p, penalties, mu), rounds + 1
            if last - value <= tolerance * max(abs(value), 1e-12):
                break
        if rounds:
            _, gap = _weighted_minimum(X, codes, q, coef, loss, radius, math.inf)
            solutions.append(Solution(coef, q, value, gap, rounds, "smooth"))
    return min(solutions, key=lambda solution: solution.objective)


def _weighted_minimum(
    X: Array, codes: NDArray[np.int64], q: Array, coef: Array, loss: SmoothLoss, radius: float, tolerance: float
) -> tuple[Array, float]:
    """Return the coefficients in the ball that minimise the weighted convex loss, by Newton steps, and their gap."""

    def value(at: Array) -> float:
        return float(q @ loss.losses(X @ at, codes))

    now = value(coef)
    for _ in range(100):
        slope = X.T @ (q * loss.weights(X @ coef, codes).T).T
        # A convex function lies above its tangent, so it can't fall by more than the tangent does in the ball.
        gap = max(0.0, float(np.sum(slope * coef)) + radius * float(np.linalg.norm(slope)))
        if gap <= tolerance * max(now, 1e-12):
            break
        hessian = _score_hessian(X, codes, q, coef, loss) / 2
        hessian[np.diag_indices(len(hessian))] += 1e-12 * max(float(np.trace(hessian)) / len(hessian), 1e-300)
        goal = minimise_in_ball(hessian, hessian @ coef.ravel() - slope.ravel() / 2, radius).reshape(coef.shape)
        fall, share = float(np.sum(slope * (goal - coef))), 1.0
        while share > 1e-9 and not value(coef + share * (goal - coef)) <= now + 1e-4 * share * fall:
            share /= 2
        moved = coef + share * (goal - coef)
        then = value(moved)
        if not then < now:
            break
        coef, now = moved, then
    return coef, gap


def _score_hessian(X: Array, codes: NDArray[np.int64], q: Array, coef: Array, loss: SmoothLoss) -> Array:
    """Return the second derivative of the weighted loss in the coefficients, the scores' part by differences."""
    scores, h = X @ coef, 1e-5
    if scores.ndim == 1:
        bend = (loss.weights(scores + h, codes) - loss.weights(scores - h, codes)) / (2 * h)
        return np.asarray((X * (q * bend)[:, None]).T @ X)
    d, k = coef.shape
    hessian = np.empty((d, k, d, k))
    for j in range(k):
        shift = h * np.eye(k)[j]
        bend = (loss.weights(scores + shift, codes) - loss.weights(scores - shift, codes)) / (2 * h)
        for i in range(k):
            hessian[:, i, :, j] = (X * (q * bend[:, i])[:, None]).T @ X
    return hessian.reshape(d * k, d * k)
