"""Paper 2's networks of Table 2 at the paper's number of epochs: `python -m benchmarks mirror-networks`.

`--only fits`: the network that the paper trains on EMNIST, on all of MNIST, which stands in for EMNIST: 28 x 28 pixels,
4% public rows, batches of 500, 50 epochs, the second clip of Appendix F.2, epsilon and delta as in Table 1, three runs.
The learning rate of each method and the K of Eq. (1) are the best of a grid on the test loss after a tenth of the
epochs, on a split of its own; the paper tunes them on the reported loss. A star marks this: such rows are not private.
K has three readings: t counts steps and alpha is clamped at zero after the printed share of the steps; K is two or six
times the number of steps; t counts epochs. Needs the extra torch and `DPADAPT_DATA`. Every core runs one process.

`--only cost`: the CPU seconds of a few private steps of each network of Table 2, on made-up rows, and from these the
time of a fit with the paper's number of steps. Needs the extra torch.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data.loading import load
from benchmarks.pages import pipes, state_run, write_between
from benchmarks.running import command, cores, in_order
from benchmarks.transfer.common import compared, mean_intervals, real_data, versions
from dpadapt.data import Public
from dpadapt.learning.losses import SoftmaxLoss

PARTS = ("fits", "cost")
Array = NDArray[Any]
# Of the paper, for EMNIST: epsilon and delta of the larger noise, batch, epochs, the K of Table 1 and its steps.
EPSILON, DELTA, BATCH, EPOCHS, PRINTED_K, PRINTED_STEPS = 0.48, 1e-6, 500, 50, 500, 67_001
PAPER = {"cold": "84.73 / 0.6170", "warm": "86.34 / 0.5586", "mirror": "86.72 / 0.4982"}
PUBLIC_SHARE, PUBLIC_STEPS, RUNS = 0.04, 1000, 3
RATES = (0.25, 0.5, 1.0, 2.0)
# The grid is tried for this share of the steps.
TUNING_SHARE = 0.1
# Private steps that are timed for the cost, after a first one that is not, and the made-up rows of which they sample.
TIMED_STEPS, N_TIMED_ROWS, LENGTH = 2, 2000, 35


@dataclass(frozen=True)
class Fit:
    """One training: the method, its learning rate, K in steps (mirror only), the number of steps and the split."""

    method: str
    rate: float
    decay_steps: int | None
    n_steps: int
    seed: int


def measure(one: Fit) -> dict[str, Any]:
    """Train once and return accuracy, test loss and CPU seconds."""
    import torch

    from benchmarks.mirror.models import emnist_cnn
    from dpadapt.networks.estimator import PrivateNetwork

    torch.set_num_threads(1)
    torch.manual_seed(one.seed)
    arrays = load("mnist").arrays
    # The usual mean and standard deviation for this set; nothing is computed from private rows.
    X, X_test = ((arrays[name][:, None].astype(np.float32) / 255 - 0.1307) / 0.3081 for name in ("X_train", "X_test"))
    y, y_test = arrays["y_train"].astype(np.int64), arrays["y_test"].astype(np.int64)
    order = np.random.default_rng(one.seed).permutation(len(y))
    public, private = np.split(order, [round(PUBLIC_SHARE * len(y))])
    start = time.process_time()
    model = PrivateNetwork(
        emnist_cnn(10),
        EPSILON,
        DELTA,
        transfer=one.method,
        n_steps=one.n_steps,
        batch_size=BATCH,
        clip_released=True,
        learning_rate=one.rate,
        decay_steps=one.decay_steps,
        public_steps=PUBLIC_STEPS,
        random_state=one.seed,
    ).fit(X[private], y[private], public=Public(X[public], y[public]))
    seconds = time.process_time() - start
    scores = model.decision_function(X_test)
    loss = SoftmaxLoss().value(scores, y_test) if np.all(np.isfinite(scores)) else math.inf
    accuracy = float(np.mean(np.argmax(scores, axis=1) == y_test))
    return {**vars(one), "accuracy": accuracy, "loss": loss, "seconds": seconds}


@dataclass(frozen=True)
class Cost:
    """A network of Table 2 with its batch size and number of steps: private rows over the batch, times the epochs."""

    network: str
    batch_size: int
    n_steps: int


COSTS = (Cost("EMNIST", 500, PRINTED_STEPS), Cost("CIFAR-10", 500, 9_600), Cost("WikiText-2", 250, 3_745))


def measure_cost(one: Cost) -> dict[str, Any]:
    """Return the parameters of a network and the mean CPU seconds of its private steps, on made-up rows."""
    import torch

    from benchmarks.mirror import models
    from dpadapt.networks.estimator import PrivateNetwork
    from dpadapt.networks.models import sequence_loss

    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    X: Array
    y: Array
    loss = None
    if one.network == "WikiText-2":
        module, loss = models.lstm_language_model(), sequence_loss
        X, y = (random.integers(0, 8000, (N_TIMED_ROWS, LENGTH)) for _ in range(2))
    else:
        grey = one.network == "EMNIST"
        module, shape, n_classes = (
            (models.emnist_cnn(), (1, 28, 28), 47) if grey else (models.cifar_cnn(), (3, 32, 32), 10)
        )
        X = random.standard_normal((N_TIMED_ROWS, *shape), dtype=np.float32)
        y = random.integers(0, n_classes, N_TIMED_ROWS)
    times: list[float] = []
    PrivateNetwork(
        module,
        EPSILON,
        DELTA,
        loss=loss,
        n_steps=1 + TIMED_STEPS,
        batch_size=one.batch_size,
        clip_released=loss is None,
        watch=lambda step, module: times.append(time.process_time()),
        random_state=0,
    ).fit(X, y)
    seconds = (times[-1] - times[0]) / TIMED_STEPS
    return {**vars(one), "parameters": models.n_parameters(module), "seconds": seconds}


def schedules(n_steps: int) -> dict[str, int]:
    """Return the K that are tried, in steps, by their reading."""
    return {
        "clamped at the printed share": max(1, round(PRINTED_K / PRINTED_STEPS * n_steps)),
        "2 x steps": 2 * n_steps,
        "6 x steps": 6 * n_steps,
        "t in epochs": round(PRINTED_K / EPOCHS * n_steps),
    }


def grid(n_steps: int) -> list[Fit]:
    """Return the fits of the grid, on a split that no run uses."""
    fits = [Fit(method, rate, None, n_steps, RUNS) for method in ("cold", "warm") for rate in RATES]
    return fits + [Fit("mirror", rate, K, n_steps, RUNS) for K in schedules(n_steps).values() for rate in RATES]


def run(*, quick: bool, only: Sequence[str] = PARTS) -> dict[str, Any]:
    """Return the results of the parts `only` as plain data; a quick run takes 20 steps of each fit and one run."""
    results: dict[str, Any] = {"quick": quick, "versions": versions()}
    if find_spec("torch") is None:
        return {**results, "skipped": "torch is missing"}
    if "fits" in only:
        results |= fits(quick=quick) if real_data() else {"skipped": "DPADAPT_DATA is missing"}
    if "cost" in only:
        # One process: times are measured.
        results["cost"] = in_order(measure_cost, COSTS, 1, name=lambda one: f"steps of {one.network}")
    return results


def fits(*, quick: bool) -> dict[str, Any]:
    """Return the fits of the grid, those at the best settings, and the best reading of K."""
    n_private = round((1 - PUBLIC_SHARE) * len(load("mnist").arrays["y_train"]))
    n_steps = 20 if quick else EPOCHS * (n_private // BATCH)
    short = max(2, round(TUNING_SHARE * n_steps))
    tried = in_order(measure, grid(short), cores(), name=_spoken)
    best = {name: min((row for row in tried if row["method"] == name), key=lambda row: row["loss"]) for name in PAPER}
    # K is a share of the steps, and the full runs have more of them.
    reading = next(name for name, K in schedules(short).items() if best["mirror"]["decay_steps"] == K)
    todo = []
    for name, row in best.items():
        K = schedules(n_steps)[reading] if name == "mirror" else None
        todo += [Fit(name, row["rate"], K, n_steps, seed) for seed in range(1 if quick else RUNS)]
    return {"tried": tried, "rows": in_order(measure, todo, cores(), name=_spoken), "reading": reading}


def _spoken(one: Fit) -> str:
    decay = "" if one.decay_steps is None else f", K {one.decay_steps:,}"
    return f"{one.method}, rate {one.rate:g}{decay}, {one.n_steps:,} steps, split {one.seed}"


def table(results: dict[str, Any]) -> dict[str, Any]:
    """Return Table 1's row for EMNIST, on MNIST."""
    shown = []
    for name, paper in PAPER.items():
        rows = [row for row in results["rows"] if row["method"] == name]
        cells = [_mean([row[key] for row in rows], digits) for key, digits in (("accuracy", 4), ("loss", 4))]
        minutes = sum(row["seconds"] for row in rows) / len(rows) / 60
        label = f"{name}, K: {results['reading']}" if name == "mirror" else name
        shown.append([f"{label}*", f"{rows[0]['rate']:g}", *cells, f"{minutes:.1f}", paper])
    n_steps, runs = results["rows"][0]["n_steps"], len({row["seed"] for row in results["rows"]})
    title = (
        f"Table 1 with the network of Table 2, MNIST for EMNIST: epsilon {EPSILON:g}, {n_steps:,} steps, {runs} runs"
    )
    columns = ["method", "learning rate", "accuracy", "test loss", "CPU minutes a fit", "paper (EMNIST)"]
    return {"title": title, "columns": columns, "rows": shown}


