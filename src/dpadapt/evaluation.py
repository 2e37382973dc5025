"""`evaluate`: how good a model is on private rows, released through the ledger, with an interval.

Every metric is a smooth function of one histogram to which each row adds at most 1 in all: right and wrong predictions,
losses shared out between fixed knots, or scores by class. The histogram is released once. A row without a readable
label is in none of these bins: it is no evidence for a model, and the share of usable rows follows from the same
release. Whatever a private cell or label is, it is read by itself, and nothing is refused or shown because of it.
"""

import copy
import decimal
import math
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier, is_regressor

from dpadapt import checks, notebook
from dpadapt.accounting.cost import gaussian_mu
from dpadapt.accounting.ledger import Ledger
from dpadapt.accounting.receipt import Receipt
from dpadapt.data import Public
from dpadapt.errors import PrivacyError
from dpadapt.inputs.gate import declared_public, public_table
from dpadapt.inputs.persons import IDS_ASSUMPTION, ids_assumption, person_shares
from dpadapt.learning.base import warn_of_no_ledger
from dpadapt.learning.row_by_row import (
    FailsOnPrivateRows,
    RowFunction,
    answers_alone,
    clipped_cells,
    on_private_rows,
    silenced,
    try_on_made_up_rows,
)
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import Bounded, histogram, soft_histogram
from dpadapt.mechanisms.mechanism import Gaussian, Laplace
from dpadapt.rows import Shares, Unit
from dpadapt.tables.model import TableModel
from dpadapt.tables.reading import Table

EVALUATION_METRICS = ("accuracy", "log-loss", "squared-error", "auc")
# Probability, at least about, with which the interval covers the metric of the population of the private rows.
INTERVAL_COVERAGE = 0.95
# Standard deviations that cover 95%: of normal noise, and of a single Laplace variable, log(20) / sqrt(2). Sums of
# several Laplace variables lie between the two.
_NORMAL_DEVIATIONS, _LAPLACE_DEVIATIONS = 1.96, math.log(20.0) / math.sqrt(2.0)
# Nats. The largest log-loss of a row that counts by default: that of a probability of 1%. A larger one means more
# noise, a smaller one hides more of what confident mistakes cost. Here and below: `tools/constants.py evaluation`
# compares the neighbours, by the error of a score and a tenth of its interval. Half: 4% (+- 3%) worse, twice: 16%.
_LARGEST_LOG_LOSS = -math.log(0.01)
# The largest absolute error that counts by default: in root mean squared errors on public rows. Noise grows with its
# square; normal errors lie beyond four root mean squares in 1 of 16,000 rows. Half as many: 59% worse, twice: 26%.
_PUBLIC_ERRORS = 4.0
# The same without public rows, as a share of the label's declared range. Chosen by hand.
_SHARE_OF_RANGE = 0.25
# Shares of the largest loss at which losses are counted; a loss between two knots is shared out between them. More
# knots mean more noise; fewer make the interval wider than the losses are spread. Most losses are small. All knots
# halved: 22% worse, doubled: 20%.
_LOSS_KNOTS = np.array([0.0, 0.1, 0.3, 1.0])
# Fewest and most bins of scores. Scores in one bin are ties, which lower the area by about the inverse square of their
# number; the noise grows with its root. The number grows with rows times epsilon, if that is public, from the fewest
# bins at 100 on, by this power: so the ties lower the area by less than its noise and sampling move it. Half and
# twice the fewest: 4% and 6% worse (+- 6%); the power: 7% (+- 5%) better and 13% (+- 8%) worse; where growth begins: 1%
# worse and 9% better (+- 7% and 5%). No draw needs the most.
_FEWEST_BINS, _MOST_BINS, _BINS_POWER = 12, 64, 0.3
_FEWEST_BINS_UP_TO = 100.0
# Log-odds of the outermost edges, and how much closer those in the middle are, if no public rows say where scores lie.
# Half and twice the edge: 5% better and 7% worse (+- 2%); the power: 4% worse and 0.3% better (+- 1%).
_OUTERMOST_EDGE, _EDGE_POWER = 4.0, 1.5
# Largest log-odds: where a model is certain they would be infinite, and no positive float has smaller ones than -745.
# Decimals in which public scores count as different: rounding of float64, here at most 2^-43, is far finer.
_MOST_LOG_ODDS, _SCORE_DIGITS = 1000.0, 9
# Rows in each bin that the spread of losses is computed with in addition, so that a handful of equal losses does not
# pass for certainty: Agresti and Coull add two.
_PSEUDO_ROWS = 1.0
# Standard deviations of its noise that a number of rows must reach to divide by it. Below, anything is possible.
_LEAST_CLEAR_ROWS = 4.0


