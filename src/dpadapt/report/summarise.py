"""Results as plain dictionaries: the guarantee in words, the facts of a receipt, a fit, the demo.

Tables and pages are made from these dictionaries, and they can be written as JSON.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt import __version__
from dpadapt.accounting.receipt import SEED_WARNING, Receipt
from dpadapt.methods import Method
from dpadapt.report.contributions import class_numbers, demo_in_words, groups_in_words, threshold_in_words
from dpadapt.report.verdict import verdict_on_fit
from dpadapt.transfer.intervals import coverage_in_words

# Bars in one chart of coefficients, and charts (one per class) in one report: more are hard to read. Chosen by hand.
_MAX_COEFFICIENT_BARS = 20
_MAX_COEFFICIENT_CHARTS = 6


def best_guess(epsilon: float, delta: float) -> float:
    """Return the largest probability with which an attacker decides correctly between two equally likely neighbours.

    An (epsilon, delta)-private output has total variation at most (e^epsilon - 1 + 2 delta) / (e^epsilon + 1) between
    neighbours, and the best guess between two equally likely data sets is right with probability (1 + that) / 2.

    Examples
    --------
    >>> round(best_guess(1.0, 0.0), 3)
    0.731
    """
    return 1.0 if epsilon > 700 else min(1.0, (1.0 + delta * math.exp(-epsilon)) / (1.0 + math.exp(-epsilon)))


def percent(share: float) -> str:
    """Return e.g. 73.2%, rounded up, with enough digits to differ from 100%.

    Examples
    --------
    >>> percent(best_guess(1.0, 1e-6)), percent(best_guess(10.0, 1e-6))
    ('73.2%', '99.996%')
    """
    if share >= 1.0:
        return "100%"
    digits = max(1, math.ceil(-math.log10(1.0 - share)) - 2)
    return f"{min(math.ceil(share * 10 ** (digits + 2)), 10 ** (digits + 2)) / 10**digits:.{digits}f}%"


def guarantee_in_words(receipt: Receipt) -> list[str]:
    """Return the guarantee as sentences for a reader who does not know what epsilon is.

    Examples
    --------
    >>> from dpadapt.accounting import Ledger
    >>> print(guarantee_in_words(Ledger(epsilon=1.0, delta=1e-6).receipt())[0][:34])
    Suppose somebody knows all private
    """
    if receipt.seeded:
        return [
            "There is no guarantee: the noise came from a seed, so whoever knows the seed can subtract it. Fit again "
            "without a seed before you publish or share this model."
        ]
    if math.isinf(receipt.epsilon):
        return ["There is no guarantee: something was released without noise."]
    highest = percent(best_guess(receipt.epsilon, receipt.delta))
    rows = "all private rows but one" if receipt.unit == "row" else "the private rows of all persons but one"
    unit = (
        "The privacy unit is one row, not one person. For a person with k rows, epsilon is about k times as large."
        if receipt.unit == "row"
        else "The privacy unit is one person: all rows with one id. A person with two ids is protected less."
    )
    return [
        f"Suppose somebody knows {rows}, sees this model and all of this page, and has to guess "
        f"{receipt.adjacency.question(receipt.unit)}. A random guess is right half of the time. Their guess is right "
        f"at most {highest} of the time, whatever else they know and however much they compute.",
        f"{unit} T{receipt.adjacency.counted(receipt.unit)[1:]}.",
        "What the rows have in common is meant to be learned: a model may say something true about a person because it "
        "is true about similar people, whether or not that person's row was used. Public rows are not protected at "
        "all.",
    ]


def receipt_facts(receipt: Receipt) -> dict[str, Any]:
    """Return `Receipt.to_dict` and what tables and pages show beside it.

    Added are ``cost`` and ``protects`` in words, a readable ``mechanism`` in each of the ``entries``, ``released`` (one
    line per entry), a warning if the noise was seeded, and in ``verification`` the bounds of a second accountant.

    Examples
    --------
    >>> from dpadapt.accounting import Ledger
    >>> from dpadapt.mechanisms import Gaussian, clipped_sum
    >>> ledger = Ledger(epsilon=1.0, delta=1e-6)
    >>> noisy = ledger.release(Gaussian(30.0), clipped_sum([[1.0]], 1.0), label="sum")
    >>> facts = receipt_facts(ledger.receipt())
    >>> facts["cost"], facts["released"]
    ('epsilon = 0.1227, delta = 1e-06', ['sum: Gaussian(noise_multiplier=30)'])
    """
    verification = receipt.verify()
    seeded = [f"{SEED_WARNING[0].upper()}{SEED_WARNING[1:]}."] if receipt.seeded else []
    return receipt.to_dict() | {
        "cost": f"epsilon = {receipt.epsilon:.4g}, delta = {receipt.delta:.3g}",
        "protects": receipt.adjacency.protects(receipt.unit),
        "entries": [entry.to_dict() | {"mechanism": str(entry.event)} for entry in receipt.entries],
        "released": [str(entry) for entry in receipt.entries],
        "warnings": [*seeded, *receipt.warnings],
        "verification": {
            "lower": verification.lower,
            "upper": verification.upper,
            "accountant": verification.accountant,
        },
    }


def summarise_fit(
    model: Any,
    *,
    method: Method,
    dataset: str,
    label: str,
    names: Sequence[str],
    public: str | None,
    comparison: Mapping[str, Any] | None = None,
    brought: Sequence[str] = (),
    forecast: Mapping[str, Any] | None = None,
    ledger: Mapping[str, Any] | None = None,
    n_private: int | None = None,
    X_public: NDArray[np.float64] | None = None,
) -> dict[str, Any]:
    """Return the contents of the report of one fit.

    Parameters
    ----------
    model : fitted estimator
    method : Method
    dataset : str
        Name of the private data set.
    label : str
        The column that is predicted.
    names : sequence of str
        Names of the encoded features.
    public : str or None
        What was used as public data, in words.
    comparison : mapping, optional
        From `errors_on_public`.
    brought : sequence of str
        From `fit_in_words`.
    forecast : mapping, optional
        From `forecast_of_fit`.
    ledger : mapping, optional
        With `words`: the state of the data set's ledger.
    n_private : int, optional
        Number of private rows, if it is public.
    X_public : ndarray of shape (n_public, n_features), optional
        Encoded public rows: coefficients are shown per standard deviation in these, and groups that are rare in them
        are named.
    """
    scales = None if X_public is None else X_public.std(axis=0)
    coefficients = coefficients_of(model, names, label, scales)
    n_charts = len(coefficients["parts"])
    receipt: Receipt = model.privacy_
    return {
        "kind": "fit",
        "verdict": verdict_on_fit(model, forecast, n_private),
        "rows": n_private,
        "dataset": dataset,
        "task": method.task,
        "label": label,
        "method": {"name": method.name, "summary": method.summary},
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "version": __version__,
        "guarantee": guarantee_in_words(receipt),
        "best_guess": percent(best_guess(receipt.epsilon, receipt.delta)),
        "receipt": receipt_facts(receipt),
        "public": public,
        "parameters": {name: _parameter_in_words(value) for name, value in model.get_params(deep=False).items()},
        "coefficients": {
            **coefficients,
            "parts": coefficients["parts"][:_MAX_COEFFICIENT_CHARTS],
            "classes_left_out": max(0, n_charts - _MAX_COEFFICIENT_CHARTS),
        },
        "comparison": None if comparison is None else dict(comparison),
        "by_class": class_numbers(model),
        "threshold": threshold_in_words(model, label),
        "intervals": None if getattr(model, "calibration_", None) is None else coverage_in_words(receipt.unit),
        "groups": groups_in_words(model, names, X_public),
        "brought": list(brought),
        "forecast": None if forecast is None else dict(forecast),
        "ledger": None if ledger is None else dict(ledger),
    }


def coefficients_of(model: Any, names: Sequence[str], label: str, scales: NDArray[np.float64] | None) -> dict[str, Any]:
    """Return the largest coefficients, times `scales` if there are any, for each class where there are several.

    With each stands the standard deviation that the noise gives it, where the estimator knows it.
    """
    matrix = np.atleast_2d(np.asarray(getattr(model, "coef_", np.empty((0, len(names))))))
    if matrix.shape[1] != len(names):
        return {"parts": [], "left_out": 0, "noise": False, "scaled": False}
    units = np.ones(len(names)) if scales is None else scales
    noise = getattr(model, "coef_noise_", None)
    spread = None if noise is None else np.atleast_2d(np.asarray(noise)) * units
    matrix = matrix * units
    classes = [str(value) for value in getattr(model, "classes_", [])]
    # Beside a public model that is not linear, coefficients describe the correction alone.
    base = getattr(model, "public_base_", None)
    unit = "change of" if base is None or base.linear is not None else "what the correction adds to"
    titles = [label]
    if classes:
        titles = [f"{label} = {name}" for name in (classes[1:] if len(matrix) == 1 else classes)]
        unit = f"{unit} the log-odds of"
    parts = []
    for index, (title, row) in enumerate(zip(titles, matrix, strict=False)):
        largest = np.argsort(-np.abs(row))[:_MAX_COEFFICIENT_BARS]
        parts.append({
            "title": title,
            "unit": f"{unit} {title}",
            "rows": [
                {
                    "name": names[k],
                    "value": float(row[k]),
                    "noise": None if spread is None else float(spread[index, k]),
                }
                for k in largest
            ],
        })  # fmt: skip
    return {
        "parts": parts if np.any(matrix) else [],
        "left_out": max(0, len(names) - _MAX_COEFFICIENT_BARS),
        "noise": spread is not None,
        "scaled": scales is not None,
    }


def _parameter_in_words(value: Any) -> str:
    match value:
        case None:
            return "not set"
        case float():
            return f"{value:g}"
        case list() | tuple():
            return ", ".join(map(str, value))
    return str(value)


def summarise_demo(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return `results` with means and spreads, and with sentences for each case.

    Parameters
    ----------
    results : mapping
        As `dpadapt demo` measures them: under ``cases``, ``papers`` and ``others``, panels of levels and curves with
        one value per seed.
    """
    parts = {
        part: [{**case, "panels": [with_spread(panel) for panel in case["panels"]]} for case in results[part]]
        for part in ("cases", "papers", "others")
    }
    cases = [{**case, "words": demo_in_words(case)} for case in parts["cases"]]
    return {**results, "kind": "demo", "version": __version__, **parts, "cases": cases}


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
