"""What public and private data brought to one fit, as far as it is known without paying for it again."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from dpadapt.data import Public
from dpadapt.learning.rehearsal import public_model


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