@dataclass(frozen=True)
class Evaluation:
    """A metric on private rows, released with noise.

    Parameters
    ----------
    metric : str
    value : float
        The estimate. A log-loss or squared error is a mean of clipped losses: `receipt` says at which value.
    low, high : float
        Cover the metric of the population that the private rows were drawn from with a probability of about 95%: both
        the noise and the sampling of the rows are allowed for. If there are too few usable rows for the noise, they are
        the least and the largest possible value.
    usable : float
        The share of rows (or persons' rows) with a readable label and finite cells, estimated from the same release.
        The metric is that of these rows alone.
    usable_margin : float
        Half of the width of a 95% interval of `usable`.
    receipt : Receipt
        What was released and what it cost.
    """

    metric: str
    value: float
    low: float
    high: float
    usable: float
    usable_margin: float
    receipt: Receipt

    @property
    def summary(self) -> str:
        """The result in one line."""
        return f"{self.metric} = {self.value:.4g}, {self._interval}; {self._usable}"

    @property
    def _interval(self) -> str:
        return f"{INTERVAL_COVERAGE:.0%} interval {self.low:.4g} to {self.high:.4g} (noise and sampling)"

    @property
    def _usable(self) -> str:
        return f"usable rows: {self.usable:.0%} ± {self.usable_margin:.1%}"

    def __str__(self) -> str:
        return f"{self.summary}\n{self.receipt}"

    def _repr_html_(self) -> str:
        return notebook.card(
            "Evaluation on private rows",
            notebook.headline(f"{self.metric} = {self.value:.4g}"),
            notebook.sentence(self._interval),
            notebook.sentence(self._usable),
            notebook.note(f"cost: epsilon = {self.receipt.epsilon:.4g}, delta = {self.receipt.delta:.3g}"),
            *self.receipt.html_parts(),
        )


