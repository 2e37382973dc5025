"""Table 1 and Figures 2 to 4 of the mirror-descent paper: networks, cold, warm and mirror.

At a scale that two cores compute in minutes: MNIST at 14 x 14 in place of EMNIST, a part of CIFAR-10 at 16 x 16 in
place of the whole, the validation split of WikiText-2 in place of its training split, and 60 to 150 steps in place of
thousands. The epsilons are the paper's; 4% of the training rows are public. Every method's learning rate is the best of
the same grid by the temperature-scaled loss on test rows. A star marks this: such rows are not private. Needs the extra
torch.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data.loading import load
from benchmarks.performance import networks
from benchmarks.running import cores, in_order
from benchmarks.transfer.common import ONE_SPLIT, real_data
from dpadapt.data import Public
from dpadapt.learning.losses import SoftmaxLoss

Array = NDArray[Any]
Pair = tuple[Array, Array]
PUBLIC_SHARE, N_TEST_SEQUENCES, N_HELD_SEQUENCES, LENGTH, N_WORDS = 0.04, 400, 40, 35, 1000
# Number of test rows on which the curves over steps are measured.
N_CURVE = 1000


@dataclass(frozen=True, eq=False)
class Split:
    """Public, private and test rows; further public ones to fit a temperature, where the estimator has none."""

    public: Pair
    private: Pair
    test: Pair
    held_out: Pair | None = None


@dataclass(frozen=True)
class Task:
    """A data set with its network, its training, and the figures of Table 1 at two noise levels.

    `printed_shares` are the paper's K over `printed_steps`, its number of steps; `paper` has, for cold, warm and
    PDA-DPMD, the accuracy in percent, if any, and the loss.
    """

    name: str
    split: Callable[[], Split]
    module: Callable[[], Any]
    n_steps: int
    batch_size: int
    public_steps: int
    rates: tuple[float, ...]
    epsilons: tuple[float, ...]
    delta: float
    printed_shares: tuple[float, ...]
    printed_steps: int = 9_600
    paper: tuple[dict[str, tuple[float, ...]], ...] = ()
    sequences: bool = False

    @property
    def heading(self) -> str:
        """Heading of its tables and claims."""
        return f"{'Table 1' if self.paper else 'networks'}, {self.name}"


def _digits() -> Split:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    X = (X / 8 - 1).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(y))
    public, private, test = np.split(order, [150, 1300])
    return Split((X[public], y[public]), (X[private], y[private]), (X[test], y[test]))


def _halved(X: Array) -> Array:
    """Return images (n, side, side, ...) with means of 2 x 2 pixels, in [0, 1]."""
    side = X.shape[1] // 2
    parts = X.astype(np.float32).reshape(len(X), side, 2, side, 2, *X.shape[3:]) / 255
    return np.asarray(parts.mean(axis=(2, 4)))


def _share_public(train: Pair, test: Pair) -> Split:
    order = np.random.default_rng(0).permutation(len(train[1]))
    public, private = np.split(order, [round(PUBLIC_SHARE * len(order))])
    return Split((train[0][public], train[1][public]), (train[0][private], train[1][private]), test)


def _mnist() -> Split:
    arrays = load("mnist").arrays
    # The usual mean and standard deviation for this set; nothing is computed from private rows.
    X, X_test = ((_halved(arrays[name])[:, None] - 0.1307) / 0.3081 for name in ("X_train", "X_test"))
    return _share_public((X, arrays["y_train"].astype(np.int64)), (X_test, arrays["y_test"].astype(np.int64)))


def _cifar() -> Split:
    arrays = load("cifar10", "images").arrays
    X, X_test = ((_halved(arrays[name]).transpose(0, 3, 1, 2) - 0.5) / 0.25 for name in ("X_train", "X_test"))
    return _share_public((X, arrays["y_train"].astype(np.int64)), (X_test, arrays["y_test"].astype(np.int64)))


def _wikitext() -> Split:
    """Return sequences of word numbers and the words that follow; words that public sequences lack are number 0."""
    train, test = (_sequences(load("wikitext2", part).text.split()) for part in ("valid", "test"))
    order = np.random.default_rng(0).permutation(len(train))
    public, private = np.split(order, [round(PUBLIC_SHARE * len(order))])
    # The paper counts words in all of its training text; here the list of words is public.
    words, counts = np.unique(train[public], return_counts=True)
    known = {word: number for number, word in enumerate(words[np.argsort(-counts, kind="stable")][: N_WORDS - 1], 1)}
    pairs = []
    for rows in (train[public], train[private], test[:N_TEST_SEQUENCES]):
        numbers = np.array([[known.get(word, 0) for word in row] for row in rows])
        pairs.append((numbers[:, :-1], numbers[:, 1:]))
    (X, y), hidden, shown = pairs
    cut = N_HELD_SEQUENCES
    return Split((X[cut:], y[cut:]), hidden, shown, (X[:cut], y[:cut]))


def _sequences(words: list[str]) -> Array:
    n = len(words) // (LENGTH + 1)
    return np.array(words[: n * (LENGTH + 1)]).reshape(n, LENGTH + 1)


def _digits_net() -> Any:
    from dpadapt.networks.models import perceptron

    return perceptron(64, 10, hidden=(32,))


def _cifar_net() -> Any:
    return networks.small_cnn(channels=3, side=16)


def _text_net() -> Any:
    from benchmarks.mirror.models import lstm_language_model

    return lstm_language_model(N_WORDS, n_units=32, n_layers=1)


IMAGE_RATES, TEXT_RATES = (0.1, 0.5, 2.0, 8.0), (0.5, 2.5, 10.0, 40.0)
QUICK = (Task("digits", _digits, _digits_net, 40, 300, 300, IMAGE_RATES, (3.0,), 1e-5, (0.2,)),)
FULL = (
    Task(
        "MNIST 14 x 14 (paper: EMNIST)",
        _mnist,
        networks.small_cnn,
        150,
        500,
        1000,
        IMAGE_RATES,
        (25.80, 0.48),
        1e-6,
        (500 / 67_001, 500 / 67_001),
        67_001,
        (
            {"cold": (87.57, 0.5422), "warm": (87.85, 0.5089), "mirror": (87.99, 0.4706)},
            {"cold": (84.73, 0.6170), "warm": (86.34, 0.5586), "mirror": (86.72, 0.4982)},
        ),
    ),
    Task(
        "CIFAR-10, 4,000 images of 16 x 16 (paper: 50,000)",
        _cifar,
        _cifar_net,
        100,
        500,
        500,
        IMAGE_RATES,
        (3.51, 0.19),
        1e-5,
        (2000 / 9_600, 2000 / 9_600),
        9_600,
        (
            {"cold": (62.96, 1.4225), "warm": (66.39, 1.2371), "mirror": (67.03, 1.1435)},
            {"cold": (40.60, 1.6890), "warm": (53.41, 1.3462), "mirror": (55.40, 1.2785)},
        ),
    ),
    Task(
        "WikiText-2, validation split, 1,000 words (paper: training split, 8,000)",
        _wikitext,
        _text_net,
        60,
        250,
        500,
        TEXT_RATES,
        (15.7, 1.71),
        1e-5,
        (100 / 3_745, 50 / 3_745),
        3_745,
        (
            {"cold": (5.2626,), "warm": (5.1914,), "mirror": (5.1736,)},
            {"cold": (5.5627,), "warm": (5.3288,), "mirror": (5.2956,)},
        ),
        sequences=True,
    ),
)


def measure(task: Task) -> list[dict[str, Any]]:
    """Train all methods at all learning rates: one row each."""
    import torch

    from dpadapt.networks.estimator import PrivateNetwork
    from dpadapt.networks.models import sequence_loss

    torch.set_num_threads(1)
    split = task.split()
    public, loss = Public(*split.public), sequence_loss if task.sequences else None

    def fit(module: Any, epsilon: float, **settings: Any) -> Any:
        delta = min(task.delta, epsilon)
        model = PrivateNetwork(
            module, epsilon, delta, loss=loss, batch_size=task.batch_size, random_state=0, **settings
        )
        # Appendix F.2: images alone have the second clip.
        model.set_params(clip_released=not task.sequences)
        return model.fit(*split.private, public=public)

    # With so small a budget nothing is spent, and the result is the public network: the start of all warm methods.
    start = fit(task.module, 1e-9, n_steps=task.n_steps, public_steps=task.public_steps)
    rows = []
    for level, epsilon in enumerate(task.epsilons):
        rows.append(
            {"task": task.name, "epsilon": epsilon, "method": "public only", "rate": 0.0, **_scores(start, split)}
        )
        printed = max(1, round(task.printed_shares[level] * task.n_steps))
        # The paper tunes K. If t counts epochs, its K is far above the number of epochs.
        epochs = task.n_steps * task.batch_size / len(split.private[1])
        in_epochs = max(1, round(task.printed_shares[level] * task.printed_steps / max(epochs, 1e-9) * task.n_steps))
        methods: dict[str, dict[str, Any]] = {
            "cold": {"transfer": "cold"},
            "warm": {"transfer": "warm"},
            "mirror, K = 2 x steps": {"transfer": "mirror"},
            "mirror, K = 6 x steps": {"transfer": "mirror", "decay_steps": 6 * task.n_steps},
            "mirror, t in epochs": {"transfer": "mirror", "decay_steps": in_epochs},
            f"mirror, K = {printed} of {task.n_steps} steps, clamped": {"transfer": "mirror", "decay_steps": printed},
        }
        for name, settings in methods.items():
            module = task.module if name == "cold" else start.module_
            for rate in task.rates:
                curve = Curve(task.n_steps, split.test)
                settings |= {"n_steps": task.n_steps, "public_steps": 0, "learning_rate": rate, "watch": curve}
                model = fit(module, epsilon, **settings)
                row = {"task": task.name, "epsilon": epsilon, "method": name, "rate": rate, "curve": curve.points}
                rows.append({**row, **_scores(model, split)})
    return rows


# The name of a task and the number of its epsilon; or the target on Fashion-MNIST.
Piece = tuple[str, int]
FASHION: Piece = ("Fashion-MNIST", 0)


def measure_piece(piece: Piece) -> list[dict[str, Any]]:
    """Return the rows of one task at one epsilon, or those of Fashion-MNIST."""
    import torch

    torch.set_num_threads(1)
    if piece == FASHION:
        return networks.fashion(seeds=2, names=["public only", "warm"])
    name, level = piece
    task = next(one for one in (*QUICK, *FULL) if one.name == name)
    return measure(replace(task, epsilons=(task.epsilons[level],), printed_shares=(task.printed_shares[level],)))


def _spoken(piece: Piece) -> str:
    return piece[0] if piece == FASHION else f"{piece[0]}, epsilon {piece[1] + 1}"


class Curve:
    """The loss on some test rows after some of the steps: a line of Figures 2 to 4."""

    def __init__(self, n_steps: int, test: Pair) -> None:
        self.points: list[dict[str, float]] = []
        self._at = {max(1, round(n_steps / 2**k)) for k in range(6)}
        self._test = test[0][:N_CURVE], test[1][:N_CURVE]

    def __call__(self, step: int, module: Any) -> None:
        """Record the loss of the network after this step."""
        from dpadapt.networks.public_training import as_inputs, outputs_of
        from dpadapt.networks.trial import n_words

        if step in self._at:
            scores = outputs_of(module, as_inputs(self._test[0], n_words(module), "X"))
            scores, codes = scores.reshape(-1, scores.shape[-1]).astype(np.float64), self._test[1].ravel()
            loss = SoftmaxLoss().value(scores, codes) if np.all(np.isfinite(scores)) else np.inf
            self.points.append({"x": step, "mean": float(min(loss, 1e9)), "spread": 0.0})


def _scores(model: Any, split: Split) -> dict[str, float]:
    """Return accuracy, loss, and the loss of scores divided by a temperature that was fitted on public rows."""
    from dpadapt.networks.public_training import fit_temperature

    codes = split.test[1].ravel()
    if split.held_out is None:
        scores, temperature = model.decision_function(split.test[0]), model.temperature_
    else:
        scores, held = (model.predict(X) for X in (split.test[0], split.held_out[0]))
        scores, held = (part.reshape(-1, part.shape[-1]) for part in (scores, held))
        temperature = 1.0
        if np.all(np.isfinite(held)):
            temperature = fit_temperature(held, split.held_out[1].ravel())
    if not np.all(np.isfinite(scores)):
        return {"accuracy": 0.0, "loss": np.inf, "scaled loss": np.inf}
    return {
        "accuracy": float(np.mean(np.argmax(scores, axis=1) == codes)),
        "loss": SoftmaxLoss().value(scores, codes),
        "scaled loss": SoftmaxLoss().value(scores / temperature, codes),
    }


def best(rows: list[dict[str, Any]], task: str, epsilon: float) -> dict[str, dict[str, Any]]:
    """Return each method's row at the learning rate with the least scaled loss on test rows."""
    chosen: dict[str, dict[str, Any]] = {}
    for row in rows:
        if (row["task"], row["epsilon"]) == (task, epsilon):
            kept = chosen.setdefault(row["method"], row)
            if row["scaled loss"] < kept["scaled loss"]:
                chosen[row["method"]] = row
    return chosen


