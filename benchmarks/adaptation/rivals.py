"""Why Algorithm 1 of paper 1 loses to its rivals: `python -m benchmarks adaptation-rivals`.

Figure 3 (Gas, private discrepancy minimisation) and Table 5 (stars of reviews, discrepancy minimisation) with 15,000
steps, the paper's number, and with 200,000; without noise; and problem (6) solved exactly. What more steps and less
noise change is the reason for what the paper's number of steps misses. Needs the real sets in `DPADAPT_DATA`.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.adaptation import figures
from benchmarks.adaptation.claims import mean, shown, with_enough_splits
from benchmarks.adaptation.nonprivate import baseline
from benchmarks.adaptation.tuning import Setting, combinations, tuned
from benchmarks.pages import pipes, write_between
from benchmarks.running import command, cores, in_order
from benchmarks.transfer.common import compared, everywhere, mean_intervals, run_text, versions
from dpadapt.errors import DataUnavailable
from dpadapt.papers.adaptation.cnvx import CnvxAdap

START, END = "<!-- bench adaptation-rivals -->", "<!-- end of bench adaptation-rivals -->"
FEW, MANY = 15_000, 200_000
_RADII = (1.0, 5.0, 20.0, 100.0)
# Table 5's larger epsilon: with the smaller one there is more noise and nothing else.
PAIR_EPSILON = max(figures.SENTIMENT_EPSILONS)
_PAIR_GRID = combinations(alpha=figures.ALPHAS, radius=(5.0, 20.0))

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Piece:
    """The work of one process at a time: a number of rows of Figure 3, or a pair of Table 5."""

    part: str
    key: tuple[Any, ...]
    seeds: int


def pieces(*, quick: bool) -> list[Piece]:
    """Return all pieces of work, the longest first."""
    rows, pairs, seeds = (figures.ROWS[:2], 2, 2) if quick else (figures.ROWS, 12, 10)
    work = [Piece("Figure 3", (n,), seeds) for n in reversed(rows)]
    return work + [Piece("Table 5", pair, min(seeds, 5)) for pair in list(figures.pairs())[:pairs]]


def measure(piece: Piece) -> dict[str, Any]:
    """Return the row of one piece, or the reason why it was skipped."""
    try:
        values = (figure_3 if piece.part == "Figure 3" else table_5)(*piece.key, seeds=piece.seeds)
    except DataUnavailable as missing:
        return {"part": piece.part, "skipped": f"{piece.part}: {missing}"}
    return {"part": piece.part, "key": list(piece.key), "values": values}


def figure_3(n: int, *, seeds: int) -> dict[str, list[float]]:
    """Return errors on Gas over splits: Algorithm 1 at alpha = 1, which uses no private row, and private DM."""
    cell, epsilon = figures.FigureCell("Gas", n), figures.FIGURE_3_EPSILON
    matched = baseline("private DM")
    values = {}
    for steps in (FEW, MANY):

        def algorithm(setting: Setting, seed: int, steps: int = steps) -> float:
            return cell.error(_algorithm(epsilon, {"alpha": 1.0, **setting}, steps, seed), seed)

        values[f"{steps}"] = tuned(combinations(radius=_RADII), algorithm, seeds)[1]
    values["exact"] = tuned(
        combinations(radius=_RADII), lambda setting, seed: cell.error(_exact({"alpha": 1.0, **setting}), seed), seeds
    )[1]
    values["rival"] = [
        cell.error(
            matched.estimator(epsilon=epsilon, delta=figures.DELTA, adjacency=figures.ADJACENCY, random_state=seed),
            seed,
        )
        for seed in range(seeds)
    ]
    return values


def table_5(source: str, target: str, *, seeds: int) -> dict[str, list[float]]:
    """Return errors of one pair over splits: Algorithm 1 with and without noise, (6) solved, and DM, not private."""
    error = figures.pair_errors(source, target, seeds)
    values = {"rival": [error(baseline("DM").estimator(), seed) for seed in range(seeds)]}
    for epsilon, steps in ((PAIR_EPSILON, FEW), (PAIR_EPSILON, MANY), (math.inf, FEW), (math.inf, MANY)):

        def algorithm(setting: Setting, seed: int, epsilon: float = epsilon, steps: int = steps) -> float:
            return error(_algorithm(epsilon, setting, steps, seed), seed)

        name = f"{steps}" if math.isfinite(epsilon) else f"no noise, {steps}"
        values[name] = tuned(_PAIR_GRID, algorithm, seeds)[1]
    values["exact"] = tuned(
        combinations(alpha=figures.ALPHAS), lambda setting, seed: error(_exact(setting), seed), seeds
    )[1]
    return values


def _algorithm(epsilon: float, setting: Setting, steps: int, seed: int) -> Any:
    params: dict[str, Any] = {"n_steps": steps, "noise": "paper", "random_state": seed, **setting}
    return CnvxAdap(epsilon, figures.DELTA, **params)


def _exact(setting: Setting) -> Any:
    return baseline("exact (6)").estimator(**setting)


def run(*, quick: bool) -> dict[str, Any]:
    """Return all results as plain data."""
    start, todo = time.perf_counter(), pieces(quick=quick)
    rows = in_order(measure, todo, cores(), name=lambda piece: f"{piece.part}: {piece.key}")
    return {
        "quick": quick,
        "versions": versions(),
        "minutes": (time.perf_counter() - start) / 60,
        "skipped": sorted({row["skipped"] for row in rows if "skipped" in row}),
        "Figure 3": sorted((row for row in rows if row["part"] == "Figure 3" and "values" in row), key=_rows),
        "Table 5": [row for row in rows if row["part"] == "Table 5" and "values" in row],
    }


def claims(results: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Yield the paper's two claims with more steps, and what the algorithm would find with all steps and no noise.

    Examples
    --------
    >>> values = {name: [0.2, 0.21, 0.22, 0.23, 0.24] for name in (f"{FEW}", f"{MANY}", "exact")}
    >>> rows = [{"key": [300], "values": {**values, "rival": [0.3, 0.31, 0.33, 0.32, 0.34]}}]
    >>> [row["verdict"] for row in claims({"Figure 3": rows, "Table 5": []})]
    ['holds', 'holds', 'holds']
    """
    for row in results["Figure 3"]:
        for name in (f"{FEW}", f"{MANY}", "exact"):
            what = f"Figure 3, Gas, {row['key'][0]:,} rows: {_spoken(name)} has less error than private DM"
            mine, rival = row["values"][name], row["values"]["rival"]
            apart = [b - a for a, b in zip(mine, rival, strict=True)]
            whose = "" if name == "exact" else "Paper, "
            row_claim = compared(f"{whose}{what}", f"{mean(mine):.3f} against {mean(rival):.3f}", apart, digits=3)
            yield with_enough_splits(row_claim, mine)
    for name in (f"{FEW}", f"{MANY}", f"no noise, {MANY}", "exact") if results["Table 5"] else ():
        apart = [
            [b - a for a, b in zip(row["values"][name], row["values"]["rival"], strict=True)]
            for row in results["Table 5"]
        ]
        leads = mean_intervals(apart, 3)
        won = sum(lead > half for lead, half in leads)
        lost = sum(lead < -half for lead, half in leads)
        text = f"less in {won}, more in {lost} of {len(leads)} pairs beyond ±{leads[0][1]:.3f}"
        whose = "Paper, " if name in (f"{FEW}", f"{MANY}") else ""
        what = f"{whose}Table 5: {_spoken(name)} has less error than DM on every pair"
        yield with_enough_splits(everywhere(what, text, leads), apart[0])


