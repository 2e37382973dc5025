"""Section 4 of the public-representations paper: private probes, and scratch against fine-tuning against probing.

Figures 1 and 2 and Table 1 of arXiv:2312.15551 on stand-ins (see `paper4_probe_sets`), and what is asked of ours. Ours
has one setting for everything. A star marks settings chosen by looking at the accuracy that is reported.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpadapt.benchmarks.paper4_probe_measure import EPSILONS, METHODS, OURS, SGD, WAYS, Row, measure, pieces
from dpadapt.benchmarks.transfer_common import claim

__all__ = ["TITLE", "claims", "figures", "measure", "pieces", "tables"]

TITLE = "Linear probes on public features"
PCA, CIFAR = "Fashion-MNIST, PCA-100 of public images", "CIFAR-10, EfficientNet-Lite0"
GOOD, PLAIN = "reviews, MiniLM", "reviews, word vectors"


def claims(rows: Sequence[Row]) -> list[dict[str, str]]:
    """Return what the paper says in Section 4 and what is asked of ours, with verdicts."""
    cells = _cells(rows)
    limits = _limits(rows)
    found = [one for row in rows if row["part"] == "ways" for one in _way_claims(row)]
    for title, limit in limits.items():
        mine = {epsilon: _mean(values[OURS]) for (name, epsilon), values in cells.items() if name == title}
        if mine and limit["zero-shot"] is not None:
            least, worst = min(mine), limit["zero-shot"]
            text = f"{mine[least]:.1f}% at epsilon {least:g}, zero-shot {worst:.1f}%"
            found.append(
                claim(f"Paper, Table 1: {title}: private probing is above zero-shot", text, mine[least] > worst)
            )
    if (GOOD, 1.0) in cells and (PLAIN, 1.0) in cells:
        pairs = [
            (e, _mean(cells[GOOD, e][OURS]), _mean(cells[PLAIN, e][OURS])) for name, e in sorted(cells) if name == GOOD
        ]
        text = ", ".join(f"{a:.1f} against {b:.1f} at {e:g}" for e, a, b in pairs)
        words = "Paper, Figure 2: reviews: the better encoder is better at every epsilon (MiniLM, word vectors)"
        found.append(claim(words, text, all(a > b for _, a, b in pairs)))
    for epsilon in (0.3, 1.0):
        if (PCA, epsilon) in cells:
            ours, theirs = _mean(cells[PCA, epsilon][OURS]), _mean(cells[PCA, epsilon][SGD])
            text = f"{ours:.2f}% against {theirs:.2f}%"
            found.append(
                claim(f"{PCA}, epsilon {epsilon:g}: 1 point above DP-SGD tuned on test", text, ours >= theirs + 1)
            )
    if (CIFAR, 1.0) in cells and CIFAR in limits:
        ours, limit = _mean(cells[CIFAR, 1.0][OURS]), _mean(limits[CIFAR]["not private*"])
        text = f"{ours:.1f}% against {limit:.1f}%"
        found.append(claim(f"{CIFAR}, epsilon 1: within 6 points of not private*", text, ours >= limit - 6))
    return [*found, *_speed_claims(rows)]


def _way_claims(row: Row) -> list[dict[str, str]]:
    values = row["values"]
    found = []
    for better, worse in (("finetune", "scratch"), ("probe", "scratch"), ("probe", "finetune")):
        ahead = [a - b for a, b in zip(values[better], values[worse], strict=True)]
        text = ", ".join(f"{a:+.1f} at {epsilon:g}" for a, epsilon in zip(ahead, EPSILONS, strict=True))
        words = f"Paper, Figure 1: {row['set']}: {better}* above {worse}* at every epsilon"
        found.append(claim(words, text, min(ahead) > 0))
    start = values["public only"][0]
    words = f"{row['set']}: out of distribution: public only is at chance"
    return [*found, claim(words, f"{start:.1f}%", start < 15)]


def _speed_claims(rows: Sequence[Row]) -> list[dict[str, str]]:
    found = []
    for row in rows:
        values = row["values"]
        if row["part"] == "speed":
            ratio = values["fit"] / values["plain"]
            size = "n=50,000, d=512, 45 classes"
            found += [
                claim(
                    f"{size}: a fit of 100 private steps takes 1.4x as many plain ones", f"{ratio:.2f}x", ratio <= 1.4
                ),
                claim(f"{size}: a fit takes under 20 s of CPU", f"{values['fit']:.1f} s", values["fit"] < 20),
                claim(f"{size}: 128 MB of memory over the data", f"{values['memory']:.0f} MB", values["memory"] <= 128),
            ]
        if row["part"] == "opacus":
            ratio = values["Opacus hooks"] / values["dpadapt"]
            words = "batch of 1,024, d=512, 45 classes: 40x fewer CPU seconds per step than Opacus as it comes"
            found.append(claim(words, f"{ratio:.0f}x", ratio >= 40))
    return found


def tables(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return accuracies over epsilons, one table for each set."""
    cells, limits = _cells(rows), _limits(rows)
    found = []
    for title in dict.fromkeys(name for name, _ in cells):
        epsilons = sorted(epsilon for name, epsilon in cells if name == title)
        lines = [[name, *(_shown(cells[title, epsilon][name]) for epsilon in epsilons)] for name in METHODS]
        table = {"title": f"Probes: {title}, test accuracy in percent", "columns": ["method", *map(_spoken, epsilons)]}
        found.append(table | {"rows": lines, "words": _words(limits.get(title))})
    for row in rows:
        if row["part"] == "ways":
            lines = [
                [name + ("*" if name in WAYS else ""), *(f"{value:.1f}" for value in row["values"][name])]
                for name in ("public only", *WAYS, "our probe")
            ]
            table = {
                "title": f"Figure 1: {row['set']}, test accuracy in percent",
                "columns": ["way", *map(_spoken, EPSILONS)],
            }
            words = "A small convolutional network, trained publicly on digits; the private classes are clothes."
            found.append(table | {"rows": lines, "words": words})
    return found


