"""Verdicts and tables on paper 3's own experiments: the paper's figures and the measured ones."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.data.synthetic import APPENDIX_D_EASY
from benchmarks.theory.reweigh import StrPlan, algorithm_4_cost, plan
from benchmarks.transfer.common import claim
from dpadapt.papers.reweigh.deciding import people_needed
from dpadapt.papers.reweigh.learners import Descent
from dpadapt.papers.reweigh.rounds import Protocol

EPSILON, DELTA = 0.5, 1e-4
SIX = "Appendix D, hard, the six columns known"
Row = dict[str, Any]
Claim = dict[str, str]
Table = dict[str, Any]
# Appendix D: records, rounds, steps per round and alpha of the paper's private run.
PAPER_ROWS, PAPER_ROUNDS, PAPER_STEPS, PAPER_ALPHA = 324_700_000, 997, 50_000_000, 0.08
_WORK = f"{PAPER_ROUNDS * PAPER_STEPS / 1e9:.0f} billion steps of one record"


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Return each claim with its figure and whether it holds; `rows` are from `benchmarks.hybrid.reweigh.measure`."""
    return [*_easy(rows), *_hard(rows), *_rounds_matter(rows), *_appendix_c(rows), *_parity(rows), *_planning()]


def mean(row: Row, name: str) -> float:
    """Return the mean of a figure over seeds."""
    return float(np.mean(row[name]))


def reached(row: Row) -> float:
    """Return the share of seeds in which the error is at most the target."""
    return float(np.mean(np.array(row["error"]) <= row["target"]))


def _part(rows: Sequence[Row], part: str, name: str | None = None) -> list[Row]:
    return [row for row in rows if row["part"] == part and name in (None, row["name"])]


def _easy(rows: Sequence[Row]) -> Iterator[Claim]:
    for row in _part(rows, "Appendix D, easy", "descent, one round"):
        what = f"Appendix D, easy, {row['n']:,} records, {row['adjacency']}: error <= 2 alpha = 0.16 in 90% of seeds"
        text = f"{100 * reached(row):.0f}% of {len(row['error'])}; mean {mean(row, 'error'):.3f}"
        yield claim(what, text, reached(row) >= 0.9) | {"paper": f"n = {PAPER_ROWS:,}"}
        slowest = max(row["seconds"])
        what = f"Appendix D, easy, {row['n']:,} records: under 0.2 s"
        yield claim(what, f"{slowest:.3f} s at most", slowest < 0.2) | {"paper": _WORK}


def _hard(rows: Sequence[Row]) -> Iterator[Claim]:
    part = "Appendix D, hard"
    wanted = (
        ("knows k", 0.02, 0.9, "75,000 to 200,000 records, not private"),
        ("does not know k", 0.02, 0.9, "-"),
        ("neither k, radius nor weights", 0.02, 0.9, "-"),
        ("the same, weights differ", 0.025, 0.9, "-"),
    )
    for name, target, share, paper in wanted:
        # A learner's smallest size may show where it fails; the claim is about the largest.
        for row in sorted(_part(rows, part, name), key=lambda row: int(row["n"]))[-1:]:
            met = sum(error <= target for error in row["error"]) / len(row["error"])
            what = f"{part} (d = 200, k = 6), {name}, {row['n']:,} records, replace-one: error <= {target}"
            text = f"{100 * met:.0f}% of {len(row['error'])}; mean {mean(row, 'error'):.4f}"
            yield claim(what, text, met >= share) | {"paper": paper}
            if row["n"] >= 500_000:
                slowest = max(row["seconds"])
                what = f"{part}, {name}, {row['n']:,} records: under 60 s"
                yield claim(what, f"{slowest:.1f} s at most", slowest < 60)


def _rounds_matter(rows: Sequence[Row]) -> Iterator[Claim]:
    for row in _part(rows, SIX):
        what = f"{SIX}, {row['n']:,} records: rounds reduce the error to at most a third of S-only's"
        text = f"mean {mean(row, 'error'):.3f}; S-only {mean(row, 'S-only, tested'):.3f}, as people tested it"
        yield claim(what, text, mean(row, "error") <= mean(row, "S-only, tested") / 3)


def _appendix_c(rows: Sequence[Row]) -> Iterator[Claim]:
    for row in _part(rows, "Appendix C"):
        worst, balanced = max(row["error"]), max(row["balanced"])
        text = f"error {worst:.4f}, balanced {balanced:.3f} at most; a constant label: {mean(row, 'constant'):.4f}"
        what = "Appendix C (not private): error <= 2 alpha = 0.02, and balanced error <= 0.2"
        yield claim(what, text, worst <= 0.02 and balanced <= 0.2) | {"paper": "error <= 0.02"}
        rounds, seconds = max(row["rounds"]), max(row["seconds"])
        what = "Appendix C: in at most 5 rounds and 30 s"
        text = f"{rounds:.0f} round(s), {seconds:.1f} s at most"
        yield claim(what, text, rounds <= 5 and seconds <= 30) | {"paper": "1,200 to 1,300 rounds"}


def _parity(rows: Sequence[Row]) -> Iterator[Claim]:
    for row in _part(rows, "Appendix B"):
        right, wrong = sum(row["right"]), sum(row["wrong"])
        text = f"found in {right:.0f} of {len(row['right'])}; {wrong:.0f} wrong answers"
        what = f"Parity, {row['name']} ({row['n']:,} records): found, no wrong answer"
        yield claim(what, text, right == len(row["right"]) and wrong == 0)
        if row["paper"] and row["features"] == 128:
            what = f"Parity, {row['name']}: under 3 s"
            yield claim(what, f"{max(row['seconds']):.2f} s", max(row["seconds"]) < 3)


