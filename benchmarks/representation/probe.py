"""Section 4 of the public-representations paper: private probes on the features of encoders.

Figure 2 of arXiv:2312.15551 and the probes of its Figure 1 and Table 1, on stand-ins (see
`benchmarks/representation/probe_sets.py`), and the targets of ours; `networks.py` has the other ways of Figure 1. Ours
has the same settings everywhere. A star marks settings that were chosen by the reported accuracy.
"""

import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import pairwise, product
from typing import Any

import numpy as np

from benchmarks.representation import probe_sets as sets
from benchmarks.rivals.subspace import LeastSquaresProbe
from benchmarks.transfer.common import claim, everywhere, mean_intervals, real_data
from dpadapt.papers.subspace.probes import DescentProbe
from dpadapt.representation.probe import PrivateProbe

EPSILONS = (0.3, 0.4, 0.5, 1.0, 2.0, 5.0)
DELTA = 1e-5
Row = Mapping[str, Any]
Piece = tuple[str, str, float, int]

OURS, SGD, WHITENED, PUBLIC_GRAM, PRIVATE_GRAM = (
    "ours",
    "DP-SGD*",
    "whitened momentum*",
    "least squares, public Gram",
    "least squares, private Gram",
)
METHODS = (OURS, SGD, WHITENED, PUBLIC_GRAM, PRIVATE_GRAM)
SCRATCH = "scratch*"
# With more features than this, only the half of a rival's grid with fewer steps is tried, to save time.
_MANY_FEATURES = 200
_SGD: list[dict[str, Any]] = [
    {"rows": "unit", "batch_size": 512, "n_steps": steps, "learning_rate": rate, "clip_norm": clip}
    for steps, rate, clip in product((88, 176), (1.0, 3.0, 10.0), (0.3, 1.0))
]
_WHITENED: list[dict[str, Any]] = [
    {"rows": "whitened", "n_steps": steps, "learning_rate": rate}
    for steps, rate in product((30, 100), (0.05, 0.15, 0.5))
]
# Networks from scratch on the words of reviews: columns of hashed words, hidden units (none: a linear model), rate.
_FROM_WORDS = [
    (columns, hidden, rate) for columns, hidden in ((1024, 0), (1024, 32), (4096, 0)) for rate in (0.05, 0.15, 0.45)
]


def pieces(*, quick: bool) -> list[Piece]:
    """Return all pieces of work: a part, a set, an epsilon, a number of seeds."""
    chosen = sets.REAL if real_data() else sets.BUNDLED
    if quick:
        chosen = chosen[:1]
    epsilons = (0.3, 1.0) if quick else EPSILONS

    def seeds(title: str) -> int:
        # Encoders of reviews differ by little, and their probes are quick.
        return 2 if quick else 10 if title in (GOOD, PLAIN) else 5

    # Limits come first, the slowest encoder's before all: they store the features that the other pieces read.
    todo: list[Piece] = [("limit", one.title, 0.0, seeds(one.title)) for one in reversed(chosen)]
    todo += [("probe", one.title, epsilon, seeds(one.title)) for one in chosen for epsilon in epsilons]
    if GOOD in (one.title for one in chosen):
        todo += [("scratch", "reviews", epsilon, seeds(GOOD)) for epsilon in epsilons]
    return [*todo, ("speed", "", 0.0, 1), ("opacus", "", 0.0, 1)]


def measure(piece: Piece) -> dict[str, Any]:
    """Return the row of one piece."""
    part, name, epsilon, seeds = piece
    row = {"part": part, "set": name, "epsilon": epsilon, "seeds": seeds}
    if part == "probe":
        return row | {"values": _probes(sets.named(name), epsilon, seeds)}
    if part == "limit":
        return row | {"values": _non_private_limits(sets.named(name), seeds)}
    if part == "scratch":
        return row | {"values": _from_words(epsilon, seeds)}
    return row | {"values": _speed() if part == "speed" else _opacus()}


