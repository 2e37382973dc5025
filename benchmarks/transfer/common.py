"""What the parts share: splits, work, cells, harm, monotonicity, texts of tables; and claims of all benchmarks.

A row is one cell of a grid: `task`, `n`, `epsilon`, and the results of the `public` model and of `ours`, each a number
(regression: error) or a pair (classification: accuracy in percent and log-loss).
"""

import math
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from benchmarks import running as in_pieces
from benchmarks.pages import pipes, write_between

Row = dict[str, Any]

# Numbers of private rows; 0 stands for all rows that are not test rows.
SIZES = (100, 1_000, 0)
# Share and largest number of the private pool's rows that are test rows.
_TEST_SHARE, _MOST_TEST_ROWS = 0.3, 5_000
# The verdict on a difference that was measured on one split alone.
ONE_SPLIT = "one split"


# Splits and work.


def split(n_rows: int, seed: int) -> tuple[NDArray[np.int64], dict[int, NDArray[np.int64]]]:
    """Return the test rows of a private pool, and its private rows for each of `SIZES` that leaves rows unused.

    Every part of the benchmark, and the stored results, have the same test rows for the same seed.

    Examples
    --------
    >>> test, private = split(1000, seed=0)
    >>> len(test), {size: len(rows) for size, rows in private.items()}
    (300, {100: 100, 0: 700})
    """
    order = np.random.default_rng(3000 + seed).permutation(n_rows)
    cut = min(int(_TEST_SHARE * n_rows), _MOST_TEST_ROWS)
    test, rest = order[:cut], order[cut:]
    return test, {size: rest[: size or len(rest)] for size in SIZES if size < len(rest)}


def wanted(tasks: Sequence[Any], *, quick: bool) -> list[Any]:
    """Return the tasks of a run: without real data those that ship with packages, in a quick run those marked so."""
    return [task for task in tasks if (real_data() or task.bundled) and (task.quick or not quick)]


def gathered(measure: Callable[[Any], dict[str, Any]], todo: Sequence[Any]) -> tuple[list[Row], list[str]]:
    """Return the rows of all pieces of work, and the reasons why pieces were skipped; every core runs one process."""
    rows: list[Row] = []
    skipped: list[str] = []
    for _, results in in_pieces.watched(measure, todo, in_pieces.cores(), name=lambda piece: piece.name):
        rows += results.get("rows", [])
        skipped += [results["skipped"]] if "skipped" in results else []
    return rows, sorted(skipped)


# Cells.


def error(value: Any) -> float:
    """Return the error that is compared: the value itself, or the log-loss of a pair."""
    return float(value[1] if np.ndim(value) else value)


def harm(row: Row) -> float:
    """Return the error over that of the public model."""
    return error(row["ours"]) / max(error(row["public"]), 1e-300)


def points(row: Row) -> float:
    """Return the points of accuracy above the public model; zero for regression."""
    return float(row["ours"][0] - row["public"][0]) if np.ndim(row["ours"]) else 0.0


def worst_rise(rows: Sequence[Row]) -> float:
    """Return the largest ratio of a cell's error to that of a cell of its set with no more rows and no more budget."""
    by_task: dict[str, list[Row]] = {}
    for row in rows:
        by_task.setdefault(row["task"], []).append(row)
    pairs = (
        (a, b)
        for cells in by_task.values()
        for a in cells
        for b in cells
        if b["n"] >= a["n"] and b["epsilon"] >= a["epsilon"]
    )
    return max(error(b["ours"]) / max(error(a["ours"]), 1e-300) for a, b in pairs)


def claim(what: str, measured: str, holds: bool) -> dict[str, str]:
    """Return a claim with its figure and whether it holds."""
    return {"claim": what, "measured": measured, "verdict": "holds" if holds else "missed"}


def mean_intervals(groups: Sequence[Sequence[float]], digits: int) -> list[tuple[float, float]]:
    """Return the mean of each group and half its 95% interval, rounded as they are shown.

    The intervals are Student's, with one variance for all groups; they are infinite if each group is one value.

    Examples
    --------
    >>> mean_intervals([[1.0, 2.0, 3.0]], 2), mean_intervals([[1.0], [2.0]], 2)
    ([(2.0, 2.48)], [(1.0, inf), (2.0, inf)])
    """
    free = sum(len(group) - 1 for group in groups)
    if free == 0:
        return [(round(float(np.mean(group)), digits), math.inf) for group in groups]
    variance = sum(float(np.sum((np.asarray(group) - np.mean(group)) ** 2)) for group in groups) / free
    width = float(student.ppf(0.975, free))
    return [
        (round(float(np.mean(group)), digits), round(width * math.sqrt(variance / len(group)), digits))
        for group in groups
    ]


def compared(what: str, text: str, differences: Sequence[float], *, digits: int = 4) -> dict[str, str]:
    """Return a claim that paired differences are positive, judged by their mean and its interval.

    A single difference has no interval, hence no verdict.

    Examples
    --------
    >>> compared("a below b", "0.2 against 0.3", [0.09, 0.10, 0.11], digits=2)
    {'claim': 'a below b', 'measured': '0.2 against 0.3: by 0.10 ± 0.02', 'verdict': 'holds'}
    >>> compared("a below b", "0.2 against 0.3", [0.1])["verdict"]
    'one split'
    """
    if len(differences) == 1:
        return {"claim": what, "measured": text, "verdict": ONE_SPLIT}
    ((lead, half),) = mean_intervals([differences], digits)
    return judged(what, f"{text}: by {lead:.{digits}f} ± {half:.{digits}f}", lead, half)


