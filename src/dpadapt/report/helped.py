"""How much the public data helped, in words, without flattery."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Curve = Mapping[str, Any]


def help_in_words(references: Sequence[Mapping[str, Any]], curves: Sequence[Curve]) -> list[str]:
    """Return sentences on each method: where public rows helped, how much, and against the public rows alone.

    Parameters
    ----------
    references : sequence of mapping
        With ``key`` ("public only", "not private"), ``values`` and ``mean``.
    curves : sequence of mapping
        With ``method``, ``public`` and ``points``, each with ``epsilon``, ``values`` (one per seed) and ``mean``.

    Examples
    --------
    >>> levels = [{"key": key, "values": [0.8] * 3, "mean": 0.8} for key in ("public only", "not private")]
    >>> points = lambda mean: [{"epsilon": 1.0, "values": [mean] * 3, "mean": mean}]
    >>> curves = [{"method": "m", "public": shared, "points": points(0.9 - 0.2 * shared)} for shared in (False, True)]
    >>> print(help_in_words(levels, curves)[0])
    With m, public rows helped at every ε, most at ε = 1: the error falls from 0.900 to 0.700.
    """
    levels = {level["key"]: level for level in references}
    sentences = []
    for curve in curves:
        alone = next((c for c in curves if c["method"] == curve["method"] and not c["public"]), None)
        if curve["public"] and alone is not None:
            sentences.append(_against_private(curve, alone, levels["not private"]["mean"]))
            sentences.append(_against_public(curve, levels["public only"]))
    return sentences


def _against_private(curve: Curve, alone: Curve, floor: float) -> str:
    pairs = list(zip(alone["points"], curve["points"], strict=True))
    helped = [(a, b) for a, b in pairs if _clearly_less(b["values"], a["values"])]
    harmed = [a["epsilon"] for a, b in pairs if _clearly_less(a["values"], b["values"])]
    harm = f" They did harm at {_where(harmed, len(pairs))}." if harmed else ""
    if not helped:
        return f"With {curve['method']}, public rows did not clearly help at any ε.{harm}"
    a, b = max(helped, key=lambda pair: float(pair[0]["mean"] - pair[1]["mean"]))
    where = _where([a["epsilon"] for a, _ in helped], len(pairs))
    share = (a["mean"] - b["mean"]) / (a["mean"] - floor) if a["mean"] > floor else 0.0
    # A share is only worth stating where the model with public rows still lies above the non-private one.
    closed = f", {share:.0%} of the way to the model without privacy" if 0 < share < 1 and floor < b["mean"] else ""
    most = "" if len(helped) == 1 < len(pairs) else f", most at ε = {a['epsilon']:g}"
    return (
        f"With {curve['method']}, public rows helped at {where}{most}: the error falls from "
        f"{a['mean']:.3f} to {b['mean']:.3f}{'' if share < 0.005 else closed}.{harm}"
    )


def _against_public(curve: Curve, level: Mapping[str, Any]) -> str:
    better = [point["epsilon"] for point in curve["points"] if _clearly_less(point["values"], level["values"])]
    worse = [point["epsilon"] for point in curve["points"] if _clearly_less(level["values"], point["values"])]
    if not better and not worse:
        return f"It is about as good as the public rows alone ({level['mean']:.3f})."
    parts, n_points = [], len(curve["points"])
    if better:
        parts.append(f"better than the public rows alone ({level['mean']:.3f}) at {_where(better, n_points)}")
    if worse:
        them = "they are" if better else f"the public rows alone ({level['mean']:.3f})"
        parts.append(f"worse than {them} at {_where(worse, n_points)}")
    return f"It is {' and '.join(parts)}."


def _clearly_less(first: Sequence[float], second: Sequence[float]) -> bool:
    """Whether `first` is below `second` by two standard errors; both were measured on the same splits."""
    differences = np.asarray(second) - np.asarray(first)
    if len(differences) < 2:
        return bool(differences[0] > 0)
    error = float(np.std(differences, ddof=1)) / np.sqrt(len(differences))
    return bool(np.mean(differences) > 2 * error and np.mean(differences) > 1e-3)


def _where(epsilons: Sequence[float], n_points: int) -> str:
    """Return e.g. "every ε" or "ε = 0.1, 0.3"."""
    return "every ε" if len(epsilons) == n_points else f"ε = {', '.join(f'{epsilon:g}' for epsilon in epsilons)}"