def _probes(probe_set: sets.AnySet, epsilon: float, seeds: int) -> dict[str, Any]:
    """Return each method's accuracies over seeds; a starred method has the settings with the best mean."""
    tried: dict[tuple[str, int], list[float]] = {}
    for seed in range(seeds):
        split = probe_set.split(seed)
        shared: dict[str, Any] = {"classes": split.classes, "random_state": seed}
        models: dict[tuple[str, int], Any] = {
            (OURS, 0): PrivateProbe(epsilon, DELTA, **shared),
            (PUBLIC_GRAM, 0): LeastSquaresProbe(epsilon, DELTA, gram="public", **shared),
            (PRIVATE_GRAM, 0): LeastSquaresProbe(epsilon, DELTA, gram="private", **shared),
        }
        for name, grid in ((SGD, _SGD), (WHITENED, _WHITENED)):
            if split.private[0].shape[1] > _MANY_FEATURES:
                grid = grid[: len(grid) // 2]
            models |= {(name, i): DescentProbe(epsilon, DELTA, **shared, **one) for i, one in enumerate(grid)}
        for key, model in models.items():
            model.fit(*split.private, public=split.public)
            tried.setdefault(key, []).append(100 * float(model.score(*split.test)))
    return best_settings(tried)


def best_settings(tried: Mapping[tuple[str, int], list[float]]) -> dict[str, list[float]]:
    """Return each method's accuracies over seeds, for the settings with the best mean."""
    best: dict[str, list[float]] = {}
    for (name, _), values in tried.items():
        if name not in best or np.mean(values) > np.mean(best[name]):
            best[name] = values
    return best


def _from_words(epsilon: float, seeds: int) -> dict[str, Any]:
    """Return the accuracies over seeds of private networks on the words of reviews, for the best settings on test."""
    import torch

    from benchmarks.representation.networks import BATCH, STEPS
    from dpadapt.networks import PrivateNetwork

    torch.set_num_threads(1)
    settings: dict[str, Any] = {"n_steps": STEPS, "batch_size": BATCH, "momentum": 0.9, "schedule": "cosine"}
    tried: dict[tuple[str, int], list[float]] = {}
    for seed in range(seeds):
        for place, (columns, hidden, rate) in enumerate(_FROM_WORDS):
            split = sets.review_words(columns).split(seed)
            torch.manual_seed(seed)
            sizes = (columns, hidden, 2) if hidden else (columns, 2)
            layers = [torch.nn.Linear(*pair) for pair in pairwise(sizes)]
            module = torch.nn.Sequential(layers[0], *(part for one in layers[1:] for part in (torch.nn.ReLU(), one)))
            shared: dict[str, Any] = {"classes": split.classes, "random_state": seed, **settings, "average": 0.9}
            model = PrivateNetwork(module, epsilon, DELTA, transfer="scratch", learning_rate=rate, **shared)
            model.fit(*split.private)
            tried.setdefault((SCRATCH, place), []).append(100 * float(model.score(*split.test)))
    return best_settings(tried)


def _non_private_limits(probe_set: sets.AnySet, seeds: int) -> dict[str, Any]:
    """Return accuracies of a probe without privacy, its penalty chosen on test, of the largest class, and zero-shot."""
    import warnings

    from sklearn.linear_model import LogisticRegression

    limits, largest = [], []
    for seed in range(seeds):
        split = probe_set.split(seed)
        scale = float(np.std(split.public.X))
        scores = []
        with warnings.catch_warnings():
            # Not converged; more iterations would change the last digit.
            warnings.simplefilter("ignore")
            for strength in (0.01, 0.1, 1.0):
                model = LogisticRegression(C=strength, max_iter=60).fit(split.private[0] / scale, split.private[1])
                scores.append(100 * float(model.score(split.test[0] / scale, split.test[1])))
        limits.append(max(scores))
        largest.append(100 * float(np.max(np.bincount(split.test[1])) / len(split.test[1])))
    zero: float | None = None
    reason = "the encoder has never seen a label that could name its classes"
    if isinstance(probe_set, sets.ProbeSet) and probe_set.zero_shot is not None:
        try:
            zero, reason = 100 * probe_set.zero_shot(), ""
        except ImportError as missing:
            reason = str(missing)
    return {"not private*": limits, "largest class": largest, "zero-shot": zero, "reason": reason}


def _speed() -> dict[str, float]:
    """Return CPU seconds of a whole fit and of as many non-private steps, and peak memory besides the data."""
    import tracemalloc

    from dpadapt.data import Public
    from dpadapt.learning.losses import SoftmaxLoss
    from dpadapt.transfer.classification_plan import STEPS

    n, d, k = 50_000, 512, 45
    random = np.random.default_rng(0)
    scales = 1 / np.sqrt(1 + np.arange(d, dtype=np.float32))
    X = random.standard_normal((n, d), dtype=np.float32) * scales
    y = np.argmax(X @ (2 * random.standard_normal((d, k), dtype=np.float32)) + random.gumbel(size=(n, k)), axis=1)
    public, loss = Public(random.standard_normal((2000, d)) * scales), SoftmaxLoss()
    probe = PrivateProbe(1.0, 1e-6, classes=range(k))
    start = time.process_time()
    probe.fit(X, y, public=public)
    middle = time.process_time()
    coef = np.zeros((d, k), np.float32)
    for _ in range(STEPS):
        coef -= 0.1 * (X.T @ loss.weights(X @ coef, y)) / n
    end = time.process_time()
    tracemalloc.start()
    probe.fit(X, y, public=public)
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    return {"fit": middle - start, "plain": end - middle, "memory": peak}


def _opacus() -> dict[str, float]:
    """Return CPU milliseconds of one private step, ours and that of Opacus with its defaults, interleaved."""
    lacking = [name for name in ("torch", "opacus") if find_spec(name) is None]
    if lacking:
        raise ModuleNotFoundError(f"{' and '.join(lacking)} not installed; pip install 'dpadapt[torch,bench]'")
    import torch

    from benchmarks.performance.performance import CASES, interleaved, step_contenders

    torch.set_num_threads(1)
    contenders = step_contenders(CASES[0], peers=True)
    return interleaved({name: contenders[name] for name in ("dpadapt", "Opacus hooks")}, repetitions=10)


PCA, CIFAR = "Fashion-MNIST, PCA-100 of public images", "CIFAR-10, EfficientNet-Lite0"
GOOD, PLAIN = "reviews, MiniLM", "reviews, word vectors"


def claims(rows: Sequence[Row]) -> list[dict[str, str]]:
    """Return the paper's claims in Section 4 and the targets of ours, judged by differences on the same splits.

    Intervals over splits have one variance for all epsilons of a set.
    """
    cells, limits = _cells(rows), _limits(rows)
    judged = []
    for title, limit in limits.items():
        if limit["zero-shot"] is not None and (above := _leads(cells, title, limit["zero-shot"])):
            least = min(above)
            text = f"{_mean(cells[title, least][OURS]):.1f}% at epsilon {least:g}, zero-shot {limit['zero-shot']:.1f}%"
            what = f"Paper, Table 1: {title}: private probing is above zero-shot"
            judged.append(everywhere(what, f"{text}: {_spoken_lead(above[least])}", [above[least]]))
    words = "Paper, Figure 2: reviews: the better encoder is better at every epsilon (MiniLM, word vectors)"
    judged += _at_every_epsilon(words, _of(cells, GOOD), {e: values[OURS] for e, values in _of(cells, PLAIN)})
    for title in (GOOD, PLAIN):
        words = f"Paper, Figure 2: {title}: private probing is above private training from scratch at every epsilon"
        judged += _at_every_epsilon(words, _of(cells, title), _scratch(rows))
    ahead = _leads(cells, PCA, SGD)
    for epsilon in (0.3, 1.0):
        if epsilon in ahead:
            lead, half = ahead[epsilon]
            words = f"{PCA}, epsilon {epsilon:g}: 1 point above DP-SGD tuned on test"
            judged.append(everywhere(words, _spoken_lead((lead, half)), [(round(lead - 1, 1), half)]))
    if (CIFAR, 1.0) in cells and CIFAR in limits:
        lead, half = _leads(cells, CIFAR, limits[CIFAR]["not private*"])[1.0]
        words = f"{CIFAR}, epsilon 1: within 6 points of not private*"
        judged.append(everywhere(words, _spoken_lead((lead, half)), [(round(lead + 6, 1), half)]))
    return [*judged, *_speed_claims(rows)]


def _at_every_epsilon(
    words: str, of: Sequence[tuple[float, Any]], others: Mapping[float, Sequence[float]]
) -> list[dict[str, str]]:
    """Return the claim that ours is above `others` at every epsilon that both have; none if there is no such one."""
    apart = {e: list(np.subtract(values[OURS], others[e])) for e, values in of if e in others}
    if not apart:
        return []
    leads = mean_intervals(list(apart.values()), 1)
    text = ", ".join(f"{_spoken_lead(lead)} at {e:g}" for e, lead in zip(apart, leads, strict=True))
    return [everywhere(words, text, leads)]


def _of(cells: Mapping[tuple[str, float], Any], title: str) -> list[tuple[float, Any]]:
    """Return the epsilons of a set with their accuracies."""
    return sorted((epsilon, values) for (name, epsilon), values in cells.items() if name == title)


def _leads(cells: Mapping[tuple[str, float], Any], title: str, other: Any) -> dict[float, tuple[float, float]]:
    """Return by how many points ours is above a method, or above given accuracies, and its interval, by epsilon."""
    of = _of(cells, title)
    apart = [list(np.subtract(values[OURS], values[other] if isinstance(other, str) else other)) for _, values in of]
    return dict(zip((epsilon for epsilon, _ in of), mean_intervals(apart, 1), strict=True))


def _spoken_lead(lead: tuple[float, float]) -> str:
    return f"{lead[0]:+.1f} ± {lead[1]:.1f}"


def _speed_claims(rows: Sequence[Row]) -> list[dict[str, str]]:
    judged = []
    for row in rows:
        values = row["values"]
        if row["part"] == "speed":
            ratio = values["fit"] / values["plain"]
            size = "n=50,000, d=512, 45 classes"
            judged += [
                claim(
                    f"{size}: a fit of 100 private steps takes 1.4x as many plain ones", f"{ratio:.2f}x", ratio <= 1.4
                ),
                claim(f"{size}: a fit takes under 20 s of CPU", f"{values['fit']:.1f} s", values["fit"] < 20),
                claim(f"{size}: 128 MB of memory over the data", f"{values['memory']:.0f} MB", values["memory"] <= 128),
            ]
        if row["part"] == "opacus":
            ratio = values["Opacus hooks"] / values["dpadapt"]
            words = "batch of 1,024, d=512, 45 classes: 40x fewer CPU seconds per step than Opacus with its defaults"
            judged.append(claim(words, f"{ratio:.0f}x", ratio >= 40))
    return judged


def tables(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return tables of accuracy by epsilon, one for each set."""
    cells, limits = _cells(rows), _limits(rows)
    all_tables = []
    for title in dict.fromkeys(name for name, _ in cells):
        epsilons = sorted(epsilon for name, epsilon in cells if name == title)
        lines = [[name, *(_shown(cells[title, epsilon][name]) for epsilon in epsilons)] for name in METHODS]
        table = {"title": f"Probes: {title}, test accuracy in percent", "columns": ["method", *map(_spoken, epsilons)]}
        all_tables.append(table | {"rows": lines, "words": _words(limits.get(title))})
    scratch = _scratch(rows)
    if scratch:
        all_tables.append(
            {
                "title": "From scratch: reviews, test accuracy in percent",
                "columns": ["method", *map(_spoken, scratch)],
                "rows": [[SCRATCH, *map(_shown, scratch.values())]],
                "words": "Private networks on hashed words, on the same splits: linear, or with 32 hidden units; the "
                "number of columns, the hidden units and the learning rate are the best on test.",
            }
        )
    return all_tables


def figures(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the figure of accuracy by epsilon, a panel for each set."""
    cells, limits = _cells(rows), _limits(rows)
    panels = []
    for title in dict.fromkeys(name for name, _ in cells):
        epsilons = sorted(epsilon for name, epsilon in cells if name == title)
        lines = [{"name": m, "points": [_point(e, cells[title, e][m]) for e in epsilons]} for m in METHODS]
        panels.append({"title": title, "x_label": "epsilon", "lines": lines, "levels": _levels(limits.get(title))})
    drawn = []
    if panels:
        words = "Bands are two standard errors over splits. A star: settings chosen on the test rows."
        drawn.append({"title": "Private probes", "words": words, "y_label": "accuracy in percent", "panels": panels})
    return drawn


def _cells(rows: Sequence[Row]) -> dict[tuple[str, float], Any]:
    return {(row["set"], row["epsilon"]): row["values"] for row in rows if row["part"] == "probe"}


def _scratch(rows: Sequence[Row]) -> dict[float, list[float]]:
    return {row["epsilon"]: row["values"][SCRATCH] for row in rows if row["part"] == "scratch"}


def _limits(rows: Sequence[Row]) -> dict[str, Any]:
    return {row["set"]: row["values"] for row in rows if row["part"] == "limit"}


def _levels(limit: Any) -> list[dict[str, Any]]:
    if limit is None:
        return []
    levels = [{"name": "not private*", "value": _mean(limit["not private*"])}]
    return levels + ([] if limit["zero-shot"] is None else [{"name": "zero-shot", "value": limit["zero-shot"]}])


def _words(limit: Any) -> str:
    if limit is None:
        return ""
    zero = f"{limit['zero-shot']:.1f}" if limit["zero-shot"] is not None else f"none ({limit['reason']})"
    return (
        f"Not private*: {_shown(limit['not private*'])}. Zero-shot, by the encoder alone: {zero}. "
        f"Largest class: {_mean(limit['largest class']):.1f}."
    )


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _error(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def _shown(values: Sequence[float]) -> str:
    return f"{_mean(values):.1f} ± {_error(values):.1f}"


def _point(x: float, values: Sequence[float]) -> dict[str, float]:
    return {"x": x, "mean": _mean(values), "spread": 2 * _error(values)}


def _spoken(epsilon: float) -> str:
    return f"epsilon {epsilon:g}"
