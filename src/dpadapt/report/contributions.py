"""How much the public data and the private data each brought, in words, without flattery."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from dpadapt.data import Public
from dpadapt.transfer.rehearsal import public_model

# What public and private data brought to one fit, as far as it is known without paying for it again.


def fit_in_words(
    model: Any, public: Public | None, comparison: Mapping[str, Any] | None, forecast: Mapping[str, Any] | None
) -> list[str]:
    """Return sentences made from public rows and from what was released; no private row is looked at.

    Parameters
    ----------
    model : fitted estimator
    public : Public or None
    comparison : mapping or None
        From `compare_on_public`.
    forecast : mapping or None
        From `forecast_of_fit`.
    """
    spent = model.privacy_.epsilon > 0
    sentences = [_public_part(public, comparison)]
    if hasattr(model, "people_asked_"):
        sentences = [_people_part(model)]
    elif public is not None and public.y is not None:
        sentences.append(_private_part(model, public, spent=spent))
    elif spent:
        sentences.append("All it says about the label comes from the private rows, through the noise.")
    else:
        sentences.append("The private rows brought nothing: the budget is too small for their number.")
    if forecast is not None:
        own = next(point for point in forecast["points"] if point["epsilon"] == model.epsilon)
        many = own["n_directions"]
        over = f" The budget was planned for {many} direction{'s' if many != 1 else ''}." if own["worthwhile"] else ""
        sentences.append(f"What could be said beforehand: {own['words']}{over}")
    cost = f"ε = {model.privacy_.epsilon:.3g} was spent" if spent else "Nothing was spent"
    sentences.append(
        f"{cost}. How well the model does on the private population is not known: to measure it there would be another "
        f"release. A rehearsal on public rows (dpadapt rehearse) comes closest, for free."
    )
    return sentences


def _people_part(model: Any) -> str:
    asked = sum(model.people_asked_.values())
    if not asked:
        return "Nobody was asked: all that the model knows comes from the private rows, through the noise."
    stages = ", ".join(f"{count:,} for {stage}" for stage, count in model.people_asked_.items())
    found = f"{asked:,} people answered one question each ({stages}). The model is: {model.chosen_}."
    if "margin of the lead" not in model.estimates_:
        return found
    lead, margin = model.estimates_["lead over the source model"], model.estimates_["margin of the lead"]
    return (
        f"{found} By people who were asked nothing else, what they taught is right {lead:+.1%} more often than the "
        f"private rows' own model, give or take {margin:.1%}."
    )


def _public_part(public: Public | None, comparison: Mapping[str, Any] | None) -> str:
    if public is None:
        return "There were no public rows: besides the schema, all that the model knows comes from the private ones."
    if public.y is None:
        return "The public rows have no labels: they gave scales and directions, and no model to start from."
    if comparison is None:
        return "The public rows gave the model to start from; they are too few to say how good it is."
    nothing, alone = comparison["rows"][0]["error"], comparison["rows"][1]["error"]
    return (
        f"The public rows gave the model to start from. On public rows it was not fitted on, such a model has a "
        f"{comparison['measure']} of {alone:.3g}, where no model at all has {nothing:.3g}."
    )


def _private_part(model: Any, public: Public, *, spent: bool) -> str:
    if not spent:
        return (
            "The private rows brought nothing: the budget is too small for their number. The model is the public one."
        )
    start, X = public_model(model, public), np.asarray(public.X, dtype=np.float64)
    if is_classifier(model):
        moved = float(np.mean(np.abs(model.predict_proba(X) - start.predict_proba(X)).sum(axis=1) / 2))
        how = f"probabilities by {moved:.1%} on average"
    else:
        moved = float(np.sqrt(np.mean((model.predict(X) - start.predict(X)) ** 2)))
        how = f"predictions by {moved:.3g} (root mean square)"
    if moved == 0.0:
        return (
            "The private rows were asked and not found to contradict the public model clearly enough: the gate stayed "
            "shut, and the model is the public one."
        )
    adopted = getattr(model, "adopted_", None)
    opened = f"The gate opened: {adopted:.0%} of the private correction was adopted. " if adopted is not None else ""
    return f"{opened}On public rows, what the private rows brought moves {how}."


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
