"""Sentences on what the public and the private rows contributed to a fit, to a case of the demo, or to a rehearsal.

One rule decides everywhere which differences are called clear: `clearly_less`.

Errors are compared on public rows alone (`errors_on_public`): any score on private rows would be a release.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier

from dpadapt.data import Public
from dpadapt.transfer.rehearsal import PUBLIC_ONLY_BUDGET

# Public rows below which no comparison is shown, and folds of the cross-validation. Few rows make the errors too
# uncertain to show. Chosen by hand.
_MIN_ROWS_TO_COMPARE = 20
_COMPARISON_FOLDS = 5
# Least probability of a class in the log-loss of that comparison, so that one row can't decide it. Chosen by hand.
_LEAST_COMPARED_PROBABILITY = 0.01


def errors_on_public(
    X: NDArray[np.float64], y: NDArray[Any], *, task: Literal["regression", "classification"]
) -> dict[str, Any] | None:
    """Return the errors, on public rows, of no model and of a linear model that predicts rows it was not fitted on.

    The ``error`` is that of advice, forecast and verdict: the mean squared error, or the log-loss. ``beside`` it stands
    one that is easier to picture: its square root, in the label's unit, or the share of wrong classes. The private
    model is left out: its error here says nothing about the population that it was made for.

    Parameters
    ----------
    X, y : ndarray
        Public rows and labels.
    task : {"regression", "classification"}

    Returns
    -------
    comparison : dict or None
        None if there are too few public rows.

    Examples
    --------
    >>> errors_on_public(np.zeros((3, 1)), np.zeros(3), task="regression") is None
    True
    """
    if len(y) < _MIN_ROWS_TO_COMPARE:
        return None
    folds = np.random.default_rng(0).permutation(np.arange(len(y)) % _COMPARISON_FOLDS)
    parts: dict[str, list[NDArray[np.float64]]] = {
        f"no model: the {'mean' if task == 'regression' else 'class frequencies'}": [],
        "a linear model of the public rows": [],
    }
    for fold in range(_COMPARISON_FOLDS):
        train, test = folds != fold, folds == fold
        models = _no_model(X[train], y[train], task), public_only(X[train], y[train], task)
        for losses, model in zip(parts.values(), models, strict=True):
            losses.append(_losses(model, X[test], y[test], task))
    means = {name: np.concatenate(losses, axis=1).mean(axis=1) for name, losses in parts.items()}
    regression = task == "regression"
    return {
        "measure": "mean squared error" if regression else "log-loss",
        "measure beside": "root mean squared error" if regression else "share of wrong classes",
        "rows": [
            {"name": name, "error": float(error), "beside": math.sqrt(beside) if regression else float(beside)}
            for name, (error, beside) in means.items()
        ],
        "n_public": len(y),
    }


def public_only(X: NDArray[np.float64], y: NDArray[Any], task: str) -> Any:
    """Return a fitted non-private model: ridge regression (penalty by cross-validation) or logistic regression."""
    from sklearn.dummy import DummyClassifier
    from sklearn.linear_model import LogisticRegression, RidgeCV

    if task == "regression":
        return RidgeCV(np.logspace(-3, 3, 13)).fit(X, y)
    if len(np.unique(y)) < 2:
        return DummyClassifier().fit(X, y)
    with warnings.catch_warnings():
        # As a reference, a fit that stops a few steps before the optimum is good enough.
        warnings.simplefilter("ignore")
        return LogisticRegression(C=10.0, max_iter=500).fit(X, y)


def _no_model(X: NDArray[np.float64], y: NDArray[Any], task: str) -> Any:
    """Return what predicts the mean of numbers, or the frequencies of classes."""
    from sklearn.dummy import DummyClassifier, DummyRegressor

    return DummyRegressor().fit(X, y) if task == "regression" else DummyClassifier(strategy="prior").fit(X, y)


def _losses(model: Any, X: NDArray[np.float64], y: NDArray[Any], task: str) -> NDArray[np.float64]:
    """Return for each row the two losses whose means are shown; the log-loss has a limit."""
    if task == "regression":
        squared = (y - model.predict(X)) ** 2
        return np.stack([squared, squared])
    matches = y[:, None] == np.asarray(model.classes_)[None, :]
    probability = np.maximum((model.predict_proba(X) * matches).sum(axis=1), _LEAST_COMPARED_PROBABILITY)
    return np.stack([-np.log(probability), (model.predict(X) != y).astype(np.float64)])


# Groups that are named in a report: more are hard to read. Below the share, a group is said to lean on the overall
# level. Chosen by hand.
_MAX_GROUPS, _LEANING_SHARE = 12, 0.5
# Public rows of a group below which it is called rare: its mean label then has a standard error above a fifth of the
# label's standard deviation. Chosen by hand.
_FEW_ROWS_OF_A_GROUP = 25


def class_numbers(model: Any) -> dict[str, Any] | None:
    """Return recall and precision of each class on public rows, for a table; None if the model has none.

    Both models predict public rows that their public part was not fitted on, so that the two can be compared.
    """
    found = getattr(model, "public_by_class_", None)
    if found is None:
        return None
    rows = [
        {"name": str(label), "support": int(found["support"][k])}
        | {
            f"{measure} of {name}": None if math.isnan(found[name][measure][k]) else float(found[name][measure][k])
            for name in ("public model", "this model")
            for measure in ("recall", "precision")
        }
        for k, label in enumerate(model.classes_)
    ]
    return {"rows": rows, "n_public": int(sum(found["support"]))}


def threshold_in_words(model: Any, label: str) -> str | None:
    """Return from which probability on the second class is predicted, and why; None without a threshold."""
    threshold, wanted = getattr(model, "decision_threshold_", None), getattr(model, "decision_threshold", None)
    if threshold is None:
        return None
    why = "the probability that was given"
    if isinstance(wanted, str):
        why = f"the probability at which the model expects the best {wanted.replace('_', ' ')} on public rows"
    elif isinstance(wanted, Mapping):
        costs = f"a miss costs {wanted['miss']:g} and a false alarm {wanted['false alarm']:g}"
        why = f"the probability of least expected cost if {costs}"
    return f"{label} = {model.classes_[1]} is predicted from a probability of {threshold:.3g} on, {why}."


def groups_in_words(model: Any, names: Sequence[str], X_public: NDArray[np.float64] | None = None) -> list[str]:
    """Return sentences on groups about which public rows say nothing, and on those about which they say little.

    Only releases and public data are used: how many private rows such a group has is private.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> model = SimpleNamespace(own_effect_=np.array([np.nan, 0.9, 0.1]))
    >>> groups_in_words(model, ["age", "plan = gold", "plan = free"])[1]
    'plan = free: leans on the overall level: 10% of its own effect was kept.'
    """
    kept = np.asarray(getattr(model, "own_effect_", np.zeros(0)), dtype=np.float64)
    places = [k for k in np.argsort(kept) if np.isfinite(kept[k])] if len(kept) == len(names) else []
    rare = _rare_groups(model, names, X_public)
    if not places or getattr(model, "adopted_", None) == 0.0:  # nothing was adopted, of these columns either
        return rare
    sentences = [
        "Public rows say nothing about these columns, because all of them have the same value there. What private rows "
        "say is shrunk by its noise: the less is kept, the closer the predictions are to the overall level. That much "
        "is kept does not show that any private row is of the group: how many are is private."
    ]
    leaning = [k for k in places if kept[k] < _LEANING_SHARE]
    sentences += [
        f"{names[k]}: leans on the overall level: {kept[k]:.0%} of its own effect was kept."
        for k in leaning[:_MAX_GROUPS]
    ]
    if len(leaning) > _MAX_GROUPS:
        sentences.append(f"{len(leaning) - _MAX_GROUPS} more such columns lean on the overall level, though less.")
    own = places[len(leaning) :]
    if own:
        shown = ", ".join(names[k] for k in own[:_MAX_GROUPS]) + (", ..." if len(own) > _MAX_GROUPS else "")
        sentences.append(f"At least {kept[own[0]]:.0%} of its own effect was kept of each of these: {shown}.")
    return [*sentences, *rare]


def _rare_groups(model: Any, names: Sequence[str], X_public: NDArray[np.float64] | None) -> list[str]:
    """Return a sentence on groups with few public rows: how many they have, and the noise where it is known."""
    if X_public is None or X_public.shape[1] != len(names):
        return []
    indicator = ((X_public == 0.0) | (X_public == 1.0)).all(axis=0)
    counts = np.where(indicator, X_public.sum(axis=0), 0.0)
    rare = [
        int(k)
        for k in np.argsort(counts, kind="stable")
        if 0 < counts[k] < min(_FEW_ROWS_OF_A_GROUP, len(X_public) / 2)
    ]
    if not rare:
        return []
    noise = np.asarray(getattr(model, "coef_noise_", None), dtype=np.float64)
    known = noise.shape == (len(names),)
    shown = ", ".join(
        f"{names[k]} ({int(counts[k])}{f', noise {noise[k]:.2g}' if known else ''})" for k in rare[:_MAX_GROUPS]
    )
    more = f" and {len(rare) - _MAX_GROUPS} more" if len(rare) > _MAX_GROUPS else ""
    what = "their numbers of public rows, and the standard deviation of the privacy noise in their effect"
    return [
        f"Public rows say little about these groups, of which they have fewer than {_FEW_ROWS_OF_A_GROUP} rows. What "
        f"they learned about them is shrunk towards the overall level, and what private rows add has more noise than "
        f"for other groups ({what if known else 'their numbers of public rows'}): {shown}{more}."
    ]


# With ``points`` or ``values`` over splits; see `help_in_words` and `contributions`.
Curve = Mapping[str, Any]


def fit_in_words(
    model: Any, public: Public | None, comparison: Mapping[str, Any] | None, forecast: Mapping[str, Any] | None
) -> list[str]:
    """Return sentences on one fit, made from public rows and from releases alone: no private row is read.

    Parameters
    ----------
    model : fitted estimator
    public : Public or None
    comparison : mapping or None
        From `errors_on_public`.
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
        sentences.append("Everything the model knows about the label comes from noisy releases of the private rows.")
    else:
        sentences.append("The private rows brought nothing: the budget is too small for their number.")
    if forecast is not None:
        own = next(point for point in forecast["points"] if point["epsilon"] == model.epsilon)
        count = own["n_directions"]
        planned = f" The plan spends the budget on {count} coordinate{'s' if count != 1 else ''} of the model."
        sentences.append(f"Forecast from public rows: {own['words']}{planned if own['worthwhile'] else ''}")
    cost = f"ε = {model.privacy_.epsilon:.3g} was spent" if spent else "Nothing was spent"
    return [*sentences, f"{cost}. {_error_in_words(model)}"]


