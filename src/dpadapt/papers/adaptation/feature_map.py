"""`FeatureMapAdaptation`: Algorithm 1 where source and target have other columns, and the map between them is learned.

R. Bassily, C. Cortes, A. Mao, M. Mohri. Differentially Private Domain Adaptation with Theoretical Guarantees. ICML
2024, section 7, "Handling distinct feature spaces", case (2).

A private row of the target is x, a public row of the source s, with a constant 1 appended to both. The map P takes s to
the target's space. With the weights of the mixture, as `CnvxAdap(noise="exact")` has them, the objective is

    F(w, P) = alpha mean (w'Ps - y)² + (1 - alpha) / n Σ (w'x - y)²

over |w| <= radius and |P - P0| <= map_radius (Frobenius norm). The private rows enter through w alone, so a step in P
needs no release: given w, it is a function of public rows.
"""

import math
from dataclasses import dataclass
from itertools import repeat
from typing import Annotated, Any

import numpy as np

from dpadapt import checks
from dpadapt.accounting.ledger import Ledger, Run
from dpadapt.data import Public
from dpadapt.inputs.gate import numeric_labels, public_rows
from dpadapt.learning.base import bounds_assumption
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.papers.adaptation.bounded_losses import (
    Moments,
    SquaredLossGradients,
    gradient_bounds,
    minimise_in_ball,
    shorten,
)
from dpadapt.papers.adaptation.preparation import (
    MAX_NORM,
    MAX_TARGET,
    AdaptationEstimator,
    AdaptationRegressor,
    TargetScale,
    bounded_rows,
    target_scale,
    unit_geometry,
    unit_rows,
)
from dpadapt.papers.adaptation.problem import Array, mixture_share


@dataclass(frozen=True, eq=False)
class MappedSource:
    """The public source under a map to the target's space, by its sums alone.

    Parameters
    ----------
    gram, cross : ndarray
        Means of s s' and s y over source rows, whose last feature is the constant 1.
    initial : ndarray of shape (n_features + 1, n_source_features + 1)
        The map to begin with, in the target's final coordinates. Its last row, that of the constant, stays.
    radius : float
        How far the map may be from `initial`, in Frobenius norm.
    """

    gram: Array
    cross: Array
    initial: Array
    radius: float

    def coef_gradient(self, coef: Array, mapping: Array) -> Array:
        """Return the derivative of the mean squared loss in the coefficients."""
        return np.asarray(2 * (mapping @ (self.gram @ (mapping.T @ coef) - self.cross)))

    def map_gradient(self, coef: Array, mapping: Array) -> Array:
        """Return the derivative of the mean squared loss in the map; the last row, which stays, has none."""
        gradient = 2 * np.outer(coef, self.gram @ (mapping.T @ coef) - self.cross)
        gradient[-1] = 0.0
        return np.asarray(gradient)

    def projected(self, mapping: Array) -> Array:
        """Return the nearest map that is no further from the initial one than `radius`."""
        change = mapping - self.initial
        length = float(np.linalg.norm(change))
        return mapping if length <= self.radius else self.initial + change * (self.radius / length)


