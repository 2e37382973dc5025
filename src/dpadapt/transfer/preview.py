"""Previews from public rows alone, both free: would the gate open (`forecast`), and whole fits (`rehearse`).

`forecast_classification` and `forecast_regression` use the same plans as the fits. What `dpadapt.advice` recommends
comes from rehearsals.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.metrics import log_loss

from dpadapt import checks, notebook
from dpadapt.accounting.cost import gaussian_epsilon, gaussian_mu
from dpadapt.data import Public
from dpadapt.inputs.gate import declared_public, label_codes, label_set, numeric_labels, public_labels, public_table
from dpadapt.learning.base import Budget
from dpadapt.transfer.base import count_plan, regression_base
from dpadapt.transfer.classification_plan import EXCESS, PRIORS, make_plan, prepared_for, stride
from dpadapt.transfer.gate import Path, keep, keep_few, slope_from_change, slope_from_losses
from dpadapt.transfer.intervals import interval_plan, set_plan
from dpadapt.transfer.public_models import require_shifted_labelled
from dpadapt.transfer.regression_plan import (
    CORRECTION_CURVATURE,
    dyadic_blocks,
    remembered_base_geometry,
    shift_prior,
    shifted_plan,
    worthwhile,
)

# Shown with every forecast.
CAVEAT = (
    "A go / no-go signal, not an error bar: it is computed from public rows and the budget alone. How far the private "
    "population differs can only be learned from the private rows."
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Preview:
    """What public rows alone say about private fits, before anything is spent.

    A forecast, a rehearsal and an advice are previews that have numbers of their own. `report` draws any of them on the
    terminal and on a page: the answer in a few words (`headline`), sentences (`words`), a table of names and numbers,
    which may have no rows, and `notes` on how to read the table.
    """

    title: str
    headline: str = ""
    words: tuple[str, ...] = ()
    headings: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()

    def table(self) -> list[str]:
        """Return the table as lines of text."""
        lines = [self.headings, *self.rows] if self.rows else []
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip() for line in lines]

    def __str__(self) -> str:
        return "\n".join([*self.words, *self.table()])

    def _repr_html_(self) -> str:
        return notebook.card(
            self.title,
            *([notebook.headline(self.headline)] if self.headline else []),
            *map(notebook.sentence, self.words),
            *([notebook.table(self.headings, self.rows)] if self.rows else []),
            *map(notebook.note, self.notes),
        )


@dataclass(frozen=True, kw_only=True)
class Forecast(Preview):
    """What public data alone says about a private fit at one epsilon. A go / no-go signal, not an error bar.

    Parameters
    ----------
    epsilon : float
    n_private : int
    worthwhile : bool
        Whether anything would be released; if not, the public model is returned and nothing is spent.
    n_directions : int
        How many directions the budget is spread over.
    shifts : tuple of float
        Of a regression, assumed sizes of the shift: what the best linear model would save on the private population, as
        a share of the public model's leave-one-out error. Public data can't show how large the shift really is.
    error_ratios : tuple of float
        Expected error over that of the public model, for each shift; 1 where the gate stays shut.
    opens_at : float
        Smallest of these shifts at which the gate is expected to open; inf if there is none.
    blur : float
        Of a classification, the noise in a score: the standard deviation that the releases give to a logit. Reliable:
        it depends on public numbers only. At 0.1 hardly anything is lost; at 1 most of what could be learned is lost.
    needed_gain : float
        Log-loss per row that a correction of the expected size must save before the gate opens; 0 without a gate.
    ratio : float
        Expected over needed slope of the gain, if the private population differs as much as the prior assumes. Nobody
        has looked at that population, so this is weak evidence; see `gate`.
    gate : {"open", "shut", "undecided", "none"}
        "open" above a ratio of 2, "shut" below 0.3; "none" if there is no gate. Where the populations are the same,
        "open" is too optimistic.
    """

    epsilon: float
    n_private: int
    worthwhile: bool = False
    n_directions: int = 0
    shifts: tuple[float, ...] = ()
    error_ratios: tuple[float, ...] = ()
    opens_at: float = math.inf
    blur: float = math.inf
    needed_gain: float = math.inf
    ratio: float = 0.0
    gate: str = "none"


def forecast(estimator: Any, public: Public, n_private: int) -> Forecast:
    """Return what `estimator` could do with `n_private` private rows, before any of them is read.

    It is a go / no-go signal, not an error bar: only the private rows can tell how far the private population differs
    from the public one. `rehearse` estimates errors where public data can mimic that difference.

    Parameters
    ----------
    estimator : PrivateTransferRegressor or PrivateTransferClassifier
        Unfitted; its own epsilon, delta, prior and adjacency are used.
    public : Public
        Public data; labelled for a regression.
    n_private : int
        How many private rows there will be; under "add-remove" a public estimate of it.

    Returns
    -------
    Forecast
        It says whether the budget is enough (`worthwhile`) and how many directions it is spread over (`n_directions`).

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import PrivateTransferRegressor
    >>> X = np.random.default_rng(7).uniform(-1, 1, (300, 3))
    >>> public = Public(X, X @ [1.0, 0.5, -1.0])
    >>> forecast(PrivateTransferRegressor(epsilon=0.1), public, n_private=20).worthwhile
    False
    """
    if not hasattr(estimator, "forecast"):
        raise TypeError(f"estimator must have a forecast, as the transfer estimators do; {type(estimator).__name__} "
                        f"has none. Use rehearse.")  # fmt: skip
    result: Forecast = estimator.forecast(declared_public(public), checks.count(n_private, "n_private"))
    return result


# Ratios of expected to needed slope of the gain. Below the first the gate stayed shut, above the second it was open, on
# the data sets that were tried.
_SHUT_RATIO, _OPEN_RATIO = 0.3, 2.0
# Noise in a score (logit), for the words of a forecast: below the first hardly anything that could be learned is lost,
# above the second most of it is. Chosen by hand.
_LITTLE_SCORE_NOISE, _MUCH_SCORE_NOISE = 0.1, 1.0
# For each `Forecast.gate`: does it open if the private population differs as the prior expects? In a table, in words.
_GATES = {
    "open": ("probably", "If the private population differs as much as is usual, the gate will probably open."),
    "shut": (
        "probably not",
        "Even if the private population differs as much as is usual, the gate will probably stay shut.",
    ),
    "undecided": (
        "uncertain",
        "If the private population differs as much as is usual, it is uncertain whether the gate opens.",
    ),
    "none": ("no gate", "Without public labels there is no public model to keep, so there is no gate."),
}
_UNSPENT = "The budget is too small for this many rows: the public model would be returned, nothing spent."
_READ_SCORES = (
    "The noise in a logit is a standard deviation: at 0.1 hardly anything is lost, at 1 most is. The log-loss gain is "
    "what a correction must save per row before the gate opens. Both are reliable. Whether the gate opens also depends "
    'on the shift, which is assumed to have the usual size; if there is no shift, "probably" is too optimistic.'
)


def forecast_of_scores(
    epsilon: float,
    n_private: int,
    *,
    worthwhile: bool = True,
    n_directions: int = 0,
    blur: float = math.inf,
    needed_gain: float = 0.0,
    ratio: float = math.inf,
    gate: str = "none",
) -> Forecast:
    """Return the forecast of a classification, in words and as a table; by default that of one without a gate."""
    verdict, sentence = _GATES[gate]
    lost = "hardly any" if blur <= _LITTLE_SCORE_NOISE else "most" if blur >= _MUCH_SCORE_NOISE else "some"
    words = [f"The noise in a score (a logit) is about {blur:.2g}: {lost} of what could be learned is lost."]
    if gate != "none":
        words.append(f"A correction must save {needed_gain:.2g} of log-loss per row before the gate opens.")
    numbers = [f"{value:.3g}" if math.isfinite(value) else "-" for value in (blur, needed_gain)]
    return Forecast(
        **_drawn(epsilon, n_private, worthwhile, " ".join([*words, sentence])),
        headings=("", "noise in a logit", "log-loss gain needed", "coordinates", "gate opens"),
        rows=((f"ε = {epsilon:g}", *numbers, f"{n_directions:,}", verdict if worthwhile else "unspent"),),
        notes=(_READ_SCORES, CAVEAT),
        n_directions=n_directions,
        blur=blur,
        needed_gain=needed_gain,
        ratio=ratio,
        gate=gate,
    )


def _drawn(epsilon: float, n_private: int, worthwhile: bool, sentence: str) -> dict[str, Any]:
    """Return the facts that forecasts of both tasks have."""
    return {
        "title": f"Forecast for {n_private:,} private rows",
        "words": (sentence if worthwhile else _UNSPENT,),
        "epsilon": epsilon,
        "n_private": n_private,
        "worthwhile": worthwhile,
    }


def forecasts_at(estimator: Any, public: Public, n_private: int, epsilons: Sequence[float]) -> list[Forecast]:
    """Return the forecast of a transfer estimator at each epsilon, for a public number of private rows."""
    return [clone(estimator).set_params(epsilon=epsilon).forecast(public, n_private) for epsilon in epsilons]


def beside(forecasts: Sequence[Forecast], unit: str = "row") -> Preview:
    """Return forecasts at several epsilons as one preview, a row for each."""
    first, unspent = forecasts[0], []
    if not all(forecast.worthwhile for forecast in forecasts):
        unspent = [
            "Unspent: the budget is too small for this many rows. Nothing is spent, and the public model is returned."
        ]
    return Preview(
        title=f"Forecast for {first.n_private:,} private {unit}s",
        headings=first.headings,
        rows=tuple(row for forecast in forecasts for row in forecast.rows),
        notes=(*unspent, *first.notes),
    )


@np.errstate(all="ignore")
def forecast_classification(
    public: Public,
    n_private: int,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    *,
    prior: str = "shifted",
    classes: Any = None,
    adjacency: str = "zero-out",
    public_model: Any = None,
    intervals: bool = False,
) -> Forecast:
    """Return the forecast of a fit of `PrivateTransferClassifier`; nothing private is read or spent.

    It gives the noise in a score and the number of directions at this budget. It does not predict an accuracy: that
    depends on how the private population differs, which only the private rows can tell. `classes` must be given if the
    public data has no labels.
    """
    declared_public(public)
    checks.one_of(prior, PRIORS, "prior")
    n_private = checks.count(n_private, "n_private")
    budget = Budget.of(epsilon, delta, n_private, adjacency)
    budget = set_plan(budget).budget if checks.flag(intervals, "intervals") else budget
    budget = count_plan(budget).budget
    X = public_table(public.X, ensure_min_samples=2)
    labels = None if public.y is None else public_labels(public.y, len(X))
    if labels is None and classes is None:
        raise ValueError(
            "classes must be given if the public data has no labels: the noise depends on the number of classes."
        )
    all_classes, _ = label_set(classes, labels, np.zeros(0))
    codes = None if labels is None else label_codes(labels, all_classes, "public y")
    require_shifted_labelled(public_model, prior, codes)
    prepared, _ = prepared_for(public, X, codes, all_classes, prior=prior, model=public_model)
    if not budget.worthwhile:
        gate = "shut" if prepared.warm else "none"
        return forecast_of_scores(epsilon, n_private, worthwhile=False, needed_gain=math.inf, ratio=0.0, gate=gate)
    plan = make_plan(prepared, budget, prior)
    used = plan.used
    if not prepared.warm:
        return forecast_of_scores(epsilon, n_private, n_directions=len(used), blur=plan.blur)
    n_classes = prepared.start.shape[1]
    pace = stride(prepared, plan, np.zeros((len(used), n_classes)), budget.n_rows)
    response = pace.curvature / (pace.curvature + pace.ridge)
    # One change of the size that the prior expects after shrinkage; its direction matters little.
    unit_change = np.random.default_rng(0).standard_normal((len(used), n_classes))
    unit_change -= unit_change.mean(axis=1, keepdims=True)
    unit_change *= np.sqrt((n_classes - 1) / np.sum(unit_change**2, axis=1, keepdims=True))
    change = unit_change * np.sqrt(plan.expected[used] * response)[:, None]
    path = Path(prepared.sample_scores, prepared.sample_scores + prepared.sample[:, used] @ change)
    noise = budget.noise(path.bound) / math.sqrt(plan.gate_share)
    measured = slope_from_losses(0.0, noise, path, optimism=0.0, n_rows=budget.n_rows)
    variance = EXCESS * (plan.noise / plan.weights[used]) ** 2 + pace.curvature / budget.n_rows
    own = slope_from_change(change, pace.curvature + pace.ridge, variance)
    needed = abs(plan.caution) * own.with_other(measured).scatter
    ratio = 2.0 * path.divergence(1.0) / needed
    gate = "open" if plan.caution < 0 or ratio > _OPEN_RATIO else "shut" if ratio < _SHUT_RATIO else "undecided"
    return forecast_of_scores(
        epsilon, n_private, n_directions=len(used), blur=plan.blur, needed_gain=needed, ratio=ratio, gate=gate
    )


# Sizes of a shift for which a regression is forecast, as shares of the public model's error. They only set the
# resolution of the curve. Chosen by hand.
_SHIFTS = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)


_READ_ERRORS = (
    "Numbers: expected mean squared error over that of the public model; 1.00 means that the public model is kept. The "
    "shift is what the best linear model would save on the private population, as a share of the public model's mean "
    "squared error on public rows. Private rows are assumed to have features like public ones."
)


def forecast_of_errors(
    epsilon: float, n_private: int, error_ratios: tuple[float, ...] | None, n_directions: int = 0
) -> Forecast:
    """Return the forecast of a regression, in words and as a table; without ratios, nothing would be released."""
    ratios = (1.0,) * len(_SHIFTS) if error_ratios is None else error_ratios
    opens_at = min((s for s, ratio in zip(_SHIFTS, ratios, strict=True) if ratio < 1 - 1e-3), default=math.inf)
    verdict = f"from {opens_at:.0%}"
    sentence = (
        f"The gate will probably open if the private population differs so much that the best linear model would save "
        f"at least {opens_at:.0%} of the public model's mean squared error. Public data can't say whether it does."
    )
    if math.isinf(opens_at):
        verdict = "never"
        sentence = "The gate will probably stay shut for every shift considered; the public model would be kept."
    cells = *(f"{ratio:.2f}" for ratio in ratios), f"{n_directions:,}", "unspent" if error_ratios is None else verdict
    return Forecast(
        **_drawn(epsilon, n_private, error_ratios is not None, sentence),
        headings=("shift", *(f"{shift:.0%}" for shift in _SHIFTS), "coordinates", "gate opens"),
        rows=((f"ε = {epsilon:g}", *cells),),
        notes=(_READ_ERRORS, CAVEAT),
        n_directions=n_directions,
        shifts=_SHIFTS,
        error_ratios=ratios,
        opens_at=opens_at,
    )


@np.errstate(all="ignore")
def forecast_regression(
    public: Public,
    n_private: int,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    *,
    adjacency: str = "zero-out",
    public_model: Any = None,
    intervals: bool = False,
) -> Forecast:
    """Return the forecast of a fit of `PrivateTransferRegressor`; nothing private is read or spent.

    The shift is assumed to be spread as in `shift_prior`, and the private rows to look like the public ones. On sixteen
    data sets a prototype of this forecast, given the true size of the shift, had a median error of 0.01 in the ratio
    and was too optimistic by more than 0.1 in a sixth of the cells: use it to decide whether to try.
    """
    if declared_public(public).y is None:
        raise ValueError("a forecast needs public labels: public=Public(X, y).")
    require_shifted_labelled(public_model, "shifted", public.y)
    n_private = checks.count(n_private, "n_private")
    budget = Budget.of(epsilon, delta, n_private, adjacency)
    budget = interval_plan(budget).budget if checks.flag(intervals, "intervals") else budget
    budget = count_plan(budget).budget
    if not worthwhile(budget):
        return forecast_of_errors(epsilon, n_private, None)
    X = public_table(public.X, ensure_min_samples=2)
    public_base = regression_base(public, X, numeric_labels(public_labels(public.y, len(X))), public_model)
    geometry = remembered_base_geometry(public, public_base)
    # The same plan as that of the fit; the private rows are assumed to have the mean of the public ones.
    plan = shifted_plan(public_base, geometry, budget)
    plane = plan.plane(1.0)
    few = np.arange(len(plane.weights))
    error, spread, n_used = geometry.variance, shift_prior(len(geometry.solution)), len(few)
    chosen = np.zeros(0, dtype=np.int64)
    if "correction" in plan.shares:
        chosen, stage = plan.correction(np.zeros(len(geometry.solution)), 1.0)
        curvature = stage.weights * max(stage.unclipped, 0.1)
        noise = stage.weights * stage.noise_of_average(CORRECTION_CURVATURE * curvature) + error / budget.n_rows
        follows = np.minimum(curvature * stage.response(curvature), 1.0)
        n_used = len(np.union1d(few, chosen))
    ratios = []
    for shift in _SHIFTS:
        energy = error * shift * spread
        remaining = energy.copy()
        first_gate = keep_few(np.sqrt(energy[few] + plane.variance), plane.variance, error=error)
        remaining[few] = energy[few] * (1.0 - first_gate.factors) ** 2 + first_gate.factors**2 * plane.variance
        if len(chosen):
            estimates = np.sqrt(remaining[chosen] * follows**2 + noise)
            second_gate = keep(estimates, noise, dyadic_blocks(chosen), error=error, established=first_gate.established)
            remaining[chosen] = (
                remaining[chosen] * (1.0 - second_gate.factors * follows) ** 2 + second_gate.factors**2 * noise
            )
        ratios.append(float((error + remaining.sum()) / (error + energy.sum())))
    return forecast_of_errors(epsilon, n_private, tuple(ratios), n_used)


# A budget at which every estimator returns what the public data alone gives.
PUBLIC_ONLY_BUDGET = {"epsilon": 1e-9, "delta": 1e-15}


@dataclass(frozen=True, eq=False, kw_only=True)
class Rehearsal(Preview):
    """Errors of private fits in which some public rows took the role of private rows.

    `errors` has a row per repeat and a column per epsilon: the `metric` on held-out rows of the same part of the data,
    where smaller is better. `public_only` has that of the estimator without any budget, from the other public rows
    alone. With `fewer_rows` there were fewer public rows than private ones will be: the noise is that of the private
    rows (the budget was raised by as much), but the sampling error is larger, so that the errors are pessimistic.
    """

    metric: str
    epsilons: tuple[float, ...]
    errors: NDArray[np.float64]
    public_only: NDArray[np.float64]
    fewer_rows: bool


def rehearse(
    estimator: Any,
    public: Public,
    n_private: int,
    *,
    epsilons: Sequence[float] = (0.1, 0.3, 1.0, 3.0, 10.0),
    repeats: int = 5,
    split_by: Any = None,
    use_public: bool = True,
    random_state: int | None = None,
    done: Callable[[], None] | None = None,
) -> Rehearsal:
    """Fit `estimator` on public data alone: part of it takes the role of private rows, part is held out.

    It estimates the error at each epsilon before anything is spent. A random split contains no shift between public and
    private data; `split_by` mimics one. If the public rows come from several tasks, one of the tasks takes the role of
    the private rows in each split.

    Parameters
    ----------
    estimator : private estimator
        Unfitted; its epsilon is replaced by each of `epsilons`.
    public : Public
        Labelled.
    n_private : int
        How many private rows there will be.
    epsilons : sequence of float
    repeats : int, default=5
        How many random splits.
    split_by : array-like of shape (n_public_rows,), optional
        Rows with larger values, e.g. of an age or a date, take the role of private rows (half of all rows).
    use_public : bool, default=True
        Whether the rest of the public rows is given to the fit; False rehearses a fit on private rows alone.
    random_state : int, optional
        Seeds the splits and the noise; equal seeds give equal splits to any estimator. Default: fresh.
    done : callable, optional
        Called without arguments after each split.

    Examples
    --------
    >>> from dpadapt import PrivateLinearRegression
    >>> X = np.linspace(-1, 1, 600).reshape(200, 3) % 0.7
    >>> public = Public(X, X @ [1.0, 2.0, 3.0])
    >>> rehearsal = rehearse(PrivateLinearRegression(), public, 500, epsilons=(1.0,), repeats=2, random_state=0)
    >>> rehearsal.errors.shape
    (2, 1)
    """
    n_private = checks.count(n_private, "n_private", least=2)
    repeats = checks.count(repeats, "repeats")
    if not np.iterable(epsilons):
        raise ValueError(f"epsilons must be a list of numbers, got {epsilons!r}.")
    epsilons = [checks.positive(epsilon, "each of epsilons") for epsilon in epsilons]
    X, y, tasks = _rows_to_rehearse_on(public, split_by)
    random, noise = np.random.default_rng(random_state).spawn(2)
    classifier = is_classifier(estimator)
    base = clone(estimator)
    if classifier and base.get_params().get("classes", y) is None:
        base.set_params(classes=np.unique(y))
    errors, alone, fewer = np.empty((repeats, len(epsilons))), np.empty(repeats), False
    for i in range(repeats):
        private, held, declared, too_few = _roles(X, y, tasks, public.unseen, split_by, n_private, random)
        fewer |= too_few
        # With fewer rows the noise in a mean would be larger; a larger budget makes up for it.
        factor = n_private / len(private)
        raised = [{"epsilon": _for_fewer_rows(epsilon, base.get_params()["delta"], factor)} for epsilon in epsilons]
        for k, budget in enumerate([PUBLIC_ONLY_BUDGET, *raised]):
            model = clone(base).set_params(random_state=int(noise.integers(2**31)), **budget)
            model.fit(X[private], y[private], public=declared if use_public else None)
            (alone if k == 0 else errors[:, k - 1])[i] = _error(model, X[held], y[held], classifier)
        if done is not None:
            done()
    return _rehearsal("log-loss" if classifier else "mean squared error over variance", epsilons, errors, alone, fewer)


def _rehearsal(
    metric: str, epsilons: Sequence[float], errors: NDArray[np.float64], alone: NDArray[np.float64], fewer: bool
) -> Rehearsal:
    """Return a rehearsal with its table: the error at each epsilon."""
    repeats = len(alone)
    notes = [f"Mean ± standard deviation over {repeats} split{'s' * (repeats != 1)} of the public rows. Nothing spent."]
    if fewer:
        notes.append("There were fewer public rows than private ones are planned: these errors are pessimistic.")
    columns = [("public only", alone), *zip((f"epsilon = {epsilon:g}" for epsilon in epsilons), errors.T, strict=True)]
    return Rehearsal(
        title="Rehearsal on public rows",
        headings=("", metric),
        rows=tuple((name, f"{column.mean():.4f} ± {column.std():.4f}") for name, column in columns),
        notes=tuple(notes),
        metric=metric,
        epsilons=tuple(epsilons),
        errors=errors,
        public_only=alone,
        fewer_rows=fewer,
    )


def _roles(
    X: NDArray[np.float64],
    y: NDArray[Any],
    tasks: NDArray[Any] | None,
    unseen: Any,
    split_by: Any,
    n_private: int,
    random: np.random.Generator,
) -> tuple[NDArray[np.int64], NDArray[np.int64], Public, bool]:
    """Return which rows play private ones, which are held out, the others as public rows, and whether rows are few."""
    rest, other = _split(len(y), split_by, random) if tasks is None else _without_one(tasks, random)
    held, pool = other[: len(other) // 3], other[len(other) // 3 :]
    private = random.choice(pool, min(n_private, len(pool)), replace=False)
    tasks_of_rest = None if tasks is None else tasks[rest]
    declared = Public(X[rest], y[rest], tasks=tasks_of_rest, unseen=True if unseen is not None else None)
    return private, held, declared, len(pool) < n_private


def _rows_to_rehearse_on(
    public: Public, split_by: Any
) -> tuple[NDArray[np.float64], NDArray[Any], NDArray[Any] | None]:
    """Return public rows, their labels and their tasks, if there are any; refuse too few."""
    if not isinstance(public, Public) or public.y is None:
        raise ValueError("public must be a labelled Public to rehearse on: public=Public(X_public, y_public).")
    X = public_table(public.X)
    y = public_labels(public.y, len(X))
    if public.unseen is not None and public.tasks is None and split_by is None:
        # Rows that a fitted public model has seen can't take the role of private ones.
        X, y = (part[np.broadcast_to(public.unseen, len(y))] for part in (X, y))
    if len(y) < 12:
        raise ValueError(f"public must have at least 12 rows to rehearse on, got {len(y)}.")
    if public.tasks is None:
        return X, y, None
    tasks = np.asarray(public.tasks).ravel()
    if split_by is not None:
        raise ValueError("split_by must be left out if public has tasks: one task takes the role of the private rows.")
    if len(np.unique(tasks)) < 2 or np.unique(tasks, return_counts=True)[1].min() < 3:
        raise ValueError("public must have at least 2 tasks of at least 3 rows each to rehearse on.")
    return X, y, tasks


def _for_fewer_rows(epsilon: float, delta: float, factor: float) -> float:
    """Return the epsilon of a Gaussian mechanism with `factor` times less noise."""
    if factor <= 1.0 or not delta > 0:
        return epsilon * factor
    return gaussian_epsilon(factor * gaussian_mu(epsilon, delta), delta)


def _split(n: int, split_by: Any, random: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows that stay public, and the other rows, shuffled."""
    order = random.permutation(n)
    if split_by is not None:
        try:
            key = np.asarray(split_by).ravel().astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError("split_by must hold numbers or dates; turn texts into either first.") from None
        if len(key) != n:
            raise ValueError(f"split_by must have one entry per public row: {n}, got {len(key)}.")
        # Shuffled first, so that ties fall at random.
        order = order[np.argsort(key[order], kind="stable")]
    return order[: n // 2], random.permutation(order[n // 2 :])


def _without_one(tasks: NDArray[Any], random: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows that stay public, and the rows of one task, shuffled."""
    alone = tasks == random.choice(np.unique(tasks))
    return np.flatnonzero(~alone), random.permutation(np.flatnonzero(alone))


def _error(model: Any, X: NDArray[np.float64], y: NDArray[Any], classifier: bool) -> float:
    if classifier:
        return float(log_loss(y, model.predict_proba(X), labels=model.classes_))
    return float(np.mean((model.predict(X) - y) ** 2) / max(float(np.var(y)), 1e-300))