def tested_error(model: Any) -> tuple[float, float] | None:
    """Return the error of a model that people tested, and its standard deviation at most; None without such a test."""
    estimates = getattr(model, "estimates_", {})
    error = estimates.get(f"error of {getattr(model, 'chosen_', '')}")
    return None if error is None else (float(error), float(estimates["noise of an error"]))


def _error_in_words(model: Any) -> str:
    """Return what is known about the error on the private population, and how to learn more."""
    tested = tested_error(model)
    if tested is not None:
        return (
            f"The error of the model in the people's population is about {tested[0]:.3f}, with a standard deviation of "
            f"at most {tested[1]:.3f}; the truth is a little more, because the least of several estimates was chosen."
        )
    known = "The error of the model on the private population is unknown."
    if getattr(model, "estimated_gain_", None) is not None and getattr(model, "adopted_", 0.0) > 0:
        known = (
            "By how much the model's error on the private population is less than the public model's was estimated "
            "from the releases. The error itself is unknown."
        )
    return (
        f"{known} Measuring it is another release, which dpadapt evaluate makes. A rehearsal on public rows (dpadapt "
        f"rehearse) estimates it without any privacy cost."
    )


def _people_part(model: Any) -> str:
    asked = sum(model.people_asked_.values())
    if not asked:
        return "Nobody was asked: the model comes from noisy releases of the private rows alone."
    stages = ", ".join(f"{count:,} for {stage}" for stage, count in model.people_asked_.items())
    labels = _labels_in_words(model, "these people")
    return f"{asked:,} people answered one question each ({stages}).{labels} The model is: {model.chosen_}."