class FeatureMapAdaptation(AdaptationRegressor, AdaptationEstimator):
    """Linear regression on a private target and a public source with other columns, and a linear map between them.

    Section 7 of [1]_, case (2): the source's loss is that of the model after a map of its rows to the target's columns,
    and the map is learned together with the model. Noisy projected descent as in Algorithm 1; after every step in the
    coefficients, the map takes a step of its own, which uses public rows and released coefficients alone.

    **Privacy.** Protects one private row (see `adjacency`).
    Releases: gradient sums of the private rows, Gaussian, `n_steps` times.
    Costs at most `epsilon`, `delta`; see `privacy_`. Public data is not protected.

    Parameters
    ----------
    epsilon : float, default=1.0
        The most that this fit may spend. Positive; inf for the form without privacy.
    {delta}
    initial_map : array-like of shape (n_features, n_public_features), optional
        What is known of the map: row j gives the private column j from the public ones. Default: column j is column j,
        as far as both have one.
    map_radius : float, default=1.0
        How far the map may be from `initial_map`, in Frobenius norm. 0: the map is known. See Notes.
    alpha : float, default=0.5
        The public source's share, from 0 (target alone) to 1 (source alone).
    radius : float, default=3.0
        Largest length of the coefficients, for rows of length at most 1 and targets in [-1, 1].
    n_steps : int, default=1000
    target_bounds : (float, float), optional
        Range of the target; values outside are moved to the nearer end. Default: where 99% of the public labels lie,
        else (-1, 1).
    adjacency : {"replace-one", "zero-out", "add-remove"}, default="replace-one"
        Which data sets count as neighbours.
    {n_rows}
    {random_state}

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float
    map_ : ndarray of shape (n_features, n_public_features + 1) or None
        The learned map from public columns, and a constant 1, to private columns; None without labelled public rows.
    n_features_in_ : int
    privacy_ : Receipt
        What was released and what it cost.

    Notes
    -----
    [1]_ proposes this and leaves its analysis to future work. What is ours: the map is linear; the private columns are
    taken to lie in [-1, 1], because public rows of other columns tell nothing about their scale; the weights stay at
    their reference, as those of `CnvxAdap` nearly do; and the map stays near `initial_map`. Without the last, the
    source would be of no use: w'Ps is then any linear function of s, for every w but 0, so that the best map fits the
    source whatever the model is, and the source says nothing about w. For given w, learning the map is the same as
    fitting the source by coefficients within ``map_radius |w|`` of those that the initial map gives.

    References
    ----------
    .. [1] R. Bassily, C. Cortes, A. Mao, M. Mohri. Differentially Private Domain Adaptation with Theoretical
       Guarantees. ICML 2024. arXiv:2306.08838

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import Public
    >>> from dpadapt.papers.adaptation import FeatureMapAdaptation
    >>> rng = np.random.default_rng(0)
    >>> X, metres = rng.uniform(-1, 1, (800, 2)), rng.uniform(-1, 1, (300, 2))
    >>> public = Public(3.3 * metres[:, ::-1], metres @ [1.0, 0.5])  # other units, other order
    >>> model = FeatureMapAdaptation(4.0, initial_map=[[0, 0.25], [0.25, 0]], map_radius=0.1, random_state=0)
    >>> model = model.fit(X, X @ [1.0, 0.5], public=public)
    >>> model.privacy_.epsilon <= 4.0
    True
    >>> model.map_.shape
    (2, 3)
    """

    noise = "exact"
    map_: Array | None

    def __init__(
        self,
        epsilon: Annotated[float, checks.or_infinite] = 1.0,
        delta: float = 1e-6,
        *,
        initial_map: Any = None,
        map_radius: checks.Penalty = 1.0,
        alpha: Annotated[float, mixture_share] = 0.5,
        radius: checks.Scale = 3.0,
        n_steps: checks.Count = 1000,
        target_bounds: tuple[float, float] | None = None,
        adjacency: str = "replace-one",
        n_rows: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.initial_map = initial_map
        self.map_radius = map_radius
        self.alpha = alpha
        self.radius = radius
        self.n_steps = n_steps
        self.target_bounds = target_bounds
        self.adjacency = adjacency
        self.n_rows = n_rows
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any, *, public: Public | None = None, ledger: Ledger | None = None
    ) -> "FeatureMapAdaptation":
        """Fit on the private target `X`, `y`.

        Parameters
        ----------
        {private X}
        {private target}
        public : Public, optional
            The public source. Its columns may be others than those of `X`, and in other numbers. Without labels it is
            not used.
        {ledger}
        """
        radius, n_steps = float(self.radius), int(self.n_steps)
        map_radius, alpha = float(self.map_radius), float(self.alpha)
        source_rows, labels = self._source(public, X)
        data = self._read_regression(X, y, None, ledger)
        n_features = data.X.shape[1]
        geometry, scale = unit_geometry(n_features, None), target_scale(self.target_bounds, labels)
        # The target's final coordinates of a row: the row and its constant, by this factor.
        unit = float(geometry.basis[0, 0])
        source = self._mapped(source_rows, labels, scale, n_features, unit, map_radius)
        alpha = 0.0 if source is None else alpha
        coef, mapping = np.zeros(n_features + 1), None if source is None else source.initial
        if source is not None:
            gram, cross = source.initial @ source.gram @ source.initial.T, source.initial @ source.cross
            coef = minimise_in_ball(gram, cross, radius)
        if data.budget.worthwhile:
            rows = bounded_rows(unit_rows(geometry, data.X), scale.apply(data.y))
            single, replaced = gradient_bounds(MAX_NORM, MAX_TARGET, radius)
            bound = replaced if Adjacency.of(self.adjacency) is Adjacency.REPLACE_ONE else single
            plan = self._noise_plan(0.0, n_steps, 2 * single, bound)
            gaussian = {"gradient": (plan.gradient, n_steps)} if alpha < 1 else {}
            runs = self._start(data.ledger, plan, gaussian, has_source=False)
            sigma = (1 - alpha) / data.budget.n_rows * plan.gradient * bound
            # The step length of Algorithm 1, line 4.
            step = radius / math.sqrt(n_steps * (single**2 + len(coef) * sigma**2))
            coef, mapping = _descend_with_map(
                runs.get("gradient"), rows.moments(), source, radius, alpha, data.budget.n_rows, n_steps, step
            )
        public_scale = labels is not None and self.target_bounds is None
        assumed = ["the private columns lie in [-1, 1]; longer rows are shortened"]
        assumed += [] if public_scale else [bounds_assumption(self.target_bounds)]
        self._finish(data, *geometry.coefficients(coef), scale, assumed, self._notes(None))
        self.map_ = None if mapping is None else mapping[:-1] / unit
        return self

    def __sklearn_tags__(self) -> Any:
        """Mark for scikit-learn that the paper's short steps from 0 score badly on small data, at any budget."""
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

    def _source(self, public: Public | None, X: Any) -> tuple[Array | None, Array | None]:
        """Return the labelled public rows, whose columns need not be those of `X`."""
        rows, labels = public_rows(public, X, same_columns=False)
        return (None, None) if rows is None or labels is None else (rows, numeric_labels(labels))

    def _mapped(
        self,
        rows: Array | None,
        labels: Array | None,
        scale: TargetScale,
        n_features: int,
        unit: float,
        radius: float,
    ) -> MappedSource | None:
        """Return the source under the initial map; everything here is public."""
        if rows is None or labels is None:
            return None
        shape = n_features, rows.shape[1]
        known = np.eye(*shape) if self.initial_map is None else _checked_map(self.initial_map, shape)
        extended = np.column_stack([rows, np.ones(len(rows))])
        initial = np.zeros((n_features + 1, rows.shape[1] + 1))
        initial[:-1, :-1], initial[-1, -1] = known, 1.0
        targets = np.clip(scale.apply(labels), -MAX_TARGET, MAX_TARGET)
        return MappedSource(
            extended.T @ extended / len(rows), extended.T @ targets / len(rows), unit * initial, unit * radius
        )


