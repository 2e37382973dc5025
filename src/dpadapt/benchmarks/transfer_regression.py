"""No harm, gain, monotony and speed: `python -m dpadapt.benchmarks.transfer_regression [--quick] [--out FILE]`.

`PrivateTransferRegressor` against the public model, on the real sets below `DPADAPT_DATA` if that is set, else on
bundled and made-up ones. Error is the mean squared error over the variance of the test labels. Splits and noise are
seeded; nothing is tuned per set or cell. The constants of the method were chosen while looking at these sets.
"""

import os
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt import datasets
from dpadapt.benchmarks.command import command
from dpadapt.data import Public
from dpadapt.datasets import bundled
from dpadapt.learning.linear import PrivateLinearRegression
from dpadapt.learning.transfer_regression import PrivateTransferRegressor

Array = NDArray[np.float64]
ROWS, EPSILONS = (50, 100, 300, 1_000, 10_000), (0.1, 0.5, 1.0, 4.0, 10.0)
DELTA, ADJACENCY = 0.01, "replace-one"
_TESTED = 3000


@dataclass(frozen=True, eq=False)
class Domains:
    """Public features and labels, private features and labels."""

    X_public: Array
    y_public: Array
    X: Array
    y: Array


@dataclass(frozen=True)
class Task:
    """A data set, whether it ships with the library, and what error is promised at 1,000 rows and epsilon 1."""

    name: str
    load: Callable[[], Domains]
    bundled: bool = False
    quick: bool = False
    promised: float | None = None


def _domains(load: Callable[[], Any]) -> Callable[[], Domains]:
    def loaded() -> Domains:
        found = load()
        parts = (found.source.X, found.source.y, found.target.X, found.target.y)
        return Domains(*(np.asarray(part, dtype=np.float64) for part in parts))

    return loaded


def _same(load: Callable[[], Any]) -> Callable[[], Domains]:
    """4% of all rows as public ones: the same population."""

    def loaded() -> Domains:
        d = _domains(load)()
        X, y = np.vstack([d.X_public, d.X]), np.concatenate([d.y_public, d.y])
        order = np.random.default_rng(0).permutation(len(y))
        cut = int(0.04 * len(y))
        public, private = order[:cut], order[cut:]
        return Domains(X[public], y[public], X[private], y[private])

    return loaded


def _amazon() -> Domains:
    """Ratings of kitchen appliances from 300 singular directions of reviews of books."""
    from sklearn.decomposition import TruncatedSVD

    train, test = (datasets.amazon_by_domain("books", "kitchen", rows=rows) for rows in ("train", "test"))
    directions = TruncatedSVD(300, random_state=0)
    X_public = directions.fit_transform(train.source.X.astype(np.float64).log1p())
    X = np.vstack([directions.transform(part.target.X.astype(np.float64).log1p()) for part in (train, test)])
    y = np.concatenate([np.asarray(part.target.y, dtype=np.float64) for part in (train, test)])
    return Domains(X_public, np.asarray(train.source.y, dtype=np.float64), X, y)


def _made_up(d: int, *, sign: float = 1.0, level: float = 0.0, turn: float = 0.0) -> Callable[[], Domains]:
    """Correlated normal features, a linear target of variance 1 and noise of deviation 0.4."""

    def loaded() -> Domains:
        random = np.random.default_rng(0)
        mix = np.linalg.qr(random.standard_normal((d, d)))[0] * np.arange(1, d + 1) ** -0.25
        X_public, X = (random.standard_normal((n, d)) @ mix.T for n in (2000, 16_000))
        coef, other = (v / np.linalg.norm(mix.T @ v) for v in random.standard_normal((2, d)))
        y_public = X_public @ coef + 0.4 * random.standard_normal(len(X_public))
        y = X @ (sign * coef + turn * other) + level + 0.4 * random.standard_normal(len(X))
        return Domains(X_public, y_public, X, y)

    return loaded


