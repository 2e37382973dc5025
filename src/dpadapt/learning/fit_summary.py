"""`FitSummary`: what a fit released, adopted, estimated and assumed. Reports are drawn from it.

Everything here follows from releases and public data alone.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt import notebook
from dpadapt.accounting.receipt import Receipt

# Public rows below which no error on them is stated: the standard error of a mean squared error is about sqrt(2 / n)
# of it, a third here.
_FEWEST_ROWS_FOR_ERRORS = 20

# An estimate with the limits of its 90% interval.
Estimate = tuple[float, float, float]


@dataclass(frozen=True, eq=False)
class People:
    """What people who each answered one question contributed.

    Parameters
    ----------
    asked : mapping from str to int
        How many were asked at each stage.
    chosen : str
        The model that was chosen.
    tested_error : (float, float) or None
        Its error, and the standard deviation of that at most; None if nobody tested it.
    """

    asked: Mapping[str, int]
    chosen: str
    tested_error: tuple[float, float] | None


@dataclass(frozen=True, eq=False)
class FitSummary:
    """What a fit released, adopted, estimated and assumed.

    Parameters
    ----------
    receipt, epsilon : Receipt, float
        What was released and what is assumed to be public; what the fit could spend.
    classes : sequence
        Empty for a regression.
    adopted : float or None
        Share of the private correction that passed the gate; None without a gate.
    gain : (float, float, float) or None
        By how much the error on the private population is less than the public model's, and its 90% interval.
    readable_labels : (float, float, float) or None
        Share of the private labels that could be read, and its interval.
    public_model, public_errors : estimator, mapping or None
        The model that the public rows alone gave, and its errors, from `held_out_errors`.
    coefficients, coefficient_noise, own_effect : ndarray or None
        Coefficients, the standard deviation of the privacy noise in each, and of each column that is constant in public
        rows how much of its effect shrinkage left.
    beside_public_model : bool
        Whether the coefficients are those of a correction, beside a public model that is not linear.
    by_class : mapping or None
        Recall and precision of each class on public rows.
    threshold : (float, object) or None
        The probability from which on the second class is predicted, and the rule that it follows.
    has_intervals : bool
        Whether predictions have intervals or sets.
    people : People or None
        If people were asked.
    """

    receipt: Receipt
    epsilon: float
    classes: Any = ()
    adopted: float | None = None
    gain: Estimate | None = None
    readable_labels: Estimate | None = None
    public_model: Any = None
    public_errors: Mapping[str, Any] | None = None
    coefficients: NDArray[np.float64] | None = field(default=None, repr=False)
    coefficient_noise: NDArray[np.float64] | None = field(default=None, repr=False)
    own_effect: NDArray[np.float64] | None = field(default=None, repr=False)
    beside_public_model: bool = False
    by_class: Mapping[str, Any] | None = field(default=None, repr=False)
    threshold: tuple[float, Any] | None = None
    has_intervals: bool = False
    people: People | None = None

    def facts(self) -> dict[str, str]:
        """Return what is known, in words, by name."""
        facts = {"cost": f"epsilon = {self.receipt.epsilon:.4g}, delta = {self.receipt.delta:.3g}"}
        facts["released"] = "; ".join(map(str, self.receipt.entries)) or "nothing"
        if self.adopted is not None:
            facts["share of the private correction that was adopted"] = f"{self.adopted:.0%}"
        gain = "gain over the public model, " + ("log-loss per row" if len(self.classes) else "share of its error")
        for name, estimate in ((gain, self.gain), ("share of labels that could be read", self.readable_labels)):
            if estimate is not None:
                facts[name] = "{:.3g} ({:.3g} to {:.3g} with 90% confidence)".format(*estimate)
        if self.public_errors is not None:
            measure = f"{self.public_errors['measure']} on public rows"
            facts |= {f"{measure}, {row['name']}": f"{row['error']:.4g}" for row in self.public_errors["rows"]}
        return facts | {"assumed public": "; ".join(self.receipt.assumptions)}

    def __str__(self) -> str:
        """Show the facts, a line for each."""
        return "\n".join(f"{name}: {text}" for name, text in self.facts().items())

    def _repr_html_(self) -> str:
        return notebook.card("Fit", notebook.facts(self.facts()))


def held_out_errors(
    labels: NDArray[Any], predictions: NDArray[np.float64], *, name: str = "public model"
) -> dict[str, Any] | None:
    """Return the errors of no model and of a public model on public rows; None for few rows.

    The ``error`` is that of advice, forecast and verdict: the mean squared error, or the log-loss. ``beside`` it stands
    one that is easier to picture: its square root, in the label's unit, or the share of wrong classes. Labels
    are numbers, or class codes beside probabilities. The model, called `name`, was not fitted to these rows.

    Examples
    --------
    >>> errors = held_out_errors(np.arange(20.0), np.arange(20.0) + 1)
    >>> errors["rows"][1]["error"]
    1.0
    """
    if len(labels) < _FEWEST_ROWS_FOR_ERRORS:
        return None
    if predictions.ndim == 1:
        errors = float(np.var(labels)), float(np.mean((labels - predictions) ** 2))
        beside = math.sqrt(errors[0]), math.sqrt(errors[1])
        constant, measures = "no model: the mean", ("mean squared error", "root mean squared error")
    else:
        frequencies = np.bincount(labels, minlength=predictions.shape[1]) / len(labels)
        tables = np.broadcast_to(frequencies, predictions.shape), predictions
        rows = np.arange(len(labels))
        errors, beside = (
            (float(one), float(two))
            for one, two in (
                [-np.mean(np.log(np.maximum(table[rows, labels], np.finfo(float).tiny))) for table in tables],
                [np.mean(np.argmax(table, axis=1) != labels) for table in tables],
            )
        )
        constant, measures = "no model: the class frequencies", ("log-loss", "share of wrong classes")
    return {
        "measure": measures[0],
        "measure beside": measures[1],
        "rows": [{"name": shown, "error": errors[k], "beside": beside[k]} for k, shown in enumerate((constant, name))],
        "n_public": len(labels),
    }