def cost_table(results: dict[str, Any]) -> dict[str, Any]:
    """Return the time that a fit with the paper's number of steps would take."""
    shown = [
        [
            row["network"],
            f"{row['parameters']:,}",
            f"{row['batch_size']:,}",
            f"{row['seconds']:.2f}",
            f"{row['n_steps']:,}",
            f"{row['n_steps'] * row['seconds'] / 60:,.0f}",
        ]
        for row in results["cost"]
    ]
    columns = ["network", "parameters", "batch", "CPU seconds a step", "steps in the paper", "CPU minutes a fit"]
    return {"title": "CPU minutes that a fit at the paper's steps would take", "columns": columns, "rows": shown}


def _mean(values: list[float], digits: int) -> str:
    """Return a mean over runs with half of its 95% interval, by Student's t; a single run has none."""
    ((mean, half),) = mean_intervals([values], digits)
    return f"{mean:.{digits}f}" + (f" ± {half:.{digits}f}" if math.isfinite(half) else "")


def claims(results: dict[str, Any]) -> list[dict[str, str]]:
    """Return whether mirror is better than warm, as in Table 1, by its differences on the same splits."""
    rows = {(row["method"], row["seed"]): row for row in results["rows"]}
    seeds = sorted({seed for _, seed in rows})
    found = []
    for key, sign in (("loss", 1), ("accuracy", -1)):
        mirror, warm = (np.array([rows[name, seed][key] for seed in seeds]) for name in ("mirror", "warm"))
        what = f"Table 1, EMNIST: PDA-DPMD* better than warm* in {key}"
        found.append(compared(what, f"{mirror.mean():.4f} against {warm.mean():.4f}", list(sign * (warm - mirror))))
    return found