TASKS = (
    Task("wind", _domains(datasets.wind_by_month), quick=True, promised=0.281),
    Task("california", _domains(datasets.california_by_latitude), quick=True, promised=0.270),
    Task("superconductivity", _domains(datasets.superconductivity_by_elements), quick=True, promised=0.46),
    Task("gas", _domains(datasets.gas_by_batch), quick=True, promised=0.040),
    Task("news", _domains(datasets.news_by_day)),
    Task("airline", _domains(datasets.airline_by_hour)),
    Task("amazon", _amazon),
    Task("superconductivity, same population", _same(datasets.superconductivity_by_elements)),
    Task("california, same population", _same(datasets.california_by_latitude)),
    Task("randhie by plan", _domains(bundled.randhie_by_plan), bundled=True, quick=True),
    Task("randhie by health", _domains(bundled.randhie_by_health), bundled=True, quick=True),
    Task("no shift, d=200", _made_up(200), bundled=True, quick=True),
    Task("coefficients, d=20", _made_up(20, turn=0.35), bundled=True, quick=True),
    Task("sign, d=200", _made_up(200, sign=-1.0), bundled=True, quick=True),
    Task("level, d=50", _made_up(50, level=2.0), bundled=True),
)


@cache
def _loaded(task: Task) -> tuple[Domains, Public]:
    found = task.load()
    return found, Public(found.X_public, found.y_public)


def _error(model: Any, X: Array, y: Array) -> float:
    return float(np.mean((model.predict(X) - y) ** 2) / np.var(y))


