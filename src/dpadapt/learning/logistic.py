"""`PrivateLogisticRegression`: logistic and softmax regression by private descent."""

import math
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.accounting.ledger import Ledger, Run
from dpadapt.data import Public
from dpadapt.learning.base import Budget, ClassificationInput, LinearClassifier, features_assumption
from dpadapt.learning.decisions import best_threshold, require_public, score_shift, threshold_rule
from dpadapt.learning.descent import constant, decaying, james_stein, private_descent, tail_noise
from dpadapt.learning.losses import log_loss, softmax
from dpadapt.learning.public_models import public_classifier
from dpadapt.learning.ranges import ROWS_RANGE, plan_ranges, shrunk_geometry
from dpadapt.learning.scaling import Geometry, declared_geometry, public_geometry
from dpadapt.mechanisms.mechanism import Gaussian, Repeated
from dpadapt.rows import Blocks, Part, Rows

# Number of gradient steps; four times as many without public data. The noise does not depend on it; more steps cost
# time. Half and twice as many: errors 0.0% and 0.5% larger (+- 0.4%; `tools/constants.py learning`).
_LOGISTIC_STEPS = 100


class PrivateLogisticRegression(LinearClassifier):
    """Logistic regression (two or more classes) on private rows, started from and standardised by public ones.

    With labelled public data the public model is the start, and private gradient steps correct it; the correction is
    shrunk (James–Stein) by as much as its known noise demands. With unlabelled public data only the scales and the
    whitening come from it. Without public data the features are assumed to lie in about [-1, 1]; if the budget allows,
    a small part of it finds out how much narrower their range really is.

    **Privacy.** Protects one private row (see `adjacency`).
    Releases: clipped gradient sums, Gaussian. Without public data and with enough rows also a histogram of the lengths
    of rows, Gaussian.
    Costs at most `epsilon`, `delta`; see `privacy_`. Public data is not protected.

    Parameters
    ----------
    {epsilon}
    {delta}
    {classes}
    {class_weight}
    {decision_threshold}
    {max_weight}
    {mean_weight}
    {adjacency}
    {n_rows}
    {random_state}

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
    intercept_ : ndarray of shape (1,) or (n_classes,)
    classes_ : ndarray of shape (n_classes,)
    decision_threshold_ : float or None
        Probability from which on `predict` answers the second of two classes; None: the most probable class.
    n_features_in_ : int
    privacy_ : Receipt
        What was released and what it cost.

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import PrivateLogisticRegression, Public
    >>> rng = np.random.default_rng(7)
    >>> X, X_public = rng.uniform(-1, 1, (2000, 3)), rng.uniform(-1, 1, (200, 3))
    >>> y, y_public = X[:, 0] > 0.2, X_public[:, 0] > X_public[:, 1]
    >>> model = PrivateLogisticRegression(random_state=0).fit(X, y, public=Public(X_public, y_public))
    >>> model.privacy_.epsilon <= 1.0
    True
    >>> model.score(X, y) > 0.9
    True
    """

    # Without public rows, see `declared_geometry`.
    _assumes_unit_features = True
    _streams = True

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        classes: Any = None,
        class_weight: Any = None,
        decision_threshold: Any = None,
        max_weight: float | None = None,
        mean_weight: float | None = None,
        adjacency: str = "zero-out",
        n_rows: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.classes = classes
        self.class_weight = class_weight
        self.decision_threshold = decision_threshold
        self.max_weight = max_weight
        self.mean_weight = mean_weight
        self.adjacency = adjacency
        self.n_rows = n_rows
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        public: Public | None = None,
        persons: Any = None,
        sample_weight: Any = None,
        ledger: Ledger | None = None,
    ) -> "PrivateLogisticRegression":
        """Fit on private `X`, `y`.

        Parameters
        ----------
        {private X}
        {private labels}
        {public}
        {persons}
        {sample_weight}
        {ledger}
        """
        return self.fit_to(
            self._read_classification(X, y, public, ledger, self.classes, persons=persons, sample_weight=sample_weight)
        )

    def fit_to(self, data: ClassificationInput) -> "PrivateLogisticRegression":
        """Fit to rows that were read before; for estimators that fall back on this one."""
        public, self.n_features_in_ = data.X_public, data.n_features
        shift = score_shift(self.class_weight, data.classes, data.codes_public)
        rule = threshold_rule(self.decision_threshold, len(data.classes), weighted=self.class_weight is not None)
        require_public(rule, data.X_public)
        n_scores = 1 if len(data.classes) == 2 else len(data.classes)
        geometry = declared_geometry(data.n_features) if data.X_public is None else public_geometry(data.X_public)
        start = np.zeros((data.n_features + 1, n_scores))
        curvature = 0.25 if n_scores == 1 else 1.0 / n_scores
        warm = data.codes_public is not None
        if data.X_public is not None and data.codes_public is not None:
            rows_public = geometry.extend(data.X_public)
            extended = public_classifier(rows_public, data.codes_public, n_scores)
            start = geometry.solution_for(extended)
            curvature = _mean_curvature(rows_public @ extended)
        change = np.zeros_like(start)
        if data.budget.worthwhile:
            ranges = plan_ranges(data.budget, ROWS_RANGE if public is None else {})
            steps = 4 * _LOGISTIC_STEPS if public is None else _LOGISTIC_STEPS
            descent = Repeated(Gaussian(math.sqrt(steps) / ranges.rest.mu), steps)
            *range_runs, run = data.ledger.start_all([*ranges.charges, (descent, "gradient")])
            if range_runs:
                geometry = shrunk_geometry(range_runs[0], geometry, data.rows, ranges)
            rows = data.rows.map(partial(_coordinate_rows, geometry=geometry, fixed_rows=data.fixed_rows))
            plan = (start, ranges.rest, geometry, curvature)
            change = _correction(run, rows, *plan, whitened=public is not None, warm=warm)
        coef, intercept = geometry.coefficients(start + change)
        # The receipt first: an interrupted refit must not leave new coefficients under an old receipt.
        self.privacy_ = self._receipt(data.ledger, data.budget, [data.source, *features_assumption(data.X_public)])
        self.coef_, self.intercept_ = coef.T, np.atleast_1d(intercept) + shift
        self.classes_ = data.classes
        self.decision_threshold_ = best_threshold(rule, self._linear_probabilities(data.X_public))
        return self


