"""Forecasts and rehearsals as plain dictionaries with sentences: what is known before any budget is spent."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sklearn.base import clone, is_classifier

from dpadapt import __version__
from dpadapt.advice import VERDICTS, Advice
from dpadapt.data import Public
from dpadapt.report.contributions import help_in_words
from dpadapt.report.summarise import with_spread
from dpadapt.transfer.forecast import CAVEAT
from dpadapt.transfer.rehearsal import Rehearsal

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