def _labels_in_words(model: Any, rows: str) -> str:
    """Return a sentence on the released share of labels that could be read; empty if there is none."""
    usable = getattr(model, "usable_share_", None)
    if usable is None:
        return ""
    share, low, high = usable
    return f" About {share:.0%} of {rows} had a label that could be read ({low:.0%} to {high:.0%})."


def _public_part(public: Public | None, comparison: Mapping[str, Any] | None) -> str:
    if public is None:
        return "There were no public rows: besides the schema, the model uses the private rows alone."
    if public.y is None:
        return "The public rows have no labels: they gave scales and principal components, but no model to start from."
    if comparison is None:
        return "The public rows gave the model to start from; they are too few to measure its error."
    constant, alone = comparison["rows"]
    return (
        f"The public rows gave the model to start from. On public rows that it was not fitted on, a linear model has a "
        f"{comparison['measure']} of {alone['error']:.3g} ({comparison['measure beside']}: {alone['beside']:.3g}); "
        f"without any model it is {constant['error']:.3g} ({constant['beside']:.3g})."
    )


def _private_part(model: Any, public: Public, *, spent: bool) -> str:
    if not spent:
        return (
            "The private rows brought nothing: the budget is too small for their number. The model is the public one."
        )
    start, X = _public_model(model, public), np.asarray(public.X, dtype=np.float64)
    if is_classifier(model):
        change = float(np.mean(np.abs(model.predict_proba(X) - start.predict_proba(X)).sum(axis=1) / 2))
        how = f"the predicted probabilities by {change:.1%} on average (total variation)"
    else:
        change = float(np.sqrt(np.mean((model.predict(X) - start.predict(X)) ** 2)))
        how = f"the predictions by {change:.3g} (root mean square)"
    adopted, labels = getattr(model, "adopted_", None), _labels_in_words(model, "the private rows")
    if change == 0.0:
        why = "no correction exceeded its noise" if adopted is None else "the gate stayed shut"
        return (
            f"The private rows gave no clear evidence against the public model: {why}, and the model is the public "
            f"one.{labels}"
        )
    opened = f"The gate opened: {adopted:.0%} of the private correction was adopted. " if adopted is not None else ""
    return f"{opened}On public rows, the private correction changes {how}.{labels}"


