"""`advise`: from public rows and a few facts to a plan, with what to expect of it. Reads nothing private.

What a private fit gains depends on how the private population differs, which public rows can't show. So the fit is
rehearsed on splits of the public rows that have a difference in them: along a date, an age or another column, the lower
half stays public and the upper half takes the role of the private rows. A random split, without any difference, stands
beside them.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.isotonic import isotonic_regression

from dpadapt import checks
from dpadapt.methods import Method, find
from dpadapt.tables import (
    Category,
    Date,
    EncodedRows,
    Number,
    Schema,
    TableModel,
    parse_days,
    parse_numbers,
    parse_text,
)
from dpadapt.transfer.preview import Preview, Rehearsal, rehearse

# Most public rows that are rehearsed on, a random sample of more, and most rows in the role of private ones: more take
# longer. Chosen by hand.
_MOST_PUBLIC_ROWS, _MOST_REHEARSED_ROWS = 4_000, 20_000
# Fewest public rows to rehearse on: a third of a half of them measures the error. Chosen by hand.
_LEAST_PUBLIC_ROWS = 100
# Columns along which public rows are split, dates and the column that the user names first. Each takes some seconds.
_MOST_SHIFTS = 5
# Fewest different values of a number to split along, and largest share of the rows that have one value.
_LEAST_VALUES, _MOST_OF_ONE_VALUE = 5, 0.5
# Rank correlation above which two columns split public rows alike. Chosen by hand.
_MOST_ALIKE = 0.95
# Words in the name of a column of numbers that is a time.
_WORDS_FOR_TIMES = frozenset({"year", "yr", "month", "week", "day", "date", "time", "quarter", "period"})
# Random splits; each column is split along once, with noise of its own.
_RANDOM_SPLITS = 2
# Least mean gain over the shifts that is called a gain. Smaller ones drown in the differences between splits.
_LEAST_GAIN = 0.02
# Share of the gain at the largest epsilon that the recommended epsilon must reach. Chosen by hand.
_MOST_OF_THE_GAIN = 0.8
# By how much another method must be better on average to be preferred to the one with a gate. Chosen by hand.
_PREFERRED_BY = 0.02
# Epsilons that are compared.
_ADVISED_EPSILONS = (0.1, 0.3, 1.0, 3.0)

RANDOM = "no difference (random split)"
# Each `Advice.verdict` as a heading.
VERDICTS = {
    "gain": "Fit: a gain is expected",
    "no gain": "Public rows foresee no gain",
    "unknown": "Public rows can't tell",
}


@dataclass(frozen=True, eq=False)
class Candidate:
    """A way to fit, rehearsed: its name in words, its method, and the parameters that differ from the defaults.

    `ratios` has a row for each split, of which the first is random, and a column for each epsilon: the error over that
    of the public model alone. It is empty before the rehearsal.
    """

    name: str
    method: Method
    use_public: bool
    params: dict[str, Any]
    ratios: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0)))

    @property
    def expected(self) -> NDArray[np.float64]:
        """Geometric mean of the ratios over the splits with a difference, at each epsilon."""
        shifted = self.ratios[1:] if len(self.ratios) > 1 else self.ratios
        return np.asarray(np.exp(np.mean(np.log(np.maximum(shifted, 1e-12)), axis=0)))


@dataclass(frozen=True, eq=False, kw_only=True)
class Advice(Preview):
    """A plan for a private fit, and what to expect of it.

    `n_private` is the number of private rows that was stated, `n_units` the number of rows or persons that the noise is
    compared with. `splits` says how public rows were split, at random and then along columns. There are no
    `candidates`, and none is `chosen`, if nothing could be rehearsed. The `verdict` says whether public rows foresee a
    gain, or can't tell. `epsilon` is recommended for the fit, and `model`, unfitted, has all that was chosen and is
    ready for `fit`.
    """

    task: Literal["regression", "classification"]
    unit: Literal["row", "person"]
    adjacency: str
    delta: float
    n_private: int
    n_units: int
    epsilons: tuple[float, ...]
    splits: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    verdict: Literal["gain", "no gain", "unknown"]
    epsilon: float
    chosen: Candidate | None
    model: TableModel

    @property
    def error(self) -> str:
        """The error that all numbers are about, by name."""
        return "mean squared error" if self.task == "regression" else "log-loss"


def advise(
    public: Any,
    n_private: int,
    *,
    label: str,
    schema: Schema | None = None,
    task: Literal["regression", "classification"] | None = None,
    person: str | None = None,
    rows_per_person: float | None = None,
    same_population: bool = False,
    secret_size: bool = False,
    split_by: str | None = None,
    epsilons: Sequence[float] = _ADVISED_EPSILONS,
    random_state: int | None = None,
    done: Callable[[str], None] | None = None,
) -> Advice:
    """Return which private fit to make and what to expect of it, from public rows alone.

    Parameters
    ----------
    public : DataFrame, path or Public
        The public table. With the column `label`, fits are rehearsed on it.
    n_private : int
        How many private rows there are: a public number, or an estimate of it.
    label : str
        The column to predict.
    schema : Schema, optional
        Default: `Schema.infer` of the public table.
    task : {"regression", "classification"}, optional
        Default: by the type of the column `label` in the schema.
    person : str, optional
        The column with the id of each row's person, if persons have several rows: the privacy unit is then the person.
    rows_per_person : float, optional
        How many rows a private person has, on average. Default: as in the column `person` of the public table.
    same_population : bool, default=False
        Whether the public rows are a random sample of the private population.
    secret_size : bool, default=False
        Whether the number of private rows is itself secret; `n_private` is then an estimate.
    split_by : str, optional
        A column of numbers, dates or categories along which public and private people differ: the first to be tried.
    epsilons : sequence of float
        Budgets to compare.
    random_state : int, optional
        Seeds splits and noise.
    done : callable, optional
        Called with a few words after each rehearsal.

    Examples
    --------
    >>> import pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> age = rng.uniform(20, 90, 400)
    >>> public = pd.DataFrame({"age": age, "cost": (age / 10) ** 2 + rng.normal(size=400)})
    >>> advice = advise(public, 2000, label="cost", epsilons=(1.0,), random_state=0)
    >>> advice.verdict, advice.unit, advice.delta
    ('gain', 'row', 1e-06)
    """
    n_private = checks.count(n_private, "n_private", least=2)
    budgets = _checked_epsilons(epsilons)
    schema = Schema.infer(public) if schema is None else schema
    schema = schema if person is None else schema.ignoring(person)
    kind = _task_of(schema, label, task)
    setting: dict[str, Any] = {"delta": _advised_delta(n_private), "adjacency": "zero-out"}
    setting |= {"adjacency": "add-remove", "n_rows": n_private} if secret_size else {}
    model = TableModel(find(None, kind).estimator(**setting), schema, label=label, person=person)
    rows = model.encode_public(public)
    n_units = max(2, round(n_private / _rows_per_person(rows, person, rows_per_person)))
    ways = _ways(kind, same_population)
    splits, candidates, fewer = _rehearsed(ways, setting, model, rows, split_by, n_units, budgets, random_state, done)
    chosen = None if not candidates else _preferred(candidates)
    epsilon, verdict = _recommended(budgets, chosen)
    if chosen is not None:
        model.estimator = chosen.method.estimator(**setting, **chosen.params)
    advice = Advice(
        title="Advice from public rows, nothing spent",
        headline=VERDICTS[verdict],
        task=kind,
        unit="row" if person is None and (rows_per_person or 1) <= 1 else "person",
        adjacency=setting["adjacency"],
        delta=setting["delta"],
        n_private=n_private,
        n_units=n_units,
        epsilons=budgets,
        splits=splits,
        candidates=candidates,
        verdict=verdict,
        epsilon=epsilon,
        chosen=chosen,
        model=model.set_params(estimator__epsilon=epsilon),
    )
    return _in_words(advice, rows, person, fewer=fewer)


def _checked_epsilons(epsilons: Any) -> tuple[float, ...]:
    if not np.iterable(epsilons) or not len(list(epsilons)):
        raise ValueError(f"epsilons must be a list of numbers, got {epsilons!r}.")
    return tuple(sorted({checks.positive(epsilon, "each of epsilons") for epsilon in epsilons}))


def _task_of(schema: Schema, label: str, task: Any) -> Literal["regression", "classification"]:
    """Return the task that was asked for, or what the type of the label's column suggests."""
    if task not in (None, "regression", "classification"):
        raise ValueError(f"task must be 'regression' or 'classification', got {task!r}.")
    column = schema.column(label)
    return task or ("classification" if isinstance(column, Category) else "regression")