def evaluate(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    epsilon: float,
    metric: str | None = None,
    delta: float = 0.0,
    error_bound: float | None = None,
    public: Public | None = None,
    persons: Any = None,
    ledger: Ledger | None = None,
    random_state: int | None = None,
) -> Evaluation:
    """Release how good a fitted model is on private rows.

    `model.score`, `cross_val_score` and `GridSearchCV` compute exact scores of private rows, which are charged to
    nobody and must not be released. This is the way to release one.

    **Privacy.** Protects one private row, or all rows of one person. Releases one histogram of right and wrong
    predictions, of clipped losses or of scores by class; Laplace noise, or Gaussian if delta > 0. Costs exactly
    `epsilon`, `delta`. The adjacency is that of the ledger, and zero-out without one. The model must be public or
    released, and must predict each row by itself; a copy of it is used. A row counts only if its cells are finite
    numbers and its label can be read. Where the model fails on such a row, leaves it out, or answers by another type
    than for null rows, the row counts as the worst possible prediction. No cell or label is refused, whatever it is.

    Parameters
    ----------
    model : estimator
        Fitted, with `predict`; for the log-loss and the area under the curve with `predict_proba`. A `TableModel` is
        evaluated on tables.
    X : array-like of shape (n_rows, n_features); or a table, for a `TableModel`
        Private features. If the model was fitted on these rows, the result is too good, and the ledger must be the one
        that the fit was charged to.
    y : array-like of shape (n_rows,)
        Private labels. Default for a `TableModel`: the column of the label.
    epsilon : float
        What this evaluation costs.
    metric : {"accuracy", "log-loss", "squared-error", "auc"}, optional
        The share of right predictions, the mean log-loss, the mean squared error, or the area under the ROC curve of
        two classes. Default: accuracy of a classifier, squared error of a regressor.
    delta : float, default=0
        Positive: Gaussian instead of Laplace noise. A ledger with many Gaussian charges has more room for it.
    error_bound : float, optional
        The largest loss of a row that counts: an absolute error, or a log-loss. Default of an absolute error: four root
        mean squared errors on public rows, else a quarter of the range that the schema declares. Default of a log-loss:
        that of a probability of 1%.
    public : Public, optional
        Public rows, which are not protected. They only set the error bound (if they have labels) or the bins of scores.
    persons : array-like of shape (n_rows,), or str, optional
        The id of each row's person, or for a `TableModel` the column of the ids: each person then counts as one row.
        Default: single rows are protected. The model's own `person` is not used, because whoever made the model chose
        it; a ledger of persons needs `persons`.
    ledger : Ledger, optional
        Of the private rows. Without one, nothing adds up what several evaluations cost together.
    random_state : int, optional
        For tests only: seeds the noise, which voids the guarantee.

    Examples
    --------
    >>> from dpadapt import Ledger, PrivateLogisticRegression, evaluate
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (4000, 2))
    >>> y = X[:, 0] > 0
    >>> ledger = Ledger(epsilon=2.0, delta=1e-6, random_state=0)
    >>> model = PrivateLogisticRegression(classes=[False, True]).fit(X[:3000], y[:3000], ledger=ledger)
    >>> result = evaluate(model, X[3000:], y[3000:], epsilon=0.1, ledger=ledger)
    >>> result.low < 0.98 < result.high
    True
    """
    epsilon, delta = checks.scale(epsilon, "epsilon"), checks.delta(delta)
    chosen = checked_metric(model, metric)
    inner = _own_copy(_inner(model))
    unit: Unit = "row" if persons is None else "person"
    if ledger is None:
        warn_of_no_ledger("evaluate", epsilon, delta or 1e-6, Adjacency.ZERO_OUT.value, unit)
        child = Ledger.of_one_fit(epsilon, delta, adjacency=Adjacency.ZERO_OUT, unit=unit, random_state=random_state)
    elif isinstance(ledger, Ledger):
        # Claim: who counts as a person is the holder's choice. The ids are those of `persons`, never a column that the
        # model names, which could be another one in every row. Not proved: that the holder names the right column.
        if ledger.unit == "person" and persons is None:
            raise PrivacyError(
                "the ledger protects persons. Give the id of each row's person, or for a table the column of the ids: "
                "persons=... The model does not choose it."
            )
        label = f"evaluation of {model.label}" if isinstance(model, TableModel) else "evaluation"
        child = ledger.child(epsilon, delta, label=label, unit=unit, random_state=random_state)
    else:
        raise TypeError(f"ledger must be a dpadapt.Ledger or None, got {type(ledger).__name__}.")
    public_rows = None if public is None else _public_rows(model, public)
    # Claim: no warning shows a private cell or label. All are ignored while private rows are read and predicted.
    with silenced():
        rows = _private_rows(model, X, y, persons, child)
    # The number of rows, or of persons, is public unless one may be added or removed.
    n_units = 0 if child.adjacency is Adjacency.ADD_REMOVE else rows.n_units
    measure = _measure(chosen, model, public_rows, error_bound, n_bins=_number_of_bins(epsilon * n_units))
    with silenced():
        bounded = measure.count(inner, rows)
    noise = Gaussian(1 / gaussian_mu(epsilon, delta)) if delta else Laplace(1 / epsilon)
    released: NDArray[np.float64] = child.release(noise, bounded, label=chosen)
    # From here on only released and public numbers are used.
    scale = noise.scale(bounded, child.adjacency)
    spread, deviations = (scale, _NORMAL_DEVIATIONS) if delta else (math.sqrt(2.0) * scale, _LAPLACE_DEVIATIONS)
    counts, unusable = (released[:-1], float(released[-1])) if rows.counts_unusable else (released, None)
    value, low, high = measure.interval(counts, spread, deviations)
    usable = _usable_share(counts, unusable, n_units, spread, deviations)
    assumed = ["the model: it is public or was released, and it predicts each row by itself", *measure.assumed]
    assumed += ["the columns and their order"]
    assumed += [IDS_ASSUMPTION] if unit == "person" else []
    assumed += [ids_assumption(persons)] if isinstance(persons, str) else []
    assumed += [] if rows.counts_unusable else [f"the number of {unit}s"]
    by_rows = unit == "row" and isinstance(model, TableModel) and model.person is not None
    warnings = ["the model was fitted for persons, this evaluation protects single rows (persons=)"] if by_rows else []
    return Evaluation(chosen, value, low, high, *usable, child.receipt(assumptions=assumed, warnings=warnings))


def _own_copy(model: Any) -> Any:
    """Return a copy of the model that sees private rows: a model may keep what it has seen."""
    try:
        # Claim: the caller's model holds no private row. Only a deep copy, which is dropped, gets rows.
        # Not proved: what a model writes to files or to global variables.
        return copy.deepcopy(model)
    except Exception:
        pass
    raise TypeError("model must be one that copy.deepcopy can copy: it might keep private rows.")