def _checked_map(values: Any, shape: tuple[int, int]) -> Array:
    """Return the initial map as an array of finite numbers."""
    try:
        known = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        known = np.empty(0)
    if known.shape != shape or not np.isfinite(known).all():
        raise ValueError(
            f"initial_map must hold finite numbers, a row for each of the {shape[0]} private columns and a column for "
            f"each of the {shape[1]} public ones, got an array of shape {known.shape}."
        )
    return known


def _descend_with_map(
    run: Run | None,
    moments: Moments,
    source: MappedSource | None,
    radius: float,
    alpha: float,
    n_rows: float,
    n_steps: int,
    step: float,
) -> tuple[Array, Array | None]:
    """Return the average coefficients and the last map.

    Parameters
    ----------
    run : Run or None
        Releases the gradients of the private rows; None if the target has no weight.
    moments : Moments
        Sums over the private rows.
    source : MappedSource or None
    radius, alpha, n_steps
        As in `FeatureMapAdaptation`.
    n_rows : float
        A public number of private rows.
    step : float
        Step length in the coefficients.
    """
    coef, total = np.zeros(len(moments.cross)), np.zeros(len(moments.cross))
    mapping, map_step = None, 0.0
    if source is not None:
        mapping, largest = source.initial, float(np.linalg.norm(source.gram, 2))
        # Given the other block, the source's loss has at most these second derivatives; a longer step could diverge.
        farthest = float(np.linalg.norm(source.initial, 2)) + source.radius
        step = min(step, 1 / (2 * (alpha * farthest**2 * largest + 1)))
        map_step = 1 / max(2 * alpha * radius**2 * largest, 1e-300)
    with SquaredLossGradients(moments, radius) as at:
        # Each statistic is that of the coefficients after the step before.
        statistics = (at(coef) for _ in range(n_steps))
        gradients = repeat(np.zeros(len(coef)), n_steps) if run is None else run.release_each(statistics, n_steps)
        for gradient in gradients:
            slope = (1 - alpha) / n_rows * gradient
            if source is not None and mapping is not None:
                slope += alpha * source.coef_gradient(coef, mapping)
            coef = shorten(coef - step * slope, radius)
            if source is not None and mapping is not None and source.radius > 0:
                mapping = source.projected(mapping - map_step * alpha * source.map_gradient(coef, mapping))
            total += coef
    return total / n_steps, mapping
