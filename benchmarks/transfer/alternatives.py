"""The transfer estimators against what a user already has: verdicts, tables and heat maps.

Part of `python -m benchmarks transfer`; `python -m benchmarks.transfer.alternatives` measures this part alone.
`alternatives_fits.py` has the tasks and the contenders.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pages import pipes, write_between
from benchmarks.running import command
from benchmarks.transfer.alternatives_fits import (
    CONTENDERS,
    DP_EBM,
    DP_EBM_SEEDS,
    EPSILONS,
    FINE_TUNING,
    FIT_LIMIT,
    FIXED_FINE_TUNING,
    FIXED_SETTING,
    KINDS,
    run,
)
from benchmarks.transfer.common import (
    SIZES,
    Row,
    by_task,
    cell_text,
    claim,
    error,
    print_tables,
    ratio_text,
    size_text,
    titled,
    value_text,
    worst_rise,
)

START, END = "<!-- bench transfer alternatives -->", "<!-- end of bench transfer alternatives -->"
# Limits of the claims: error over that of another model, error over that of a smaller cell, share of single fits.
BEHIND_LIMIT, RISE_LIMIT, FITS_SHARE = 1.01, 1.02, 0.01
# Models in the table of geometric means, and columns of the table of cells, where they are measured.
_SUMMARISED = ("ours", "landed", *(name for name in CONTENDERS if name not in ("ours", "best public")))
_COLUMNS = (
    *("public linear", "public boosting", "public", "ours", "landed"),
    *(FINE_TUNING, FIXED_FINE_TUNING, "private only", "not private", DP_EBM),
)
_MEASURES = {
    "regression": "mean squared error over the variance of the labels",
    "classification": "accuracy in percent and log-loss; ratios are of the log-loss",
}


# Verdicts.


def verdicts(part: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the claims of both kinds."""
    return [verdict for kind in KINDS for verdict in _verdicts(kind, _of_kind(part, kind))]


def _verdicts(kind: str, rows: Sequence[Row]) -> Iterator[dict[str, str]]:
    large = [row for row in rows if row["n"] >= 1000 and row["epsilon"] >= 1]
    landed = [row for row in rows if not row["size"] and row["epsilon"] >= 1 and "landed" in row]
    if rows:
        yield _never_behind(f"{kind}: every cell at most {BEHIND_LIMIT} x the estimator's public model", rows, "public")
        yield _single_fits(kind, rows)
        yield _rises(kind, rows)
        yield _on_average(kind, rows)
    if large:
        what = f"{kind}: never behind public boosting by over 1% at epsilon >= 1 and n >= 1,000"
        yield _never_behind(what, large, "public boosting")
    if landed:
        what = f"{kind}: never behind the landed estimators by over 1% with all rows at epsilon >= 1"
        yield _never_behind(what, landed, "landed")


def _never_behind(what: str, rows: Sequence[Row], other: str) -> dict[str, str]:
    above = sum(_behind(row, other) for row in rows)
    worst = rows[int(np.argmax([_over(row, other) for row in rows]))]
    text = f"{above} of {len(rows)} cells above; worst {_over(worst, other):.3f} x ({cell_text(worst)})"
    return claim(what, text, not above)


def _single_fits(kind: str, rows: Sequence[Row]) -> dict[str, str]:
    above, fits = sum(row["fits above"] for row in rows), sum(row["seeds"] for row in rows)
    percent = round(100 * above / fits, 1)
    worst = max(rows, key=lambda row: row["worst fit"])
    text = f"{percent:.1f}% ({above} of {fits}); worst {worst['worst fit']:.3f} x ({cell_text(worst)})"
    what = f"{kind}: at most {FITS_SHARE:.0%} of single fits above {FIT_LIMIT} x the estimator's public model"
    return claim(what, text, percent <= 100 * FITS_SHARE)


def _rises(kind: str, rows: Sequence[Row]) -> dict[str, str]:
    rises = {name: round(worst_rise(cells), 3) for name, cells in by_task(rows)}
    worst = max(rises, key=lambda name: rises[name])
    above = sum(not rise <= RISE_LIMIT for rise in rises.values())
    text = f"{above} of {len(rises)} sets above; worst {100 * (rises[worst] - 1):+.1f}% ({worst})"
    return claim(f"{kind}: error never rises by over 2% as n or epsilon grows", text, not above)