def _usable_share(
    counts: NDArray[np.float64], unusable: float | None, n_units: int, spread: float, deviations: float
) -> tuple[float, float]:
    """Return the share of usable rows and half of the width of its interval, from released counts.

    Where the number of rows is public, the counts of all bins add up to that of usable rows. Where it is private, the
    others are counted in one more bin.
    """
    total, total_spread = float(counts.sum()), spread * math.sqrt(len(counts))
    whole = float(n_units) if unusable is None else total + unusable
    if whole <= (0.0 if unusable is None else _LEAST_CLEAR_ROWS * math.hypot(total_spread, spread)):
        return 0.5, 0.5
    share = min(max(total / whole, 0.0), 1.0)
    error = total_spread / whole
    if unusable is not None:
        # The gradient of t / (t + u) is (u, -t) / (t + u)².
        error = math.hypot((1.0 - share) * total_spread, share * spread) / whole
    return share, min(1.0, deviations * error)


@dataclass(frozen=True, eq=False, repr=False)
class _Rows:
    """Private rows. `present` says which have finite cells and a label that is not missing.

    `fixed` says whether neighbours have equally many rows. `counts_unusable` says whether rows that count in no bin are
    counted in one of their own: where a row may be added or removed, their number is private, and there is no null row.
    """

    X: NDArray[np.float64]
    y: NDArray[Any]
    present: NDArray[np.bool_]
    shares: Shares | None
    fixed: bool
    counts_unusable: bool

    @property
    def n_units(self) -> int:
        """Number of rows, or of persons."""
        return len(self.X) if self.shares is None else self.shares.n_units


@dataclass(frozen=True, eq=False)
class _Measure:
    """How a metric is counted and computed.

    `count` takes the model and private rows, and returns the histogram to release. Of the released counts, `value`
    returns the metric and its gradient, and `totals` the sums that `value` divides by, each with its number of bins.
    `pseudo` rows are added to each bin for the spread of the losses. `assumed` is for the receipt.
    """

    count: Callable[[Any, _Rows], Bounded]
    value: Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]]
    totals: Callable[[NDArray[np.float64]], Sequence[tuple[float, int]]]
    largest: float
    pseudo: float
    assumed: tuple[str, ...] = ()

    def interval(self, counts: NDArray[np.float64], spread: float, deviations: float) -> tuple[float, float, float]:
        """Return the metric and its interval, given noise of standard deviation `spread` in each count."""
        with np.errstate(all="ignore"):
            value, gradient = self.value(counts)
        clear = all(total > _LEAST_CLEAR_ROWS * spread * math.sqrt(bins) for total, bins in self.totals(counts))
        if not clear or not math.isfinite(value):
            value = self.largest / 2 if not math.isfinite(value) else min(max(value, 0.0), self.largest)
            return value, 0.0, self.largest
        # The metric f does not change if all counts are multiplied, so to first order the error of f is the sum over
        # rows of g't, where g is its gradient and t the row's part of the histogram. (g't)² <= Σ t_k g_k², because t is
        # at least 0 and adds up to at most 1; the same holds for persons. So the sum of counts times g² is no less than
        # the variance from sampling, and is equal to it where every row is in one bin.
        sampling = float((np.maximum(counts, 0.0) + self.pseudo) @ gradient**2)
        noise = float(spread**2 * np.sum(gradient**2))
        half = math.sqrt(_NORMAL_DEVIATIONS**2 * sampling + deviations**2 * noise)
        value = min(max(value, 0.0), self.largest)
        return value, max(0.0, value - half), min(self.largest, value + half)


def checked_metric(model: Any, metric: str | None) -> str:
    """Return the metric, or refuse one that the model can't have."""
    estimator = _inner(model)
    if not hasattr(estimator, "predict"):
        raise TypeError(f"model must be a fitted model that predicts, got {type(model).__name__}.")
    if metric is None:
        if not is_classifier(estimator) and not is_regressor(estimator):
            raise ValueError(f"metric must be given: one of {', '.join(map(repr, EVALUATION_METRICS))}.")
        return "accuracy" if is_classifier(estimator) else "squared-error"
    chosen = checks.one_of(metric, EVALUATION_METRICS, "metric")
    if chosen == "squared-error":
        if is_classifier(estimator):
            raise ValueError("metric: 'squared-error' is for models that predict a number. Use 'log-loss'.")
        return chosen
    if is_regressor(estimator):
        raise ValueError(f"metric: {chosen!r} is for models that predict a class. Use 'squared-error'.")
    if chosen != "accuracy" and not hasattr(estimator, "predict_proba"):
        raise ValueError(f"metric: {chosen!r} needs a model with predict_proba. Use 'accuracy'.")
    if chosen == "auc" and len(estimator.classes_) != 2:
        raise ValueError(f"metric: 'auc' is for two classes, the model has {len(estimator.classes_)}. Use 'log-loss'.")
    return chosen