def _advised_delta(n: int) -> float:
    """Return a power of ten that is at most a tenth of 1 / n, and at most 1e-6."""
    return float(10.0 ** -max(6, math.ceil(math.log10(n)) + 1))


def _rows_per_person(rows: EncodedRows, person: str | None, stated: float | None) -> float:
    """Return how many rows a person has on average, as stated or as in public rows."""
    if stated is not None:
        return max(1.0, checks.positive(stated, "rows_per_person"))
    if person is None:
        return 1.0
    if person not in rows.table.frame.columns:
        raise ValueError(
            f"person (--person): the public table has no column {person!r}. Correct it, or give rows_per_person "
            f"(--rows-per-person) instead."
        )
    return max(1.0, len(rows.table.frame) / max(rows.table.frame[person].nunique(), 1))


def _sampled(rows: EncodedRows, random: np.random.Generator) -> EncodedRows:
    if len(rows.X) <= _MOST_PUBLIC_ROWS:
        return rows
    chosen = np.sort(random.choice(len(rows.X), _MOST_PUBLIC_ROWS, replace=False))
    table = replace(rows.table, frame=rows.table.frame.iloc[chosen].reset_index(drop=True))
    y = None if rows.y is None else rows.y[chosen]
    return EncodedRows(table, rows.X[chosen], y, None, None, None, rows.unknown)


