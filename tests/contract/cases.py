"""What the estimator batteries run on: every method of the table, with data that fits its task."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpadapt import Public
from dpadapt.methods import PREDICTORS, Method


@dataclass(frozen=True)
class Case:
    """A method and the kind of public data it is given."""

    method: Method
    public: str  # "labelled", "unlabelled" or "none"

    def __str__(self) -> str:
        return f"{self.method.name}-{self.method.task}-{self.public}"

    def make(self, **params: Any) -> Any:
        defaults: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-5, "random_state": 0}
        # Papers' algorithms have other defaults: their adjacency, and more steps than a test needs.
        defaults |= {"adjacency": "zero-out", "n_steps": 50}
        if self.method.task == "classification":
            defaults["classes"] = [0, 1, 2] if self.public != "none" else [0, 1]
        estimator = self.method.estimator()
        known = estimator.get_params()
        return estimator.set_params(**{k: v for k, v in {**defaults, **params}.items() if k in known})

    def data(self, n: int = 400, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
        random = np.random.default_rng(seed)
        X = random.uniform(-1, 1, (n, 4))
        score = X @ [1.0, -1.0, 0.5, 0.0] + 0.1 * random.standard_normal(n)
        if self.method.task == "regression":
            return X, score
        cuts = [-0.5, 0.5] if self.public != "none" else [0.0]
        return X, np.digitize(score, cuts)

    def public_data(self) -> Public | None:
        if self.public == "none":
            return None
        X, y = self.data(n=150, seed=4)
        # Tasks are for those that learn from several; the others pass them over.
        return Public(X, y, tasks=np.arange(len(y)) % 5) if self.public == "labelled" else Public(X)

    def beside(self) -> dict[str, Any]:
        """Return what the fit is given beside the private rows, by name."""
        return {} if self.method.beside == "agents" else {"public": self.public_data()}

    def fit(self, X: Any, y: Any, *, ledger: Any = None, **params: Any) -> Any:
        return self.make(**params).fit(X, y, **self.beside(), ledger=ledger)


CASES = [
    Case(method, public)
    for method in PREDICTORS
    for public in ("labelled", "unlabelled", "none")
    # People are met in tests/hybrid; here their methods are the curator's part alone.
    if method.beside == "public" or public == "none"
]