def _on_average(kind: str, rows: Sequence[Row]) -> dict[str, str]:
    mean = round(geometric_mean([row for row in rows if not row["size"] and row["epsilon"] == 1], "ours"), 3)
    what = f"{kind}: below the best public model with all rows at epsilon 1, as a geometric mean over sets"
    return claim(what, f"{mean:.3f} x", mean < 1)


def geometric_mean(rows: Sequence[Row], name: str) -> float:
    """Return the geometric mean of a model's error over that of the best public model.

    Examples
    --------
    >>> geometric_mean([{"ours": 0.5, "best public": 1.0}, {"ours": 2.0, "best public": 1.0}], "ours")
    1.0
    """
    return float(np.exp(np.mean([np.log(error(row[name]) / error(row["best public"])) for row in rows])))


# Tables.


def tables(part: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tables of the page and the terminal: geometric means, then every cell."""
    kinds = [kind for kind in KINDS if _of_kind(part, kind)]
    return [summary(part), *(every_cell(part, kind) for kind in kinds)] if kinds else []


def summary(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return geometric means over tasks of the error over that of the best public model."""
    rows = []
    for kind in KINDS:
        for size in SIZES:
            for name in _SUMMARISED:
                cells = [row for row in _of_kind(part, kind) if row["size"] == size and name in row]
                if not cells:
                    continue
                means = [geometric_mean([row for row in cells if row["epsilon"] == e], name) for e in EPSILONS]
                texts = [kind, size_text(size), str(len({row["task"] for row in cells})), name]
                rows.append({"cells": [*texts, *(f"{mean:.3f}" for mean in means)], "bad": False})
    return {
        "title": "Against what a user already has: geometric means over sets",
        "words": "Error over that of the best public model; 1 is as good as it.",
        "header": ["kind", "private rows", "sets", "model", *(f"epsilon {epsilon:g}" for epsilon in EPSILONS)],
        "rows": rows,
    }


def every_cell(part: Mapping[str, Any], kind: str, *, epsilons: Sequence[float] = EPSILONS) -> dict[str, Any]:
    """Return every contender side by side, a row per cell."""
    cells = _of_kind(part, kind)
    names = [name for name in _COLUMNS if any(name in row for row in cells)]
    rows = []
    for row in cells:
        if row["epsilon"] not in epsilons:
            continue
        interval = "" if row["interval"] is None else " [{:.3f}, {:.3f}]".format(*row["interval"])
        texts = [
            row["task"],
            f"{row['n']:,}",
            f"{row['epsilon']:g}",
            *(value_text(row[name]) if name in row else "-" for name in names),
            f"{_over(row, 'best public'):.3f}{interval}",
            ratio_text(row["worst fit"]),
            f"{row['fits above']} of {row['seeds']}",
            f"{row['regret']:.3f}",
        ]
        rows.append({"cells": texts, "bad": _behind(row, "public")})
    last = ["ours / best public [95%]", "worst fit / public", f"fits above {FIT_LIMIT}", "regret"]
    return {
        "title": f"{kind.capitalize()}: against what a user already has",
        "words": f"{_MEASURES[kind].capitalize()}. Regret: ours over the best model that a user could have had.",
        "header": ["set", "rows", "epsilon", *names, *last],
        "rows": rows,
    }


def heat_maps(part: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a map per kind: a row per set, a group of columns per number of private rows, a column per epsilon."""
    maps = []
    for kind in KINDS:
        cells = _of_kind(part, kind)
        if not cells:
            continue
        rows = []
        for name, of_set in by_task(cells):
            placed = {(row["size"], row["epsilon"]): row for row in of_set}
            line = [placed.get((size, epsilon)) for size in SIZES for epsilon in EPSILONS]
            rows.append({"name": name, "cells": [row and _heat_cell(row) for row in line]})
        behind = sum(_behind(row) for row in cells)
        groups = [{"name": f"{size_text(size)} rows", "columns": [f"{e:g}" for e in EPSILONS]} for size in SIZES]
        title = f"{kind.capitalize()}: error over that of the best public model"
        words = f"{behind} of {len(cells)} cells are behind the best public model by over 1%."
        maps.append({"title": title, "words": words, "groups": groups, "rows": rows})
    return maps


def _heat_cell(row: Row) -> dict[str, Any]:
    ratio = _over(row, "best public")
    values = ", ".join(f"{name} {value_text(row[name])}" for name in ("ours", "best public", "public"))
    return {"value": ratio, "harm": _behind(row), "note": f"{cell_text(row)}: {values}, ratio {ratio:.3f}"}


def facts(part: Mapping[str, Any]) -> list[str]:
    """Return sentences on how the comparison was measured."""
    setting, landed = part["setting"], part["landed"]
    fixed = "; ".join(
        f"{kind}: " + ", ".join(f"{name} {value:g}" for name, value in FIXED_SETTING[kind].items()) for kind in KINDS
    )
    versions = ", ".join(f"{name} {number}" for name, number in part["versions"].items())
    sentences = [
        f"Against what a user already has: {'quick' if part['quick'] else 'full'} run, {part['minutes']:.1f} minutes, "
        f"{part['seeds']} seeds, {setting['adjacency']}, delta {setting['delta']:g}; {versions}.",
        "The best public model is the better of linear and boosting on the test rows, so it is chosen in hindsight.",
        f"{FIXED_FINE_TUNING.capitalize()} was chosen in hindsight, too ({fixed}; the clipping norm of regression is "
        "in standard deviations of the public labels).",
        "Not private is the better of boosting on public and private rows and on private rows; regret leaves it out.",
    ]
    if landed:
        sentences.append(
            f"Landed: the estimators of commit {landed['commit'][:12]} ({landed['date']}), on the same seeds."
        )
    if any(DP_EBM in row for row in part["cells"]):
        sentences.append(f"{DP_EBM}: the first {DP_EBM_SEEDS} seeds, at most two classes; regret leaves it out.")
    return [*sentences, *(f"Left out, {reason}" for reason in part["skipped"])]


def show(part: dict[str, Any]) -> None:
    """Print the tables."""
    print_tables(tables(part), verdicts(part), facts(part))


def markdown(part: Mapping[str, Any]) -> str:
    """Return the tables for the documentation: claims, geometric means, all ratios, and contenders at epsilon 1."""
    parts = [" ".join(["Printed by `python -m benchmarks transfer`.", *facts(part)])]
    parts.append(pipes(["claim", "measured", "verdict"], [list(row.values()) for row in verdicts(part)]))
    if part["cells"]:
        parts += titled(summary(part))
    epsilons = " / ".join(f"{epsilon:g}" for epsilon in EPSILONS)
    for kind in KINDS:
        if cells := _of_kind(part, kind):
            what = f"Error over that of the best public model at epsilon {epsilons}; bold is above {BEHIND_LIMIT}"
            parts += [f"**{kind.capitalize()}.** {what}.", _grid_pipes(cells)]
    for kind in KINDS:
        if _of_kind(part, kind):
            parts += titled(every_cell(part, kind, epsilons=(1.0,)))
    return "\n\n".join(parts) + "\n"


def write_markdown(part: Mapping[str, Any], path: Path) -> None:
    """Write the tables between the markers of a page; a page without markers gets them at its end."""
    write_between(path, markdown(part), START, END)


def _grid_pipes(cells: Sequence[Row]) -> str:
    rows = []
    for name, of_set in by_task(cells):
        columns = [" ".join(_marked(row) for row in of_set if row["size"] == size) or "fewer rows" for size in SIZES]
        rise = f"{100 * (worst_rise(of_set) - 1):.1f}%"
        rows.append([name, value_text(of_set[0]["best public"]), *columns, rise])
    return pipes(["set", "best public", *(f"{size_text(size)} rows" for size in SIZES), "worst rise"], rows)


def _marked(row: Row) -> str:
    text = ratio_text(_over(row, "best public"))
    return f"**{text}**" if _behind(row) else text


def _behind(row: Row, other: str = "best public") -> bool:
    # Written with `not`, so that NaN counts as behind.
    return not _over(row, other) <= BEHIND_LIMIT


def _over(row: Row, other: str) -> float:
    """Return our error over that of another model, rounded to the digits that are shown: a verdict fits its number."""
    return round(error(row["ours"]) / max(error(row[other]), 1e-300), 3)


def _of_kind(part: Mapping[str, Any], kind: str) -> list[Row]:
    return [row for row in part["cells"] if row["kind"] == kind]


if __name__ == "__main__":
    writers = {"markdown": ("write the tables between this page's markers", write_markdown)}
    command(__spec__.name, __doc__, run, show, writers=writers)