def shift_columns(
    rows: EncodedRows, schema: Schema, label: str, split_by: str | None = None
) -> dict[str, NDArray[np.float64]]:
    """Return columns to split public rows along, with a number for each row: the one asked for, dates, then numbers.

    Of many numbers those are taken that stand at equal distances in the order of their correlation with the label, so
    that mild and strong differences are among them.
    """
    dates, numbers = _dates_and_numbers(rows.table.frame, schema, label)
    first = {} if split_by is None else {split_by: sort_key(rows.table.frame, schema, split_by)}
    usable: dict[str, NDArray[np.float64]] = {}
    for name, values in {**first, **dates}.items():
        if name == split_by or (_splits(values) and not _alike(values, usable.values())):
            usable[name] = values
    others = {
        name: values
        for name, values in numbers.items()
        if name not in usable and _splits(values) and not _alike(values, usable.values())
    }
    target = rows.y
    if isinstance(schema.column(label), Category):
        target = np.unique(np.asarray(rows.y), return_inverse=True)[1]
    order: list[str] = []
    for name in sorted(others, key=lambda name: _correlation(others[name], np.asarray(target, dtype=np.float64))):
        # Columns that sort the rows alike are neighbours in this order.
        if not order or not _alike(others[name], [others[order[-1]]]):
            order.append(name)
    left = max(0, _MOST_SHIFTS - len(usable))
    places = np.unique(np.linspace(0, max(len(order) - 1, 0), min(left, len(order))).round().astype(int))
    usable |= {order[place]: others[order[place]] for place in places}
    return {name: _filled(values) for name, values in list(usable.items())[:_MOST_SHIFTS]}


