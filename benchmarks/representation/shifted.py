"""`PrivateProbe` where public rows are of another kind than the private ones, and where they are of the same kind.

Ours has the same settings everywhere. Beside it: the head with the whole budget, which whitens by public rows and
releases no moments; DP-SGD with the settings of the best mean test accuracy, marked by a star; and ours without one of
its parts. Constants of ours were chosen with a look at the sets marked as development sets.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import product
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.representation import probe_sets as sets
from benchmarks.representation.probe import DELTA, SGD, best_settings
from benchmarks.transfer.common import claim, everywhere, mean_intervals, real_data
from dpadapt.papers.subspace.probes import DescentProbe
from dpadapt.representation import feature_moments
from dpadapt.representation.probe import PrivateProbe
from dpadapt.transfer.classification import PrivateTransferClassifier

EPSILONS = (0.3, 1.0, 5.0)
Row = Mapping[str, Any]
Piece = tuple[str, str, float, int]

OURS, HEAD = "ours", "head alone, whole budget"
METHODS = (OURS, HEAD, SGD)
# Learning rates and clipping norms; each was the best on test of some set at some epsilon in a larger search.
_RATES_AND_CLIPS = ((30.0, 0.1), (3.0, 0.1), (30.0, 0.3), (10.0, 0.3), (3.0, 0.3), (10.0, 1.0))
_SGD: list[dict[str, Any]] = [
    {"rows": "unit", "batch_size": 512, "n_steps": steps, "learning_rate": rate, "clip_norm": clip}
    for steps, (rate, clip) in product((88, 352), _RATES_AND_CLIPS)
]


def _public_first(public: Any, *_: Any) -> Any:
    return public


def _public_length(_: Any, edges: Any) -> float:
    return float(edges[-feature_moments._FIRST_EDGE])


# Part of the moments -> the function that estimates it, and what takes its place: the public value.
ABLATIONS: dict[str, tuple[str, Callable[..., Any]]] = {
    "without private variances": ("moved_variances", _public_first),
    "without private correlations": ("distinct_correlations", lambda difference, _: np.zeros_like(difference)),
    "without the private mean": ("shrunk_mean", _public_first),
    "without the private length": ("_median_length", _public_length),
}
# Accuracies that were set as targets, at each of `EPSILONS`: those of a prototype.
TARGETS = {
    sets.SHIFTED[0].title: (74.8, 79.7, 83.9),
    sets.SHIFTED[1].title: (77.4, 81.0, 84.0),
    sets.SHIFTED[2].title: (77.4, 81.0, 82.8),
    sets.SHIFTED[3].title: (72.7, 76.6, 78.5),
    sets.SHIFTED[5].title: (None, None, 63.5),
    sets.SHIFTED[6].title: (79.0, 82.4, 84.1),
    sets.SHIFTED[7].title: (None, 77.1, 79.0),
    sets.SHIFTED[8].title: (69.3, 74.0, 75.6),
}
# A fit is counted as harmed if its accuracy is more than this many points below the head's with the whole budget.
HARM = 1.0
# Largest distances in points: to DP-SGD* everywhere, and to the head alone where public rows are of the same kind.
_BEHIND_SGD, _BEHIND_HEAD = 0.5, 0.3


def pieces(*, quick: bool) -> list[Piece]:
    """Return all pieces of work: a part, a set, an epsilon, a number of seeds."""
    if not real_data():
        return [("moments speed", "", 1.0, 3)]
    chosen = [one for one in sets.SHIFTED if one.quick] if quick else sets.SHIFTED
    epsilons, seeds = ((1.0,), 3) if quick else (EPSILONS, 5)
    todo: list[Piece] = [("shifted", one.title, epsilon, seeds) for one in chosen for epsilon in epsilons]
    if not quick:
        todo += [("ablation", sets.SHIFTED[place].title, 1.0, 5) for place in (0, 3)]
    return [*todo, ("moments speed", "", 1.0, 3)]


def measure(piece: Piece) -> dict[str, Any]:
    """Return the row of one piece."""
    part, name, epsilon, seeds = piece
    row = {"part": part, "set": name, "epsilon": epsilon, "seeds": seeds}
    if part == "moments speed":
        return row | {"values": _speed(seeds)}
    measured = _accuracies if part == "shifted" else _ablated
    return row | {"values": measured(sets.named(name), epsilon, seeds)}


def _accuracies(probe_set: sets.AnySet, epsilon: float, seeds: int) -> dict[str, list[float]]:
    tried: dict[tuple[str, int], list[float]] = {}
    for seed in range(seeds):
        split = probe_set.split(seed)
        shared: dict[str, Any] = {"classes": split.classes, "random_state": seed}
        models: dict[tuple[str, int], Any] = {
            (OURS, 0): PrivateProbe(epsilon, DELTA, **shared),
            (HEAD, 0): PrivateTransferClassifier(epsilon, DELTA, **shared),
            **{(SGD, i): DescentProbe(epsilon, DELTA, **shared, **one) for i, one in enumerate(_SGD)},
        }
        for key, model in models.items():
            tried.setdefault(key, []).append(_accuracy(model, split))
    return best_settings(tried)


def _ablated(probe_set: sets.AnySet, epsilon: float, seeds: int) -> dict[str, list[float]]:
    """Return accuracies of ours, and of ours with the public value of one part."""
    values: dict[str, list[float]] = {}
    for seed in range(seeds):
        split = probe_set.split(seed)
        for name in (OURS, *ABLATIONS):
            with ExitStack() as stack:
                if name != OURS:
                    stack.enter_context(mock.patch.object(feature_moments, *ABLATIONS[name]))
                model = PrivateProbe(epsilon, DELTA, classes=split.classes, random_state=seed)
                values.setdefault(name, []).append(_accuracy(model, split))
    return values


def _accuracy(model: Any, split: sets.Split) -> float:
    return 100 * float(model.fit(*split.private, public=split.public).score(*split.test))


def _speed(repetitions: int) -> dict[str, float]:
    """Return the CPU seconds of a fit with 1,280 features, of ours and of the head alone, interleaved."""
    from dpadapt.data import Public

    n, d, k = 5000, 1280, 10
    random = np.random.default_rng(0)
    scales = 1 / np.sqrt(1 + np.arange(d))
    X, known = random.standard_normal((n, d)) * scales, random.standard_normal((2000, d)) * scales
    y = np.argmax(X @ random.standard_normal((d, k)) + random.gumbel(size=(n, k)), axis=1)
    seconds: dict[str, list[float]] = {OURS: [], HEAD: []}
    for _ in range(repetitions):
        for name, kind in ((OURS, PrivateProbe), (HEAD, PrivateTransferClassifier)):
            start = time.process_time()
            # Declared anew each time, so that no preparation is remembered.
            kind(1.0, 1e-6, classes=range(k)).fit(X, y, public=Public(known))
            seconds[name].append(time.process_time() - start)
    return {name: float(np.median(values)) for name, values in seconds.items()}


def claims(rows: Sequence[Row]) -> list[dict[str, str]]:
    """Return the targets of ours, judged by differences on the same splits and their intervals, as they are shown."""
    judged = []
    for title, by_epsilon in _by_set(rows, "shifted").items():
        where = f"Probe, {title}"
        for other, most, name in (
            (SGD, _BEHIND_SGD, "DP-SGD tuned on test"),
            (HEAD, _BEHIND_HEAD, "the head with the whole budget"),
        ):
            gaps = {e: _interval(np.subtract(v[OURS], v[other])) for e, v in by_epsilon.items()}
            words = f"{where}: at most {most} points behind {name}"
            judged.append(
                everywhere(words, _spoken(gaps), [(round(gap + most, 1), half) for gap, half in gaps.values()])
            )
        wanted = {e: t for e, t in zip(EPSILONS, TARGETS.get(title, ()), strict=False) if t and e in by_epsilon}
        if wanted:
            ours = {e: _interval(by_epsilon[e][OURS]) for e in wanted}
            text = ", ".join(
                f"{mean:.1f} ± {half:.1f} against {wanted[e]:.1f} at {e:g}" for e, (mean, half) in ours.items()
            )
            leads = [(round(mean - wanted[e], 1), half) for e, (mean, half) in ours.items()]
            judged.append(everywhere(f"{where}: accuracy of the prototype", text, leads))
    for row in rows:
        if row["part"] == "moments speed":
            ratio = round(row["values"][OURS] / row["values"][HEAD], 2)
            words = "n=5,000, d=1,280, 10 classes: a fit of the probe takes at most 2x the CPU time of the head alone"
            judged.append(claim(words, f"{ratio:.2f}x", ratio <= 2.0))
    return judged


def tables(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the table of accuracies, that of harmed fits, and the ablation."""
    made = []
    measured = _by_set(rows, "shifted")
    if measured:
        epsilons = sorted({e for cells in measured.values() for e in cells})
        lines = [
            [_marked(title), name, *(_shown(cells[e][name]) for e in epsilons)]
            for title, cells in measured.items()
            for name in METHODS
        ]
        seeds = max(row["seeds"] for row in rows if row["part"] == "shifted")
        made.append(
            {
                "title": f"Probes by kind of public rows: accuracy in percent, mean ± standard error of {seeds} seeds",
                "columns": ["features; public rows", "method", *(f"epsilon {e:g}" for e in epsilons)],
                "rows": lines,
                "words": "d: a constant of ours was chosen with a look at this set. *: settings chosen on test rows. "
                "Where n mu < 250, ours is the head alone.",
            }
        )
        harmed = [[_marked(title), *(_harmed(cells[e]) for e in epsilons)] for title, cells in measured.items()]
        made.append(
            {
                "title": f"Fits more than {HARM:g} point below the head with the whole budget on the same rows",
                "columns": ["features; public rows", *(f"epsilon {e:g}" for e in epsilons)],
                "rows": harmed,
            }
        )
    ablated = _by_set(rows, "ablation")
    if ablated:
        epsilons = sorted({e for cells in ablated.values() for e in cells})
        lines = [
            [_marked(title), name, *(_shown(cells[e][name]) for e in epsilons)]
            for title, cells in ablated.items()
            for name in (OURS, *ABLATIONS)
        ]
        made.append(
            {
                "title": "Ours without one of its parts: test accuracy in percent, mean ± standard error",
                "columns": ["features; public rows", "method", *(f"epsilon {e:g}" for e in epsilons)],
                "rows": lines,
            }
        )
    return made


