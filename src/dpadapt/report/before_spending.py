"""Rehearsals of several methods side by side, as one dictionary with words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sklearn.base import clone, is_classifier

from dpadapt import __version__
from dpadapt.data import Public
from dpadapt.report.contributions import help_in_words
from dpadapt.report.summarise import with_spread
from dpadapt.transfer.rehearsal import Rehearsal

# Forecasts as dictionaries and in words: what public data and a budget say before anything is spent.


# What a forecast is, said wherever one is shown.
CAVEAT = (
    "A go / no-go signal, not an error bar: it comes from public rows and the budget alone. How far the private "
    "population differs, only the private rows can tell."
)
# Budgets beside the one of a fit, to show what more or less of it would do.
_BESIDE = (0.1, 1 / 3, 1.0, 3.0, 10.0)

# Whether private rows that differ as much as is usual would be heard, by what the classifier's forecast calls it.
_GATES = {"open": "probably", "shut": "probably not", "undecided": "uncertain", "none": "always: no gate"}


def summarise_forecast(estimator: Any, public: Public, n_private: int, epsilons: Sequence[float]) -> dict[str, Any]:
    """Return the forecast at each epsilon, and what it says in words.

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
    >>> found = summarise_forecast(PrivateTransferRegressor(), Public(X, X[:, 0]), 20, [0.1])
    >>> print(found["points"][0]["words"])
    The budget is too small for this many rows: the public model would be returned, nothing spent.
    """
    classifier = is_classifier(estimator)
    points = []
    for epsilon in epsilons:
        found = clone(estimator).set_params(epsilon=epsilon).forecast(public, n_private)
        point = {"epsilon": epsilon, "worthwhile": found.worthwhile, "n_directions": found.n_directions}
        if classifier:
            point |= {"blur": _finite(found.blur), "needed_gain": _finite(found.needed_gain)}
            verdict = _GATES[found.gate]
        else:
            point |= {"shifts": list(found.shifts), "error_ratios": list(found.error_ratios)}
            verdict = f"from {found.opens_at:.0%}" if math.isfinite(found.opens_at) else "never"
        point |= {"verdict": verdict if found.worthwhile else "unspent", "words": str(found)}
        points.append(point)
    return {
        "task": "classification" if classifier else "regression",
        "rows": n_private,
        "delta": estimator.delta,
        "points": points,
        "caveat": CAVEAT,
    }


def forecast_of_fit(model: Any, public: Public | None, n_private: int) -> dict[str, Any] | None:
    """Return the forecast that could have been made before this fit; None where the method has none.

    Parameters
    ----------
    model : estimator
    public : Public or None
    n_private : int
        A public number.
    """
    if public is None or public.y is None or not hasattr(model, "forecast") or model.prior != "shifted":
        return None
    return summarise_forecast(model, public, n_private, [model.epsilon * factor for factor in _BESIDE])


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
        As tables and plots call it.
    method : str
    public : bool
        Whether it was given public rows.
    found : Rehearsal
    """

    key: str
    name: str
    method: str
    public: bool
    found: Rehearsal


def summarise_rehearsal(
    parts: Sequence[Part], *, label: str, n_public: int, n_private: int, delta: float, split_by: str | None
) -> dict[str, Any]:
    """Return all that a report of rehearsals says.

    Parameters
    ----------
    parts : sequence of Part
        The first is the default method's.
    label : str
        The column that is predicted.
    n_public, n_private : int
        Rows of the public table, and of the private one that is to come.
    delta : float
    split_by : str or None
        The column along which the public table was split.
    """
    first = parts[0].found
    panel = with_spread(
        {
            "key": "epsilon",
            "title": f"{n_private:,} private rows",
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
                        {"x": epsilon, "values": part.found.errors[:, k].tolist()}
                        for k, epsilon in enumerate(first.epsilons)
                    ],
                }
                for part in parts
            ],
        }
    )
    repeats = len(first.public_only)
    how = f"along {split_by}: rows with larger values played the private part" if split_by else "at random"
    words = [f"The public rows were split {how}, {repeats} time{'s' if repeats != 1 else ''}."]
    if split_by is None:
        words.append("A random split has no shift in it, so it can't tell what a shift would do.")
    if first.repeated_rows:
        words.append(
            "There are too few public rows: some stood for several private ones, so these errors are too high."
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
