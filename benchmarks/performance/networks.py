"""Private training of networks: `python -m benchmarks.performance.networks`. Needs torch.

One private step against a non-private one, interleaved in one process, CPU time, one thread. Then cold, warm and mirror
training on Fashion-MNIST at 14 x 14, each with its raw and its temperature-scaled loss, if `DPADAPT_DATA` is set. Only
20,000 of the 70,000 images are available: 2,400 are public, 14,600 private and 3,000 for testing, where the protocol
has 57,600 private ones. At the same epsilon, a sum over these has a quarter of the signal.
"""

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data.loading import load
from benchmarks.performance.performance import interleaved
from benchmarks.running import command
from benchmarks.transfer.common import claim, judged, real_data, versions
from dpadapt.accounting.ledger import Ledger
from dpadapt.data import Public
from dpadapt.mechanisms.mechanism import Gaussian, Sampled
from dpadapt.mechanisms.randomness import SeededRandom

BATCH, N_ROWS = 500, 5000
EPSILON, DELTA = 1.0, 1e-5
N_PUBLIC, N_TEST = 2400, 3000
# Targets: ratio of a private step to a plain one; accuracy of warm training on Fashion-MNIST.
SPEED, ACCURACY = 1.8, 0.850
# The same for every method. The best of a few on the test rows of split 0, which is therefore not measured here.
SETTINGS: dict[str, Any] = {"n_steps": 150, "batch_size": 2000, "learning_rate": 2.0, "average": 0.97}
PUBLIC_SETTINGS: dict[str, Any] = {"public_steps": 3000, "public_learning_rate": 0.002}

# Public gradients are not clipped: with the learning rate of private gradients, steps on them alone diverge.
_MIRROR: dict[str, Any] = {"transfer": "mirror", "learning_rate": 0.5}
METHODS: dict[str, dict[str, Any]] = {
    "public only": {"n_steps": 1, "learning_rate": 1e-9, "average": 0.0},
    "cold": {"transfer": "cold"},
    "warm": {"transfer": "warm"},
    "mirror, K = 2 x steps": _MIRROR,
    "mirror, K = steps / 5, clamped": {**_MIRROR, "decay_steps": 30},
    "mirror, K = steps / 5, floor 0.5": {**_MIRROR, "decay_steps": 30, "mixing_floor": 0.5},
}


def run(*, quick: bool) -> dict[str, Any]:
    """Return all results as plain data."""
    import torch

    torch.set_num_threads(1)
    rows = [] if not real_data() else fashion(seeds=1 if quick else 3, names=list(METHODS)[: 3 if quick else None])
    return {
        "versions": {**versions(), "torch": str(torch.__version__)},
        "steps": step_times(repetitions=10 if quick else 40),
        "agreement": agreement(),
        "fashion": rows,
    }


def step_times(*, repetitions: int) -> list[dict[str, Any]]:
    """Return CPU milliseconds of whole steps on the EMNIST network: sample, gather, gradient, noise, update."""
    times = interleaved(_contenders(), repetitions=repetitions)
    return [{"what": name, "ms": ms, "ratio": ms / times["plain"]} for name, ms in times.items()]


def _contenders() -> dict[str, Callable[[], Any]]:
    import torch

    from benchmarks.mirror.models import emnist_cnn
    from dpadapt.networks.ghost_clipping import GhostEngine
    from dpadapt.networks.private_training import Recipe, State
    from dpadapt.networks.row_gradients import Engine, RowsLoss, VmapEngine, clipped_gradient_sum, cross_entropy

    random = np.random.default_rng(0)
    X = torch.from_numpy(random.standard_normal((N_ROWS, 1, 28, 28), dtype=np.float32))
    y = torch.from_numpy(random.integers(0, 10, N_ROWS))
    rate = BATCH / N_ROWS
    recipe = Recipe(rate, N_ROWS, 1.0, 0.1, "sgd", 0.0, 0.97, np.ones(1))

    def plain() -> Callable[[], Any]:
        module, source = emnist_cnn(10), SeededRandom(1)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)

        def step() -> Any:
            index = torch.from_numpy(source.poisson_sample(N_ROWS, rate))
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(module(X[index]), y[index]).backward()
            optimizer.step()

        return step

    def private(make: Callable[[Any], Engine]) -> Callable[[], Any]:
        engine = make(RowsLoss(emnist_cnn(10), cross_entropy))
        charged = Ledger(epsilon=10.0, delta=1e-6).start(Sampled(Gaussian(1e6), rate, 10**6), label="steps")
        batches = charged.batches(N_ROWS)
        state = State(torch.from_numpy(engine.rows_loss.get()))

        def gradients(index: Any) -> Any:
            chosen = torch.from_numpy(index)
            return clipped_gradient_sum(engine, X[chosen], y[chosen], 1.0)

        def step() -> Any:
            engine.rows_loss.put(state.weights.numpy())
            noisy = charged.release(next(batches).of(gradients)) / BATCH
            # The noise is very large, so that the budget lasts for any number of steps; hence the factor.
            state.update(torch.from_numpy(noisy.astype(np.float32)) * 1e-12, recipe)

        return step

    return {"plain": plain(), "private, ghost": private(GhostEngine), "private, vmap": private(VmapEngine)}


def agreement() -> float:
    """Return the relative difference of the clipped sums of ghost clipping and vmap."""
    import torch

    from benchmarks.mirror.models import emnist_cnn
    from dpadapt.networks.ghost_clipping import GhostEngine
    from dpadapt.networks.row_gradients import RowsLoss, VmapEngine, clipped_gradient_sum, cross_entropy

    generator = torch.Generator().manual_seed(0)
    X, y = torch.randn(200, 1, 28, 28, generator=generator), torch.randint(10, (200,), generator=generator)
    rows_loss = RowsLoss(emnist_cnn(10), cross_entropy)
    ghost, vmapped = (clipped_gradient_sum(make(rows_loss), X, y, 1.0).value for make in (GhostEngine, VmapEngine))
    return float(np.linalg.norm(ghost - vmapped) / np.linalg.norm(vmapped))