def _inner(model: Any) -> Any:
    """Return the model that predicts for encoded rows."""
    return vars(model).get("model_", model.estimator) if isinstance(model, TableModel) else model


def _public_rows(model: Any, public: Any) -> tuple[NDArray[np.float64], Any]:
    if isinstance(public, Table) and isinstance(model, TableModel):  # that the command has read
        rows = model.encode_public(public)
        return rows.X, rows.y
    public = declared_public(public)
    if isinstance(model, TableModel):
        rows = model.encode_public(public)
        return rows.X, rows.y
    return public_table(public.X, allow_nd=True), None if public.y is None else np.asarray(public.y)


_NOT_ROWS = (
    "X must hold rows of equally many cells, and y one label for each. What came instead is private and not shown."
)


def _private_rows(model: Any, X: Any, y: Any, persons: Any, ledger: Ledger) -> _Rows:
    """Return the private rows as arrays; only a shape is refused, without showing a value or a number of rows."""
    terms = ledger.fixed_rows, ledger.adjacency is Adjacency.ADD_REMOVE
    if isinstance(model, TableModel):
        if persons is not None and not isinstance(persons, str):
            raise TypeError("persons must name the column of the ids, because the model is one of tables.")
        if model.label is None:
            raise ValueError("the model has no label to evaluate.")
        return _Rows(*model.encode_for_evaluation(X, y, person=persons), *terms)
    names = getattr(X, "columns", None), getattr(model, "feature_names_in_", None)
    if all(part is not None for part in names) and list(names[0]) != list(names[1]):  # type: ignore[arg-type]
        raise ValueError("X must have the columns that the model was fitted on, in the same order.")
    table: NDArray[np.float64] = np.empty(0)
    labels: NDArray[Any] = np.empty(0)
    refusal = _NOT_ROWS
    try:
        table, labels = _table(X), _cells(y)
    except Exception as error:
        refusal = f"{_NOT_ROWS} ({type(error).__name__})"
    if table.ndim < 2 or len(table) != len(labels):
        # Outside the handler: the original error may quote a cell and would stay attached as the context of this one.
        raise ValueError(refusal)
    present = np.isfinite(table).all(axis=tuple(range(1, table.ndim)))
    present &= np.array([not _is_missing(label) for label in labels], dtype=bool)
    shares = None if persons is None else person_shares(persons, len(table))
    table = np.where(present.reshape(-1, *[1] * (table.ndim - 1)), table, 0.0)
    return _Rows(table, labels, present, shares, *terms)


def _table(X: Any) -> NDArray[np.float64]:
    """Return the cells as numbers, each read by itself; what is no number becomes NaN."""
    if isinstance(X, np.ma.MaskedArray):
        raise TypeError
    if hasattr(X, "iloc"):
        columns = [_numbers(_cells(X.iloc[:, place])) for place in range(X.shape[1])]
        return np.column_stack(columns) if columns else np.empty((len(X), 0))
    cells = X if isinstance(X, np.ndarray) else np.asarray(X, dtype=None if hasattr(X, "dtype") else object)
    return _numbers(cells.ravel()).reshape(cells.shape)


