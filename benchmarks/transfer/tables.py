"""Results of `python -m benchmarks transfer` as tables for the terminal, the HTML page and the documentation."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pages import pipes, write_between
from benchmarks.transfer import alternatives
from benchmarks.transfer.common import (
    HARM,
    POINTS,
    RISE,
    Row,
    by_task,
    cell_text,
    claim,
    error,
    harm,
    harmed,
    no_harm,
    points,
    print_tables,
    ratio_text,
    value_text,
)
from benchmarks.transfer.common import worst_rise as rise_of
from benchmarks.transfer.rivals import CONTENDERS, best_ungated

KINDS = ("regression", "classification")
START, END = "<!-- bench transfer -->", "<!-- end of bench transfer -->"
_COLUMNS = {
    "no model": "no model",
    "public": "public only",
    "ours": "ours",
    "plain": "no gate, public data",
    "alone": "no gate, alone",
    "not private": "not private",
}
_SHORT = "Where a set has fewer private rows than its column says,"
_NOTES = {
    "regression": f"{_SHORT} they are drawn with replacement.",
    "classification": f"{_SHORT} all of them are used.",
}
_MEASURE = {
    "regression": "mean squared error over the variance of the labels",
    "classification": "log-loss; accuracy in percent before it",
}


def summarise(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables, heat maps and curves as plain data."""
    tables = [table for kind in KINDS for table in (by_set(results, kind), rivals(results, kind)) if table["rows"]]
    return {
        "version": results["versions"]["dpadapt"],
        "facts": [*facts(results), *alternatives.facts(results["alternatives"])],
        "claims": [*verdicts(results), *alternatives.verdicts(results["alternatives"])],
        "tables": [*tables, *alternatives.tables(results["alternatives"])],
        "alternatives": alternatives.heat_maps(results["alternatives"]),
        "maps": [heat(results, kind) for kind in KINDS if results[kind]["grid"]],
        "curves": [curve for kind in KINDS for curve in curves(results, kind)],
    }


def facts(results: Mapping[str, Any]) -> list[str]:
    """Return sentences on how the results were measured."""
    seeds = ", ".join(f"{results[kind]['seeds']} seeds for {kind} ({results[kind]['setting']})" for kind in KINDS)
    versions = ", ".join(f"{name} {number}" for name, number in results["versions"].items())
    size = "Quick run" if results["quick"] else "Full run"
    return [
        f"{size}, {results['minutes']:.1f} minutes on {results['processes']} core(s): {results['data']}.",
        f"A cell is a mean: {seeds} unless said.",
        f"{versions}.",
        *(f"Left out, {reason}" for reason in results["skipped"]),
    ]