def grid(task: Task, seeds: int) -> list[dict[str, Any]]:
    """Return one row per number of private rows and epsilon: errors of the public and of the private model."""
    found, public = _loaded(task)
    errors: dict[tuple[int, float], list[tuple[float, float]]] = {}
    for seed in range(seeds):
        random = np.random.default_rng(1000 + seed)
        order = random.permutation(len(found.y))
        cut = min(len(order) // 3, _TESTED)
        test, pool = order[:cut], order[cut:]
        alone: float | None = None
        for n in ROWS:
            # With replacement where the pool is smaller.
            rows = random.choice(pool, n, replace=n > len(pool))
            for i, epsilon in enumerate(EPSILONS):
                model = PrivateTransferRegressor(
                    epsilon, DELTA, adjacency=ADJACENCY, random_state=10_000 * seed + 10 * n + i
                )
                if alone is None:
                    hopeless = PrivateTransferRegressor(1e-6, 1e-12).fit(found.X[rows], found.y[rows], public=public)
                    alone = _error(hopeless, found.X[test], found.y[test])
                model.fit(found.X[rows], found.y[rows], public=public)
                errors.setdefault((n, epsilon), []).append((alone, _error(model, found.X[test], found.y[test])))
    rows_out = []
    for (n, epsilon), pairs in errors.items():
        before, after = np.mean(pairs, axis=0)
        worst = max(b / a for a, b in pairs)
        row = {"task": task.name, "n": n, "epsilon": epsilon, "public": float(before), "ours": float(after)}
        rows_out.append(row | {"worst_seed": float(worst)})
    return rows_out


def worst_rise(rows: list[dict[str, Any]]) -> float:
    """Return the largest ratio of errors between a cell and one with as many rows and budget or fewer."""
    pairs = ((a, b) for a in rows for b in rows if b["n"] >= a["n"] and b["epsilon"] >= a["epsilon"])
    return float(max(b["ours"] / a["ours"] for a, b in pairs))


def claims_of(task: Task, rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the claims on one task's grid."""
    ratio = max(row["ours"] / row["public"] for row in rows)
    yield _claim(f"{task.name}: no cell above 1.01 x public-only", f"{ratio:.3f}", ratio <= 1.01)
    rise = worst_rise(rows)
    text = f"{100 * (rise - 1):.1f}%"
    yield _claim(f"{task.name}: error rises by 3% at most as rows or epsilon grow", text, rise <= 1.03)
    cell = next(row for row in rows if (row["n"], row["epsilon"]) == (1000, 1.0))
    text = f"{cell['ours']:.4f} (public-only {cell['public']:.4f})"
    if task.promised is not None:
        claim = f"{task.name}: error {task.promised} at 1,000 rows, epsilon 1"
        yield _claim(claim, text, cell["ours"] <= task.promised)
    if task.name.startswith("sign"):
        cell = next(row for row in rows if (row["n"], row["epsilon"]) == (1000, 4.0))
        ratio = cell["ours"] / cell["public"]
        yield _claim(f"{task.name}: a model of the wrong sign is left, 0.15 x", f"{ratio:.3f}", ratio <= 0.15)


def same_population_claim(*, quick: bool) -> dict[str, Any]:
    """Return the claim for the setting of Section 3 of arXiv:2112.00193: sparse features, 1.5 p public rows."""
    p, wanted = (500, 0.0016) if quick else (2000, 0.0075)
    random = np.random.default_rng(0)

    def features(n: int) -> Array:
        X = np.zeros((n, p))
        for low, high, ones in ((0, p // 5, 40), (p // 5, p, 80)):
            chosen = low + np.argpartition(random.random((n, high - low)), ones, axis=1)[:, :ones]
            np.put_along_axis(X, chosen, 0.05, axis=1)
        return X

    coef = random.standard_normal(p)
    X_public, X, X_test = features(3 * p // 2), features(10_000), features(4000)
    y_public, y = (part @ coef + 0.1 * random.standard_normal(len(part)) for part in (X_public, X))
    start = time.process_time()
    model = PrivateTransferRegressor(1.0, 1e-5, prior="same-population", random_state=0)
    model.fit(X, y, public=Public(X_public, y_public))
    taken = time.process_time() - start
    excess = float(np.mean((model.predict(X_test) - X_test @ coef) ** 2))
    claim = f"same population, p={p:,}, epsilon 1, zero-out: excess {wanted}"
    return _claim(claim, f"{excess:.4f} in {taken:.1f} s", excess <= wanted)


def speed_claims() -> Iterator[dict[str, Any]]:
    """Yield the claims on time: CPU seconds of a fit, one thread, with the public data prepared."""
    random = np.random.default_rng(0)
    X, X_public = random.standard_normal((10_000, 134)), random.standard_normal((4000, 134))
    coef = random.standard_normal(134)
    y, y_public = (part @ coef + random.standard_normal(len(part)) for part in (X, X_public))
    public = Public(X_public, y_public)
    times: dict[str, list[float]] = {"ours": [], "plain": []}
    for _ in range(4):
        for name, learner in (("ours", PrivateTransferRegressor), ("plain", PrivateLinearRegression)):
            start = time.process_time()
            learner(1.0, DELTA, adjacency=ADJACENCY, random_state=0).fit(X, y, public=public)
            times[name].append(time.process_time() - start)
    ours, plain = (float(np.median(times[name][1:])) for name in ("ours", "plain"))
    text = f"{ours:.2f} s ({ours / plain:.2f} x PrivateLinearRegression)"
    yield _claim("n=10,000, d=134: a fit takes 0.3 s", text, ours <= 0.3)


def _claim(claim: str, measured: str, holds: bool) -> dict[str, Any]:
    return {"claim": claim, "measured": measured, "verdict": "holds" if holds else "missed"}


def run(*, quick: bool) -> dict[str, Any]:
    """Return all results as plain data."""
    real = bool(os.environ.get("DPADAPT_DATA"))
    seeds = 3 if quick else 10
    rows: list[dict[str, Any]] = []
    claims: list[dict[str, Any]] = []
    for task in TASKS:
        if (real or task.bundled) and (task.quick or not quick):
            found = grid(task, seeds)
            rows += found
            claims += claims_of(task, found)
    return {
        "data": "real sets, bundled and made-up ones" if real else "bundled and made-up sets: DPADAPT_DATA is not set",
        "setting": f"{ADJACENCY}, delta {DELTA} unless said; a cell is the mean of {seeds} seeds",
        "seeds": seeds,
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("numpy", "scipy", "scikit-learn")},
        },
        "grid": rows,
        "claims": [*claims, same_population_claim(quick=quick), *speed_claims()],
    }


def show(results: dict[str, Any]) -> None:
    """Print the tables."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    cells = Table(
        "set", "public", "rows", *(f"epsilon {e:g}" for e in EPSILONS), title="error over that of public-only"
    )
    table: dict[tuple[str, float, int], list[str]] = {}
    for row in results["grid"]:
        key = row["task"], row["public"], row["n"]
        table.setdefault(key, []).append(f"{row['ours'] / row['public']:.3f}")
    for (name, public, n), texts in table.items():
        cells.add_row(name, f"{public:.4f}", f"{n:,}", *texts)
    console.print(cells)
    claims = Table("claim", "measured", "verdict", title=results["data"])
    for claim in results["claims"]:
        claims.add_row(claim["claim"], claim["measured"], claim["verdict"])
    console.print(claims)
    console.print(results["setting"], results["versions"])


if __name__ == "__main__":
    command(__spec__.name, __doc__, run, show)
