"""The report of one fit: the verdict, what each part of the data contributed, coefficients, groups, and the page.

All of it is drawn from the `FitSummary` of the estimator and from public rows. Errors are compared on public rows
alone: any score on private rows would be a release.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from dpadapt import __version__
from dpadapt.data import Public
from dpadapt.inputs.gate import numeric_labels, public_table
from dpadapt.learning.base import class_probabilities
from dpadapt.learning.fit_summary import FitSummary, held_out_errors
from dpadapt.methods import Method
from dpadapt.report import page
from dpadapt.report.charts import BarChart, forecast_charts
from dpadapt.report.receipt import best_guess, guarantee_in_words, percent, receipt_facts
from dpadapt.transfer.base import combined, held_out_scores, regression_base
from dpadapt.transfer.intervals import coverage_in_words
from dpadapt.transfer.preview import PUBLIC_ONLY_BUDGET, Forecast, beside, forecasts_at

# Bars in one chart of coefficients, and charts (one per class) in one report. Twenty bars with a chart's axis are as
# high as a screen of 600 units; six such charts are as many as a reader scrolls through.
_MAX_COEFFICIENT_BARS = 20
_MAX_COEFFICIENT_CHARTS = 6
_NOISE_NOTE = "Thin line: one standard deviation of the privacy noise, without that of the sample."
# Groups that are named in one sentence.
_MAX_GROUPS = 12
# A group of which less than half of its own effect was kept is nearer to the overall level than to itself.
_LEANING_SHARE = 0.5
# Public rows of a group below which it is called rare: its mean label then has a standard error above a fifth of the
# label's standard deviation.
_FEW_ROWS_OF_A_GROUP = 25
# Smallest shift, as a share of the public model's mean squared error, whose absence is worth a verdict: if the gate
# would have opened at a smaller one, private rows that changed nothing say that the public model is right. Chosen by
# hand.
_SMALL_SHIFT = 0.1
# Budgets for which the report of a fit repeats its forecast, as factors on the epsilon of the fit. Chosen by hand.
_FORECAST_FACTORS = (0.1, 1 / 3, 1.0, 3.0, 10.0)


def summarise_fit(
    model: Any,
    *,
    method: Method,
    dataset: str,
    label: str,
    names: Sequence[str],
    public: Public | None = None,
    public_words: str | None = None,
    ledger: Mapping[str, Any] | None = None,
    n_private: int | None = None,
    planned_rows: int | None = None,
) -> dict[str, Any]:
    """Return the contents of the report of one fit.

    `names` are those of the encoded features, and `public` holds encoded public rows: coefficients are shown per
    standard deviation in these, and groups that are rare in them are named. `ledger` has `words`: the state of the data
    set's ledger. `n_private` is given only if it is public. The forecast is for `planned_rows`, if they are given.
    """
    summary = model.summary()
    comparison = None if public is None else errors_on_public(summary, public)
    forecasts = [] if planned_rows is None else forecasts_of_fit(model, public, planned_rows)
    forecast = beside(forecasts, summary.receipt.unit) if forecasts else None
    X_public = None if public is None else np.asarray(public.X, dtype=np.float64)
    charts = coefficient_charts(summary, names, label, None if X_public is None else X_public.std(axis=0))
    receipt = summary.receipt
    return {
        "kind": "fit",
        "verdict": verdict_on_fit(summary, forecasts, n_private),
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
        "public": public_words,
        "parameters": {name: _parameter_in_words(value) for name, value in model.get_params(deep=False).items()},
        "charts": charts[:_MAX_COEFFICIENT_CHARTS],
        "coefficients": {
            "left_out": max(0, len(names) - _MAX_COEFFICIENT_BARS),
            "classes_left_out": max(0, len(charts) - _MAX_COEFFICIENT_CHARTS),
            "noise": summary.coefficient_noise is not None,
            "scaled": X_public is not None,
        },
        "comparison": comparison,
        "by_class": class_table(summary),
        "threshold": threshold_in_words(summary, label),
        "intervals": coverage_in_words(receipt.unit) if summary.has_intervals else None,
        "groups": groups_in_words(summary, names, X_public),
        "brought": fit_in_words(summary, model, public, comparison, forecasts),
        "forecast": forecast,
        "forecasts": forecasts,
        "ledger": ledger,
    }


def fit_page(summary: Mapping[str, Any]) -> str:
    """Return the page of one fit; `summary` is from `summarise_fit`."""
    forecasts = summary["forecasts"]
    return page("fit", summary, forecast_charts=forecast_charts(forecasts) if forecasts else [])


def forecasts_of_fit(model: Any, public: Public | None, n_private: int) -> list[Forecast]:
    """Return the forecasts that could have been made before this fit; none if the method has none.

    `n_private` is a public number: of private rows, or of persons if these are protected.
    """
    if public is None or public.y is None or not hasattr(model, "forecast") or model.prior != "shifted":
        return []
    return forecasts_at(model, public, n_private, [model.epsilon * factor for factor in _FORECAST_FACTORS])


# The verdict: use the model, use the public model, or spend more.


def verdict_on_fit(summary: FitSummary, forecasts: Sequence[Forecast], n_private: int | None) -> dict[str, str]:
    """Return the verdict: its `kind` ("go", "stay", "more" or "open"), a `title` and `words`."""
    rows = "The private rows" if n_private is None else f"The {n_private:,} private rows"
    budget = _what_would_pay(summary, forecasts)
    if summary.receipt.seeded:
        return _verdict("more", "Do not use this model", "Its noise came from a seed. Fit again without a seed.")
    if _no_label_readable(summary) and summary.people is not None:
        return _verdict(
            "more",
            "Do not use this model yet; compare how labels are written",
            f"{_unread(summary, 'labels of the people')}, so that nobody corrected or tested this model. Compare how "
            f"labels are written on people's devices and in the schema.",
        )
    if not summary.receipt.entries:
        return _verdict(
            "more",
            "Use the public model; more rows or a larger budget are needed",
            f"The budget is too small for this number of private rows. Nothing was spent, and this model is the "
            f"public one{budget}",
        )
    if _no_label_readable(summary):
        return _verdict_without_labels(summary)
    if summary.gain is not None:
        return _verdict_on_gain(summary, forecasts, rows)
    if summary.adopted is not None and summary.public_model is not None:
        return _verdict(
            "more",
            "Use this model; its gain is uncertain",
            f"The budget paid for a correction of the level, but not for a measurement of what it gains{budget}",
        )
    if summary.people is not None and summary.people.tested_error is not None:
        error, deviation = summary.people.tested_error
        return _verdict(
            "open",
            "Compare this model's error with what you have",
            f"People whom no candidate had used estimate its error at {error:.3f}, with a standard deviation of at "
            f"most {deviation:.3f}. No public model with labels stands behind it to compare it with.",
        )
    return _verdict(
        "open",
        "Measure this model before you use it",
        "No public model with labels stands behind it, so nothing here says how good it is. dpadapt evaluate "
        "measures it on private rows at a small cost.",
    )


def _verdict_without_labels(summary: FitSummary) -> dict[str, str]:
    """Return the verdict where no private label could be read."""
    if summary.public_model is None:
        return _verdict(
            "more",
            "Do not use this model; compare how labels are written",
            f"{_unread(summary, 'private labels')}, and there are no public labels to learn from. Compare how labels "
            f"are written in the private table and in the schema.",
        )
    return _verdict(
        "more",
        "Use the public model; compare how labels are written",
        f"{_unread(summary, 'private labels')}, and this model is the public one. Compare how labels are written in "
        f"the private table and in the schema. If they are written alike, more rows or a larger budget are needed.",
    )


def _verdict_on_gain(summary: FitSummary, forecasts: Sequence[Forecast], rows: str) -> dict[str, str]:
    """Return the verdict where the gain over the public model was estimated."""
    if not summary.adopted:
        return _unchanged(summary, forecasts, rows)
    value, low, high = summary.gain or (0.0, 0.0, 0.0)
    source = "This is an estimate for the private population, made from the noisy releases themselves."
    if summary.readable_labels is not None and summary.readable_labels[2] < 1.0:
        share, least, most = summary.readable_labels
        source += f" Only about {share:.0%} of the private labels could be read ({least:.0%} to {most:.0%})."
    if low > 0:
        loss = f"log-loss by about {value:.3f} per row ({low:.3f} to {high:.3f}"
        share_of_error = f"mean squared error by about {value:.0%} ({low:.0%} to {min(high, 1.0):.0%}"
        lower = loss if _classifies(summary) else share_of_error
        words = f"{rows} lower the public model's {lower} with 90% confidence). {source}"
        return _verdict("go", "Use this model", words)
    unit, ending = ("log-loss", " per row") if _classifies(summary) else ("mean squared error", "")
    limits = (value, low, high if _classifies(summary) else min(high, 1.0))
    about, least_gain, most_gain = (_more_or_less(number, _classifies(summary)) for number in limits)
    words = (
        f"{rows} changed the public model, but whether its {unit} became less can't be told yet: about {about}{ending} "
        f"({least_gain} to {most_gain} with 90% confidence). {source}"
    )
    return _verdict(
        "more",
        "Use this model; its gain is uncertain" if value > 0 else "Measure this model before you use it",
        f"{words} More rows or a larger budget would make it clearer{_what_would_pay(summary, forecasts)}",
    )


def _unchanged(summary: FitSummary, forecasts: Sequence[Forecast], rows: str) -> dict[str, str]:
    """Return the verdict where nothing was adopted: was there nothing to see, or too much noise to see it?"""
    own = own_point(summary, forecasts)
    if own is not None and own.opens_at <= _SMALL_SHIFT:
        return _verdict(
            "stay",
            "Use the public model",
            f"{rows} gave no evidence against the public model, and this model is the public one. A difference that "
            f"costs more than about {own.opens_at:.0%} of its mean squared error would probably have been seen.",
        )
    return _verdict(
        "more",
        "Use the public model; more rows or a larger budget would tell more",
        f"{rows} gave no evidence that exceeds the noise, and this model is the public one. A moderate difference "
        f"could have been missed{_what_would_pay(summary, forecasts)}",
    )


def own_point(summary: FitSummary, forecasts: Sequence[Forecast]) -> Forecast | None:
    """Return the forecast at the epsilon of the fit."""
    return next((forecast for forecast in forecasts if forecast.epsilon == summary.epsilon), None)


def _what_would_pay(summary: FitSummary, forecasts: Sequence[Forecast]) -> str:
    """Return the end of a sentence: the least larger budget at which a smaller difference would be seen."""
    own = own_point(summary, forecasts)
    if own is None:
        return "."
    for forecast in forecasts:
        if forecast.epsilon > own.epsilon and forecast.opens_at < own.opens_at:
            factor = forecast.epsilon / own.epsilon
            return (
                f": with {factor:.2g} times the epsilon, or about {factor:.2g} times the rows, a difference of "
                f"{forecast.opens_at:.0%} of its mean squared error would be seen."
            )
    return "."


def _classifies(summary: FitSummary) -> bool:
    return len(summary.classes) > 0


def _no_label_readable(summary: FitSummary) -> bool:
    """Return whether the released share of readable labels is not more than its noise."""
    return summary.readable_labels is not None and summary.readable_labels[1] == 0.0


def _unread(summary: FitSummary, labels: str) -> str:
    """Return the beginning of a sentence: the released share is not more than its noise."""
    share, low, high = summary.readable_labels or (0.0, 0.0, 0.0)
    return f"About {share:.0%} of the {labels} could be read ({low:.0%} to {high:.0%}): not more than noise explains"


def _more_or_less(gain: float, classifies: bool) -> str:
    """Return a gain in words without a sign."""
    size = f"{abs(gain):.3f}" if classifies else f"{abs(gain):.0%}"
    return f"{size} {'less' if gain >= 0 else 'more'}"


def _verdict(kind: str, title: str, words: str) -> dict[str, str]:
    return {"kind": kind, "title": title, "words": words}


# What the public and the private rows contributed.


def errors_on_public(summary: FitSummary, public: Public) -> dict[str, Any] | None:
    """Return errors on public rows of no model and of the public model, for rows that it was not fitted to.

    The public model is that of the fit. Of a method that keeps none, a linear model of the public rows takes its place.
    None if there are too few public rows, or none with labels.
    """
    if public.y is None:
        return None
    name = "linear model of the public rows"
    if summary.public_model is not None:
        return None if summary.public_errors is None else dict(summary.public_errors)
    X = public_table(public.X)
    if len(summary.classes) == 0:
        linear = regression_base(public, X, numeric_labels(np.asarray(public.y)), "linear")
        return held_out_errors(linear.labels, combined(linear.scores, linear.base.weights), name=name)
    classes, codes = np.unique(np.asarray(public.y), return_inverse=True)
    held_out = held_out_scores(public, X, codes, len(classes), None) if len(classes) > 1 else None
    if held_out is None:
        return None
    return held_out_errors(held_out.codes, class_probabilities(held_out.scores), name=name)


def fit_in_words(
    summary: FitSummary,
    model: Any,
    public: Public | None,
    comparison: Mapping[str, Any] | None,
    forecasts: Sequence[Forecast],
) -> list[str]:
    """Return sentences on one fit, made from public rows and from releases alone: no private row is read."""
    spent = summary.receipt.epsilon > 0
    sentences = [_public_part(public, comparison)]
    if summary.people is not None:
        sentences = [_people_part(summary)]
    elif public is not None and public.y is not None:
        sentences.append(_private_part(summary, model, public, spent=spent))
    elif spent:
        sentences.append("Everything the model knows about the label comes from noisy releases of the private rows.")
    else:
        sentences.append("The private rows brought nothing: the budget is too small for their number.")
    own = own_point(summary, forecasts)
    if own is not None:
        count, words = own.n_directions, " ".join(own.words)
        planned = f" The plan spends the budget on {count} coordinate{'s' if count != 1 else ''} of the model."
        sentences.append(f"Forecast from public rows: {words}{planned if own.worthwhile else ''}")
    cost = f"ε = {summary.receipt.epsilon:.3g} was spent" if spent else "Nothing was spent"
    return [*sentences, f"{cost}. {_error_in_words(summary)}"]


def _error_in_words(summary: FitSummary) -> str:
    """Return what can be said about the error on the private population, and how to learn more."""
    if summary.people is not None and summary.people.tested_error is not None:
        error, deviation = summary.people.tested_error
        return (
            f"The error of the model in the people's population is about {error:.3f}, with a standard deviation of "
            f"at most {deviation:.3f}; the truth is a little more, because the least of several estimates was chosen."
        )
    error_known = "The error of the model on the private population is unknown."
    if summary.gain is not None and summary.adopted:
        error_known = (
            "By how much the model's error on the private population is less than the public model's was estimated "
            "from the releases. The error itself is unknown."
        )
    return (
        f"{error_known} Measuring it is another release, which dpadapt evaluate makes. A rehearsal on public rows "
        f"(dpadapt rehearse) estimates it without any privacy cost."
    )


def _people_part(summary: FitSummary) -> str:
    people = summary.people
    if people is None or not sum(people.asked.values()):
        return "Nobody was asked: the model comes from noisy releases of the private rows alone."
    stages = ", ".join(f"{count:,} for {stage}" for stage, count in people.asked.items())
    labels = _labels_in_words(summary, "these people")
    asked = sum(people.asked.values())
    return f"{asked:,} people answered one question each ({stages}).{labels} The model is: {people.chosen}."


def _labels_in_words(summary: FitSummary, rows: str) -> str:
    """Return a sentence on the released share of labels that could be read; empty if there is none."""
    if summary.readable_labels is None:
        return ""
    share, low, high = summary.readable_labels
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
        f"The public rows gave the model to start from. On public rows that it was not fitted on, the {alone['name']} "
        f"has a {comparison['measure']} of {alone['error']:.3g} ({comparison['measure beside']}: "
        f"{alone['beside']:.3g}); without any model it is {constant['error']:.3g} ({constant['beside']:.3g})."
    )


def _private_part(summary: FitSummary, model: Any, public: Public, *, spent: bool) -> str:
    if not spent:
        return (
            "The private rows brought nothing: the budget is too small for their number. The model is the public one."
        )
    start, X = public_model_of(summary, model, public), np.asarray(public.X, dtype=np.float64)
    if _classifies(summary):
        change = float(np.mean(np.abs(model.predict_proba(X) - start.predict_proba(X)).sum(axis=1) / 2))
        how = f"the predicted probabilities by {change:.1%} on average (total variation)"
    else:
        change = float(np.sqrt(np.mean((model.predict(X) - start.predict(X)) ** 2)))
        how = f"the predictions by {change:.3g} (root mean square)"
    labels = _labels_in_words(summary, "the private rows")
    if change == 0.0:
        why = "no correction exceeded its noise" if summary.adopted is None else "the gate stayed shut"
        return (
            f"The private rows gave no clear evidence against the public model: {why}, and the model is the public "
            f"one.{labels}"
        )
    opened = ""
    if summary.adopted is not None:
        opened = f"The gate opened: {summary.adopted:.0%} of the private correction was adopted. "
    return f"{opened}On public rows, the private correction changes {how}.{labels}"


def public_model_of(summary: FitSummary, model: Any, public: Public) -> Any:
    """Return the model of the labelled public rows alone: the one that the fit kept, or else a new fit."""
    if summary.public_model is not None:
        return summary.public_model
    # Public rows are passed as private ones; the budget is too small for any of them to be read.
    X, y = np.asarray(public.X), np.asarray(public.y)
    return clone(model).set_params(**PUBLIC_ONLY_BUDGET).fit(X[:2].copy(), y[:2], public=public)


# The model: coefficients, classes, groups.


def coefficient_charts(
    summary: FitSummary, names: Sequence[str], label: str, scales: NDArray[np.float64] | None
) -> list[BarChart]:
    """Return the largest coefficients, times `scales` if there are any, a chart for each class where there are several.

    With each stands the standard deviation that the noise gives it, where the estimator knows it.
    """
    matrix = np.atleast_2d(np.empty((0, len(names))) if summary.coefficients is None else summary.coefficients)
    if matrix.shape[1] != len(names):
        return []
    units = np.ones(len(names)) if scales is None else scales
    spread = None if summary.coefficient_noise is None else np.atleast_2d(summary.coefficient_noise) * units
    matrix = matrix * units
    if not np.any(matrix):
        return []
    # Beside a public model that is not linear, coefficients describe the correction alone.
    titles, unit = [label], "what the correction adds to" if summary.beside_public_model else "change of"
    if _classifies(summary):
        classes = [str(value) for value in summary.classes]
        titles = [f"{label} = {name}" for name in (classes[1:] if len(matrix) == 1 else classes)]
        unit = f"{unit} the log-odds of"
    charts = []
    for index, (title, row) in enumerate(zip(titles, matrix, strict=False)):
        largest = np.argsort(-np.abs(row))[:_MAX_COEFFICIENT_BARS]
        noise = None if spread is None or not np.any(spread[index]) else spread[index, largest].tolist()
        charts.append(
            BarChart(
                [names[k] for k in largest],
                row[largest].tolist(),
                [None] * len(largest) if noise is None else noise,
                f"Coefficients of {title}",
                f"{unit} {title}",
                "" if noise is None else _NOISE_NOTE,
            )
        )
    return charts


def class_table(summary: FitSummary) -> dict[str, Any] | None:
    """Return a table of recall and precision of each class on public rows; None if the fit has none.

    Both models predict public rows that their public part was not fitted on, so that the two can be compared.
    """
    numbers = summary.by_class
    if numbers is None:
        return None
    columns = [(measure, model) for measure in ("recall", "precision") for model in ("public model", "this model")]
    shares = [[float(numbers[model][measure][k]) for measure, model in columns] for k in range(len(summary.classes))]
    return {
        "headings": ["class", "public rows", *(", ".join(column) for column in columns)],
        "rows": [
            [str(label), f"{support:,}", *("-" if np.isnan(share) else f"{share:.0%}" for share in of_class)]
            for label, support, of_class in zip(summary.classes, numbers["support"], shares, strict=True)
        ],
    }


def threshold_in_words(summary: FitSummary, label: str) -> str | None:
    """Return from which probability on the second class is predicted, and why; None without a threshold."""
    if summary.threshold is None:
        return None
    threshold, rule = summary.threshold
    why = "the probability that was given"
    if isinstance(rule, str):
        why = f"the probability at which the model expects the best {rule.replace('_', ' ')} on public rows"
    elif isinstance(rule, Mapping):
        costs = f"a miss costs {rule['miss']:g} and a false alarm {rule['false alarm']:g}"
        why = f"the probability of least expected cost if {costs}"
    return f"{label} = {summary.classes[1]} is predicted from a probability of {threshold:.3g} on, {why}."


def groups_in_words(
    summary: FitSummary, names: Sequence[str], X_public: NDArray[np.float64] | None = None
) -> list[str]:
    """Return sentences on groups about which public rows say nothing, and on those about which they say little.

    Only releases and public data are used: how many private rows such a group has is private.
    """
    effect = np.zeros(0) if summary.own_effect is None else summary.own_effect
    places = [k for k in np.argsort(effect) if np.isfinite(effect[k])] if len(effect) == len(names) else []
    rare = _rare_groups(summary, names, X_public)
    if not places or summary.adopted == 0.0:  # nothing was adopted, of these columns either
        return rare
    sentences = [
        "Public rows say nothing about these columns, because all of them have the same value there. What private rows "
        "say is shrunk by its noise: the less is kept, the closer the predictions are to the overall level. That much "
        "is kept does not show that any private row is of the group: how many are is private."
    ]
    leaning = [k for k in places if effect[k] < _LEANING_SHARE]
    sentences += [
        f"{names[k]}: leans on the overall level: {effect[k]:.0%} of its own effect was kept."
        for k in leaning[:_MAX_GROUPS]
    ]
    if len(leaning) > _MAX_GROUPS:
        sentences.append(f"{len(leaning) - _MAX_GROUPS} more such columns lean on the overall level, though less.")
    own = places[len(leaning) :]
    if own:
        shown = ", ".join(names[k] for k in own[:_MAX_GROUPS]) + (", ..." if len(own) > _MAX_GROUPS else "")
        sentences.append(f"At least {effect[own[0]]:.0%} of its own effect was kept of each of these: {shown}.")
    return [*sentences, *rare]


def _rare_groups(summary: FitSummary, names: Sequence[str], X_public: NDArray[np.float64] | None) -> list[str]:
    """Return a sentence on groups with few public rows: how many they have, and the noise where it is known."""
    if X_public is None or X_public.shape[1] != len(names):
        return []
    indicator = ((X_public == 0.0) | (X_public == 1.0)).all(axis=0)
    counts = np.where(indicator, X_public.sum(axis=0), 0.0)
    few = min(_FEW_ROWS_OF_A_GROUP, len(X_public) / 2)
    rare = [int(k) for k in np.argsort(counts, kind="stable") if 0 < counts[k] < few]
    if not rare:
        return []
    noise = summary.coefficient_noise
    what, shown = "their numbers of public rows", [f"{names[k]} ({int(counts[k])}" for k in rare[:_MAX_GROUPS]]
    if noise is not None and noise.shape == (len(names),):
        what += ", and the standard deviation of the privacy noise in their effect"
        shown = [f"{text}, noise {noise[k]:.2g}" for text, k in zip(shown, rare, strict=False)]
    more = f" and {len(rare) - _MAX_GROUPS} more" if len(rare) > _MAX_GROUPS else ""
    return [
        f"Public rows say little about these groups, of which they have fewer than {_FEW_ROWS_OF_A_GROUP} rows. What "
        f"they learned about them is shrunk towards the overall level, and what private rows add has more noise than "
        f"for other groups ({what}): {', '.join(f'{text})' for text in shown)}{more}."
    ]


def _parameter_in_words(value: Any) -> str:
    match value:
        case None:
            return "not set"
        case float():
            return f"{value:g}"
        case list() | tuple():
            return ", ".join(map(str, value))
    return str(value)
