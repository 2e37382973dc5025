"""What the neighbours of a tuned constant cost: each constant of a room is halved and doubled, and errors are compared.

    python tools/constants.py ROOM [--draws 12] [--only NAME ...]

A line gives the mean error with half and with twice the value, over that with the value itself, and the standard error
of this ratio: all three see the same draws. Where the ratio is 1.000 +- 0.000, nothing on these draws depends on it, or
the constant was copied when the module was imported (into a default argument, or another constant).
"""

import argparse
import importlib
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))


def subspace(seed: int) -> list[float]:
    """Return the errors of the subspace regressor on draws of the paper, with tasks that vary, and that hardly do."""
    from benchmarks.data.synthetic import shared_subspace
    from dpadapt.representation import PrivateSubspaceRegressor

    errors = []
    for n_public, n_private, epsilon, noise in ((2000, 300, 1.0, 1.0), (2000, 3000, 1.0, 0.3), (8000, 3000, 3.0, 1.0)):
        drawn = shared_subspace(n_public, n_private, n_features=15, n_components=3, n_tasks=60, noise=noise, seed=seed)
        model = PrivateSubspaceRegressor(epsilon, random_state=seed).fit(drawn.X, drawn.y, public=drawn.public)
        errors.append(float(np.linalg.norm(model.coef_ - drawn.private_coef)))
    return errors


def clustering(seed: int) -> list[float]:
    """Return the costs of ten centres on synthetic sets."""
    from benchmarks.clustering.sets import synthetic_1, synthetic_3
    from dpadapt import Public
    from dpadapt.clustering.estimator import PrivateSourceTargetClustering
    from dpadapt.clustering.solver import nearest

    costs = []
    for draw, k, epsilon in ((synthetic_1, 10, 1.0), (synthetic_3, 10, 0.3)):
        S, T = draw(seed)
        model = PrivateSourceTargetClustering(k, epsilon, random_state=seed).fit(S, public=Public(T))
        costs.append(float(np.minimum(nearest(T, S)[1], nearest(T, T[model.centers_])[1]).mean()))
    return costs


def probe(seed: int) -> list[float]:
    """Return the errors of the probe on handwritten digits, half of them inverted, on pixels and on features."""
    from sklearn.datasets import load_digits

    from dpadapt import Public
    from dpadapt.representation import PrivateProbe

    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    X = X / 16.0
    inverted = rng.random(len(y)) < 0.5
    X[inverted] = 1.0 - X[inverted]
    wide = np.maximum(X @ np.random.default_rng(1).standard_normal((64, 128)) / 8, 0.0)
    public_rows, private_rows = np.flatnonzero(y < 5), rng.permutation(np.flatnonzero(y >= 5))
    test, train = np.split(private_rows, [250])
    errors = []
    for features, epsilon in ((X, 1.0), (X, 5.0), (wide, 3.0)):
        model = PrivateProbe(epsilon, classes=range(5, 10), random_state=seed)
        model.fit(features[train], y[train], public=Public(features[public_rows]))
        chances = model.predict_proba(features[test])[np.arange(len(test)), y[test] - 5]
        errors.append(float(-np.mean(np.log(np.maximum(chances, 1e-6)))))
    return errors


def evaluation(seed: int) -> list[float]:
    """Return the distances of released scores from the population's, and a tenth of the widths of their intervals."""
    from benchmarks.evaluate.run import fixed, people, truth
    from dpadapt import evaluate

    errors = []
    for metric in ("auc", "log-loss", "squared-error"):
        for n, epsilon in ((500, 1.0), (5000, 0.3)):
            model, public, _ = fixed(metric, "row")
            drawn = people(n, "row", np.random.default_rng([3, n, seed]))
            for known in (public, None):
                options: dict[str, Any] = {"epsilon": epsilon, "metric": metric, "public": known, "random_state": seed}
                if metric == "squared-error" and known is None:
                    continue
                result = evaluate(model, drawn.X, drawn.labels(metric), **options)
                whole = truth(metric, "row")[1]
                errors.append((abs(result.value - whole) + 0.1 * (result.high - result.low)) / whole)
    return errors


