"""Results drawn with matplotlib: forecasts, rehearsals, coefficients, and what was spent of a ledger.

Each function draws into the axes that it is given, or into new ones, and returns them. matplotlib is optional (extra
`plot`), and is imported when something is drawn. The values are prepared by `report/charts.py`, which says why the
reports draw the same values as inline SVG instead. Nothing is drawn that is not public or was not released already.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpadapt.accounting.ledger import Ledger
from dpadapt.data import Public
from dpadapt.inputs.arrays import public_table
from dpadapt.report.before_spending import Part, rehearsal_panel, summarise_forecast
from dpadapt.report.charts import (
    BarChart,
    LineChart,
    case_chart,
    coefficient_charts,
    forecast_charts,
    spending_chart,
)
from dpadapt.report.summarise import coefficients_of
from dpadapt.tables.model import TableModel
from dpadapt.transfer.rehearsal import Rehearsal

# Styles of curves as colours of matplotlib: those of the user's own style, and a grey for references.
_CYCLE = {"s1": "C1", "s2": "C0", "s3": "C5", "s4": "C2", "s5": "C6", "s6": "C4", "ref": "0.5"}


def plot_forecast(
    estimator: Any,
    public: Public,
    n_private: int,
    *,
    epsilons: Sequence[float] = (0.1, 0.3, 1.0, 3.0, 10.0),
    ax: Any = None,
) -> Any:
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
    ax : matplotlib axes, optional

    Returns
    -------
    ax : matplotlib axes
    """
    if not hasattr(estimator, "forecast"):
        raise TypeError(f"estimator must have a forecast, as the transfer estimators do; {type(estimator).__name__} "
                        f"has none. Use rehearse and plot_rehearsal.")  # fmt: skip
    charts = forecast_charts(summarise_forecast(estimator, public, n_private, epsilons))
    if not charts:
        raise ValueError("epsilons: at none of them would anything be released, so there is nothing to draw.")
    return _draw_lines(charts[0], ax)


def plot_rehearsal(rehearsal: Rehearsal | Mapping[str, Rehearsal], *, ax: Any = None) -> Any:
    """Draw the errors of rehearsals at each epsilon: means, and a band of one standard deviation over the splits.

    Parameters
    ----------
    rehearsal : Rehearsal, or mapping from name to Rehearsal
        From `rehearse`; several must have the same epsilons and error.
    ax : matplotlib axes, optional

    Returns
    -------
    ax : matplotlib axes
    """
    named = {"rehearsed fit": rehearsal} if isinstance(rehearsal, Rehearsal) else dict(rehearsal)
    if not named or not all(isinstance(each, Rehearsal) for each in named.values()):
        raise TypeError("rehearsal must be a Rehearsal, or a mapping from names to some: see dpadapt.rehearse.")
    if len({(each.metric, each.epsilons) for each in named.values()}) > 1:
        raise ValueError(
            "rehearsal: all must have the same epsilons and error. Draw the others into axes of their own."
        )
    keys = ["together"] if len(named) == 1 else list(named)
    parts = [
        Part(key=key, name=name, method=name, public=True, rehearsal=each)
        for key, (name, each) in zip(keys, named.items(), strict=True)
    ]
    first = parts[0].rehearsal
    case = {"title": "Rehearsal on public rows", "axis": first.metric, "panels": [rehearsal_panel(parts)]}
    return _draw_lines(case_chart(case), ax)