_COLUMNS: dict[str, Callable[[Row], dict[str, str]]] = {
    "Figure 3": lambda row: {
        "rows": f"{row['key'][0]:,}",
        f"Algorithm 1, {FEW:,} steps *": shown(row["values"][f"{FEW}"]),
        f"{MANY:,} steps *": shown(row["values"][f"{MANY}"]),
        "(6) at alpha 1, solved *": shown(row["values"]["exact"]),
        "private DM": shown(row["values"]["rival"]),
    },
    "Table 5": lambda row: {
        "pair": " → ".join(row["key"]),
        f"Algorithm 1, {FEW:,} steps *": shown(row["values"][f"{FEW}"]),
        f"{MANY:,} steps *": shown(row["values"][f"{MANY}"]),
        f"without noise, {FEW:,} *": shown(row["values"][f"no noise, {FEW}"]),
        f"without noise, {MANY:,} *": shown(row["values"][f"no noise, {MANY}"]),
        "(6), solved *": shown(row["values"]["exact"]),
        "DM, not private": shown(row["values"]["rival"]),
    },
}
_WORDS = {
    "Figure 3": f"Gas, epsilon {figures.FIGURE_3_EPSILON:g}, printed noise, alpha 1: no private row is used. Radius *",
    "Table 5": f"Epsilon {PAIR_EPSILON:g}, printed noise, 300 private reviews. Alpha and radius *",
}


def tables(results: Mapping[str, Any]) -> Iterator[tuple[str, str, list[str], list[list[str]]]]:
    """Yield title, words, header and rows of each table."""
    for part, columns in _COLUMNS.items():
        if cells := [columns(row) for row in results[part]]:
            words = (
                f"{_WORDS[part]} tuned on test. Mean squared error over the variance of the test labels, ± one "
                f"deviation over {len(results[part][0]['values']['rival'])} splits."
            )
            yield f"{part} with more steps", words, list(cells[0]), [list(row.values()) for row in cells]


def _spoken(name: str) -> str:
    if name == "exact":
        return "(6), solved exactly,"
    steps = int(name.removeprefix("no noise, "))
    return f"Algorithm 1{' without noise' if name.startswith('no noise') else ''}, {steps:,} steps,"


def _rows(row: Row) -> int:
    return int(row["key"][0])


def markdown(results: Mapping[str, Any]) -> str:
    """Return the tables for the documentation."""
    left_out = "".join(f" Left out, {reason}." for reason in results["skipped"])
    parts = [f"Printed by `python -m benchmarks adaptation-rivals`. {run_text(results)}.{left_out}"]
    judged: Sequence[Sequence[str]] = [[row["claim"], row["measured"], row["verdict"]] for row in claims(results)]
    parts.append(pipes(["claim", "measured", "verdict"], judged))
    for title, words, header, rows in tables(results):
        parts += [f"**{title}.** {words}", pipes(header, rows)]
    return "\n\n".join(parts) + "\n"


def write_markdown(results: Mapping[str, Any], path: Path) -> None:
    """Write the tables between the markers of a documentation page."""
    write_between(path, markdown(results), START, END)


def show(results: Mapping[str, Any]) -> None:
    """Print the tables."""
    from rich.console import Console

    Console(highlight=False, width=200).print(markdown(results), markup=False)


if __name__ == "__main__":
    command(
        __spec__.name, __doc__, run, show, writers={"markdown": ("write the tables between markers", write_markdown)}
    )