def _planning() -> Iterator[Claim]:
    """Yield the claims that need no data: sizes, people and the cost of Algorithm 4."""
    people = people_needed(2 * PAPER_ALPHA, 4 * PAPER_ALPHA, 1e-9, EPSILON)
    what = "people in a test of 2 alpha against 4 alpha, both errors 1e-9, one bit each, delta = 0: at most 23,100"
    yield claim(what, f"{people:,}", people <= 23_100) | {"paper": f"{_paper_plan().people:,} (delta = 1e-4)"}
    rounds = PAPER_ROUNDS
    tests = len(Protocol(rounds, 1.0, 0.1, 0.16, 0.32, 1e-3).tested)
    yield claim(f"tests in {rounds} rounds: at most ceil(log2 T) + 1 = 11", f"{tests}", tests <= 11) | {
        "paper": f"{rounds}"
    }
    cost = algorithm_4_cost(PAPER_ROWS, _density(), PAPER_ROUNDS, PAPER_STEPS, 20**0.5, DELTA)
    what = "Paper, Algorithm 4 at its 324.7 million records costs epsilon <= 0.5"
    text = f"{cost.truncated:.3f} by its own accountant, at most {cost.renyi:.3f} by Rényi divergences"
    yield claim(what, text, cost.renyi <= EPSILON) | {"paper": "0.5"}


def _density() -> float:
    return PAPER_ALPHA / (4 * (APPENDIX_D_EASY.divergence + 1))


def _paper_plan(n_rounds: int | None = PAPER_ROUNDS) -> StrPlan:
    """Return the sizes of the paper's private run; with None, its formula for T, in which the largest loss is LD."""
    return plan(
        PAPER_ALPHA,
        EPSILON,
        DELTA,
        APPENDIX_D_EASY.divergence,
        descent=Descent(0.1, 0.006, 9),
        n_rounds=n_rounds,
        n_steps=PAPER_STEPS,
        density=_density(),
    )


def tables(rows: Sequence[Row]) -> list[Table]:
    """Return the tables, each with a title, columns and rows of text."""
    all_tables = []
    columns = ["learner", "records", "neighbours", "error", "worst", "at target", "balanced", "constant", "rounds"]
    columns += ["people asked", "CPU s"]
    for part in ("Appendix D, easy", "Appendix D, hard", SIX, "Appendix C"):
        mine = _part(rows, part)
        if mine:
            title = f"{part}: target {mine[0]['target']:g}"
            all_tables.append({"title": title, "columns": columns, "rows": [_cells(row) for row in mine]})
    parity = _part(rows, "Appendix B")
    if parity:
        columns = ["bits", "records", "batches", "answers", "wrong", "found", "CPU s"]
        cells = [
            [
                row["name"],
                f"{row['n']:,}",
                f"{row['batches']}",
                f"{mean(row, 'answers'):.1f}",
                f"{sum(row['wrong']):.0f}",
                f"{sum(row['right']):.0f} of {len(row['right'])}",
                f"{mean(row, 'seconds'):.2f}",
            ]
            for row in parity
        ]
        all_tables.append({"title": "Appendix B, parity: epsilon 0.5, replace-one", "columns": columns, "rows": cells})
    all_tables.append(_sizes(rows))
    return all_tables


def _cells(row: Row) -> list[str]:
    return [
        row["name"],
        f"{row['n']:,}",
        row["adjacency"],
        f"{mean(row, 'error'):.4f}",
        f"{max(row['error']):.4f}",
        f"{100 * reached(row):.0f}% of {len(row['error'])}",
        f"{mean(row, 'balanced'):.3f}",
        f"{mean(row, 'constant'):.3f}",
        f"{mean(row, 'rounds'):.1f}",
        f"{mean(row, 'asked'):,.0f}",
        f"{mean(row, 'seconds'):.2f}",
    ]


def _sizes(rows: Sequence[Row]) -> Table:
    """Return the paper's sizes beside ours, for Appendix D, easy."""
    ran, formula = _paper_plan(), plan(PAPER_ALPHA, EPSILON, DELTA, APPENDIX_D_EASY.divergence)
    ours = _part(rows, "Appendix D, easy", "descent, one round")
    least = min(ours, key=lambda row: row["n"]) if ours else None
    people = people_needed(2 * PAPER_ALPHA, 4 * PAPER_ALPHA, 1e-9, EPSILON)
    cells = [
        [
            "the curator's records",
            f"{ran.rows:,} by formula, for {PAPER_ROUNDS} rounds",
            f"{least['n']:,} (add-remove), 2,000 (replace-one)" if least else "-",
        ],
        [
            "rounds",
            f"by formula {formula.rounds:,} for losses up to 1 and {_paper_plan(None).rounds:,} for losses up to "
            f"LD = 0.0006; about 1,000 run",
            "1",
        ],
        ["steps in a round", f"{PAPER_STEPS:,}, of one record each", "40, of all records"],
        ["people in a test", f"{ran.people:,}", f"{people:,} at errors of 1e-9, fewer when a test stops early"],
        ["tests", "one a round", "1, 2, 4, … and the last round"],
        ["work", _WORK, f"{mean(least, 'seconds'):.3f} CPU seconds" if least else "-"],
    ]
    title = "Sizes, Appendix D, easy: epsilon 0.5, delta 1e-4, alpha 0.08"
    return {"title": title, "columns": ["", "paper", "ours"], "rows": cells}