def show(results: dict[str, Any]) -> None:
    """Print the tables and the claims."""
    for part in PARTS:
        if _has(results, part):
            print(markdown(results, part))
    if "skipped" in results:
        print(f"Not measured: {results['skipped']}.")


def _has(results: dict[str, Any], part: str) -> bool:
    """Return whether a part was measured."""
    return ("rows" if part == "fits" else "cost") in results


def markdown(results: dict[str, Any], part: str) -> str:
    """Return the claims and the table of one part in Markdown; the cost has no claims."""
    texts = []
    if part == "fits":
        columns = ["claim", "measured", "verdict"]
        texts.append(pipes(columns, [[row[name] for name in columns] for row in claims(results)]))
    shown = table(results) if part == "fits" else cost_table(results)
    texts.append(f"**{shown['title']}**\n\n{pipes(shown['columns'], shown['rows'])}")
    if part == "cost":
        size = f"Mean of {TIMED_STEPS} private steps on made-up rows, one thread; public training comes on top. "
    else:
        size = "A quick run: 20 steps a fit, which shows nothing but that it runs. " if results["quick"] else ""
    texts.append(size + ", ".join(f"{name} {number}" for name, number in results["versions"].items()))
    return "\n\n".join(texts) + "\n"


def markers(part: str) -> tuple[str, str]:
    """Return the markers of a part's tables on a documentation page."""
    return f"<!-- bench mirror-networks: {part} -->", f"<!-- end of bench mirror-networks: {part} -->"


def write_markdown(results: dict[str, Any], path: Path) -> None:
    """Write the tables of the parts that were measured between their markers on a page; the other part stays."""
    for part in PARTS:
        if _has(results, part):
            write_between(path, markdown(results, part), *markers(part))
            if "measured on" in results["versions"]:
                state_run(path, f"python -m benchmarks mirror-networks --only {part}", results["versions"])


if __name__ == "__main__":
    writers = {"markdown": ("write the tables of the measured parts between this page's markers", write_markdown)}
    command(__spec__.name, __doc__, run, show, writers=writers, parts=PARTS)