def verdicts(results: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return all claims, those about every cell first."""
    all_claims = []
    for kind in KINDS:
        if rows := results[kind]["grid"]:
            all_claims += [_harm_verdict(kind, rows), _rise_verdict(kind, rows)]
    return [*all_claims, *results["gains"], *results["left"], *results["speed"]]


def _harm_verdict(kind: str, rows: Sequence[Row]) -> dict[str, str]:
    worst, cells = no_harm(rows)
    where = max(rows, key=harm)
    text = f"{len(cells)} of {len(rows)} cells above; worst {worst:.3f} x ({cell_text(where)})"
    limit = f"{HARM} x public-only"
    if kind == "classification":
        where = min(rows, key=points)
        text += f", {points(where):+.2f} points ({cell_text(where)})"
        limit += f" in log-loss and {POINTS} points in accuracy"
    return claim(f"{kind}, no harm: every cell within {limit}", text, not cells)


def _rise_verdict(kind: str, rows: Sequence[Row]) -> dict[str, str]:
    rises = {name: rise_of(cells) for name, cells in by_task(rows)}
    worst = max(rises, key=lambda name: rises[name])
    above = sum(not rise <= RISE for rise in rises.values())
    text = f"{above} of {len(rises)} sets above; worst {100 * (rises[worst] - 1):+.1f}% ({worst})"
    return claim(f"{kind}, monotone: error rises by 3% at most as rows or epsilon grow", text, not above)


def by_set(results: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return harm and monotonicity by set."""
    rows = []
    for name, cells in by_task(results[kind]["grid"]):
        worst, above = no_harm(cells)
        best = min(map(harm, cells))
        rise = rise_of(cells)
        texts = [
            name,
            value_text(cells[0]["public"]),
            ratio_text(worst),
            str(len(above)),
            ratio_text(best),
            f"{100 * (rise - 1):.1f}%",
        ]
        rows.append({"cells": texts, "bad": bool(above) or not rise <= RISE})
    header = ["set", "public only", "worst ratio", "cells with harm", "best ratio", "worst rise"]
    words = f"Ratios to the public model over all cells ({_MEASURE[kind]}). Rise: more error with more rows or budget."
    return {
        "title": f"{kind.capitalize()}: harm and monotonicity by set",
        "words": words,
        "header": header,
        "rows": rows,
    }


def rivals(results: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return every contender side by side."""
    rows = []
    for row in results[kind]["rivals"]:
        ratio = error(row["ours"]) / best_ungated(row)
        texts = [row["task"], f"{row['n']:,}", *(value_text(row[name]) for name in CONTENDERS), f"{ratio:.3f}"]
        rows.append({"cells": texts, "bad": False})
    header = ["set", "rows", *(_COLUMNS[name] for name in CONTENDERS), "ours / best without a gate"]
    words = (
        f"Epsilon 1; {_MEASURE[kind]}. Below 1 in the last column the gate reduces the error; above 1 it increases it."
    )
    return {
        "title": f"{kind.capitalize()}: against models without a gate",
        "words": words,
        "header": header,
        "rows": rows,
    }


def heat(results: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return the no-harm grid: a row per set, a group of columns per number of private rows, a column per epsilon."""
    grid, sizes, epsilons = results[kind]["grid"], results["cells"]["rows"], results["cells"]["epsilons"]
    worst, cells = no_harm(grid)
    rows = []
    for name, cells_of_set in by_task(grid):
        placed = {(_column(row["n"], sizes), row["epsilon"]): row for row in cells_of_set}
        line = [placed.get((size, epsilon)) for size in sizes for epsilon in epsilons]
        rows.append({"name": name, "cells": [row and _heat_cell(row) for row in line]})
    words = f"{len(cells)} of {len(grid)} cells are above what is allowed; the worst ratio is {worst:.3f}."
    groups = [{"name": f"{size:,} rows", "columns": [f"{epsilon:g}" for epsilon in epsilons]} for size in sizes]
    title = f"{kind.capitalize()}: error over that of the public model"
    return {"title": title, "words": words, "groups": groups, "rows": rows, "note": _NOTES[kind]}


def _heat_cell(row: Row) -> dict[str, Any]:
    note = (
        f"{cell_text(row)}: {value_text(row['ours'])}, public only {value_text(row['public'])}, ratio {harm(row):.4f}"
    )
    if np.ndim(row["ours"]):
        note += f", {points(row):+.2f} points"
    return {"value": harm(row), "harm": harmed(row), "note": note}


def curves(results: Mapping[str, Any], kind: str, *, most: int = 3) -> Iterator[dict[str, Any]]:
    """Yield error by epsilon of the first sets, a curve per number of private rows, with references."""
    for name, cells in list(by_task(results[kind]["grid"]))[:most]:
        sizes = sorted({row["n"] for row in cells})[-3:]
        lines = [
            {"name": f"{size:,} private rows", "points": [_point(row) for row in cells if row["n"] == size]}
            for size in sizes
        ]
        levels = [{"name": "public only", "value": error(cells[0]["public"])}]
        references = [row for row in results[kind]["rivals"] if row["task"] == name]
        if references:
            last = references[-1]
            levels.append({"name": f"not private, {last['n']:,} rows", "value": error(last["not private"])})
        axis = "error, 1 is no model" if kind == "regression" else "log-loss"
        yield {"title": name, "axis": axis, "lines": lines, "levels": levels}


def _point(row: Row) -> dict[str, float]:
    return {"epsilon": row["epsilon"], "mean": error(row["ours"]), "spread": row["spread"]}


def show(results: dict[str, Any]) -> None:
    """Print the tables."""
    from rich.console import Console
    from rich.table import Column, Table

    console = Console(highlight=False)
    epsilons = results["cells"]["epsilons"]
    for kind in KINDS:
        if not results[kind]["grid"]:
            continue
        title = f"{kind}: error over that of the public model, by epsilon"
        grid = Table(Column("set", no_wrap=True), "rows", *(f"{epsilon:g}" for epsilon in epsilons), title=title)
        for name, cells in by_task(results[kind]["grid"]):
            for place, n in enumerate(sorted({row["n"] for row in cells})):
                line = [row for row in cells if row["n"] == n]
                grid.add_row("" if place else name, f"{n:,}", *(_marked(row) for row in line))
            grid.add_section()
        console.print(grid)
    summary = summarise(results)
    print_tables(summary["tables"], summary["claims"], summary["facts"])


def markdown(results: Mapping[str, Any]) -> str:
    """Return the tables for the documentation."""
    parts = [" ".join(["Printed by `python -m benchmarks transfer`.", *facts(results)])]
    rows = [[row["claim"], row["measured"], row["verdict"]] for row in verdicts(results)]
    parts.append(pipes(["claim", "measured", "verdict"], rows))
    epsilons = " / ".join(f"{epsilon:g}" for epsilon in results["cells"]["epsilons"])
    for kind in KINDS:
        if results[kind]["grid"]:
            what = f"Error over that of the public model at epsilon {epsilons} ({_MEASURE[kind]})"
            parts += [f"**{kind.capitalize()}.** {what}. {_NOTES[kind]}", _grid_pipes(results, kind)]
    for kind in KINDS:
        table = rivals(results, kind)
        if table["rows"]:
            parts += [f"**{table['title']}.** {table['words']}"]
            parts += [pipes(table["header"], [row["cells"] for row in table["rows"]])]
    return "\n\n".join(parts) + "\n"


def write_markdown(results: Mapping[str, Any], path: Path) -> None:
    """Write the tables between the markers of a page; a page without markers gets them at its end."""
    write_between(path, markdown(results), START, END)


def _grid_pipes(results: Mapping[str, Any], kind: str) -> str:
    sizes = results["cells"]["rows"]
    rows = []
    for name, cells in by_task(results[kind]["grid"]):
        columns: dict[int, list[str]] = {}
        for row in cells:
            columns.setdefault(_column(row["n"], sizes), []).append(_marked(row, "**", "**"))
        _, above = no_harm(cells)
        texts = [" ".join(columns.get(size, ["-"])) for size in sizes]
        rise = f"{100 * (rise_of(cells) - 1):.1f}%"
        rows.append([name, value_text(cells[0]["public"]), *texts, str(len(above)), rise])
    header = ["set", "public only", *(f"{size:,} rows" for size in sizes), "cells with harm", "worst rise"]
    return pipes(header, rows)


def _column(n: int, sizes: Sequence[int]) -> int:
    """Return the column of a cell: a set with fewer rows than its column says uses all of them."""
    return min((size for size in sizes if size >= n), default=max(sizes))


def _marked(row: Row, start: str = "[bold red]", end: str = "[/]") -> str:
    return f"{start}{ratio_text(harm(row))}{end}" if harmed(row) else ratio_text(harm(row))
