"""Rare classes: class weights, decision thresholds, and recall and precision of each class. All of it is public.

Nothing here reads a private row, and nothing changes what a fit releases or what it costs.

*Class weights.* The model that minimises a log-loss in which class k counts w_k has probabilities in proportion to
w_k p_k(x), with p the probabilities of the unweighted model: its scores are those of the unweighted model plus log w_k.
So the weights are added to the intercepts after the fit. Multiplying the terms of private rows by them instead aims at
the same minimum, but with one class in twenty and balanced weights the rows would amount to a tenth of their number,
beside noise of the same size.

*Thresholds.* With probabilities that are right, calling the second class at probability p costs (1 - p) times the cost
of a false alarm, and not calling it p times the cost of a miss: the threshold of least cost is known without any data.
Only metrics that are not sums of costs over rows need rows: the threshold is then the best for the rows that are
public, as the model expects it.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import precision_recall_fscore_support
from sklearn.utils.class_weight import compute_class_weight

from dpadapt import checks

BALANCED = "balanced"
# Metrics that public rows can choose a threshold for.
THRESHOLD_METRICS = ("balanced_accuracy", "f1")
_COSTS = ("miss", "false alarm")


def score_shift(class_weight: Any, classes: NDArray[Any], codes_public: NDArray[np.int64] | None) -> Any:
    """Return what class weights add to the score of the second of two classes, or to the score of each class.

    Parameters
    ----------
    class_weight : mapping from class to weight, "balanced" or None
        A class that is not in the mapping has weight 1. "balanced" weights are one over the public class frequencies.
    classes : ndarray
    codes_public : ndarray or None
        Classes of the public rows, as positions in `classes`.

    Examples
    --------
    >>> score_shift({"ill": 20.0}, np.array(["healthy", "ill"]), None).round(3)
    array([2.996])
    >>> score_shift("balanced", np.array([0, 1, 2]), np.array([0, 0, 0, 1, 2])).round(3)
    array([-0.588,  0.511,  0.511])
    """
    if class_weight is None:
        return np.zeros(1)
    if isinstance(class_weight, str) and class_weight == BALANCED:
        if codes_public is None:
            raise ValueError(
                "class_weight='balanced' needs public labels: private class frequencies are not read. Give the weights "
                "as a mapping from class to weight."
            )
        if len(np.unique(codes_public)) < len(classes):
            raise ValueError(
                "class_weight='balanced' needs public rows of every class. Give the weights as a mapping from class to "
                "weight."
            )
        weights = compute_class_weight(BALANCED, classes=np.arange(len(classes)), y=codes_public)
    elif isinstance(class_weight, Mapping):
        known = set(classes.tolist())
        if not set(class_weight) <= known:
            raise ValueError("class_weight must be a mapping from class to weight: one of its keys is no class.")
        given = {label: checks.scale(weight, "each class_weight") for label, weight in class_weight.items()}
        weights = np.array([given.get(label, 1.0) for label in classes.tolist()])
    else:
        raise ValueError("class_weight must be 'balanced', a mapping from class to weight, or None.")
    logs = np.log(weights)
    return logs[1:] - logs[:1] if len(logs) == 2 else logs


def threshold_rule(wanted: Any, n_classes: int, *, weighted: bool = False) -> float | str | None:
    """Return the threshold that follows from `wanted` alone, or the metric that public rows must choose it for.

    Parameters
    ----------
    wanted : float, mapping of costs, metric or None
    n_classes : int
    weighted : bool
        Whether there are class weights, with which the costs would count twice.

    Examples
    --------
    >>> threshold_rule({"miss": 9, "false alarm": 1}, 2)
    0.1
    """
    if wanted is None:
        return None
    if n_classes != 2:
        raise ValueError("decision_threshold is for two classes. For more, give class_weight.")
    if isinstance(wanted, str):
        if wanted not in THRESHOLD_METRICS:
            raise ValueError(_unknown(wanted))
        return wanted
    if isinstance(wanted, Mapping):
        if set(wanted) != set(_COSTS):
            raise ValueError(_unknown(dict(wanted)))
        if weighted:
            raise ValueError(
                "decision_threshold: costs and class_weight together would count the costs twice. Leave one out."
            )
        miss, alarm = (checks.scale(wanted[name], f"the cost of a {name}") for name in _COSTS)
        return alarm / (alarm + miss)
    number = checks.share(wanted, "decision_threshold")
    if number == 0:
        raise ValueError("decision_threshold must lie between 0 and 1, got 0.")
    return number


def _unknown(wanted: Any) -> str:
    return (
        f"decision_threshold must be a probability, the costs {{'miss': ..., 'false alarm': ...}}, or one of "
        f"{', '.join(map(repr, THRESHOLD_METRICS))}, got {wanted!r}."
    )


def require_public(rule: float | str | None, X_public: Any) -> None:
    """Refuse a metric for which there are no public rows."""
    if isinstance(rule, str) and X_public is None:
        raise ValueError(
            f"decision_threshold={rule!r} is chosen on public rows. Give public rows, or a probability, or the costs "
            f"{{'miss': ..., 'false alarm': ...}}."
        )


def best_threshold(rule: float | str | None, probabilities: NDArray[np.float64] | None) -> float | None:
    """Return the threshold on the probability of the second class at which a metric is largest, as the model expects.

    The expectation is over the labels of public rows, given the model's probabilities for these rows. Their actual
    labels are not used: with few rows of a class, the best threshold for these is mostly chance.

    Parameters
    ----------
    rule : float, metric or None
        From `threshold_rule`. A number, or None, is returned as it is.
    probabilities : ndarray of shape (n_public, 2) or None

    Examples
    --------
    >>> p = np.array([0.1, 0.1, 0.1, 0.4, 0.6])
    >>> best_threshold("f1", np.column_stack([1 - p, p]))
    0.25
    """
    if not isinstance(rule, str) or probabilities is None:
        return None if isinstance(rule, str) else rule
    falling = np.sort(probabilities[:, 1])[::-1]
    positives, negatives = falling.sum(), (1.0 - falling).sum()
    # Expected hits and false alarms if the first k rows are called.
    hits, alarms = np.cumsum(falling), np.cumsum(1.0 - falling)
    if rule == "f1":
        worth = 2.0 * hits / np.maximum(hits + alarms + positives, 1e-300)
    else:
        worth = hits / max(positives, 1e-300) - alarms / max(negatives, 1e-300)
    best = int(np.argmax(worth))
    # Half-way to the next row, so that rounding decides about no row.
    lower = falling[best + 1] if best + 1 < len(falling) else 0.0
    return float(falling[best] + lower) / 2


def by_class(codes: NDArray[np.int64], predicted: NDArray[np.int64], n_classes: int) -> dict[str, list[float]]:
    """Return recall and precision of each class; NaN where a class does not occur or is never predicted.

    Examples
    --------
    >>> by_class(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1]), 2)
    {'recall': [0.5, 1.0], 'precision': [1.0, 0.6666666666666666]}
    """
    precision, recall, _, _ = precision_recall_fscore_support(
        codes, predicted, labels=np.arange(n_classes), zero_division=np.nan
    )
    return {"recall": recall.tolist(), "precision": precision.tolist()}