def everywhere(what: str, text: str, leads: Sequence[tuple[float, float]]) -> dict[str, str]:
    """Return a claim that every lead is positive: missed if one is negative beyond its half-width.

    Examples
    --------
    >>> [everywhere("", "", leads)["verdict"] for leads in ([(2, 1), (3, 1)], [(2, 1), (3, 4)], [(2, 1), (-2, 1)])]
    ['holds', 'undecided', 'missed']
    """
    below = min(leads, key=lambda one: one[0] + one[1])
    return judged(what, text, *(below if sum(below) < 0 else min(leads, key=lambda one: one[0] - one[1])))


def real_data() -> bool:
    """Return whether `DPADAPT_DATA` is set, so that real sets are measured."""
    return bool(os.environ.get("DPADAPT_DATA"))


def versions() -> dict[str, str]:
    """Return today's date and the versions that the results depend on; tables print each name with its value."""
    names = ("dpadapt", "numpy", "scipy", "scikit-learn")
    today = date.today().isoformat()
    return {"measured on": today, "python": platform.python_version(), **{name: version(name) for name in names}}


# Texts of all tables.


def run_text(part: Mapping[str, Any]) -> str:
    """Return how much a run measured, how long it took and with which versions, for a sentence's beginning."""
    used = ", ".join(f"{name} {number}" for name, number in part["versions"].items())
    return f"{'Quick' if part['quick'] else 'Full'} run, {part['minutes']:.1f} minutes; {used}"


def titled(table: Mapping[str, Any]) -> list[str]:
    """Return a table in Markdown, after a paragraph with its title and words."""
    rows = [row["cells"] for row in table["rows"]]
    return [f"**{table['title']}.** {table['words']}", pipes(table["header"], rows)]


def setting_text(results: Mapping[str, Any]) -> str:
    """Return whether a run was quick, and the versions that it used."""
    used = ", ".join(f"{name} {number}" for name, number in results["versions"].items())
    return f"{'Quick' if results['quick'] else 'Full'} run; {used}."


def write_claims_and_tables(
    path: Path,
    markers: tuple[str, str],
    command: str,
    results: Mapping[str, Any],
    claims: Sequence[Mapping[str, str]],
    tables: Sequence[Mapping[str, Any]],
) -> None:
    """Write how a run was made, its claims and its tables between the two markers of a page."""
    shown = [[row["claim"], row["measured"], row["verdict"]] for row in claims]
    parts = [f"Printed by `{command}`. {setting_text(results)}", pipes(["claim", "measured", "verdict"], shown)]
    for table in tables:
        parts += titled(table)
    write_between(path, "\n\n".join(parts) + "\n", *markers)


def size_text(size: int) -> str:
    """Return one of `SIZES` in words."""
    return f"{size:,}" if size else "all"


def by_task(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Yield the name of each task with its rows."""
    for name in dict.fromkeys(row["task"] for row in rows):
        yield name, [row for row in rows if row["task"] == name]


def cell_text(row: Row) -> str:
    """Return the name of a cell."""
    return f"{row['task']}, {row['n']:,} rows, epsilon {row['epsilon']:g}"


def ratio_text(value: float) -> str:
    """Return a ratio; a ratio of exactly 1 has no decimals.

    Examples
    --------
    >>> ratio_text(1.0), ratio_text(0.95)
    ('1', '.950')
    """
    return "1" if value == 1.0 else f"{value:.3f}".removeprefix("0")


def value_text(value: Any) -> str:
    """Return an error, or accuracy and log-loss.

    Examples
    --------
    >>> value_text(0.25), value_text([90.0, 0.25])
    ('.2500', '90.0% .2500')
    """
    if np.ndim(value):
        return f"{value[0]:.1f}% {value_text(value[1])}"
    return f"{value:.4f}".removeprefix("0") if value < 10 else f"{value:.3g}"


def print_tables(
    tables: Sequence[Mapping[str, Any]], claims: Sequence[Mapping[str, str]], sentences: Sequence[str]
) -> None:
    """Print tables, claims and facts on the terminal; rows that are `bad` and claims that are missed are red."""
    from rich.console import Console
    from rich.table import Column, Table

    console = Console(highlight=False)
    for table in tables:
        shown = Table(Column(table["header"][0], no_wrap=True), *table["header"][1:], title=table["title"])
        for row in table["rows"]:
            shown.add_row(*row["cells"], style="red" if row["bad"] else None)
        console.print(shown)
    shown = Table("claim", "measured", "verdict", title="claims")
    for row in claims:
        style = "red" if row["verdict"] == "missed" else None
        shown.add_row(row["claim"], row["measured"], row["verdict"], style=style)
    if claims:
        console.print(shown)
    for sentence in sentences:
        console.print(sentence, markup=False)


def judged(what: str, text: str, lead: float, half: float) -> dict[str, str]:
    """Return a claim with its figure; it holds or is missed if the interval `lead` +- `half` lies on one side of 0."""
    verdict = "holds" if lead - half > 0 else "missed" if lead + half < 0 else "undecided"
    return {"claim": what, "measured": text, "verdict": verdict}
