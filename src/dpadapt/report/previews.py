"""Previews as plain dictionaries, sentences and pages: forecasts, rehearsals and advice, before any budget is spent."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier

from dpadapt import __version__
from dpadapt.advice import VERDICTS, Advice
from dpadapt.data import Public
from dpadapt.report import page
from dpadapt.report.charts import advice_chart, case_chart, forecast_charts
from dpadapt.transfer.preview import CAVEAT, Rehearsal

# Budgets for which the report of a fit repeats its forecast, as factors on the epsilon of the fit. Chosen by hand.
_FORECAST_FACTORS = (0.1, 1 / 3, 1.0, 3.0, 10.0)

# For each `ClassificationForecast.gate`: does the gate open if the private population differs as the prior expects?
_GATE_OPENS = {"open": "probably", "shut": "probably not", "undecided": "uncertain", "none": "no gate"}


def summarise_forecast(estimator: Any, public: Public, n_private: int, epsilons: Sequence[float]) -> dict[str, Any]:
    """Return the forecast at each epsilon, as numbers and in words.

    Parameters
    ----------
    estimator : PrivateTransferRegressor or PrivateTransferClassifier
        Its epsilon is replaced by each of `epsilons`.
    public : Public
    n_private : int
        How many private rows there are or will be: a public number.
    epsilons : sequence of float

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import PrivateTransferRegressor
    >>> X = np.random.default_rng(7).uniform(-1, 1, (300, 3))
    >>> summary = summarise_forecast(PrivateTransferRegressor(), Public(X, X[:, 0]), 20, [0.1])
    >>> summary["points"][0]["verdict"]
    'unspent'
    """
    classifier = is_classifier(estimator)
    points = []
    for epsilon in epsilons:
        forecast = clone(estimator).set_params(epsilon=epsilon).forecast(public, n_private)
        point = {"epsilon": epsilon, "worthwhile": forecast.worthwhile, "n_directions": forecast.n_directions}
        if classifier:
            point |= {"score_noise": _finite(forecast.blur), "needed_gain": _finite(forecast.needed_gain)}
            verdict = _GATE_OPENS[forecast.gate]
        else:
            point |= {"shifts": list(forecast.shifts), "error_ratios": list(forecast.error_ratios)}
            point["opens_at"] = _finite(forecast.opens_at)
            verdict = f"from {forecast.opens_at:.0%}" if math.isfinite(forecast.opens_at) else "never"
        point |= {"verdict": verdict if forecast.worthwhile else "unspent", "words": str(forecast)}
        points.append(point)
    return {
        "task": "classification" if classifier else "regression",
        "rows": n_private,
        "delta": estimator.delta,
        "points": points,
        "caveat": CAVEAT,
    }


def forecast_of_fit(model: Any, public: Public | None, n_private: int) -> dict[str, Any] | None:
    """Return the forecast that could have been made before this fit; None if the method has none.

    Parameters
    ----------
    model : estimator
    public : Public or None
    n_private : int
        A public number: of private rows, or of persons if these are protected.
    """
    if public is None or public.y is None or not hasattr(model, "forecast") or model.prior != "shifted":
        return None
    epsilons = [model.epsilon * factor for factor in _FORECAST_FACTORS]
    return {**summarise_forecast(model, public, n_private, epsilons), "unit": model.privacy_.unit}


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


@dataclass(frozen=True)
class Part:
    """The rehearsal of one method; all parts have the same splits and epsilons.

    Parameters
    ----------
    key : str
        "together" for the default method with public rows, "private only" for it without, else any name.
    name : str
        Its name in tables and plots.
    method : str
    public : bool
        Whether the method was given public rows.
    rehearsal : Rehearsal
    """

    key: str
    name: str
    method: str
    public: bool
    rehearsal: Rehearsal


def rehearsal_panel(parts: Sequence[Part], *, title: str = "") -> dict[str, Any]:
    """Return the errors of several rehearsals at each epsilon, with means and spreads: one panel of a chart."""
    first = parts[0].rehearsal
    return with_spread(
        {
            "key": "epsilon",
            "title": title,
            "axis": "epsilon (smaller is more private)",
            "symbol": "ε",
            "x": list(first.epsilons),
            "levels": [{"key": "public only", "name": "public only", "values": first.public_only.tolist()}],
            "curves": [
                {
                    "key": part.key,
                    "name": part.name,
                    "method": part.method,
                    "public": part.public,
                    "points": [
                        {"x": epsilon, "values": part.rehearsal.errors[:, k].tolist()}
                        for k, epsilon in enumerate(first.epsilons)
                    ],
                }
                for part in parts
            ],
        }
    )


def summarise_rehearsal(
    parts: Sequence[Part], *, label: str, n_public: int, n_private: int, delta: float, split_by: str | None
) -> dict[str, Any]:
    """Return the contents of the report of several rehearsals.

    Parameters
    ----------
    parts : sequence of Part
        The default method comes first.
    label : str
        The column that is predicted.
    n_public, n_private : int
        Rows of the public table, and of the planned private one.
    delta : float
    split_by : str or None
        The column along which the public table was split.
    """
    first = parts[0].rehearsal
    panel = rehearsal_panel(parts, title=f"{n_private:,} private rows")
    repeats = len(first.public_only)
    how = f"along {split_by}: rows with larger values took the role of private rows" if split_by else "at random"
    words = [f"The public rows were split {how}, {repeats} time{'s' if repeats != 1 else ''}."]
    if split_by is None:
        words.append("A random split contains no shift, so it can't tell what a shift would do.")
    if first.fewer_rows:
        words.append(
            "There are too few public rows to stand for all private ones. The noise is that of the private rows, but "
            "the sampling error is larger, so these errors are pessimistic."
        )
    return {
        "kind": "rehearsal",
        "title": f"{label}, rehearsed on public rows",
        "version": __version__,
        "axis": first.metric,
        "measure": f"{first.metric}, on held-out public rows: smaller is better",
        "delta": delta,
        "rows": {"public": n_public, "private": n_private},
        "panels": [panel],
        "words": [*words, *help_in_words(panel["levels"], panel["curves"])],
    }


def summarise_advice(advice: Advice, *, label: str, public: str, n_public: int, command: str) -> dict[str, Any]:
    """Return the contents of the page of an advice.

    Parameters
    ----------
    advice : Advice
    label : str
        The column that is predicted.
    public : str
        Name of the public table.
    n_public : int
        Its rows.
    command : str
        What to run next.
    """
    ways = [{"name": way.name, "ratios": way.expected.tolist()} for way in advice.candidates]
    splits = []
    if advice.chosen is not None:
        splits = [
            {"name": name, "ratios": ratios.tolist()}
            for name, ratios in zip(advice.splits, advice.chosen.ratios, strict=True)
        ]
    return {
        "kind": "advice",
        "version": __version__,
        "label": label,
        "task": advice.task,
        "verdict": advice.verdict,
        "heading": VERDICTS[advice.verdict],
        "words": list(advice.sentences),
        "measure": advice.error,
        "epsilons": list(advice.epsilons),
        "epsilon": advice.epsilon,
        "expected": [] if advice.chosen is None else advice.chosen.expected.tolist(),
        "splits": splits,
        "ways": ways,
        "command": command,
        "public": public,
        "rows": {"public": n_public, "private": advice.n_private},
    }


def rehearsal_page(summary: Mapping[str, Any]) -> str:
    """Return the report of a rehearsal; `summary` is from `summarise_rehearsal`."""
    return page("rehearsal", summary, chart=case_chart(summary))


def forecast_page(summary: Mapping[str, Any]) -> str:
    """Return the report of a forecast; ``summary["forecast"]`` is from `summarise_forecast`."""
    return page("forecast", summary, forecast_charts=forecast_charts(summary["forecast"]))


def advice_page(summary: Mapping[str, Any]) -> str:
    """Return the page of an advice; `summary` is from `summarise_advice`."""
    return page("advice", summary, chart=advice_chart(summary))


# Errors over splits, of rehearsals and of the demo.


def with_spread(panel: Mapping[str, Any]) -> dict[str, Any]:
    """Return a panel with the mean and the standard deviation of each level and of each point of its curves."""
    return {
        **panel,
        "levels": [{**level, **_mean_and_spread(level["values"])} for level in panel["levels"]],
        "curves": [
            {**curve, "points": [{**point, **_mean_and_spread(point["values"])} for point in curve["points"]]}
            for curve in panel["curves"]
        ],
    }


def _mean_and_spread(values: Sequence[float]) -> dict[str, float]:
    return {"mean": float(np.mean(values)), "spread": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0}


# With ``points`` or ``values`` over splits; see `help_in_words`.
Curve = Mapping[str, Any]


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