def figures(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return one figure of accuracy by epsilon, a panel for each set."""
    panels = []
    for title, cells in _by_set(rows, "shifted").items():
        lines = [
            {
                "name": name,
                "points": [{"x": e, "mean": _mean(v[name]), "spread": 2 * _error(v[name])} for e, v in cells.items()],
            }
            for name in METHODS
        ]
        panels.append({"title": title, "x_label": "epsilon", "lines": lines, "levels": []})
    words = "Bands are two standard errors over seeds. A star: settings chosen on the test rows."
    title = "Probes by kind of public rows"
    return [{"title": title, "words": words, "y_label": "accuracy in percent", "panels": panels}] if panels else []


def _by_set(rows: Sequence[Row], part: str) -> dict[str, dict[float, Any]]:
    found: dict[str, dict[float, Any]] = {}
    for row in rows:
        if row["part"] == part:
            found.setdefault(row["set"], {})[row["epsilon"]] = row["values"]
    return found


def _marked(title: str) -> str:
    return f"{title} (d)" if sets.named(title).development else title


def _harmed(values: Mapping[str, Sequence[float]]) -> str:
    harmed = [ours < head - HARM for ours, head in zip(values[OURS], values[HEAD], strict=True)]
    return f"{sum(harmed)} of {len(harmed)}"


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _error(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def _shown(values: Sequence[float]) -> str:
    return f"{_mean(values):.1f} ± {_error(values):.1f}"


def _interval(values: Any) -> tuple[float, float]:
    """Return the mean and half its 95% interval; not pooled: where ours is the head alone, differences are zero."""
    return mean_intervals([list(values)], 1)[0]


def _spoken(gaps: Mapping[float, tuple[float, float]]) -> str:
    return ", ".join(f"{gap:+.1f} ± {half:.1f} at {epsilon:g}" for epsilon, (gap, half) in gaps.items())
