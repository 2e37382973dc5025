"""The public model that a transfer starts from: a blend of several, robust against bad public cells and labels.

By default the blend has a linear model and boosting, for regression also a linear model that shortens long rows instead
of clipping single cells. Their weights minimise the loss on public rows that the models were not fitted to. In
regression every weight has a lower limit: under a shift, the model that is best on public rows need not be best on
private ones.
"""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from sklearn.model_selection import KFold, StratifiedKFold

from dpadapt.accounting.ledger import Run
from dpadapt.data import Public, Remembered
from dpadapt.learning.base import Budget
from dpadapt.learning.losses import SoftmaxLoss
from dpadapt.learning.public_models import cross_fitted_softmax, ridge_by_leave_one_out
from dpadapt.mechanisms.bounded import Bounded, added, votes
from dpadapt.mechanisms.mechanism import Gaussian, Repeated
from dpadapt.rows import Blocks, Part, products_by_row
from dpadapt.transfer.boosting import BoostedModel, Trees, fit_boosting
from dpadapt.transfer.public_models import LINEAR, Offset, remembered_offset

Vector = NDArray[np.float64]

# Robust scales

# Share of bad public cells or labels that must not matter. Columns and labels are judged between two quantiles, at
# least 1% from either end, and so far that even with four standard deviations more bad ones than expected all of them
# lie outside.
_BAD_SHARE, _LEAST_TAIL = 0.005, 0.01
# Largest distance of a typical public value from its column's centre, in units of the column's scale: rare indicators
# get a larger scale. Without it, private rows with an indicator that is rare in public data would be very long. Chosen
# by hand.
_RARE_VALUE = 5.0
# Limits of a standardised cell, in public standard deviations. A classifier's log-loss suffers more from a model that
# extrapolates: on one of the development tasks (alcohol_south) the limit 3 gave a public log-loss of 0.289, no limit
# 0.376. In regression a narrow limit loses valid extrapolation: on nine development tasks with 1,000 rows and epsilon
# 1, the limit 10 has 1.5% more error than 20, most of it on gas.
REGRESSION_LIMIT, _LINEAR_LIMIT, CLASSIFICATION_LIMIT = 20.0, 5.0, 3.0
# A column that is constant in public rows has no scale. One unit is taken, and cells beyond it are clipped; for an
# indicator that is exact. Its public values are replaced by noise of this standard deviation in the preparation of
# the correction, so that the column has a scale there and no fitted coefficient. Chosen by hand.
CONSTANT_DEVIATION = 0.3

# Values are taken for errors if their distance from the outer quantiles is this many times the distance between these.
# In 23 of the 24 development tasks there is no such public value; at a sixth of the distance there are some in six.
_FAR_AWAY = 30.0


def mixed_units(scales: NDArray[np.float64]) -> bool:
    """Guess whether the columns have units of their own, as in a table, or share one, as pixels and embeddings do.

    A table is standardised. Where units are shared, the scales themselves show which directions matter, and dividing by
    them would lose that. Fewer than 50 columns are taken for a table, and so are columns of which one has 30 times the
    median scale.
    """
    if len(scales) < 50:
        return True
    return bool(scales.max() > 30.0 * np.median(scales))


