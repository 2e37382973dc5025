"""Previews as pages, and rehearsals of several methods side by side, in words."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpadapt import __version__
from dpadapt.advice import Advice
from dpadapt.report import page
from dpadapt.report.charts import LineChart, advice_chart, case_chart, forecast_charts
from dpadapt.transfer.preview import Forecast, Preview, Rehearsal, beside


@dataclass(frozen=True)
class Part:
    """The rehearsal of one method; all parts have the same splits and epsilons.

    `key` is "together" for the default method with public rows, "private only" for it without, else any name.
    """

    key: str
    name: str
    method: str
    public: bool
    rehearsal: Rehearsal


def rehearsal_panel(parts: Sequence[Part]) -> dict[str, Any]:
    """Return the errors of several rehearsals at each epsilon, with means and spreads: one panel of a chart."""
    first = parts[0].rehearsal
    curves = [(part.key, part.name, part.method, part.public, part.rehearsal.errors.T.tolist()) for part in parts]
    levels = [("public only", "public only", first.public_only.tolist())]
    return with_spread(error_panel("epsilon", "", first.epsilons, levels, curves))


def rehearsal_chart(parts: Sequence[Part]) -> LineChart:
    """Return the errors of several rehearsals as curves."""
    title, axis = "Rehearsal on public rows", parts[0].rehearsal.metric
    return case_chart({"title": title, "axis": axis, "panels": [rehearsal_panel(parts)]})


def compared_rehearsals(parts: Sequence[Part], n_private: int, split_by: str | None) -> Preview:
    """Return rehearsals of several methods as one preview, a row for each; the default method comes first.

    `n_private` is how many private rows are planned, `split_by` the column along which the public table was split.
    """
    first, panel = parts[0].rehearsal, rehearsal_panel(parts)
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
    (alone,) = panel["levels"]
    return Preview(
        title=f"Rehearsal for {n_private:,} private rows",
        headline="What to expect",
        words=(*words, *help_in_words(panel["levels"], panel["curves"])),
        headings=("", *(f"ε = {epsilon:g}" for epsilon in first.epsilons)),
        rows=(
            ("public only", *[f"{alone['mean']:.3f}"] * len(first.epsilons)),
            *(
                (curve["name"], *(f"{point['mean']:.3f} ± {point['spread']:.3f}" for point in curve["points"]))
                for curve in panel["curves"]
            ),
        ),
        notes=(
            f"Errors on held-out public rows ({first.metric}), mean ± standard deviation over the splits: smaller is "
            f"better. Half of the public rows stayed public; of the others, some took the role of private rows, some "
            f"were held out. Public only is the model that the first method keeps if its gate stays shut.",
            "The private population may differ from the public one in ways that no split of public rows shows, so "
            "errors there may be larger or smaller than here.",
        ),
    )


# Pages.


def forecast_page(forecasts: Sequence[Forecast], label: str, public: str) -> str:
    """Return the page of forecasts at several epsilons; `public` says what was used as public data."""
    heading = f"{label}: what could private rows contribute?"
    charts, facts = forecast_charts(forecasts), [f"public data: {public}"]
    return _preview_page("forecast", beside(forecasts), heading, facts, charts=charts)


def rehearsal_page(preview: Preview, parts: Sequence[Part], label: str, facts: Sequence[str]) -> str:
    """Return the page of rehearsals; `preview` is from `compared_rehearsals`, `facts` follow the heading."""
    heading = f"{label}, rehearsed on public rows"
    return _preview_page("rehearse", preview, heading, facts, charts=[rehearsal_chart(parts)])


def advice_page(advice: Advice, label: str, facts: Sequence[str], command: str) -> str:
    """Return the page of an advice; `command` is what to run next."""
    ways = [(way.name, *(f"{ratio:.3f}" for ratio in way.expected)) for way in advice.candidates]
    verdict = {"gain": "go", "no gain": "stay", "unknown": "open"}[advice.verdict]
    heading = f"{label}: a private {advice.task} from {advice.n_private:,} rows"
    more = {"verdict": verdict, "ways": ways, "next": command}
    chart = advice_chart(advice)
    return _preview_page("advise", advice, heading, facts, charts=[] if chart is None else [chart], **more)


def _preview_page(command: str, preview: Preview, heading: str, facts: Sequence[str], **more: Any) -> str:
    shown = {"version": __version__, "command": command, "heading": heading, "facts": facts, "preview": preview}
    return page("preview", {"verdict": "", "ways": [], "next": "", **shown, **more})


# Errors over splits, of rehearsals and of the demo.


# What a panel may be over: its axis, and the sign of a value there.
_AXES = {"epsilon": ("epsilon (smaller is more private)", "ε"), "rows": ("private rows", "n")}


def error_panel(
    key: str,
    title: str,
    xs: Sequence[float],
    levels: Iterable[tuple[str, str, Sequence[float]]],
    curves: Iterable[tuple[str, str, str | None, bool, Iterable[Sequence[float]]]],
) -> dict[str, Any]:
    """Return a panel of errors over epsilons or rows, which `key` says.

    Levels are (key, name, values); curves are (key, name, method, whether it had help beside the private rows, values
    at each of `xs`).
    """
    axis, symbol = _AXES[key]
    return {
        "key": key,
        "title": title,
        "axis": axis,
        "symbol": symbol,
        "x": list(xs),
        "levels": [{"key": level, "name": name, "values": values} for level, name, values in levels],
        "curves": [
            {
                "key": curve,
                "name": name,
                "method": method,
                "public": helped,
                "points": [{"x": x, "values": values} for x, values in zip(xs, columns, strict=True)],
            }
            for curve, name, method, helped, columns in curves
        ],
    }


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

    The last sentence says what "clearly" means. The `key` of a level is "public only" or "not private"; one of the
    curves has the key "private only". Values over splits stand under ``values``, epsilons under ``x``.
    """
    by_key = {level["key"]: level for level in levels}
    alone = next(curve for curve in curves if curve["key"] == "private only")
    floor = by_key["not private"]["mean"] if "not private" in by_key else -math.inf
    sentences = [
        f"{_against_private(curve, alone, floor)} {_against_public(curve, by_key['public only'])}"
        for curve in curves
        if curve["public"]
    ]
    if len(by_key["public only"]["values"]) < 2:
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
