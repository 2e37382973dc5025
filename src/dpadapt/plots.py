"""Results as charts: forecasts, rehearsals, coefficients, and what was spent of a ledger.

Each function returns a chart of `report/charts.py`, which a notebook shows, and whose `save` writes a picture. Nothing
is drawn that is not public or was not released already.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpadapt.accounting.ledger import Ledger
from dpadapt.data import Public
from dpadapt.inputs.gate import public_table
from dpadapt.learning.base import PrivateEstimator
from dpadapt.learning.fit_summary import FitSummary
from dpadapt.report.charts import BarChart, LineChart, forecast_charts, spending_chart
from dpadapt.report.fit import coefficient_charts
from dpadapt.report.previews import Part, rehearsal_chart
from dpadapt.tables.model import TableModel
from dpadapt.transfer.preview import Rehearsal, forecasts_at


def plot_forecast(
    estimator: Any, public: Public, n_private: int, *, epsilons: Sequence[float] = (0.1, 0.3, 1.0, 3.0, 10.0)
) -> LineChart:
    """Draw what public data says about private fits at several epsilons; nothing private is read or spent.

    For a regression: the expected mean squared error over that of the public model, for a shift of middle size; the
    band goes from the smallest to the largest shift that `forecast` considers. For a classification: the standard
    deviation of the noise in a logit.

    Parameters
    ----------
    estimator : PrivateTransferRegressor or PrivateTransferClassifier
        Unfitted; its epsilon is replaced by each of `epsilons`.
    public : Public
    n_private : int
        How many private rows there are or will be: a public number.
    epsilons : sequence of float
    """
    if not hasattr(estimator, "forecast"):
        raise TypeError(f"estimator must have a forecast, as the transfer estimators do; {type(estimator).__name__} "
                        f"has none. Use rehearse and plot_rehearsal.")  # fmt: skip
    charts = forecast_charts(forecasts_at(estimator, public, n_private, epsilons))
    if not charts:
        raise ValueError("epsilons: at none of them would anything be released, so there is nothing to draw.")
    return charts[0]


def plot_rehearsal(rehearsal: Rehearsal | Mapping[str, Rehearsal]) -> LineChart:
    """Draw the errors of rehearsals at each epsilon: means, and a band of one standard deviation over the splits.

    Parameters
    ----------
    rehearsal : Rehearsal, or mapping from name to Rehearsal
        From `rehearse`; several must have the same epsilons and error.
    """
    named = {"rehearsed fit": rehearsal} if isinstance(rehearsal, Rehearsal) else dict(rehearsal)
    if not named or not all(isinstance(each, Rehearsal) for each in named.values()):
        raise TypeError("rehearsal must be a Rehearsal, or a mapping from names to some: see dpadapt.rehearse.")
    if len({(each.metric, each.epsilons) for each in named.values()}) > 1:
        raise ValueError(
            "rehearsal: all must have the same epsilons and error. Draw the others into a chart of their own."
        )
    keys = ["together"] if len(named) == 1 else list(named)
    parts = [
        Part(key=key, name=name, method=name, public=True, rehearsal=each)
        for key, (name, each) in zip(keys, named.items(), strict=True)
    ]
    return rehearsal_chart(parts)


def plot_coefficients(
    model: Any, *, names: Sequence[str] | None = None, public: Public | None = None, target: Any = None
) -> BarChart:
    """Draw the largest coefficients of a fitted linear model.

    Where the estimator knows it, a line shows one standard deviation of the privacy noise to both sides. It leaves out
    the sampling of the rows, so that it is no confidence interval.

    Parameters
    ----------
    model : fitted estimator or TableModel
        With ``coef_``.
    names : sequence of str, optional
        Names of the features. Default: those that the model knows.
    public : Public, optional
        Public rows as arrays: coefficients are then shown per standard deviation of each feature in these.
    target : label, optional
        The class whose coefficients are drawn; needed if there are more than two.
    """
    label, known = "the prediction", getattr(model, "feature_names_in_", None)
    if isinstance(model, TableModel):
        label, known = str(model.label), model.get_feature_names_out()
    elif not isinstance(model, PrivateEstimator):
        raise TypeError(f"model must be a fitted estimator of dpadapt or a TableModel, got {type(model).__name__}.")
    summary: FitSummary = model.summary()
    if summary.coefficients is None:
        raise TypeError(f"model must have coefficients (coef_); this {type(model).__name__} has none.")
    n_features = np.atleast_2d(summary.coefficients).shape[1]
    if names is None:
        names = [f"x{k}" for k in range(n_features)] if known is None else [str(name) for name in known]
    scales = None if public is None else public_table(public.X).std(axis=0)
    for name, given in (("names", names), ("public", names if scales is None else scales)):
        if len(given) != n_features:
            raise ValueError(f"{name} must have one entry per coefficient: {n_features}, got {len(given)}.")
    charts = coefficient_charts(summary, list(names), label, scales)
    if not charts:
        raise ValueError("all coefficients of the model are 0, so there is nothing to draw.")
    if len(charts) == 1:
        return charts[0]
    classes = list(summary.classes)
    if target not in classes:
        shown = ", ".join(map(str, classes))
        raise ValueError(f"target must be the class whose coefficients are drawn, one of {shown}; got {target!r}.")
    return charts[classes.index(target)]


def plot_ledger(ledger: Ledger) -> LineChart:
    """Draw what was spent of a ledger after each charge, and its cap.

    Parameters
    ----------
    ledger : Ledger
        Also an allowance, whose limit then takes the place of the cap.

    Notes
    -----
    What is spent is the filter's number, not the sum of the epsilons. The first charge counts at its exact cost; the
    second is the first that the filter adds up, and can raise the number by more than its own epsilon.
    """
    if not isinstance(ledger, Ledger):
        raise TypeError(f"ledger must be a dpadapt.Ledger, got {type(ledger).__name__}.")
    spending = ledger.spending()
    if not all(map(math.isfinite, spending)):
        raise ValueError("ledger: something was released without noise, so that what was spent is not finite.")
    return spending_chart(spending, ledger.epsilon)