def _dates_and_numbers(
    frame: pd.DataFrame, schema: Schema, label: str
) -> tuple[dict[str, NDArray[np.float64]], dict[str, NDArray[np.float64]]]:
    """Return the columns of dates and times, and the other columns of numbers, with a number for each row."""
    dates: dict[str, NDArray[np.float64]] = {}
    numbers: dict[str, NDArray[np.float64]] = {}
    for column in schema.columns:
        if column.name == label or column.name not in frame.columns:
            continue
        if isinstance(column, Date):
            dates[column.name] = parse_days(frame[column.name], column.format)
        elif isinstance(column, Number):
            timed = not _WORDS_FOR_TIMES.isdisjoint(re.split(r"[^a-z]+", column.name.lower()))
            (dates if timed else numbers)[column.name] = parse_numbers(frame[column.name])
    return dates, numbers


def sort_key(frame: pd.DataFrame, schema: Schema, name: str) -> NDArray[np.float64]:
    """Return a number for each row by which a column sorts them: a number, a date, or the place of its category."""
    if name not in frame.columns:
        raise ValueError(f"split_by (--split-by): the public table has no column {name!r}.")
    column = next((part for part in schema.columns if part.name == name), None)
    numbers = parse_numbers(frame[name])
    if np.isfinite(numbers).all():
        return numbers
    if isinstance(column, Category):
        order = {str(value): position for position, value in enumerate(column.values)}
        # Values that are not listed come last.
        return np.array([order.get(text, len(order)) for text in parse_text(frame[name])], dtype=np.float64)
    for key in (numbers, parse_days(frame[name], column.format if isinstance(column, Date) else "ISO8601")):
        if np.isfinite(key).mean() > 0.5:
            return _filled(key)
    raise ValueError(
        f"split_by (--split-by): column {name!r} must hold a number, a date such as 2024-05-31 or a category of the "
        f"schema in most rows."
    )