def figures(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return accuracies over epsilons: probes on each set, and the three ways."""
    cells, limits = _cells(rows), _limits(rows)
    panels = []
    for title in dict.fromkeys(name for name, _ in cells):
        epsilons = sorted(epsilon for name, epsilon in cells if name == title)
        lines = [{"name": m, "points": [_point(e, cells[title, e][m]) for e in epsilons]} for m in METHODS]
        panels.append({"title": title, "x_label": "epsilon", "lines": lines, "levels": _levels(limits.get(title))})
    found = []
    if panels:
        words = "Bands are two standard errors over splits. A star: settings chosen on the test rows."
        found.append({"title": "Private probes", "words": words, "y_label": "accuracy in percent", "panels": panels})
    for row in rows:
        if row["part"] == "ways":
            lines = [
                {"name": name, "points": [_point(e, [v]) for e, v in zip(EPSILONS, row["values"][name], strict=True)]}
                for name in (*WAYS, "our probe")
            ]
            level = {"name": "public only", "value": row["values"]["public only"][0]}
            panel = {"title": row["set"], "x_label": "epsilon", "lines": lines, "levels": [level]}
            words = "The three columns of the paper's Figure 1, each at the best of two learning rates on test."
            title = "Figure 1: scratch, fine-tuning, probing"
            found.append({"title": title, "words": words, "y_label": "accuracy in percent", "panels": [panel]})
    return found


def _cells(rows: Sequence[Row]) -> dict[tuple[str, float], Any]:
    return {(row["set"], row["epsilon"]): row["values"] for row in rows if row["part"] == "probe"}


def _limits(rows: Sequence[Row]) -> dict[str, Any]:
    return {row["set"]: row["values"] for row in rows if row["part"] == "limit"}


def _levels(limit: Any) -> list[dict[str, Any]]:
    if limit is None:
        return []
    found = [{"name": "not private*", "value": _mean(limit["not private*"])}]
    return found + ([] if limit["zero-shot"] is None else [{"name": "zero-shot", "value": limit["zero-shot"]}])


def _words(limit: Any) -> str:
    if limit is None:
        return ""
    zero = f"{limit['zero-shot']:.1f}" if limit["zero-shot"] is not None else f"none ({limit['reason']})"
    return (
        f"Not private*: {_shown(limit['not private*'])}. Zero-shot, by what the encoder knew before: {zero}. "
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
