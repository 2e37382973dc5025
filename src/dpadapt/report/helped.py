"""How much the public data and the private data each brought, in words, without flattery."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

Curve = Mapping[str, Any]


def demo_in_words(case: Mapping[str, Any]) -> list[str]:
    """Return what a case of the demo shows: each part's share, where public rows helped, what they are worth in rows.

    Parameters
    ----------
    case : mapping
        With ``middle`` (an epsilon), ``rows`` and two ``panels``, over epsilon and over rows, means included.
    """
    by_epsilon, by_rows = case["panels"]
    levels = {level["key"]: level for level in by_epsilon["levels"]}
    at = by_epsilon["x"].index(case["middle"])
    points = {curve["key"]: curve["points"][at] for curve in by_epsilon["curves"]}
    where = f"At ε = {case['middle']:g} with {case['rows']['private']:,} private rows"
    brought = contributions(levels["public only"], points["private only"], points["together"], levels["not private"])
    worth = worth_in_rows(by_rows, case["middle"])
    return [
        f"{where}. {brought}",
        *([worth] if worth else []),
        *help_in_words(by_epsilon["levels"], by_epsilon["curves"]),
    ]


def contributions(public: Curve, alone: Curve, together: Curve, floor: Curve) -> str:
    """Return what each part of the data brought, from errors measured on the same splits.

    Parameters
    ----------
    public, alone, together, floor : mapping
        Public rows alone, private rows alone, both, and the private rows without privacy; each with ``values``, one per
        split, and ``mean``.

    Examples
    --------
    >>> parts = [{"values": [error] * 3, "mean": error} for error in (0.62, 0.91, 0.45, 0.36)]
    >>> print(contributions(*parts)[-110:])
    So the private rows brought 65% of what they could, and the public rows took away 84% of the price of privacy.
    """
    stated = (
        f"Public rows alone: error {public['mean']:.3f}. Private rows alone: {alone['mean']:.3f}. "
        f"Together: {together['mean']:.3f}. Without any privacy: {floor['mean']:.3f}."
    )
    if not clearly_less(floor["values"], public["values"]):
        private = "there was nothing for the private rows to bring"
    elif clearly_less(together["values"], public["values"]):
        share = (public["mean"] - together["mean"]) / (public["mean"] - floor["mean"])
        private = "the private rows brought " + (f"{share:.0%} of what they could" if share < 1 else "all they could")
    elif clearly_less(public["values"], together["values"]):
        private = "the private rows did harm"
    else:
        private = "the private rows brought nothing that can be told from chance"
    if not clearly_less(floor["values"], alone["values"]):
        shared = "the price of privacy can't be told from chance even without the public rows"
    elif clearly_less(together["values"], alone["values"]):
        share = (alone["mean"] - together["mean"]) / (alone["mean"] - floor["mean"])
        shared = f"the public rows took away {f'{share:.0%} of' if share < 1 else 'all of'} the price of privacy"
    elif clearly_less(alone["values"], together["values"]):
        shared = "the public rows did harm: private rows alone do better"
    else:
        shared = "the public rows made no difference that can be told from chance"
    return f"{stated} So {private}, and {shared}."


def worth_in_rows(panel: Mapping[str, Any], epsilon: float) -> str | None:
    """Return how many private rows alone would do as well as fewer with public ones; None if both don't help."""
    curves = {curve["key"]: curve["points"] for curve in panel["curves"]}
    alone, together = curves["private only"], curves["together"]
    public = next(level["values"] for level in panel["levels"] if level["key"] == "public only")
    for before, both in zip(alone, together, strict=True):
        # Better than the public rows alone, too: otherwise it is they that do it, without any private row.
        if clearly_less(both["values"], before["values"]) and clearly_less(both["values"], public):
            break
    else:
        return None
    start = f"At ε = {epsilon:g}, {both['x']:,} private rows with the public ones do"
    for first, second in pairwise(alone):
        if first["x"] >= both["x"] and second["mean"] <= both["mean"]:
            share = (first["mean"] - both["mean"]) / (first["mean"] - second["mean"])
            rows = math.exp((1 - share) * math.log(first["x"]) + share * math.log(second["x"]))
            return f"{start} as well as about {float(f'{rows:.2g}'):,.0f} private rows alone."
    return f"{start} better than all {alone[-1]['x']:,} private rows alone."