def _coordinate_rows(part: Part, *, geometry: Geometry, fixed_rows: bool) -> Rows:
    Z = geometry.transform(part.X, fixed_rows=fixed_rows)
    return Rows(Z, part.y, max_norm=geometry.max_norm, shares=part.shares, fixed_rows=fixed_rows)


def _correction(
    run: Run,
    rows: Blocks[Rows],
    start: NDArray[np.float64],
    budget: Budget,
    geometry: Geometry,
    curvature: float,
    *,
    whitened: bool,
    warm: bool,
) -> NDArray[np.float64]:
    """Return a correction of `start` by clipped full-batch gradient steps; everything but the rows is public."""
    k, n_scores = start.shape
    # A residual is at most 1 (one score) or sqrt 2 long; half of that, times a typical row, clips a minority of rows.
    # Clipping biases probabilities, so the clipping norm grows, up to twofold, while the noise in a score is below 0.1.
    clip_norm = geometry.typical_norm / (2.0 if n_scores == 1 else math.sqrt(2))
    score_noise = math.sqrt(k) * budget.noise(clip_norm) / curvature
    clip_norm *= min(2.0, max(1.0, 0.1 / score_noise))
    noise = budget.noise(clip_norm)
    # The expected change moves scores by about 1 (warm) or sqrt 3 (cold). It is spread over the coordinates evenly if
    # it corrects a model, and like the variance of the rows if there is none.
    signal = np.full(k, 1.0 / k) if warm else 3.0 * geometry.spectrum
    # The linear least-mean-squares ridge: noise and sampling error over expected signal.
    ridge = np.minimum((noise**2 + curvature / budget.n_rows) / (curvature * signal + 1e-300), 1e6)
    metric = 1.0 / (curvature + ridge)
    rule, steps = decaying(1.0), run.plan.steps
    if not whitened:
        # One direction may have most of the length of a row, and so most of the curvature.
        rule = constant(1.0)
        metric = 1.0 / (curvature * geometry.typical_norm**2 + ridge)
    single = n_scores == 1
    solution = private_descent(
        run,
        rows,
        log_loss(n_scores),
        start[:, 0] if single else start,
        clip_norm=clip_norm,
        n_rows=budget.n_rows,
        step=rule,
        metric=metric if single else metric[:, None],
        ridge=ridge if single else ridge[:, None],
    )
    change = solution.reshape(start.shape) - start
    if not warm:
        return change
    scatter = tail_noise(steps, rule, np.ones(1)) * noise**2 * steps * metric**2
    return james_stein(change, np.repeat(scatter[:, None], n_scores, axis=1))


def _mean_curvature(scores: NDArray[np.float64]) -> float:
    """Return the mean second derivative of the loss in a score, over public rows; at least a fifth of its maximum."""
    if scores.shape[1] == 1:
        p = 0.5 + 0.5 * np.tanh(scores / 2)
        return max(0.05, float(np.mean(p * (1 - p))))
    p = softmax(scores)
    most = 1.0 / scores.shape[1]
    spread = float(np.mean(1 - np.sum(p**2, axis=1)))
    return float(max(0.2 * most, spread / (scores.shape[1] - 1)))