def _public_model(model: Any, public: Public) -> Any:
    """Return what the method of `model` gives with the labelled public rows alone."""
    if hasattr(model, "public_only"):
        return model.public_only()
    # Public rows are passed as private ones; the budget is too small for any of them to be read.
    X, y = np.asarray(public.X), np.asarray(public.y)
    return clone(model).set_params(**PUBLIC_ONLY_BUDGET).fit(X[:2].copy(), y[:2], public=public)


def demo_in_words(case: Mapping[str, Any]) -> list[str]:
    """Return sentences on a case of the demo: what each part contributed, and how many rows the public ones replace.

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
    shares = contributions(levels["public only"], points["private only"], points["together"], levels["not private"])
    replaced = worth_in_rows(by_rows, case["middle"])
    return [
        f"{where}. {shares}",
        *([replaced] if replaced else []),
        *help_in_words(by_epsilon["levels"], by_epsilon["curves"]),
    ]


def contributions(public: Curve, alone: Curve, together: Curve, floor: Curve) -> str:
    """Return what each part of the data contributed, from errors measured on the same splits.

    Parameters
    ----------
    public, alone, together, floor : mapping
        Public rows alone, private rows alone, both, and the private rows without privacy; each with ``values``, one per
        split, and ``mean``.

    Examples
    --------
    >>> parts = [{"values": [error] * 3, "mean": error} for error in (0.62, 0.91, 0.45, 0.36)]
    >>> print(contributions(*parts).partition("privacy: 0.360. ")[2])
    The private rows gave 65% of their possible gain. The public rows removed 84% of the cost of privacy.
    """
    stated = (
        f"Public rows alone: error {public['mean']:.3f}. Private rows alone: {alone['mean']:.3f}. "
        f"Together: {together['mean']:.3f}. Without any privacy: {floor['mean']:.3f}."
    )
    if not clearly_less(floor["values"], public["values"]):
        private = "Even without privacy, the private rows are not clearly better than the public rows alone"
    elif clearly_less(together["values"], public["values"]):
        share = (public["mean"] - together["mean"]) / (public["mean"] - floor["mean"])
        private = f"The private rows gave {f'{share:.0%}' if share < 1 else 'all'} of their possible gain"
    elif clearly_less(public["values"], together["values"]):
        private = "The private rows made the model clearly worse than the public rows alone"
    else:
        private = "The private rows made no clear difference"
    if not clearly_less(floor["values"], alone["values"]):
        shared = "Privacy has no clear cost, even without the public rows"
    elif clearly_less(together["values"], alone["values"]):
        share = (alone["mean"] - together["mean"]) / (alone["mean"] - floor["mean"])
        shared = f"The public rows removed {f'{share:.0%}' if share < 1 else 'all'} of the cost of privacy"
    elif clearly_less(alone["values"], together["values"]):
        shared = "The public rows made the model clearly worse than the private rows alone"
    else:
        shared = "The public rows made no clear difference"
    return f"{stated} {private}. {shared}."


def worth_in_rows(panel: Mapping[str, Any], epsilon: float) -> str | None:
    """Return how many private rows alone do as well as fewer private rows with the public ones.

    None if at no number of rows both together are clearly better than either alone.
    """
    curves = {curve["key"]: curve["points"] for curve in panel["curves"]}
    alone, together = curves["private only"], curves["together"]
    public = next(level["values"] for level in panel["levels"] if level["key"] == "public only")
    for before, both in zip(alone, together, strict=True):
        # Also better than the public rows alone: otherwise the gain needs no private row.
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
    """Return a comparison of each method with the private rows alone and with the public rows alone.

    The last sentence says what "clearly" means.

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
    >>> print(help_in_words(levels, curves)[0][:98])
    With m, public rows clearly helped at every ε, most at ε = 1: the error falls from 0.900 to 0.700.
    """
    known = {level["key"]: level for level in levels}
    alone = next(curve for curve in curves if curve["key"] == "private only")
    floor = known["not private"]["mean"] if "not private" in known else -math.inf
    sentences = [
        f"{_against_private(curve, alone, floor)} {_against_public(curve, known['public only'])}"
        for curve in curves
        if curve["public"]
    ]
    if len(known["public only"]["values"]) < 2:
        return [*sentences, 'With one split there is no standard error: every difference is called "clear" here.']
    return [*sentences, '"Clearly" means by more than two standard errors over the splits, and by more than 0.001.']


def _against_private(curve: Curve, alone: Curve, floor: float) -> str:
    pairs = list(zip(alone["points"], curve["points"], strict=True))
    helped = [(a, b) for a, b in pairs if clearly_less(b["values"], a["values"])]
    harmed = [a["x"] for a, b in pairs if clearly_less(a["values"], b["values"])]
    harm = f" They clearly raised the error at {_where(harmed, len(pairs))}." if harmed else ""
    if not helped:
        return f"With {curve['method']}, public rows did not clearly help at any ε.{harm}"
    a, b = max(helped, key=lambda pair: float(pair[0]["mean"] - pair[1]["mean"]))
    where = _where([a["x"] for a, _ in helped], len(pairs))
    share = (a["mean"] - b["mean"]) / (a["mean"] - floor) if a["mean"] > floor else 0.0
    # A share makes sense only where the model with public rows still has a larger error than the non-private one.
    closed = f", {share:.0%} of the way to the model without privacy" if 0 < share < 1 and floor < b["mean"] else ""
    most = "" if len(helped) == 1 < len(pairs) else f", most at ε = {a['x']:g}"
    return (
        f"With {curve['method']}, public rows clearly helped at {where}{most}: the error falls from "
        f"{a['mean']:.3f} to {b['mean']:.3f}{'' if share < 0.005 else closed}.{harm}"
    )


def _against_public(curve: Curve, level: Mapping[str, Any]) -> str:
    """Say where the error is lower or higher than that of the public rows alone, and where clearly so.

    Means are compared as tables print them, with three digits, so that sentence and table agree.
    """
    points, shown = curve["points"], round(level["mean"], 3)
    relations = {
        "lower": [point["x"] for point in points if round(point["mean"], 3) < shown],
        "higher": [point["x"] for point in points if round(point["mean"], 3) > shown],
        "the same": [point["x"] for point in points if round(point["mean"], 3) == shown],
    }
    where = ", ".join(f"{word} at {_where(xs, len(points))}" for word, xs in relations.items() if xs)
    sentence = f"Compared with the public rows alone ({level['mean']:.3f}), its error is {where}"
    if len(relations["the same"]) == len(points):
        return f"{sentence}."
    clear = [
        point["x"]
        for point in points
        if point["x"] not in relations["the same"]
        and (clearly_less(point["values"], level["values"]) or clearly_less(level["values"], point["values"]))
    ]
    return f"{sentence}; the difference is clear at {_where(clear, len(points)) if clear else 'no ε'}."


def clearly_less(first: Sequence[float], second: Sequence[float]) -> bool:
    """Return whether `first` is below `second` by two standard errors and by 0.001; both come from the same splits.

    With a single split there is no standard error, and any difference counts.
    """
    differences = np.asarray(second) - np.asarray(first)
    if len(differences) < 2:
        return bool(differences[0] > 0)
    error = float(np.std(differences, ddof=1)) / np.sqrt(len(differences))
    return bool(np.mean(differences) > 2 * error and np.mean(differences) > 1e-3)


def _where(epsilons: Sequence[float], n_points: int) -> str:
    """Return e.g. "every ε" or "ε = 0.1, 0.3"."""
    return "every ε" if len(epsilons) == n_points else f"ε = {', '.join(f'{epsilon:g}' for epsilon in epsilons)}"