def learning(seed: int) -> list[float]:
    """Return the losses of logistic and linear regression on the women's answers, with and without public rows."""
    from dpadapt import Public
    from dpadapt.datasets.bundled import fair_by_children, randhie_by_health
    from dpadapt.learning.linear import PrivateLinearRegression
    from dpadapt.learning.logistic import PrivateLogisticRegression

    errors = []
    for load, kind in ((fair_by_children, PrivateLogisticRegression), (randhie_by_health, PrivateLinearRegression)):
        both = load()
        (X_public, y_public), (X, y) = (
            (np.asarray(d.X, float), np.asarray(d.y, float)) for d in (both.source, both.target)
        )
        size = np.abs(X_public).max(axis=0) + 1e-9
        X_public, X = X_public / size, np.clip(X / size, -1, 1)
        test, train = np.split(np.random.default_rng(seed).permutation(len(y)), [len(y) // 3])
        train = train[:1500]
        for public in (None, Public(X_public, y_public)):
            for epsilon in (0.3, 3.0):
                own: dict[str, Any] = (
                    {"classes": [0, 1]} if kind is PrivateLogisticRegression else {"target_bounds": (0, 5)}
                )
                model = kind(epsilon, random_state=seed, **own).fit(X[train], y[train], public=public)
                if kind is PrivateLogisticRegression:
                    chances = np.clip(model.predict_proba(X[test])[:, 1], 1e-6, 1 - 1e-6)
                    errors.append(float(-np.mean(np.where(y[test] == 1, np.log(chances), np.log(1 - chances)))))
                else:
                    errors.append(float(np.mean((y[test] - model.predict(X[test])) ** 2) / np.var(y[test])))
    return errors


ROOMS: dict[str, tuple[Callable[[int], list[float]], tuple[str, ...]]] = {
    "subspace": (subspace, ("representation.subspace_regression", "representation.subspace", "learning.scaling")),
    "clustering": (
        clustering,
        ("clustering.estimator", "clustering.inference", "clustering.solver"),
    ),
    "probe": (probe, ("representation.feature_moments", "learning.scaling")),
    "evaluation": (evaluation, ("evaluation",)),
    "learning": (
        learning,
        tuple(f"learning.{n}" for n in ("logistic", "public_models", "base", "descent", "scaling", "ranges")),
    ),
}


def neighbours(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield half and twice a number, or the numbers of a sequence, of the type of the value."""
    for name, factor in (("half", 0.5), ("twice", 2.0)):
        if isinstance(value, np.ndarray):
            yield name, value * factor
        elif isinstance(value, tuple):
            yield name, tuple(type(one)(round(one * factor) if isinstance(one, int) else one * factor) for one in value)
        else:
            yield name, max(1, round(value * factor)) if isinstance(value, int) else value * factor


def constants(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of a module's own constants that are numbers."""
    source = Path(str(module.__file__)).read_text()
    for name, value in vars(module).items():
        numbers = np.asarray(value if isinstance(value, int | float | tuple | np.ndarray) else "")
        if name.isupper() and numbers.dtype.kind in "if" and not isinstance(value, bool) and name in source:
            yield name, value


def main() -> None:
    """Print a line for each constant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("room", choices=ROOMS)
    parser.add_argument("--draws", type=int, default=12)
    parser.add_argument("--only", nargs="*", default=())
    given = parser.parse_args()
    measure, modules = ROOMS[given.room]

    def errors() -> Any:
        return np.array([measure(seed) for seed in range(given.draws)])

    warnings.simplefilter("ignore")
    usual = errors()
    for path in modules:
        module = importlib.import_module(f"dpadapt.{path}")
        for name, value in list(constants(module)):
            if given.only and name not in given.only:
                continue
            words = []
            for which, other in neighbours(value):
                setattr(module, name, other)
                try:
                    # Each measurement counts alike: relative to its own mean.
                    change = ((errors() - usual) / usual.mean(axis=0)).mean(axis=1)
                    words.append(f"{which} {1 + change.mean():.3f} +- {change.std(ddof=1) / len(change) ** 0.5:.3f}")
                except Exception as error:
                    words.append(f"{which} fails ({type(error).__name__})")
                finally:
                    setattr(module, name, value)
            print(f"{path}.{name}: {'; '.join(words)}", flush=True)


if __name__ == "__main__":
    main()