def _outer_quantiles(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return two quantiles of each column, outside of which all bad values lie."""
    tail = max(_LEAST_TAIL, _BAD_SHARE + 4.0 * math.sqrt(_BAD_SHARE / len(values)))
    return np.asarray(np.quantile(values, [min(tail, 0.25), max(1.0 - tail, 0.75)], axis=0))


@dataclass(frozen=True, eq=False)
class Columns:
    """Robust standardisation of rows, cell by cell: centre, divide, clip.

    Parameters
    ----------
    center, scale, limit : ndarray of shape (n_features,)
        A standardised cell lies between plus and minus its limit.
    constant : ndarray of bool
        Columns that are constant in public rows.
    """

    center: Vector
    scale: Vector
    limit: Vector
    constant: NDArray[np.bool_]

    def standardise(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Return the standardised rows; every cell by itself."""
        with np.errstate(all="ignore"):
            rows = np.asarray((X - self.center) / self.scale, dtype=np.float64)
            return np.clip(rows, -self.limit, self.limit, out=rows)

    def public_rows(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return standardised public rows, with noise in place of constant columns."""
        rows = self.standardise(X)
        if self.constant.any():
            # A fixed seed: this noise protects nobody, and a forecast and every fit must prepare the same rows.
            shape = len(X), int(self.constant.sum())
            rows[:, self.constant] = CONSTANT_DEVIATION * np.random.default_rng(0).standard_normal(shape)
        return rows

    def without_constant(self) -> "Columns":
        """Return the same with limit 0 for constant columns: a public model knows nothing about these."""
        return replace(self, limit=np.where(self.constant, 0.0, self.limit))


def robust_columns(X: NDArray[np.float64], limit: float, *, shared_units: bool = False) -> Columns:
    """Return the robust standardisation of public rows.

    With `shared_units`, columns that seem to have the same unit, such as pixels, keep their relative scales.
    """
    median = np.median(X, axis=0)
    winsorised = np.clip(X, *_outer_quantiles(X))
    center, scale = winsorised.mean(axis=0), winsorised.std(axis=0)
    constant = np.zeros(X.shape[1], dtype=bool)
    for j in np.flatnonzero(scale <= 1e-10 * np.maximum(1.0, np.abs(median))):
        away = np.abs(X[:, j] - median[j])
        away = away[away > 1e-10 * max(1.0, abs(median[j]))]
        if len(away):
            # A rare indicator, say: the typical size of the other values is the unit.
            width = float(np.median(away))
            values = np.clip(X[:, j], median[j] - width, median[j] + width)
            center[j], scale[j] = values.mean(), values.std()
        else:
            constant[j], center[j], scale[j] = True, median[j], 1.0
    share = np.maximum(np.mean(median != X, axis=0), 0.5 / len(X))
    scale = np.where(constant, 1.0, scale * np.maximum(1.0, 1.0 / (_RARE_VALUE * np.sqrt(share))))
    limits = np.where(constant, 1.0, limit)
    if shared_units and (~constant).any() and not mixed_units(scale[~constant]):
        shared = float(np.sqrt(np.mean(scale[~constant] ** 2)))
        limits = np.where(constant, 1.0, limit * scale / shared)
        scale = np.where(constant, 1.0, shared)
    return Columns(center, scale, limits, constant)


def tamed_labels(y: Vector) -> Vector:
    """Return public labels, clipped far outside the range of most of them.

    Examples
    --------
    >>> y = np.append(np.linspace(0, 1, 101), 1000.0)
    >>> bool(tamed_labels(y).max() < 3)
    True
    """
    low, high = _outer_quantiles(y)
    width = high - low
    return np.clip(y, low - width, high + width) if width > 0 else y


def without_errors(
    X: NDArray[np.float64], y: NDArray[Any], *, numeric: bool
) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Return public rows and labels without values that are too far away to be true.

    Such cells become the median of their column. Rows with such a label, if labels are `numeric`, are left out.

    Examples
    --------
    >>> X, y = np.linspace(0, 1, 200)[:, None], np.linspace(0, 1, 200)
    >>> X[3, 0], y[5] = 1e4, -1e4
    >>> cleaned, labels = without_errors(X, y, numeric=True)
    >>> len(labels), round(float(cleaned[3, 0]), 1)
    (199, 0.5)
    """
    wrong = _far_away(X)
    if wrong.any():
        X = np.where(wrong, np.median(X, axis=0), X)
    if numeric:
        true = ~_far_away(y)
        X, y = X[true], y[true]
    return X, y


def _far_away(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    low, high = _outer_quantiles(values)
    limit = _FAR_AWAY * (high - low)
    return np.asarray((limit > 0) & ((values < low - limit) | (values > high + limit)))


# Public models

# Below this number of public rows, boosting is not tried: its errors on rows that it was not fitted to could not be
# judged. Chosen by hand.
FEWEST_BOOSTED_ROWS = 50
# For receipts.
LINEAR_ONLY_NOTE = (
    f"the public model is linear: boosting needs at least {FEWEST_BOOSTED_ROWS} public rows, of two classes or more if "
    f"it classifies"
)
# Number of folds of the cross-fitting. Chosen by hand.
_BOOSTING_FOLDS = 4
# Ridge strengths tried, in mean eigenvalues. A model that shortens long rows instead of clipping cells extrapolates
# further, so it is kept from weak penalties: these amplify directions in which public rows hardly vary but private ones
# may. Chosen by hand.
_CLIPPED_RIDGES, SHORTENED_RIDGES = np.logspace(-4, 1, 11), np.logspace(-2, 1, 7)
# Rows longer than 95% of the public rows are shortened to that length, private and new rows alike. With more than
# `_ROWS_PER_COLUMN_TO_TRUST` public rows per column the limit is `_LONGER_ROWS` times that length: a shifted
# population has many rows that are somewhat longer, and a well-estimated model predicts them better as they are.
# Chosen by hand.
_ROWS_PER_COLUMN_TO_TRUST, _LONGER_ROWS = 20, 2.0


def longest_length(norms: Vector, n_columns: int) -> float:
    """Return the length to which longer rows are shortened, given the lengths of the public ones (with their 1)."""
    factor = _LONGER_ROWS if len(norms) > _ROWS_PER_COLUMN_TO_TRUST * n_columns else 1.0
    return factor * float(np.quantile(norms, 0.95))


def shortened_rows(X: NDArray[Any], center: Vector, scale: Vector, longest: float) -> NDArray[np.float64]:
    """Return standardised rows with their 1, none longer than `longest`.

    Each row is a function of itself alone. A row too long for a float comes out not finite or zero, silently.
    """
    rows = np.empty((X.shape[0], X.shape[1] + 1))
    with np.errstate(all="ignore"):
        np.subtract(X, center, out=rows[:, :-1])
        rows[:, :-1] /= scale
    rows[:, -1] = 1.0
    return _shortened(rows, longest)


def _shortened(rows: NDArray[np.float64], longest: float) -> NDArray[np.float64]:
    """Return the rows, none longer than `longest`; they are changed in place."""
    with np.errstate(all="ignore"):
        rows *= np.minimum(1.0, longest / np.sqrt(np.einsum("ij,ij->i", rows, rows)))[:, None]
    return rows


@dataclass(frozen=True, eq=False)
class LinearModel:
    """A linear model of standardised public rows.

    Parameters
    ----------
    columns : Columns
    longest : float
        Longer standardised rows (with their 1) are shortened to this length; infinity shortens none.
    coef : ndarray of shape (n_features + 1,) or (n_features + 1, n_classes)
        The last entry belongs to the constant.
    center : float
        Added to every prediction.
    """

    columns: Columns
    longest: float
    coef: NDArray[np.float64]
    center: float

    def scores(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Return predictions, or centred scores of the classes."""
        return np.asarray(self.center + products_by_row(self.rows(X), self.coef))

    def rows(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Return standardised rows with their 1, shortened."""
        rows = np.column_stack([self.columns.standardise(X), np.ones(len(X))])
        return _shortened(rows, self.longest) if np.isfinite(self.longest) else rows


PublicModel = LinearModel | BoostedModel | Offset
# The square of a larger cell is no float.
LONGEST_CELL = 1e150


def combined(scores: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return weighted sums of the models' scores, `scores` and `weights` having one entry per model.

    Cell by cell, not by a matrix product: that would round the last rows differently if there is one row more, by a
    unit in the last place of the score, which may be far larger than the residuals.

    Examples
    --------
    >>> combined(np.array([[1.0, 2.0], [3.0, 5.0]]), np.array([0.5, 0.5]))
    array([2. , 3.5])
    """
    return np.asarray(sum(np.multiply.outer(own, weight) for own, weight in zip(scores, weights, strict=True)))


@dataclass(frozen=True, eq=False)
class Base:
    """Public models and how they are blended; all that a prediction needs of the public rows.

    Parameters
    ----------
    models : tuple
    weights : ndarray of shape (n_models,)
        Not negative; they add up to 1.
    columns : Columns
        In which the correction is linear.
    """

    models: tuple[PublicModel, ...]
    weights: Vector
    columns: Columns

    def scores(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Return the scores of every model for rows to predict: shape (n_models, n_rows) or with classes last."""
        return np.stack([np.asarray(model.scores(X), dtype=np.float64) for model in self.models])

    def private_rows(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Return standardised private rows; a row too long for a float becomes NaN, so that it counts as a null row."""
        rows = self.columns.standardise(X)
        with np.errstate(all="ignore"):
            rows[np.abs(X).max(axis=1) > LONGEST_CELL] = np.nan
        return rows

    def private_scores(self, X: NDArray[Any], *, fixed_rows: bool) -> NDArray[np.float64]:
        """Return the same of private rows; a model that a user gave may fail, which is reported without its words.

        `fixed_rows` says whether neighbours have equally many rows.
        """
        # A numerical warning or error would reveal an extreme row, whatever the caller's settings are.
        with np.errstate(all="ignore"):
            return np.stack(
                [
                    model.private_scores(X, fixed_rows=fixed_rows) if isinstance(model, Offset) else model.scores(X)
                    for model in self.models
                ]
            )

    @property
    def given(self) -> bool:
        """Whether the public model was given by the user."""
        return any(isinstance(model, Offset) for model in self.models)

    @property
    def linear(self) -> LinearModel | None:
        """The public model, if it is a single linear one; coefficients then describe it and its correction."""
        model = self.models[0]
        return model if len(self.models) == 1 and isinstance(model, LinearModel) else None

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all of it as named arrays, for saving; a model that a user gave is refused."""
        arrays: dict[str, NDArray[Any]] = {"weights": self.weights} | _named("columns", vars(self.columns))
        for place, model in enumerate(self.models):
            name = f"models.{place}"
            match model:
                case LinearModel():
                    numbers = {"longest": np.array(model.longest), "coef": model.coef, "center": np.array(model.center)}
                    arrays |= _named(f"{name}.linear", numbers) | _named(f"{name}.columns", vars(model.columns))
                case BoostedModel():
                    known = np.zeros(0, dtype=np.int64) if model.known is None else model.known
                    facts = {"known": known, "n_classes": np.array(model.n_classes)}
                    arrays |= _named(f"{name}.boosted", facts) | _named(f"{name}.trees", vars(model.trees))
                case _:
                    raise TypeError("a public_model can't be saved as plain data.")
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "Base":
        """Return the base that `arrays` came from; arrays that are missing, too many or of another shape are errors."""
        models: list[PublicModel] = []
        for place in range(len(arrays["weights"])):
            name = f"models.{place}"
            linear, boosted = _under(f"{name}.linear", arrays), _under(f"{name}.boosted", arrays)
            if linear:
                columns = Columns(**_under(f"{name}.columns", arrays))
                models.append(LinearModel(columns, float(linear["longest"]), linear["coef"], float(linear["center"])))
            else:
                known, n_classes = boosted["known"], int(boosted["n_classes"])
                trees = Trees(**_under(f"{name}.trees", arrays))
                models.append(BoostedModel(trees, known if n_classes > 1 else None, n_classes))
        base = cls(tuple(models), arrays["weights"], Columns(**_under("columns", arrays)))
        if base.arrays().keys() != arrays.keys():
            raise ValueError("there are arrays that belong to no public model.")
        n_features = len(base.columns.center)
        for model in base.models:
            if isinstance(model, BoostedModel):
                model.require_sound(n_features)
        # One row shows whether the shapes agree.
        scores = base.scores(np.zeros((1, n_features)))
        if not (base.weights.shape == (len(models),) and np.isfinite(scores).all() and base.weights.dtype.kind == "f"):
            raise ValueError("the public models are damaged.")
        return base


def _named(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def _under(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    start = f"{prefix}."
    return {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}


@dataclass(frozen=True, eq=False)
class PublicBase:
    """A base, and what the preparation of a correction takes from the public rows.

    Parameters
    ----------
    base : Base
    rows : ndarray of shape (n_scored, n_features)
        Standardised public rows, those that are scored.
    scores : ndarray of shape (n_models, n_scored) or (n_models, n_scored, n_classes)
        Scores of the models on public rows that they were not fitted to.
    labels : ndarray of shape (n_scored,)
        Clipped labels, or class codes.
    """

    base: Base
    rows: NDArray[np.float64]
    scores: NDArray[np.float64]
    labels: NDArray[Any]


_BASES: Remembered[PublicBase] = Remembered()


def regression_base(public: Public, X: NDArray[np.float64], y: Vector, model: Any) -> PublicBase:
    """Return the base of a regression on public rows, made once while they and the model stay the same.

    Parameters
    ----------
    public : Public
    X, y : ndarray
        Its rows and labels.
    model : estimator, "linear" or None
        A model that the user gave; the linear model alone; the blend.
    """
    if isinstance(model, str) or model is None:
        return _BASES.get(public, [X, y, np.array([str(model)])], lambda: _regression_base(X, y, model))
    offset = remembered_offset(model, public, X, y)
    return _given(offset, X, tamed_labels(y), REGRESSION_LIMIT)


def classification_base(
    public: Public, X: NDArray[np.float64], codes: NDArray[np.int64], classes: NDArray[Any], model: Any
) -> PublicBase:
    """Return the base of a classification; see `regression_base`. `codes` are positions in `classes`."""
    if model is None:
        return _BASES.get(public, [X, codes, classes], lambda: _classification_base(X, codes, len(classes)))
    offset = remembered_offset(model, public, X, classes[codes], classes)
    return _given(offset, X, codes, CLASSIFICATION_LIMIT)


# Public rows below which a classifier's held-out scores are not computed: they would say little. Chosen by hand.
_FEWEST_HELD_OUT_ROWS = 20


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Public rows with scores of public models that were not fitted to them.

    Parameters
    ----------
    rows : ndarray
        Standardised by the base, or raw where there is no base.
    scores : ndarray of shape (n_rows, n_classes)
    codes : ndarray
        Their classes.
    """

    rows: NDArray[np.float64]
    scores: NDArray[np.float64]
    codes: NDArray[np.int64]


_HELD_OUT: Remembered[HeldOut] = Remembered()


def held_out_scores(
    public: Public,
    X: NDArray[np.float64],
    codes: NDArray[np.int64] | None,
    n_classes: int,
    public_base: PublicBase | None,
) -> HeldOut | None:
    """Return held-out scores of the public model of a classifier; None without labels or with few rows.

    The linear model that takes the place of a base is fitted to parts of the rows, once while `public` stays the same.
    """
    if public_base is not None:
        # A constant column is 0 when standardised; the noise in its place serves the preparation alone.
        rows = np.where(public_base.base.columns.constant, 0.0, public_base.rows)
        return HeldOut(rows, combined(public_base.scores, public_base.base.weights), public_base.labels)
    if codes is None or len(X) < _FEWEST_HELD_OUT_ROWS:
        return None

    def made() -> HeldOut:
        columns = robust_columns(X, CLASSIFICATION_LIMIT, shared_units=True).without_constant()
        _, scores = cross_fitted_softmax(columns.standardise(X), codes, n_classes, _folds(codes, n_classes))
        return HeldOut(X, scores, codes)

    return _HELD_OUT.get(public, [X, codes, np.array([n_classes])], made)


def boosting_fails(n_rows: int, codes: NDArray[np.int64] | None = None) -> bool:
    """Return whether there are too few public rows for boosting, or all of them have one label."""
    return n_rows < FEWEST_BOOSTED_ROWS or (codes is not None and len(np.unique(codes)) < 2)


def _given(offset: Offset, X: NDArray[np.float64], labels: NDArray[Any], limit: float) -> PublicBase:
    columns = robust_columns(X, limit, shared_units=offset.classes is not None)
    base = Base((offset,), np.ones(1), columns)
    return PublicBase(base, columns.public_rows(X)[offset.rows], offset.public_scores[None], labels[offset.rows])


def _regression_base(X: NDArray[np.float64], y: Vector, model: str | None) -> PublicBase:
    X, y = without_errors(X, y, numeric=True)
    labels = tamed_labels(y)
    columns = robust_columns(X, REGRESSION_LIMIT)
    varying = columns.without_constant()
    shortened, shortened_scores = _ridge(varying, X, labels, SHORTENED_RIDGES, shorten=True)
    # A label may be usual among all labels but not for its row.
    labels = shortened_scores + tamed_labels(labels - shortened_scores)
    shortened, shortened_scores = _ridge(varying, X, labels, SHORTENED_RIDGES, shorten=True)
    if model == LINEAR or boosting_fails(len(y)):
        base = Base((shortened,), np.ones(1), columns)
        return PublicBase(base, columns.public_rows(X), shortened_scores[None], labels)
    narrow = replace(varying, limit=np.minimum(varying.limit, _LINEAR_LIMIT))
    clipped, clipped_scores = _ridge(narrow, X, labels, _CLIPPED_RIDGES, shorten=False)
    boosted, boosted_scores = _boosting(X, labels, 1)
    scores = np.stack([clipped_scores, shortened_scores, boosted_scores])
    weights = blend_weights(scores, lambda blend: _robust_square(labels - blend), _LEAST_WEIGHT)
    base = Base((clipped, shortened, boosted), weights, columns)
    return PublicBase(base, columns.public_rows(X), scores, labels)


def _classification_base(X: NDArray[np.float64], codes: NDArray[np.int64], n_classes: int) -> PublicBase:
    X, codes = without_errors(X, codes, numeric=False)
    columns = robust_columns(X, CLASSIFICATION_LIMIT, shared_units=True)
    varying = columns.without_constant()
    coef, linear_scores = cross_fitted_softmax(varying.standardise(X), codes, n_classes, _folds(codes, n_classes))
    linear = LinearModel(varying, np.inf, coef, 0.0)
    boosted, boosted_scores = _boosting(X, codes, n_classes)
    scores = np.stack([linear_scores, boosted_scores])
    loss = SoftmaxLoss()
    weights = blend_weights(scores, lambda blend: loss.value(blend, codes), 0.0)
    base = Base((linear, boosted), weights, columns)
    return PublicBase(base, columns.public_rows(X), scores, codes)


def _ridge(
    columns: Columns, X: NDArray[np.float64], labels: Vector, ridges: Vector, *, shorten: bool
) -> tuple[LinearModel, Vector]:
    """Return a ridge model and its exact leave-one-out predictions."""
    center, longest = float(labels.mean()), np.inf
    if shorten:
        norms = np.linalg.norm(LinearModel(columns, np.inf, np.zeros(0), 0.0).rows(X), axis=1)
        longest = longest_length(norms, X.shape[1])
    rows = LinearModel(columns, longest, np.zeros(0), 0.0).rows(X)
    fitted = ridge_by_leave_one_out(rows, labels - center, ridges)
    return LinearModel(columns, longest, fitted.solution, center), np.asarray(labels - fitted.residuals)


def _boosting(X: NDArray[np.float64], y: NDArray[Any], n_classes: int) -> tuple[BoostedModel, NDArray[np.float64]]:
    """Return boosting, and the scores of copies of it on the rows that these were not fitted to."""
    scores = np.empty(len(y) if n_classes == 1 else (len(y), n_classes))
    for train, test in _folds(y, n_classes):
        scores[test] = fit_boosting(X[train], y[train], n_classes).scores(X[test])
    return fit_boosting(X, y, n_classes), scores


def _folds(y: NDArray[Any], n_classes: int) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    rows = np.zeros(len(y))
    if n_classes > 1:
        counts = np.bincount(y)
        # Every class in every fold, if each has enough rows; a class that a fold lacks gets the least probability.
        if counts[counts > 0].min() >= _BOOSTING_FOLDS:
            return list(StratifiedKFold(_BOOSTING_FOLDS, shuffle=True, random_state=0).split(rows, y))
    return list(KFold(_BOOSTING_FOLDS, shuffle=True, random_state=0).split(rows))


# The blend

# Least weight of each model of a regression. A larger one hedges more against a shift under which another model is
# best, and costs more where there is none. Compared in a prototype, four seeds, all rows, epsilon 1, geometric mean of
# the error over the best public model on the 14 development tasks: 0.741 with 0.15, 0.736 with 0.2, 0.739 with 0.25;
# with few rows 0.25 is better by 1%. A classification has none: on twelve tasks, 0.1 and 0 differ by 0.3% at most.
_LEAST_WEIGHT = 0.2
# Grid on which the weights are searched. It only sets their precision.
_WEIGHT_STEP = 0.05
# Residuals beyond this many median residuals count linearly in the loss that the weights minimise, not squared. Chosen
# by hand.
_LARGE_RESIDUAL = 5.0


def blend_weights(scores: NDArray[np.float64], loss: Callable[[NDArray[np.float64]], float], least: float) -> Vector:
    """Return weights, none below `least`, of the blend with the least loss, by search on a grid.

    Examples
    --------
    >>> y = np.linspace(-1, 1, 50)
    >>> weights = blend_weights(np.stack([y, -y]), lambda blend: float(np.mean((y - blend) ** 2)), 0.1)
    >>> weights.round(2)
    array([0.9, 0.1])
    """
    n_models = len(scores)
    steps = round(1.0 / _WEIGHT_STEP)
    best, lowest = np.full(n_models, 1.0 / n_models), np.inf
    for counts in itertools.product(range(steps + 1), repeat=n_models - 1):
        if sum(counts) > steps:
            continue
        shares = np.array([*counts, steps - sum(counts)]) / steps
        weights = least + (1.0 - n_models * least) * shares
        value = loss(np.tensordot(weights, scores, 1))
        if value < lowest:
            best, lowest = weights, value
    return np.asarray(best)


def _robust_square(residuals: Vector) -> float:
    """Return the mean square, in which far outliers count linearly."""
    sizes = np.abs(residuals)
    limit = _LARGE_RESIDUAL * float(np.median(sizes))
    return float(np.mean(np.where(sizes < limit, sizes**2, limit * (2.0 * sizes - limit))))


# Readable labels
#
# A row without a readable label counts nothing in any release, so every sum over such rows is 0. A mean of 0 would say
# that a correction neither gains nor harms; rows that say nothing must not say that. So all sums are divided by the
# number of rows that count, which is released before anything is corrected, and where that number does not exceed its
# noise the public model stays as it is.

# The count gets the share of the budget (of mu squared) that makes n mu sqrt(share) equal to this number, within
# limits: one standard deviation of its noise is then a tenth of the rows. A larger one leaves less for the model.
# Chosen by hand.
_COUNT_SIGNAL, _COUNT_SHARES = 10.0, (0.002, 0.1)
# Labels count as readable if their number exceeds 0 by this many standard deviations of its noise: if there are none,
# 6 of 1,000 fits take noise for labels. A larger number leaves more fits of few rows at the public model.
_USABLE_DEVIATIONS = 2.5

NO_LABELS_NOTE = (
    "the number of readable private labels did not exceed its noise, so the model is the public one, or a constant "
    "without public labels; the budget was spent. Compare how labels are written in the private and in the public table"
)


@dataclass(frozen=True)
class UsableLabels:
    """The share of private rows, or of people, with a readable label, as released, and the deviation of its noise."""

    share: float
    noise: float

    @property
    def none(self) -> bool:
        """Whether noise alone may explain the share."""
        return self.share <= _USABLE_DEVIATIONS * self.noise

    def budget(self, budget: Budget) -> Budget:
        """Return the budget with the number of rows that count, which must not be `none`; never more rows than given.

        Means are then means over rows with a label, and their noise is that of so few rows.
        """
        return replace(budget, n_rows=budget.n_rows * min(self.share, 1.0))

    def interval(self) -> tuple[float, float, float]:
        """Return the share and the ends of a 90% interval, each from 0 to 1; the lower end is 0 if there are `none`."""
        half = float(ndtri(0.95)) * self.noise
        estimate, low, high = (min(max(self.share + move, 0.0), 1.0) for move in (0.0, -half, half))
        return estimate, 0.0 if self.none else low, high


@dataclass(frozen=True)
class CountPlan:
    """What the count will release; made from public facts alone.

    Parameters
    ----------
    multiplier : float
        Noise multiplier of the one release.
    budget : Budget
        What the count leaves for the model.
    """

    multiplier: float
    budget: Budget

    @property
    def charges(self) -> list[tuple[Repeated, str]]:
        """What is charged, together with the releases of the model."""
        return [(Repeated(Gaussian(self.multiplier)), "usable labels")]

    def usable_labels(self, run: Run, rows: Blocks[Part]) -> UsableLabels:
        """Release how many rows have a readable label."""
        n_rows = self.budget.n_rows
        total = float(run.release(added(rows.results(_readable)))[0])
        return UsableLabels(total / n_rows, self.multiplier / n_rows)


def count_plan(budget: Budget) -> CountPlan:
    """Return the plan that shares a budget between a model and the count of readable labels.

    Examples
    --------
    >>> plan = count_plan(Budget(mu=0.5, n_rows=10_000.0, factor=1.0))
    >>> round(plan.budget.mu**2 + plan.multiplier**-2, 12)
    0.25
    """
    least, most = _COUNT_SHARES
    share = min(max((_COUNT_SIGNAL / (budget.mu * budget.n_rows)) ** 2, least), most)
    return CountPlan(1.0 / (budget.mu * math.sqrt(share)), replace(budget, mu=budget.mu * math.sqrt(1.0 - share)))


def _readable(part: Part) -> Bounded:
    with np.errstate(all="ignore"):
        # A row that is too long for a float counts nothing in other releases.
        readable = np.isfinite(part.y) & (np.abs(part.X).max(axis=1, initial=0.0) <= LONGEST_CELL)
    # Claim: |sum - sum'| <= 1, zeroed or replaced, by `votes`. A row's entry is 0 or 1, depends on that row alone, and
    # is multiplied by its share, which is 0 for a row without a readable label; the shares of one person's rows add up
    # to at most 1.
    return votes(readable.astype(np.float64)[:, None], part.shares)