def _cells(values: Any) -> NDArray[Any]:
    """Return cells or labels as an array of objects, or as the numbers that they are; none changes another's type."""
    if getattr(values, "ndim", 1) != 1 or isinstance(values, str | bytes | np.ma.MaskedArray):
        raise TypeError
    dtype = getattr(values, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind in "biuf":
        return np.asarray(values)
    # One by one: as an array, a list with one missing label, text or span of time would change the type of all.
    cells = list(values.to_pylist() if hasattr(values, "to_pylist") else values)
    array = np.empty(len(cells), dtype=object)
    for place, cell in enumerate(cells):
        array[place] = cell
    return array


def _numbers(cells: NDArray[Any]) -> NDArray[np.float64]:
    """Return cells as numbers; what is none becomes NaN."""
    if cells.dtype.kind in "biuf":
        return cells.astype(np.float64)
    # Claim: the number of a cell depends on that cell alone. `_number` gets no other.
    return np.array([_number(cell) for cell in cells], dtype=np.float64)


def _number(cell: Any) -> float:
    """Return one cell as a number, or NaN; nothing that the cell does is shown."""
    try:
        if isinstance(cell, str):
            return float(cell) if cell.isascii() and "_" not in cell else math.nan
        if isinstance(cell, complex | np.complexfloating):
            # A real number beside a complex one in an array has an imaginary part of 0.
            return float(cell.real) if cell.imag == 0 else math.nan
        plain = isinstance(cell, numbers.Real | np.bool_ | decimal.Decimal) and not isinstance(cell, np.timedelta64)
        return float(cell) if plain else math.nan
    except Exception:
        return math.nan


def _is_missing(label: Any) -> bool:
    """Return whether a label is None or NaN, or can't be compared with itself."""
    try:
        return label is None or not bool(label == label)
    except Exception:
        return True


def _codes(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    """Return the place of each label among the classes; -1 for a label that is none of them."""
    places = {label: place for place, label in enumerate(classes)}

    def code(label: Any) -> int:
        try:
            return places.get(label, -1)
        except Exception:
            return -1

    # Claim: the code of a label depends on that label alone: True is 1 and 1.0 in every company.
    return np.array([code(label) for label in labels], dtype=np.int64)


def _equal(first: Any, second: Any) -> bool:
    """Return whether two labels are equal; labels that can't be compared are not."""
    try:
        return bool(first == second)
    except Exception:
        return False


def _in_floats(function: RowFunction) -> RowFunction:
    """Return the function with whole numbers as float64: 0 for one row and 0.5 for another are of one type."""

    def in_floats(rows: NDArray[Any]) -> NDArray[Any]:
        results = np.asarray(function(rows))
        return results.astype(np.float64) if results.dtype.kind in "biu" else results

    return in_floats


def _probabilities(model: Any, rows: _Rows) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return the probability of each class for private rows, and for which the model predicts some."""
    return _predicted(_in_floats(model.predict_proba), rows, n_classes=len(model.classes_))


def _predicted(function: RowFunction, rows: _Rows, *, n_classes: int = 0) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return what the model predicts for private rows, and for which it does; nothing that it says is shown."""
    axes, null = 2 if n_classes else 1, np.zeros((2, *rows.X.shape[1:]))
    # Null rows, which are public: a model that can't predict such tables is refused by its own words.
    trial = try_on_made_up_rows(function, null, "model", axes)
    if axes == 2 and trial.shape[1] != n_classes:
        raise ValueError("model must predict one probability for each of its classes.")
    if not answers_alone(function, null, like=trial).all():
        raise ValueError("model must predict a row alone by one result, of the type that it has beside other rows.")
    if trial.dtype == np.float32 and not rows.fixed:
        # In float32, how a row's prediction is rounded depends on how many rows there are.
        raise ValueError(
            "model predicts in float32, which is rounded differently for other numbers of rows. Evaluate it under "
            "zero-out or replace-one adjacency without persons, or let it predict in float64."
        )
    # A null row comes first: there may be no private row, and models refuse empty tables.
    padded = np.concatenate([np.zeros((1, *rows.X.shape[1:])), clipped_cells(rows.X)])
    answered, failed = np.ones(len(padded), dtype=bool), False
    try:
        results = on_private_rows(function, padded, "model", axes=axes, like=trial)
    except FailsOnPrivateRows:
        failed = True
    if failed:
        # Claim: a row that the model fails on, leaves out or answers by another type moves its own count alone. Whether
        # it does is found out for each row by itself, and null rows take the places of such rows, so that the others
        # are predicted in the same batch, by results of the type that null rows have.
        answered = answers_alone(function, padded, like=trial)
        padded = np.where(answered.reshape(-1, *[1] * (padded.ndim - 1)), padded, 0.0)
        results = on_private_rows(function, padded, "model", axes=axes, like=trial)
    return results[1:], answered[1:]


def _binned(codes: NDArray[Any], n_bins: int, rows: _Rows) -> Bounded:
    """Return the histogram of codes over the rows that count, with one more bin for the others if they are counted."""
    # Claim: |h - h'|_1 <= 1, by `histogram`. A row is in one bin, that of unusable rows among them, or in none.
    usable = rows.present & (codes >= 0)
    others = n_bins if rows.counts_unusable else -1
    return histogram(np.where(usable, codes, others), n_bins + rows.counts_unusable, rows.shares)


def _shared_out(losses: NDArray[np.float64], usable: NDArray[np.bool_], largest: float, rows: _Rows) -> Bounded:
    """Return the histogram of losses, each shared out between the two knots around it; NaN counts as the largest."""
    shares = np.clip(losses / largest, 0.0, 1.0)
    shares[np.isnan(shares)] = 1.0
    place = np.clip(np.searchsorted(_LOSS_KNOTS, shares, side="right") - 1, 0, len(_LOSS_KNOTS) - 2)
    upper = (shares - _LOSS_KNOTS[place]) / (_LOSS_KNOTS[place + 1] - _LOSS_KNOTS[place])
    parts = np.zeros((len(losses), len(_LOSS_KNOTS) + rows.counts_unusable))
    every = np.arange(len(losses))
    parts[every, place], parts[every, place + 1] = 1.0 - upper, upper
    # Claim: |h - h'|_1 <= 1, by `soft_histogram`. A row that does not count is null, or in the bin of unusable rows
    # alone.
    others = ~(rows.present & usable)
    parts[others] = 0.0
    if rows.counts_unusable:
        parts[others, -1] = 1.0
    return soft_histogram(parts, rows.shares)


def _mean_of(knots: NDArray[np.float64]) -> Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]]:
    """Return the function that computes the mean of what was counted at `knots`, and its gradient."""

    def mean(counts: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        value = float(knots @ counts / counts.sum())
        return value, (knots - value) / counts.sum()

    return mean


def _one_total(counts: NDArray[np.float64]) -> Sequence[tuple[float, int]]:
    return [(float(counts.sum()), len(counts))]


def _measure(
    metric: str, model: Any, public: tuple[NDArray[np.float64], Any] | None, bound: float | None, *, n_bins: int
) -> _Measure:
    """Return how the metric is counted, from public facts alone."""
    if bound is not None and metric in ("accuracy", "auc"):
        raise ValueError(f"error_bound: {metric} has no errors to bound. Leave it out.")
    if metric == "accuracy":

        def right(inner: Any, rows: _Rows) -> Bounded:
            predicted, answered = _predicted(inner.predict, rows)
            if hasattr(inner, "classes_"):
                codes = _codes(rows.y, inner.classes_)
                # An unknown label has code -1, which no prediction equals.
                correct = (_codes(predicted, inner.classes_) == codes) & (codes >= 0)
            else:
                correct = np.array([_equal(*pair) for pair in zip(predicted, rows.y, strict=True)], dtype=bool)
            return _binned((correct & answered).astype(np.int64), 2, rows)

        return _Measure(right, _mean_of(np.array([0.0, 1.0])), _one_total, 1.0, _PSEUDO_ROWS)
    if metric == "auc":
        return _area(*_score_edges(_inner(model), public, n_bins))
    if metric == "log-loss":
        largest = _LARGEST_LOG_LOSS if bound is None else checks.scale(bound, "error_bound")

        def loss(inner: Any, rows: _Rows) -> Bounded:
            codes = _codes(rows.y, inner.classes_)
            probabilities, answered = _probabilities(inner, rows)
            chances = probabilities[np.arange(len(codes)), codes]
            # A class that the model does not know, whose code is -1, had probability 0.
            losses = -np.log(np.where((codes >= 0) & answered, chances, 0.0))
            return _shared_out(losses, np.ones(len(codes), dtype=bool), largest, rows)

        chance = math.exp(-largest)
        said = f"the largest log-loss of a row that counts: {largest:.4g}, that of a probability of {chance:.3g}"
        return _Measure(loss, _mean_of(largest * _LOSS_KNOTS), _one_total, largest, _PSEUDO_ROWS, (said,))
    error, origin = _error_bound(model, public, bound)

    def squared(inner: Any, rows: _Rows) -> Bounded:
        targets = _numbers(rows.y)
        predicted, answered = _predicted(_in_floats(inner.predict), rows)
        errors = np.where(answered, _numbers(predicted) - targets, np.nan)
        return _shared_out(errors**2, np.isfinite(targets), error**2, rows)

    said = f"the largest absolute error of a row that counts: {error:.4g} ({origin})"
    return _Measure(squared, _mean_of(error**2 * _LOSS_KNOTS), _one_total, error**2, _PSEUDO_ROWS, (said,))


def _error_bound(model: Any, public: tuple[NDArray[np.float64], Any] | None, bound: float | None) -> tuple[float, str]:
    """Return the largest absolute error that counts, and where it comes from."""
    if bound is not None:
        return checks.scale(bound, "error_bound"), "declared"
    if public is not None and public[1] is not None:
        errors = np.asarray(_inner(model).predict(public[0]), dtype=np.float64) - np.asarray(
            public[1], dtype=np.float64
        )
        largest = _PUBLIC_ERRORS * math.sqrt(float(np.mean(errors**2)))
        if 0 < largest < math.inf:
            return largest, f"{_PUBLIC_ERRORS:g} root mean squared errors on public rows"
    if isinstance(model, TableModel) and model.label is not None:
        low, high = model.schema.bounds(model.label)
        return _SHARE_OF_RANGE * (high - low), "a quarter of the range in the schema"
    raise ValueError(
        "error_bound must be given for a squared error: the largest absolute error of a row that counts, chosen "
        "without the private rows. Or give labelled public rows."
    )


def _number_of_bins(signal: float) -> int:
    grown = _FEWEST_BINS * (max(signal, _FEWEST_BINS_UP_TO) / _FEWEST_BINS_UP_TO) ** _BINS_POWER
    return int(min(grown, _MOST_BINS))


def _score_edges(
    model: Any, public: tuple[NDArray[np.float64], Any] | None, n_bins: int
) -> tuple[NDArray[np.float64], str]:
    """Return the log-odds that separate the bins of scores, and where they come from."""
    if public is None:
        places = np.linspace(-1.0, 1.0, n_bins - 1)
        edges = _OUTERMOST_EDGE * np.sign(places) * np.abs(places) ** _EDGE_POWER
        return edges, f"between log-odds of -{_OUTERMOST_EDGE:g} and {_OUTERMOST_EDGE:g}"
    scores = np.round(_log_odds(np.asarray(model.predict_proba(public[0]))), _SCORE_DIGITS)
    levels = np.arange(1, n_bins) / n_bins
    # Half-way to the next lower public score: a private row with the cells of a public one has its score, and would lie
    # on an edge. In a batch of another size such a score is rounded differently, so that it could change its bin.
    distinct = np.unique(scores)
    place = np.searchsorted(distinct, np.quantile(scores, levels, method="nearest"))
    place = np.unique(place[place > 0])
    return (distinct[place - 1] + distinct[place]) / 2, "quantiles of public rows"


def _log_odds(probabilities: NDArray[Any]) -> NDArray[np.float64]:
    """Return the log-odds of the second class, within limits."""
    chances = np.asarray(probabilities, dtype=np.float64)
    with np.errstate(all="ignore"):
        odds = np.log(chances[:, 1]) - np.log(chances[:, 0])
        return np.asarray(np.clip(odds, -_MOST_LOG_ODDS, _MOST_LOG_ODDS), dtype=np.float64)


def _area(edges: NDArray[np.float64], origin: str) -> _Measure:
    """Return how the area under the ROC curve is counted: by the bin of the score, for each class."""
    n_bins = len(edges) + 1

    def scores_by_class(inner: Any, rows: _Rows) -> Bounded:
        codes = _codes(rows.y, inner.classes_)
        probabilities, answered = _probabilities(inner, rows)
        scores = _log_odds(probabilities)
        # Without a score, a row has the worst one: the lowest of the second class, the highest of the first.
        worst = np.where(codes == 1, -np.inf, np.inf)
        scores = np.where(answered & ~np.isnan(scores), scores, worst)
        # A row is in one bin of its class, or in none if its class is unknown.
        cells = np.searchsorted(edges, scores, side="right") + n_bins * codes
        return _binned(np.where(codes >= 0, cells, -1), 2 * n_bins, rows)

    def area(counts: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        negative, positive = counts[:n_bins], counts[n_bins:]
        # The share of the other class that has a lower (higher) score; half of those in the same bin.
        lower = (np.cumsum(negative) - negative / 2) / negative.sum()
        higher = 1.0 - (np.cumsum(positive) - positive / 2) / positive.sum()
        value = float(positive @ lower / positive.sum())
        return value, np.concatenate([(higher - value) / negative.sum(), (lower - value) / positive.sum()])

    def totals(counts: NDArray[np.float64]) -> Sequence[tuple[float, int]]:
        return [(float(part.sum()), n_bins) for part in (counts[:n_bins], counts[n_bins:])]

    return _Measure(scores_by_class, area, totals, 1.0, 0.0, (f"the {n_bins} bins of scores ({origin})",))
