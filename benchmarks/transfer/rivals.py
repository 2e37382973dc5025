"""The transfer estimators against private models without a gate: what the gate costs, and what it saves.

At 1,000 and at 10,000 private rows (drawn as in the grids where there are fewer) and epsilon 1, on one split per seed:
the public model, ours, `PrivateLinearRegression` or `PrivateLogisticRegression` with public data and alone, and a model
without privacy. Alone still needs the ranges of the columns: they are scaled to [-1, 1] by the public rows' ranges, as
by a schema.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.transfer import classification, regression
from benchmarks.transfer.common import Row, claim, error
from dpadapt.learning.linear import PrivateLinearRegression
from dpadapt.learning.logistic import PrivateLogisticRegression
from dpadapt.transfer.classification import PrivateTransferClassifier
from dpadapt.transfer.regression import PrivateTransferRegressor

Array = NDArray[Any]
RIVAL_ROWS, EPSILON = (1_000, 10_000), 1.0
# The names of the columns, and whether a model is private without a gate.
CONTENDERS = {"no model": False, "public": False, "ours": False, "plain": True, "alone": True, "not private": False}
# Largest error of ours over that of the best model without a gate, where the public model is worse than none.
BEHIND = 1.15
# With so small a budget nothing is spent, and the result is the public model.
NOTHING: dict[str, Any] = {"epsilon": 1e-6, "delta": 1e-12}


def regression_rivals(task: regression.Task, seed: int) -> list[Row]:
    """Return one row per number of private rows: the error of every contender."""
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    domains, public = regression.loaded(task)
    random = np.random.default_rng(2000 + seed)
    order = random.permutation(len(domains.y))
    cut = min(len(order) // 3, 3000)
    test, pool = order[:cut], order[cut:]
    X_test, y_test = domains.X[test], domains.y[test]
    scaled, scaled_test = scaled_by_public(domains.X_public, domains.X), scaled_by_public(domains.X_public, X_test)
    bounds = (float(np.min(domains.y_public)), float(np.max(domains.y_public)))
    spread = float(np.var(y_test))

    def measured(model: Any, X: Array = X_test) -> float:
        return float(np.mean((model.predict(X) - y_test) ** 2)) / spread

    results = []
    for n in RIVAL_ROWS:
        # With replacement where the pool is smaller, as in the grid. Cross-validation gets each row once: repeated rows
        # would bias it.
        rows = random.choice(pool, n, replace=n > len(pool))
        X, y, once = domains.X[rows], domains.y[rows], np.unique(rows)
        params: dict[str, Any] = {
            "epsilon": EPSILON,
            "delta": regression.DELTA,
            "adjacency": regression.ADJACENCY,
            "random_state": 10_000 * seed + n,
        }
        alone = PrivateLinearRegression(target_bounds=bounds, **params).fit(scaled[rows], y)
        ridge = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-2, 5, 15))).fit(domains.X[once], domains.y[once])
        values = {
            "no model": 1.0,
            "public": measured(PrivateTransferRegressor(**NOTHING).fit(X, y, public=public)),
            "ours": measured(PrivateTransferRegressor(**params).fit(X, y, public=public)),
            "plain": measured(PrivateLinearRegression(**params).fit(X, y, public=public)),
            "alone": measured(alone, scaled_test),
            "not private": measured(ridge),
        }
        results.append({"task": task.name, "n": n, "epsilon": EPSILON, **values})
    return results


def classification_rivals(task: classification.Task, seed: int) -> list[Row]:
    """Return one row per number of private rows: accuracy and log-loss of every contender."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    split = task.split(seed)
    classes, codes = np.unique(np.concatenate([split.y, split.y_test]), return_inverse=True)
    codes = codes[len(split.y) :]
    X_public = np.asarray(split.public.X, dtype=np.float64)
    scaled, scaled_test = scaled_by_public(X_public, split.X), scaled_by_public(X_public, split.X_test)
    shares = np.bincount(codes, minlength=len(classes)) / len(codes)

    def measured(model: Any, X: Array = split.X_test) -> list[float]:
        # A class without training rows gets no probability from the non-private model.
        p = np.full((len(codes), len(classes)), 1e-15)
        p[:, np.searchsorted(classes, model.classes_)] = model.predict_proba(X)
        return list(classification.accuracy_and_log_loss(p, codes))

    results = []
    for n in sorted({min(n, len(split.y)) for n in RIVAL_ROWS}):
        X, y = split.X[:n], split.y[:n]
        params: dict[str, Any] = {
            "epsilon": EPSILON,
            "delta": classification.DELTA,
            "classes": classes,
            "random_state": 10_000 * seed + n,
        }
        nothing = PrivateTransferClassifier(classes=classes, **NOTHING)
        free = make_pipeline(StandardScaler(), LogisticRegression(C=0.3, max_iter=300))
        values = {
            "no model": [100 * float(shares.max()), float(-np.sum(shares * np.log(np.maximum(shares, 1e-300))))],
            "public": measured(nothing.fit(X, y, public=split.public)),
            "ours": measured(PrivateTransferClassifier(prior=task.prior, **params).fit(X, y, public=split.public)),
            "plain": measured(PrivateLogisticRegression(**params).fit(X, y, public=split.public)),
            "alone": measured(PrivateLogisticRegression(**params).fit(scaled[:n], y), scaled_test),
            "not private": measured(free.fit(X, y)),
        }
        results.append({"task": task.name, "n": n, "epsilon": EPSILON, **values})
    return results


def best_ungated(row: Row) -> float:
    """Return the least error of a private model without a gate."""
    return min(error(row[name]) for name, ungated in CONTENDERS.items() if ungated)


def bad_public_claims(rows: Sequence[Row]) -> Iterator[dict[str, str]]:
    """Yield the claim on each set whose public model is worse than none, at 1,000 rows."""
    for row in rows:
        if row["n"] > RIVAL_ROWS[0] or error(row["public"]) <= error(row["no model"]):
            continue
        ratio = error(row["ours"]) / best_ungated(row)
        what = f"{row['task']}: public model worse than none; ours at most {BEHIND} x the best model without a gate"
        yield claim(what, f"{ratio:.3f} x", ratio <= BEHIND)


def scaled_by_public(X_public: Array, X: Array) -> Array:
    """Return columns scaled to [-1, 1] by the ranges of the public rows; values outside are clipped."""
    low, high = X_public.min(axis=0), X_public.max(axis=0)
    width = np.where(high > low, high - low, 1.0)
    return np.asarray(np.clip(2 * (X - low) / width - 1, -1.0, 1.0))
