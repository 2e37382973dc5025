"""Real tables with 4% public rows: the estimators of the mirror-descent paper and ours, log-loss or squared error.

A star marks methods whose learning rate, clipping norm, ridge and number of steps are the best of a grid on the test
rows; the others use only public data for these. Rows are split at random, so that public and private rows are of one
population.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import measurements, people
from benchmarks.rivals.gradient_descent import PrivateGradientDescentClassifier, PrivateGradientDescentRegressor
from benchmarks.running import cores, in_order
from benchmarks.transfer.common import compared, real_data
from dpadapt.data import Public
from dpadapt.papers.mirror.estimators import PDADPMDClassifier, PDADPMDRegressor
from dpadapt.transfer.classification import PrivateTransferClassifier
from dpadapt.transfer.regression import PrivateTransferRegressor

Array = NDArray[Any]
DELTA, EPSILONS, PUBLIC_SHARE, TEST_SHARE = 1e-5, (0.3, 1.0), 0.04, 0.3
# The grid of the starred methods: factors of the defaults that public data gives, numbers of steps, and ridges.
RATES, CLIPS, STEPS, RIDGES = (0.25, 1.0, 4.0, 16.0), (0.5, 1.0, 2.0), (20, 100), (None, 0.3)
# Adult: share of the gap between the public and the non-private log-loss that ours should close.
SHARE_TARGET = 0.75


@dataclass(frozen=True)
class Table:
    """A data set, how it is loaded, and whether it is classified."""

    name: str
    load: Callable[[], tuple[Array, Array]]
    classify: bool = False


@cache
def _adult() -> tuple[Array, Array]:
    domains = people.adult_by_sex("one-hot", rows="all")
    X = np.vstack([np.asarray(part.X, dtype=np.float64) for part in (domains.source, domains.target)])
    sex = np.repeat([1.0, 0.0], [len(domains.source.y), len(domains.target.y)])
    return np.column_stack([X, sex]), np.concatenate([domains.source.y, domains.target.y])


@cache
def _superconductivity() -> tuple[Array, Array]:
    domains = measurements.superconductivity_by_elements()
    X = np.vstack([np.asarray(part.X, dtype=np.float64) for part in (domains.source, domains.target)])
    y = np.concatenate([np.asarray(part.y, dtype=np.float64) for part in (domains.source, domains.target)])
    return X, y


@cache
def _california() -> tuple[Array, Array]:
    domains = measurements.california_by_latitude()
    X = np.vstack([np.asarray(part.X, dtype=np.float64) for part in (domains.source, domains.target)])
    y = np.concatenate([np.asarray(part.y, dtype=np.float64) for part in (domains.source, domains.target)])
    return X, y


# A table's name, epsilon and the number of the split.
Piece = tuple[str, float, int]
TABLES = (
    Table("adult", _adult, classify=True),
    Table("superconductivity", _superconductivity),
    Table("california", _california),
)


def split(table: Table, seed: int) -> tuple[Public, Array, Array, Array, Array]:
    """Return public data, private rows and labels, test rows and labels; targets in public deviations."""
    X, y = table.load()
    order = np.random.default_rng(seed).permutation(len(y))
    first, last = int(PUBLIC_SHARE * len(y)), int((1 - TEST_SHARE) * len(y))
    public, private, test = order[:first], order[first:last], order[last:]
    if not table.classify:
        y = (y - y[public].mean()) / y[public].std()
    return Public(X[public], y[public]), X[private], y[private], X[test], y[test]


def loss(table: Table, model: Any, X: Array, y: Array) -> float:
    """Return the log-loss or the mean squared error; infinity for a model that diverged."""
    if not np.all(np.isfinite(model.coef_)):
        return math.inf
    if not table.classify:
        return float(np.mean((model.predict(X) - y) ** 2))
    p = model.predict_proba(X)[np.arange(len(y)), np.searchsorted(model.classes_, y)]
    return float(-np.mean(np.log(np.maximum(p, 1e-300))))


def makers(table: Table) -> dict[str, Callable[..., Any]]:
    """Return the methods of the paper by name; each is called with the parameters of its estimator."""
    descent = PrivateGradientDescentClassifier if table.classify else PrivateGradientDescentRegressor
    mirror = PDADPMDClassifier if table.classify else PDADPMDRegressor
    return {
        "cold DP-GD": lambda *a, **k: descent(*a, start="cold", **k),
        "warm DP-GD": descent,
        "PDA-DPMD": mirror,
        "PDA-DPMD, first order": lambda *a, **k: mirror(*a, step="first-order", **k),
        "whiten-then-clip": lambda *a, **k: descent(*a, whiten=True, **k),
    }


def measure(piece: Piece) -> list[dict[str, Any]]:
    """Run all methods on one split at one epsilon: one row per method."""
    name_of_table, epsilon, seed = piece
    table = next(one for one in TABLES if one.name == name_of_table)
    public, X, y, X_test, y_test = split(table, seed)
    rows: list[dict[str, Any]] = []

    def note(name: str, value: float) -> None:
        rows.append({"table": table.name, "method": name, "epsilon": epsilon, "seed": seed, "loss": value})

    ours = PrivateTransferClassifier if table.classify else PrivateTransferRegressor
    # With so small a budget nothing is spent, and the result is the public model.
    alone = ours(1e-6, 1e-12, prior="same-population").fit(X, y, public=public)
    note("public only", loss(table, alone, X_test, y_test))
    start = makers(table)["PDA-DPMD"](1e-6, 1e-12).fit(X, y, public=public)
    note("public only, start of the paper's methods", loss(table, start, X_test, y_test))
    note("not private", _not_private(table, public, X, y, X_test, y_test))
    model = ours(epsilon, DELTA, prior="same-population", random_state=seed).fit(X, y, public=public)
    note("ours, same-population", loss(table, model, X_test, y_test))
    for name, make in makers(table).items():
        model = make(epsilon, DELTA, random_state=seed).fit(X, y, public=public)
        note(name, loss(table, model, X_test, y_test))
        best = math.inf
        ridges = RIDGES if name in ("PDA-DPMD", "whiten-then-clip") else RIDGES[:1]
        # A smaller grid for classifiers, whose steps take longer.
        rates = RATES[:-1] if table.classify else RATES
        for steps, rate, clip, ridge in product(STEPS, rates, CLIPS, ridges):
            tried = make(
                epsilon,
                DELTA,
                random_state=seed,
                n_steps=steps,
                learning_rate=rate * model.learning_rate_,
                clip_norm=clip * model.clip_norm_,
                **({} if ridge is None else {"ridge": ridge}),
            ).fit(X, y, public=public)
            best = min(best, loss(table, tried, X_test, y_test))
        note(f"{name}*", best)
    return rows


def _not_private(table: Table, public: Public, X: Array, y: Array, X_test: Array, y_test: Array) -> float:
    """Return the loss of an ordinary model on public and private rows."""
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    plain = LogisticRegression(C=1.0, max_iter=2000) if table.classify else Ridge(1.0)
    model = make_pipeline(StandardScaler(), plain).fit(np.vstack([public.X, X]), np.concatenate([public.y, y]))
    if not table.classify:
        return float(np.mean((model.predict(X_test) - y_test) ** 2))
    p = model.predict_proba(X_test)[np.arange(len(y_test)), np.searchsorted(model.classes_, y_test)]
    return float(-np.mean(np.log(np.maximum(p, 1e-300))))


def real_tables(*, quick: bool) -> dict[str, Any]:
    """Measure the real tables; no rows if there is no real data."""
    if not real_data():
        return {"tables": [], "claims": [], "skipped": "real tables: DPADAPT_DATA is not set"}
    seeds = 1 if quick else 3
    epsilons = EPSILONS[:1] if quick else EPSILONS
    todo: list[Piece] = [
        (table.name, epsilon, seed) for table in TABLES for seed in range(seeds) for epsilon in epsilons
    ]
    rows = [row for part in in_order(measure, todo, cores(), name=_spoken) for row in part]
    return {**present({"splits": rows}), "splits": rows}


def present(part: dict[str, Any]) -> dict[str, Any]:
    """Return the table and the claims of the splits."""
    losses: dict[tuple[str, str, float], list[float]] = {}
    for row in sorted(part["splits"], key=lambda row: row["seed"]):
        losses.setdefault((row["table"], row["method"], row["epsilon"]), []).append(row["loss"])
    methods = list(dict.fromkeys(row["method"] for row in part["splits"]))
    columns = [(table.name, epsilon) for table in TABLES for epsilon in EPSILONS]
    columns = [(name, epsilon) for name, epsilon in columns if (name, methods[0], epsilon) in losses]
    n_splits = len({row["seed"] for row in part["splits"]})
    shown = {
        "title": f"real tables, 4% public: test log-loss (adult) or error in public variances, {n_splits} splits",
        "columns": ["method", *(f"{name}, eps {epsilon:g}" for name, epsilon in columns)],
        "rows": [[m, *(f"{np.mean(losses[name, m, epsilon]):.4f}" for name, epsilon in columns)] for m in methods],
    }
    claims = [one for name, epsilon in columns for one in _claims(losses, name, epsilon)]
    return {"tables": [shown], "claims": claims}


def _spoken(piece: Piece) -> str:
    table, epsilon, seed = piece
    return f"{table}, epsilon {epsilon:g}, split {seed}"


def _claims(
    losses: Mapping[tuple[str, str, float], Sequence[float]], name: str, epsilon: float
) -> Iterator[dict[str, str]]:
    """Yield the claims on one table at one epsilon; differences are those on the same splits."""
    value = {m: np.array(values) for (table, m, e), values in losses.items() if (table, e) == (name, epsilon)}
    where = f"{name}, epsilon {epsilon:g}"
    ours, start, end = (value[method] for method in ("ours, same-population", "public only", "not private"))
    if next(table for table in TABLES if table.name == name).classify:
        shares = {method: 100 * (start - v) / (start - end) for method, v in value.items()}
        closed = shares["ours, same-population"]
        rivals = ("warm DP-GD*", "PDA-DPMD*", "whiten-then-clip*")
        text = ", ".join(f"{method} {np.mean(shares[method]):.0f}%" for method in rivals)
        what = f"{where}: ours, untuned, closes more than {SHARE_TARGET:.0%} of the gap (by points)"
        differences = list(closed - 100 * SHARE_TARGET)
        yield compared(what, f"{np.mean(closed):.0f}% ({text})", differences, digits=1)
    for rival in ("PDA-DPMD*", "whiten-then-clip*"):
        what = f"{where}: ours, untuned, below {rival} (tuned on test rows)"
        yield compared(what, _against(ours, value[rival]), list(value[rival] - ours))
    pda, warm = value["PDA-DPMD*"], value["warm DP-GD*"]
    yield compared(f"{where}: PDA-DPMD* below warm DP-GD*", _against(pda, warm), list(warm - pda))


def _against(values: Array, others: Array) -> str:
    return f"{np.mean(values):.4f} against {np.mean(others):.4f}"
