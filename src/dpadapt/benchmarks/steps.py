"""One gradient step, non-private and private, ours and the peers': what `performance` times."""

import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.accounting.ledger import Ledger
from dpadapt.learning.descent import gradient_weights
from dpadapt.learning.losses import LogisticLoss, SoftmaxLoss
from dpadapt.mechanisms.bounded import clipped_outer_sum
from dpadapt.mechanisms.gaussian import Gaussian
from dpadapt.mechanisms.plan import Repeated, Sampled
from dpadapt.mechanisms.randomness import SeededRandom
from dpadapt.rows import Rows

_PAID = 10**6


@dataclass(frozen=True)
class Case:
    """A problem size."""

    name: str
    n_rows: int
    n_features: int
    n_scores: int
    rate: float
    repetitions: int
    dtype: type[np.floating[Any]]


CASES = (
    Case("softmax, batch of 1,024", 50_000, 512, 45, 1024 / 50_000, 100, np.float32),
    Case("softmax, full batch", 50_000, 512, 45, 1.0, 25, np.float32),
    Case("binary, full batch", 6_847, 14, 1, 1.0, 500, np.float64),
)


def problem(case: Case) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return rows, targets and coefficients; the values don't matter, only the sizes do."""
    random = np.random.default_rng(20)
    X = random.standard_normal((case.n_rows, case.n_features), dtype=case.dtype)
    codes = random.integers(0, max(2, case.n_scores), case.n_rows)
    if case.n_scores == 1:
        return X, codes.astype(case.dtype), np.zeros(case.n_features, case.dtype)
    return X, codes, np.zeros((case.n_features, case.n_scores), case.dtype)


def contenders(case: Case, *, peers: bool) -> dict[str, Callable[[], Any]]:
    """Return a callable per contender, each doing one whole step: sample, gather, gradient, update."""
    data = problem(case)
    found = {"non-private": _non_private(case, *data), "dpadapt": _dpadapt(case, *data)}
    if peers:
        from dpadapt.benchmarks.peers import peer_steps

        found |= peer_steps(case, *data)
    return found


def _loss(case: Case) -> LogisticLoss | SoftmaxLoss:
    return LogisticLoss() if case.n_scores == 1 else SoftmaxLoss()


def _non_private(case: Case, X: NDArray[Any], y: NDArray[Any], coef: NDArray[Any]) -> Callable[[], Any]:
    loss, random = _loss(case), SeededRandom(1)
    length = 0.1 / (case.rate * case.n_rows)

    def step() -> Any:
        rows, target = X, y
        if case.rate < 1:
            index = random.poisson_sample(case.n_rows, case.rate)
            rows, target = X.take(index, axis=0), y[index]
        weights = loss.weights(rows @ coef, target)
        return coef - (rows.T @ weights) * length

    return step


def _dpadapt(case: Case, X: NDArray[Any], y: NDArray[Any], coef: NDArray[Any]) -> Callable[[], Any]:
    loss, rows = _loss(case), Rows(X, y)
    length = 0.1 / (case.rate * case.n_rows)
    mechanism = Gaussian(1e6)
    ledger = Ledger(epsilon=10.0, delta=1e-6)
    if case.rate < 1:
        run = ledger.start(Sampled(mechanism, case.rate, _PAID), label="steps")
        batches = run.batches(case.n_rows)
    else:
        run = ledger.start(Repeated(mechanism, _PAID), label="steps")

    def step() -> Any:
        batch = rows.take(next(batches)) if case.rate < 1 else rows
        gradient = run.release(clipped_outer_sum(batch, gradient_weights(loss, coef), 1.0))
        return coef - gradient * length

    return step


def peak_over_data() -> float:
    """Return the most MB that building the rows and stepping on the largest case held at once, besides the data."""
    case = CASES[1]
    data = problem(case)
    tracemalloc.start()
    step = _dpadapt(case, *data)
    for _ in range(3):
        step()
    return tracemalloc.get_traced_memory()[1] / 2**20