def plot_coefficients(
    model: Any, *, names: Sequence[str] | None = None, public: Public | None = None, target: Any = None, ax: Any = None
) -> Any:
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
    ax : matplotlib axes, optional

    Returns
    -------
    ax : matplotlib axes
    """
    inner, label, known = model, "the prediction", getattr(model, "feature_names_in_", None)
    if isinstance(model, TableModel):
        inner, label, known = model.model_, str(model.label), model.get_feature_names_out()
    if not hasattr(inner, "coef_"):
        raise TypeError(f"model must be fitted and have coefficients (coef_); this {type(inner).__name__} has none.")
    n_features = np.atleast_2d(np.asarray(inner.coef_)).shape[1]
    if names is None:
        names = [f"x{k}" for k in range(n_features)] if known is None else [str(name) for name in known]
    scales = None if public is None else public_table(public.X).std(axis=0)
    for name, given in (("names", names), ("public", names if scales is None else scales)):
        if len(given) != n_features:
            raise ValueError(f"{name} must have one entry per coefficient: {n_features}, got {len(given)}.")
    charts = coefficient_charts(coefficients_of(inner, list(names), label, scales))
    if not charts:
        raise ValueError("all coefficients of the model are 0, so there is nothing to draw.")
    if len(charts) == 1:
        return _draw_bars(charts[0], ax)
    classes = list(inner.classes_)
    if target not in classes:
        shown = ", ".join(map(str, classes))
        raise ValueError(f"target must be the class whose coefficients are drawn, one of {shown}; got {target!r}.")
    return _draw_bars(charts[classes.index(target)], ax)


def plot_ledger(ledger: Ledger, *, ax: Any = None) -> Any:
    """Draw what was spent of a ledger after each charge, and its cap.

    Parameters
    ----------
    ledger : Ledger
        Also an allowance, whose limit then takes the place of the cap.
    ax : matplotlib axes, optional

    Returns
    -------
    ax : matplotlib axes

    Notes
    -----
    What is spent is the filter's number, not the sum of the epsilons. The first charge counts at its exact cost; the
    second is the first that the filter adds up, and can raise the number by more than its own epsilon.
    """
    if not isinstance(ledger, Ledger):
        raise TypeError(f"ledger must be a dpadapt.Ledger, got {type(ledger).__name__}.")
    return _draw_lines(spending_chart(ledger.spending(), ledger.epsilon), ax)


def _axes(ax: Any) -> Any:
    """Return the axes to draw into."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        raise ModuleNotFoundError(
            "plots need matplotlib, which is not installed: pip install 'dpadapt[plot]'.", name="matplotlib"
        ) from None
    return pyplot.subplots(layout="constrained")[1]


def _draw_lines(chart: LineChart, ax: Any) -> Any:
    """Draw a chart of one panel."""
    ax, (panel,) = _axes(ax), chart.panels
    for line in panel.lines:
        colour = _CYCLE[line.style]
        ax.plot(line.x, line.mean, color=colour, marker="o", linestyle="--" if line.dashed else "-", label=line.name)
        if any(low < high for low, high in zip(line.low, line.high, strict=True)):
            # One entry in the legend for the bands of all curves.
            label = panel.band if panel.band not in ax.get_legend_handles_labels()[1] else "_"
            ax.fill_between(line.x, line.low, line.high, color=colour, alpha=0.15, linewidth=0, label=label)
    for k, level in enumerate(panel.levels):
        ax.axhline(level.value, color=_CYCLE["ref"], linestyle=(":", "-.")[k % 2], label=level.name)
    if panel.logarithmic:
        ticks = sorted({x for line in panel.lines for x in line.x})
        ax.set_xscale("log")
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.set_xticks([], minor=True)
    ax.set_ylim(*chart.limits())
    ax.set(xlabel=panel.x_label, ylabel=chart.y_label, title=chart.title)
    ax.legend()
    return ax


def _draw_bars(chart: BarChart, ax: Any) -> Any:
    ax = _axes(ax)
    colours = [_CYCLE["s2" if value >= 0 else "s1"] for value in chart.values]
    places = np.arange(len(chart.values))
    ax.barh(places, chart.values, color=colours)
    known = [k for k, spread in enumerate(chart.spreads) if spread]
    note = ""
    if known:
        middle, half = np.array(chart.values)[known], np.array(chart.spreads, dtype=np.float64)[known]
        ax.errorbar(middle, places[known], xerr=half, fmt="none", ecolor=_CYCLE["ref"], capsize=3)
        note = "\n(line: one standard deviation of the privacy noise, without sampling)"
    ax.axvline(0.0, color=_CYCLE["ref"], linewidth=0.8)
    ax.set_yticks(places, list(chart.names))
    # The largest coefficient comes first, at the top.
    ax.invert_yaxis()
    ax.set(xlabel=f"{chart.x_label}{note}", title=chart.title)
    return ax