def small_cnn(*, channels: int = 1, side: int = 14) -> Any:
    """Return two convolutions with pooling and 32 units: for grey images of 14 x 14, 14,378 parameters."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (side // 4) ** 2, 32),
        nn.Tanh(),
        nn.Linear(32, 10),
    )


def images() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the available Fashion-MNIST images, halved in size, and their labels."""
    arrays = load("fashion_mnist").arrays
    X = np.concatenate([arrays["X_train"], arrays["X_test"]]).astype(np.float32) / 255
    y = np.concatenate([arrays["y_train"], arrays["y_test"]]).astype(np.int64)
    halved = X.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4))[:, None]
    # The usual mean and standard deviation for this set; nothing is computed from private rows.
    return ((halved - 0.286) / 0.353).astype(np.float32), y


def fashion(*, seeds: int, names: list[str]) -> list[dict[str, Any]]:
    """Return accuracy and losses of each method on each split."""
    from dpadapt.learning.losses import SoftmaxLoss
    from dpadapt.networks.estimator import PrivateNetwork

    X, y = images()
    rows = []
    for seed in range(1, seeds + 1):
        order = np.random.default_rng(seed).permutation(len(y))
        known, private, test = order[:N_PUBLIC], order[N_PUBLIC:-N_TEST], order[-N_TEST:]
        public = Public(X[known], y[known])
        trained: dict[str, Any] = {}
        for name in names:
            start = time.process_time()
            settings = {**SETTINGS, **PUBLIC_SETTINGS, **METHODS[name]}
            module = small_cnn
            if settings.get("transfer", "cold") != "cold" and "public only" in trained:
                # All warm methods start from the same network.
                module, settings["public_steps"] = trained["public only"], 0
            model = PrivateNetwork(module, EPSILON, DELTA, random_state=seed, **settings)
            trained[name] = model.fit(X[private], y[private], public=public).module_
            scores = model.decision_function(X[test])
            rows.append(
                {
                    "method": name,
                    "seed": seed,
                    "accuracy": float(model.score(X[test], y[test])),
                    "loss": SoftmaxLoss().value(scores, y[test]),
                    "scaled loss": SoftmaxLoss().value(scores / model.temperature_, y[test]),
                    "epsilon": 0.0 if name == "public only" else model.privacy_.epsilon,
                    "cpu s": time.process_time() - start,
                }
            )
    return rows


def means(rows: list[dict[str, Any]], method: str) -> dict[str, float]:
    """Return the means over seeds of one method's figures."""
    mine = [row for row in rows if row["method"] == method]
    return {name: statistics.fmean(row[name] for row in mine) for name in mine[0] if name not in ("method", "seed")}


def claims(results: dict[str, Any]) -> list[dict[str, str]]:
    """Return what is claimed, what was measured, and whether it holds."""
    ratio = next(row["ratio"] for row in results["steps"] if row["what"] == "private, ghost")
    found = [
        claim(f"EMNIST network, batch {BATCH}: private step <= {SPEED} x plain", f"{ratio:.2f} x", ratio <= SPEED),
        claim("ghost clipping and vmap agree to 1e-5", f"{results['agreement']:.1e}", results["agreement"] <= 1e-5),
    ]
    if results["fashion"]:
        warm = means(results["fashion"], "warm")["accuracy"]
        # Of the test rows of one split, so that the interval is wide enough for a mean over splits.
        half = round(2 * math.sqrt(warm * (1 - warm) / N_TEST), 4)
        text = f"Fashion-MNIST 14 x 14, epsilon {EPSILON:g}: warm >= {ACCURACY} (with 14,600 private rows, not 57,600)"
        found.append(judged(text, f"{warm:.4f} ± {half:.4f}", round(warm - ACCURACY, 4), half))
    return found


def tables(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tables: a title, columns and rows of text each."""
    rows = [[row["what"], f"{row['ms']:.1f}", f"{row['ratio']:.2f}"] for row in results["steps"]]
    all_tables = [{"title": f"EMNIST network, batch {BATCH}", "columns": ["step", "CPU ms", "ratio"], "rows": rows}]
    if results["fashion"]:
        seeds = len({row["seed"] for row in results["fashion"]})
        rows = []
        for name in dict.fromkeys(row["method"] for row in results["fashion"]):
            mean = means(results["fashion"], name)
            cells = [f"{mean[key]:.4f}" for key in ("accuracy", "loss", "scaled loss")]
            rows.append([name, *cells, f"{mean['cpu s']:.0f}"])
        title = f"Fashion-MNIST 14 x 14, epsilon {EPSILON:g}, {seeds} split(s), settings from another split"
        columns = ["method", "accuracy", "loss", "scaled loss", "CPU s"]
        all_tables.append({"title": title, "columns": columns, "rows": rows})
    return all_tables


def show(results: dict[str, Any]) -> None:
    """Print the tables."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    for shown in tables(results):
        table = Table(*shown["columns"], title=shown["title"])
        for row in shown["rows"]:
            table.add_row(*row)
        console.print(table)
    table = Table("claim", "measured", "verdict")
    for row in claims(results):
        table.add_row(row["claim"], row["measured"], row["verdict"])
    console.print(table)


if __name__ == "__main__":
    command(__spec__.name, __doc__, run, show)