def _filled(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a column with its median in place of missing cells."""
    return np.where(np.isfinite(values), values, np.nanmedian(values))


def _splits(values: NDArray[np.float64]) -> bool:
    """Return whether a column has enough different values to split along."""
    finite = values[np.isfinite(values)]
    if len(finite) < len(values) / 2:
        return False
    _, counts = np.unique(finite, return_counts=True)
    return len(counts) >= _LEAST_VALUES and counts.max() <= _MOST_OF_ONE_VALUE * len(values)


def _alike(values: NDArray[np.float64], others: Iterable[NDArray[np.float64]]) -> bool:
    """Return whether one of the others sorts the rows alike, such as a year beside a date: one of them is enough."""
    return any(_correlation(values, _filled(other)) > _MOST_ALIKE for other in others)


def _correlation(values: NDArray[np.float64], target: NDArray[np.float64]) -> float:
    """Return the size of the rank correlation."""
    ranks = [rankdata(part) - (len(part) + 1) / 2 for part in (_filled(values), target)]
    scale = math.sqrt(float(ranks[0] @ ranks[0]) * float(ranks[1] @ ranks[1]))
    return abs(float(ranks[0] @ ranks[1])) / scale if scale > 0 else 0.0


def _ways(task: Literal["regression", "classification"], same_population: bool) -> list[Candidate]:
    """Return the ways to fit; the default comes first."""
    default = find(None, task)
    plain = find("linear" if task == "regression" else "logistic", task)
    ways = [Candidate("the default, transfer with a gate", default, True, {})]
    if same_population:
        ways.append(Candidate("transfer from the same population", default, True, {"prior": "same-population"}))
    return [
        *ways,
        Candidate(f"{plain.name}, started from the public model", plain, True, {}),
        Candidate("the private rows alone", plain, False, {}),
    ]


def _rehearsed(
    ways: Sequence[Candidate],
    setting: Mapping[str, Any],
    model: TableModel,
    rows: EncodedRows,
    split_by: str | None,
    n_units: int,
    epsilons: Sequence[float],
    random_state: int | None,
    done: Callable[[str], None] | None,
) -> tuple[tuple[str, ...], tuple[Candidate, ...], bool]:
    """Return the splits, each way with its ratios (none without enough labels), and whether rows were too few."""
    if rows.y is None or len(rows.y) < _LEAST_PUBLIC_ROWS:
        return (RANDOM,), (), False
    random = np.random.default_rng(random_state)
    rows = _sampled(rows, random)
    columns = shift_columns(rows, model.schema, str(model.label), split_by)
    seed = int(random.integers(2**31))
    candidates: list[Candidate] = []
    alone: list[float] = []
    fewer = False
    for way in ways:
        known = way.method.estimator().get_params(deep=False)
        params = {name: value for name, value in setting.items() if name in known} | way.params
        estimator = TableModel(way.method.estimator(**params), model.schema, label=model.label).configured()
        results: list[Rehearsal] = []
        for key in (None, *columns.values()):
            # Equal seeds give all ways the same splits.
            results.append(
                rehearse(
                    estimator,
                    rows.declared,
                    min(n_units, _MOST_REHEARSED_ROWS),
                    epsilons=epsilons,
                    repeats=_RANDOM_SPLITS if key is None else 1,
                    split_by=key,
                    use_public=way.use_public,
                    random_state=seed,
                )
            )
            if done is not None:
                done(f"rehearsing {way.name}")
        # All are compared with what the default way gives without any budget: the public model.
        alone = alone or [float(np.mean(result.public_only)) for result in results]
        ratios = [np.mean(r.errors, axis=0) / max(base, 1e-300) for r, base in zip(results, alone, strict=True)]
        candidates.append(replace(way, ratios=np.array(ratios)))
        fewer = any(result.fewer_rows for result in results)
    return (RANDOM, *(f"along {name}" for name in columns)), tuple(candidates), fewer


def _preferred(candidates: Sequence[Candidate]) -> Candidate:
    """Return the way to advise: the one with a gate, unless another is clearly better and never harms.

    Only the gate keeps a fit from becoming worse than the public model, so another way must not be worse in any split.
    """
    default, *others = candidates
    for other in sorted(others, key=lambda candidate: float(np.mean(np.log(candidate.expected)))):
        better = np.mean(np.log(default.expected)) - np.mean(np.log(other.expected)) > _PREFERRED_BY
        if better and float(np.max(other.ratios)) <= 1.0:
            return other
    return default


def _recommended(
    epsilons: Sequence[float], chosen: Candidate | None
) -> tuple[float, Literal["gain", "no gain", "unknown"]]:
    """Return the smallest epsilon with most of the gain, and whether there is one; without, the one nearest to 1."""
    usual = min(epsilons, key=lambda epsilon: abs(math.log(epsilon)))
    if chosen is None:
        return usual, "unknown"
    # More budget does not harm: what falls with epsilon is chance.
    gains = isotonic_regression(1.0 - chosen.expected)
    if gains.max() < _LEAST_GAIN:
        return usual, "no gain"
    enough = np.flatnonzero(gains >= _MOST_OF_THE_GAIN * gains.max())
    return epsilons[int(enough[0])], "gain"


def _in_words(advice: Advice, rows: EncodedRows, person: str | None, *, fewer: bool) -> Advice:
    """Return the advice with its sentences and its table: a row per split, a column per epsilon."""
    sentences = [_verdict(advice, rows), *_expectations(advice), _setting(advice, person)]
    if fewer and advice.candidates:
        sentences.append(
            "Half of the public rows stay public, and those that could play private rows are fewer than the private "
            "ones. The noise is that of the private rows, but the sampling error is larger, so that the gain is "
            "understated."
        )
    if advice.unit == "person" and person is None:
        sentences.append("Name the column with the person's id when you fit: without it, single rows are protected.")
    if advice.chosen is None:
        return replace(advice, words=tuple(sentences))
    ratios = [*zip(advice.splits, advice.chosen.ratios, strict=True)]
    if len(advice.splits) > 1:
        ratios.append(("mean over differences", advice.chosen.expected))
    return replace(
        advice,
        words=tuple(sentences),
        headings=(f"{advice.error} / public model's", *(f"ε = {epsilon:g}" for epsilon in advice.epsilons)),
        rows=tuple((name, *(f"{ratio:.3f}" for ratio in values)) for name, values in ratios),
        notes=(
            "On held-out public rows; below 1 is a gain. Along a column, the rows with the larger values took the role "
            "of private rows. The private population may differ in another way, more or less than any of these.",
        ),
    )


def _verdict(advice: Advice, rows: EncodedRows) -> str:
    if advice.chosen is None:
        why = "have no label" if rows.y is None else f"are fewer than {_LEAST_PUBLIC_ROWS}"
        return (
            f"Public rows {why}, so nothing can be rehearsed: the gain is unknown. Fit at epsilon "
            f"{advice.epsilon:g}, and look at the report."
        )
    gains = 1.0 - advice.chosen.expected
    at = advice.epsilons.index(advice.epsilon)
    if advice.verdict == "no gain":
        # The verdict is about gains that do not fall with epsilon; the table shows them as they came.
        chance = " Larger gains at single budgets of the table are chance: more budget does no harm." * bool(
            gains.max() >= _LEAST_GAIN
        )
        return (
            f"Public rows foresee no gain: at none of these budgets are {advice.n_private:,} private rows expected to "
            f"lower the {advice.error} of the public model by {_LEAST_GAIN:.0%} or more.{chance} A fit keeps the "
            f"public model unless private rows show that it is wrong, so it risks budget rather than accuracy. It pays "
            f"if the private population differs in a way that public rows don't show."
        )
    low, high = _range(advice.chosen.ratios, at)
    spread = f" ({low} to {high} over {len(advice.splits) - 1} differences)" if len(advice.splits) > 2 else ""
    return (
        f"Fit at epsilon {advice.epsilon:g} with {advice.chosen.name}. If the private population differs from the "
        f"public one as public rows differ among themselves, the {advice.error} is expected to be {gains[at]:.0%} "
        f"lower than that of the public model{spread}."
    )


def _range(ratios: NDArray[np.float64], at: int) -> tuple[str, str]:
    gains = 1.0 - ratios[1:, at]
    low, high = float(gains.min()), float(gains.max())
    return ("nothing" if round(low, 2) == 0 else f"{low:.0%}"), f"{high:.0%}"


def _expectations(advice: Advice) -> list[str]:
    """Return what to expect without a difference, and of more rows."""
    if advice.chosen is None:
        return []
    at = advice.epsilons.index(advice.epsilon)
    none = 1.0 - float(advice.chosen.ratios[0, at])
    usual = f"{none:.0%} lower" if none >= 0.005 else ("the same" if none > -0.005 else f"{-none:.0%} higher")
    sentences = [f"If it does not differ at all, the {advice.error} is expected to be {usual}."]
    gains = 1.0 - advice.chosen.expected
    later = [k for k, epsilon in enumerate(advice.epsilons) if epsilon > advice.epsilon]
    if later and advice.verdict == "gain":
        factor = advice.epsilons[later[0]] / advice.epsilon
        sentences.append(
            f"With {factor:.2g} times as many private rows the noise would matter as little as at epsilon "
            f"{advice.epsilons[later[0]]:g} now, where the {advice.error} is {gains[later[0]]:.0%} lower."
        )
    return sentences


def _setting(advice: Advice, person: str | None) -> str:
    unit = (
        "one row (one person, if nobody has two rows)"
        if advice.unit == "row"
        else f"one person with all rows (about {advice.n_units:,} persons)"
    )
    size = "is secret" if advice.adjacency == "add-remove" else "is public"
    counted = "private rows" if advice.unit == "row" else "persons"
    return (
        f"Setting: what is protected is {unit}; the number of {counted} {size} ({advice.adjacency}); "
        f"delta = {advice.delta:g}, at most 0.1 / number of rows."
    )
