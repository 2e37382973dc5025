"""Results as plain dictionaries: what every report is made from, and what goes to JSON."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from dpadapt import __version__
from dpadapt.accounting.receipt import Receipt
from dpadapt.methods import Method
from dpadapt.report.contributions import demo_in_words

# The guarantee in words: what epsilon and delta mean for one person.


def best_guess(epsilon: float, delta: float) -> float:
    """Return how often an attacker who tosses a fair coin otherwise can be right, at most.

    An (epsilon, delta)-private output has total variation at most (e^epsilon - 1 + 2 delta) / (e^epsilon + 1) between
    neighbours, and the best guess between two equally likely worlds is right with probability (1 + that) / 2.

    Examples
    --------
    >>> round(best_guess(1.0, 0.0), 3)
    0.731
    """
    return 1.0 if epsilon > 700 else min(1.0, (1.0 + delta * math.exp(-epsilon)) / (1.0 + math.exp(-epsilon)))


def words(receipt: Receipt) -> list[str]:
    """Return the guarantee as sentences for somebody who does not know what epsilon is.

    Examples
    --------
    >>> from dpadapt.accounting import Ledger
    >>> print(words(Ledger(epsilon=1.0, delta=1e-6).receipt())[0][:34])
    Suppose somebody knows every other
    """
    if receipt.seeded:
        return [
            "There is no guarantee: the noise came from a seed, so whoever knows the seed can subtract it. Fit again "
            "without --seed before this model leaves your hands."
        ]
    if math.isinf(receipt.epsilon):
        return ["There is no guarantee: something was released without noise."]
    most = percent(best_guess(receipt.epsilon, receipt.delta))
    return [
        f"Suppose somebody knows every other private row, sees this model and all of this page, and has to guess "
        f"{receipt.adjacency.question}. A coin is right half of the time; they are right at most {most} of the "
        f"time, whatever they know and however much they compute.",
        f"What is protected is one row. Where one person has several rows, say k of them, epsilon for that person is "
        f"about k times as large. T{receipt.adjacency.rows[1:]}.",
        "What the rows have in common is meant to be learned: a model may say something true about you because it is "
        "true about people like you, whether or not your row was used. Public rows are not protected at all.",
    ]


def percent(share: float) -> str:
    """Return e.g. 73.2%, rounded up, with as many nines as it takes to differ from 100%.

    Examples
    --------
    >>> percent(best_guess(1.0, 1e-6)), percent(best_guess(10.0, 1e-6))
    ('73.2%', '99.996%')
    """
    if share >= 1.0:
        return "100%"
    digits = max(1, math.ceil(-math.log10(1.0 - share)) - 2)
    return f"{min(math.ceil(share * 10 ** (digits + 2)), 10 ** (digits + 2)) / 10**digits:.{digits}f}%"


# More bars than this are no longer read.
_MOST_BARS = 20
_MOST_CHARTS = 6


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
) -> dict[str, Any]:
    """Return all that a report of one fit says.

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
        From `compare_on_public`.
    brought : sequence of str
        From `fit_in_words`.
    forecast : mapping, optional
        From `forecast_of_fit`.
    ledger : mapping, optional
        With `words`: the state of the data set's ledger.
    """
    receipt: Receipt = model.privacy_
    return {
        "kind": "fit",
        "dataset": dataset,
        "task": method.task,
        "label": label,
        "method": {"name": method.name, "summary": method.summary},
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "version": __version__,
        "guarantee": words(receipt),
        "best_guess": percent(best_guess(receipt.epsilon, receipt.delta)),
        "receipt": summarise_receipt(receipt),
        "public": public,
        "parameters": {name: _shown(value) for name, value in model.get_params(deep=False).items()},
        "coefficients": _coefficients(model, names, label),
        "comparison": None if comparison is None else dict(comparison),
        "brought": list(brought),
        "forecast": None if forecast is None else dict(forecast),
        "ledger": None if ledger is None else dict(ledger),
    }


def summarise_receipt(receipt: Receipt) -> dict[str, Any]:
    """Return what a receipt says, with every warning, and a second accountant's opinion."""
    second = receipt.verify()
    seeded = ["The noise came from a seed: this fit has no privacy guarantee."] if receipt.seeded else []
    return {
        "epsilon": receipt.epsilon if math.isfinite(receipt.epsilon) else "inf",
        "delta": receipt.delta,
        "adjacency": receipt.adjacency.value,
        "protects": receipt.adjacency.protects,
        "seeded": receipt.seeded,
        "entries": [
            {"label": entry.label, "mechanism": str(entry.event), "times": entry.times} for entry in receipt.entries
        ],
        "assumptions": list(receipt.assumptions),
        "warnings": [*seeded, *receipt.warnings],
        "second": {"lower": second.lower, "upper": second.upper, "accountant": second.accountant},
    }


def summarise_demo(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return `results` with means, spreads and words for each case.

    Parameters
    ----------
    results : mapping
        As `dpadapt demo` measures them: under ``cases``, ``papers`` and ``others``, panels of levels and curves with
        one value per seed.
    """
    shown = {
        part: [{**case, "panels": [with_spread(panel) for panel in case["panels"]]} for case in results[part]]
        for part in ("papers", "others")
    }
    cases = [_case(case) for case in results["cases"]]
    return {**results, "kind": "demo", "version": __version__, "cases": cases, **shown}


def _case(case: Mapping[str, Any]) -> dict[str, Any]:
    panels = [with_spread(panel) for panel in case["panels"]]
    return {**case, "panels": panels, "words": demo_in_words({**case, "panels": panels})}


def with_spread(panel: Mapping[str, Any]) -> dict[str, Any]:
    """Return a panel with the mean and spread of each level and each point of its curves."""
    return {
        **panel,
        "levels": [{**level, **_spread(level["values"])} for level in panel["levels"]],
        "curves": [
            {**curve, "points": [{**point, **_spread(point["values"])} for point in curve["points"]]}
            for curve in panel["curves"]
        ],
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"mean": float(np.mean(values)), "spread": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0}


def _coefficients(model: Any, names: Sequence[str], label: str) -> dict[str, Any]:
    """Return the largest coefficients, for each class where there are several."""
    matrix = np.atleast_2d(np.asarray(getattr(model, "coef_", np.empty((0, len(names))))))
    if matrix.shape[1] != len(names):
        return {"parts": [], "left_out": 0, "classes_left_out": 0}
    classes = [str(value) for value in getattr(model, "classes_", [])]
    if not classes:
        titles, unit = [label], "change of"
    else:
        titles = [f"{label} = {name}" for name in (classes[1:] if len(matrix) == 1 else classes)]
        unit = "change of the log-odds of"
    parts = []
    for title, row in list(zip(titles, matrix, strict=False))[:_MOST_CHARTS]:
        order = np.argsort(-np.abs(row))[:_MOST_BARS]
        parts.append({
            "title": title,
            "unit": f"{unit} {title}",
            "rows": [{"name": names[k], "value": float(row[k])} for k in order],
        })  # fmt: skip
    return {
        "parts": parts,
        "left_out": max(0, len(names) - _MOST_BARS),
        "classes_left_out": max(0, len(matrix) - _MOST_CHARTS),
    }


def _shown(value: Any) -> str:
    match value:
        case None:
            return "not set"
        case float():
            return f"{value:g}"
        case list() | tuple():
            return ", ".join(map(str, value))
    return str(value)
