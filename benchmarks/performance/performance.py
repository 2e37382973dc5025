"""Speed and memory of one private gradient step against a non-private one: `python -m benchmarks performance`.

Every ratio is to a non-private step that computes the same two matrix products on the same rows. CPU time, one thread,
contenders interleaved in one process; medians. Peers (`benchmarks/performance/peers.py`) are measured where they are
installed, and only without `--quick`.
"""

import os
import platform
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.running import command, one_thread
from dpadapt.accounting.ledger import Ledger
from dpadapt.learning.descent import released_gradients
from dpadapt.learning.losses import LogisticLoss, SoftmaxLoss
from dpadapt.mechanisms.mechanism import Gaussian, Repeated, Sampled
from dpadapt.mechanisms.randomness import SeededRandom
from dpadapt.rows import Rows


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
# Largest acceptable ratio of our step to the non-private one, by case.
TARGETS = {
    "softmax, batch of 1,024": 1.2,
    "softmax, full batch": 1.2,
    "binary, full batch": 1.35,
}
# Steps charged in advance for each contender: more than any run takes, so that no step exceeds the budget.
_PAID_STEPS = 10**6


def run(*, quick: bool) -> dict[str, Any]:
    """Return all results as plain data."""
    rows: list[dict[str, Any]] = []
    for case in CASES:
        contenders: dict[str, Callable[[], Any]] = step_contenders(case, peers=not quick)
        times = interleaved(contenders, repetitions=max(5, case.repetitions // (10 if quick else 1)))
        base = times["non-private"]
        rows += [{"case": case.name, "what": name, "ms": ms, "ratio": ms / base} for name, ms in times.items()]
    return {
        "machine": {"python": platform.python_version(), "processor": platform.machine(), "cores": os.cpu_count()},
        "versions": {
            name: _version(name)
            for name in ("numpy", "scipy", "dp-accounting", "torch", "opacus", "jax", "jax-privacy")
        },
        "steps": rows,
        "memory_mb": steps_memory(),
        "calibration": calibration_times(),
        "import_s": import_time(),
    }


def interleaved(contenders: dict[str, Callable[[], Any]], *, repetitions: int) -> dict[str, float]:
    """Return the median CPU milliseconds of each contender; they take turns of up to ten steps in a row.

    Training also takes many steps in a row. A turn ends after 50 ms, and a contender stops after 20 s in all.
    """
    taken: dict[str, list[int]] = {name: [] for name in contenders}
    for step in contenders.values():
        step()
    for _ in range(repetitions):
        for name, step in contenders.items():
            if sum(taken[name]) > 20e9:
                continue
            turn = 0
            for _ in range(10):
                start = time.process_time_ns()
                step()
                taken[name].append(time.process_time_ns() - start)
                turn += taken[name][-1]
                if turn > 50e6:
                    break
    return {name: statistics.median(values) / 1e6 for name, values in taken.items()}


def steps_memory() -> float:
    """Return the peak memory of private steps besides the data, in MB, measured in a process of its own."""
    code = "from benchmarks.performance.performance import peak_over_data; print(peak_over_data())"
    return float(_python(code))


def calibration_times() -> dict[str, float]:
    """Return CPU seconds of the calibrations that have targets."""
    code = (
        "import time; from dpadapt import calibrate; import dp_accounting; calibrate(2.0, 1e-5, steps=3)\n"
        "def cpu(**plan):\n"
        "    start = time.process_time(); calibrate(1.0, 1e-5, **plan); return time.process_time() - start\n"
        "print(cpu(steps=15_000), cpu(steps=5_000, rate=0.01), cpu(steps=5_000, rate=0.01))"
    )
    gaussian, sampled, cached = (float(value) for value in _python(code).split())
    return {"gaussian, 15,000 steps": gaussian, "Poisson, cold": sampled, "Poisson, cached": cached}


def import_time() -> float:
    """Return the seconds of `import dpadapt` without the start of the interpreter; best of five."""
    code = "import time; start = time.perf_counter(); import dpadapt; print(time.perf_counter() - start)"
    return min(float(_python(code)) for _ in range(5))


def problem(case: Case) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return rows, targets and coefficients; the values don't matter, only the sizes do."""
    random = np.random.default_rng(20)
    X = random.standard_normal((case.n_rows, case.n_features), dtype=case.dtype)
    codes = random.integers(0, max(2, case.n_scores), case.n_rows)
    if case.n_scores == 1:
        return X, codes.astype(case.dtype), np.zeros(case.n_features, case.dtype)
    return X, codes, np.zeros((case.n_features, case.n_scores), case.dtype)


def step_contenders(case: Case, *, peers: bool) -> dict[str, Callable[[], Any]]:
    """Return a function per contender that takes one whole step: sample, gather, gradient, update."""
    data = problem(case)
    contenders = {"non-private": _non_private(case, *data), "dpadapt": _dpadapt(case, *data)}
    if peers:
        from benchmarks.performance.peers import peer_steps

        contenders |= peer_steps(case, *data)
    return contenders


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
    # In the order of `private_descent`.
    loss, rows, coef = _loss(case), Rows(X, y), np.asfortranarray(coef)
    length = 0.1 / (case.rate * case.n_rows)
    mechanism = Gaussian(1e6)
    ledger = Ledger(epsilon=10.0, delta=1e-6)
    whole, sampled = Repeated(mechanism, _PAID_STEPS), Sampled(mechanism, case.rate, _PAID_STEPS)
    run = ledger.start(sampled if case.rate < 1 else whole, label="steps")
    gradients = released_gradients(run, rows, loss, lambda: coef, 1.0, 1.0)

    def step() -> Any:
        return coef - next(gradients) * length

    return step


def peak_over_data() -> float:
    """Return the peak MB of building the rows and taking steps on the largest case, besides the data."""
    case = CASES[1]
    data = problem(case)
    tracemalloc.start()
    step = _dpadapt(case, *data)
    for _ in range(3):
        step()
    return tracemalloc.get_traced_memory()[1] / 2**20


def _python(code: str) -> str:
    call = [sys.executable, "-c", code]
    done = subprocess.run(call, capture_output=True, text=True, check=True, env={**os.environ, **one_thread()})
    return done.stdout.strip().splitlines()[-1]


def _version(name: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def show(results: dict[str, Any]) -> None:
    """Print the tables."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table("case", "what", "CPU ms", "ratio", "target", title="one step, ratio to the non-private step")
    for row in results["steps"]:
        target = f"<= {TARGETS[row['case']]}" if row["what"] == "dpadapt" else ""
        table.add_row(row["case"], row["what"], f"{row['ms']:.3f}", f"{row['ratio']:.2f}", target)
    console.print(table)
    other = Table("what", "measured", "target")
    other.add_row("peak memory over the data", f"{results['memory_mb']:.1f} MB", "<= 64 MB")
    limits = {"gaussian, 15,000 steps": "< 0.005 s", "Poisson, cold": "< 2 s", "Poisson, cached": "< 0.001 s"}
    for name, seconds in results["calibration"].items():
        other.add_row(f"calibrate: {name}", f"{seconds:.6f} s", limits[name])
    other.add_row("import dpadapt", f"{results['import_s']:.3f} s", "< 1.0 s")
    console.print(other)


if __name__ == "__main__":
    command(__spec__.name, __doc__, run, show)