def _printed(method: str, paper: dict[str, tuple[float, ...]]) -> str:
    values = paper.get(method.split(",")[0], ())
    return " / ".join(f"{value:g}" for value in values) or "-"


def table(task: Task, level: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return Table 1 for a data set at one noise level, with the paper's figures."""
    epsilon = task.epsilons[level]
    paper = task.paper[level] if task.paper else {}
    shown = []
    for name, row in best(rows, task.name, epsilon).items():
        cells = [f"{row['accuracy']:.2%}", f"{row['loss']:.4f}", f"{row['scaled loss']:.4f}"]
        star, rate = ("", "-") if name == "public only" else ("*", f"{row['rate']:g}")
        shown.append([name + star, rate, *cells, _printed(name, paper)])
    columns = ["method", "learning rate", "accuracy", "test loss", "scaled loss", "paper"]
    return {"title": f"{task.heading}: epsilon {epsilon:g}", "columns": columns, "rows": shown}


def figure(task: Task, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one of Figures 2 to 4: test loss by steps, each method at its learning rate of Table 1."""
    panels = []
    for epsilon in task.epsilons:
        chosen = best(rows, task.name, epsilon)
        lines = [{"name": name, "points": row["curve"]} for name, row in chosen.items() if "curve" in row]
        levels = [{"name": "public only", "value": chosen["public only"]["loss"]}]
        panels.append({"title": f"epsilon {epsilon:g}", "x_label": "steps", "lines": lines, "levels": levels})
    words = f"Test loss (first {N_CURVE:,} test rows) during private training; settings are those of the table."
    return {"title": f"Figures 2 to 4, {task.name}", "words": words, "y_label": "test loss", "panels": panels}


def task_claims(task: Task, level: int, rows: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return how methods rank, beside Table 1; K is tuned: of its readings the best one counts.

    There is one split and one run of each method, so there is no interval and no verdict.
    """
    epsilon = task.epsilons[level]
    chosen = best(rows, task.name, epsilon)
    cold, warm = chosen["cold"], chosen["warm"]
    mirror = min((row for name, row in chosen.items() if name.startswith("mirror")), key=lambda row: row["scaled loss"])
    where = f"{task.heading.split(' (')[0]}, epsilon {epsilon:g}"
    pairs = [("PDA-DPMD* below warm*", mirror, warm), ("warm* below cold*", warm, cold)]
    shown = []
    for what, a, b in pairs:
        for key, name in (("loss", "test loss"), ("scaled loss", "temperature-scaled loss")):
            shown.append((f"{what} in {name}", f"{a[key]:.4f} against {b[key]:.4f}"))
        if not task.sequences:
            text = f"{a['accuracy']:.2%} against {b['accuracy']:.2%}"
            shown.append((f"{what.replace('below', 'above')} in accuracy", text))
    return [{"claim": f"{where}: {what}", "measured": text, "verdict": ONE_SPLIT} for what, text in shown]


def table1(*, quick: bool) -> dict[str, Any]:
    """Measure the networks: private steps against plain ones, Table 1, and the target on Fashion-MNIST."""
    if find_spec("torch") is None:
        reason = "networks (Table 1): torch is not installed; pip install torch==2.13.0, then 'dpadapt[torch]'"
        return {"tables": [], "claims": [], "skipped": reason}
    import torch

    torch.set_num_threads(1)
    results: dict[str, Any] = {
        "steps": networks.step_times(repetitions=3 if quick else 20),
        "agreement": networks.agreement(),
        "fashion": [],
    }
    tasks = QUICK if quick or not real_data() else FULL
    skipped = None if quick or real_data() else "Table 1's data sets: DPADAPT_DATA is not set; bundled digits instead"
    cells = [(task, level) for task in tasks for level in range(len(task.epsilons))]
    todo: list[Piece] = [(task.name, level) for task, level in cells]
    todo += [FASHION] if tasks is FULL else []
    parts = in_order(measure_piece, todo, min(cores(), len(todo)), name=_spoken)
    if tasks is FULL:
        results["fashion"] = parts.pop()
    results["rows"] = [row for part in parts for row in part]
    return {**present(results), "skipped": skipped, **results}


def present(part: dict[str, Any]) -> dict[str, Any]:
    """Return the tables, claims and figures of the rows."""
    rows = part["rows"]
    names, epsilons = ({row[key] for row in rows} for key in ("task", "epsilon"))
    tasks = [task for task in (*QUICK, *FULL) if task.name in names]
    cells = [(task, level) for task in tasks for level, epsilon in enumerate(task.epsilons) if epsilon in epsilons]
    return {
        "tables": [*networks.tables(part), *(table(*cell, rows) for cell in cells)],
        "claims": [*networks.claims(part), *(one for cell in cells for one in task_claims(*cell, rows))],
        "figures": [figure(task, rows) for task in tasks],
    }