def help_in_words(levels: Sequence[Mapping[str, Any]], curves: Sequence[Curve]) -> list[str]:
    """Return sentences on each method: where public rows helped, how much, and against the public rows alone.

    Parameters
    ----------
    levels : sequence of mapping
        With ``key`` ("public only" and, if there is one, "not private"), ``values`` and ``mean``.
    curves : sequence of mapping
        With ``key`` ("private only" for one of them), ``method``, ``public`` and ``points``, each with ``x`` (epsilon),
        ``values`` (one per seed) and ``mean``.

    Examples
    --------
    >>> levels = [{"key": key, "values": [0.8] * 3, "mean": 0.8} for key in ("public only", "not private")]
    >>> points = lambda mean: [{"x": 1.0, "values": [mean] * 3, "mean": mean}]
    >>> curves = [{"key": "together", "method": "m", "public": True, "points": points(0.7)}]
    >>> curves += [{"key": "private only", "method": "m", "public": False, "points": points(0.9)}]
    >>> print(help_in_words(levels, curves)[0][:90])
    With m, public rows helped at every ε, most at ε = 1: the error falls from 0.900 to 0.700.
    """
    known = {level["key"]: level for level in levels}
    alone = next(curve for curve in curves if curve["key"] == "private only")
    sentences = []
    for curve in curves:
        if curve["public"]:
            floor = known["not private"]["mean"] if "not private" in known else -math.inf
            first = _against_private(curve, alone, floor)
            sentences.append(f"{first} {_against_public(curve, known['public only'])}")
    return sentences


def _against_private(curve: Curve, alone: Curve, floor: float) -> str:
    pairs = list(zip(alone["points"], curve["points"], strict=True))
    helped = [(a, b) for a, b in pairs if clearly_less(b["values"], a["values"])]
    harmed = [a["x"] for a, b in pairs if clearly_less(a["values"], b["values"])]
    harm = f" They did harm at {_where(harmed, len(pairs))}." if harmed else ""
    if not helped:
        return f"With {curve['method']}, public rows did not clearly help at any ε.{harm}"
    a, b = max(helped, key=lambda pair: float(pair[0]["mean"] - pair[1]["mean"]))
    where = _where([a["x"] for a, _ in helped], len(pairs))
    share = (a["mean"] - b["mean"]) / (a["mean"] - floor) if a["mean"] > floor else 0.0
    # A share is only worth stating where the model with public rows still lies above the non-private one.
    closed = f", {share:.0%} of the way to the model without privacy" if 0 < share < 1 and floor < b["mean"] else ""
    most = "" if len(helped) == 1 < len(pairs) else f", most at ε = {a['x']:g}"
    return (
        f"With {curve['method']}, public rows helped at {where}{most}: the error falls from "
        f"{a['mean']:.3f} to {b['mean']:.3f}{'' if share < 0.005 else closed}.{harm}"
    )


def _against_public(curve: Curve, level: Mapping[str, Any]) -> str:
    better = [point["x"] for point in curve["points"] if clearly_less(point["values"], level["values"])]
    worse = [point["x"] for point in curve["points"] if clearly_less(level["values"], point["values"])]
    if not better and not worse:
        return f"It is about as good as the public rows alone ({level['mean']:.3f})."
    parts, n_points = [], len(curve["points"])
    if better:
        parts.append(f"better than the public rows alone ({level['mean']:.3f}) at {_where(better, n_points)}")
    if worse:
        them = "they are" if better else f"the public rows alone ({level['mean']:.3f})"
        parts.append(f"worse than {them} at {_where(worse, n_points)}")
    return f"It is {' and '.join(parts)}."


def clearly_less(first: Sequence[float], second: Sequence[float]) -> bool:
    """Whether `first` is below `second` by two standard errors; both were measured on the same splits."""
    differences = np.asarray(second) - np.asarray(first)
    if len(differences) < 2:
        return bool(differences[0] > 0)
    error = float(np.std(differences, ddof=1)) / np.sqrt(len(differences))
    return bool(np.mean(differences) > 2 * error and np.mean(differences) > 1e-3)


def _where(epsilons: Sequence[float], n_points: int) -> str:
    """Return e.g. "every ε" or "ε = 0.1, 0.3"."""
    return "every ε" if len(epsilons) == n_points else f"ε = {', '.join(f'{epsilon:g}' for epsilon in epsilons)}"
