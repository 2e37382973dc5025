"""Paper 1 beyond its 15,000 steps: `python -m benchmarks adaptation-limits`.

Figure 1 for Gas with up to 200,000 steps beside what Theorem 4.3 asks for, problem (7) solved exactly over the grids of
Appendix E, and what the penalties change in Algorithms 1 and 2. Needs the real sets in `DPADAPT_DATA`.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.adaptation.claims import mean, shown, spread, with_enough_splits
from benchmarks.adaptation.figures import ALPHAS, DELTA, FigureCell
from benchmarks.adaptation.nonprivate import TABLE_2_AND_6
from benchmarks.adaptation.sets import named, split
from benchmarks.adaptation.tuning import Setting, combinations, spoken, tuned
from benchmarks.pages import pipes, write_between
from benchmarks.running import command, cores, watched
from benchmarks.transfer.common import claim, versions
from dpadapt.errors import DataUnavailable
from dpadapt.papers.adaptation.cnvx import CnvxAdap
from dpadapt.papers.adaptation.convergence import ConvergenceBounds
from dpadapt.papers.adaptation.ncnvx import NCnvxAdap
from dpadapt.papers.adaptation.noise import PAPER_SHARE
from dpadapt.papers.adaptation.preparation import bounded_rows, unit_geometry
from dpadapt.papers.adaptation.problem import Penalties, solve_smooth

START, END = "<!-- bench adaptation-limits -->", "<!-- end of bench adaptation-limits -->"
# Figure 1's claim is about 10,000 rows; the number of steps is ours, see the table.
CLAIMED_ROWS, CLAIMED_STEPS = 10_000, 200_000
STEP_EPSILONS = (math.inf, 10.0, 15.0)
# Appendix E's grids; kappa is for Algorithm 1, lambda for Algorithm 2.
KAPPAS = {"kappa1": (1, 5, 10, 100, 200), "kappa2": (5, 10, 50, 100, 1000), "kappa_inf": (0.1, 1, 5, 10, 100)}
LAMBDAS = {"lambda1": (1, 10, 100, 200, 250), "lambda2": (0.01, 0.1, 1, 10, 100), "lambda_inf": (0.01, 0.1, 1, 5, 10)}
_SETTINGS = combinations(alpha=(0.5, 0.1, 0.9), radius=(5.0, 20.0))
_RADIUS = 50.0  # of Algorithm 2 and problem (7), as in the other tables


@dataclass(frozen=True)
class Piece:
    """The work of one process at a time."""

    part: str
    key: tuple[Any, ...]
    seeds: int


def pieces(*, quick: bool) -> list[Piece]:
    """Return all pieces of work, the longest first."""
    steps = (15_000, CLAIMED_STEPS) if quick else (15_000, 50_000, CLAIMED_STEPS)
    sets, seeds = (("German", "Accent"), 2) if quick else (tuple(TABLE_2_AND_6), 5)
    work = [Piece("steps", ("Gas", CLAIMED_ROWS, T), seeds) for T in reversed(steps)]
    work += [Piece("seven", (name, seed), seeds) for name in sets for seed in range(seeds)]
    return [*work, *(Piece("penalties", (name, steps[0]), 1) for name in ("Gas", "German" if quick else "Adult"))]


def measure(piece: Piece) -> dict[str, Any]:
    """Return the row of one piece, or the reason why it was skipped."""
    try:
        if piece.part == "steps":
            return {"row": more_steps(*piece.key, seeds=piece.seeds)}
        if piece.part == "seven":
            return {"row": solved_exactly(*piece.key)}
        return {"row": penalties_changed(*piece.key)}
    except DataUnavailable as missing:
        return {"skipped": f"{piece.part}, {piece.key[0]}: {missing}"}


def more_steps(name: str, n: int, n_steps: int, *, seeds: int) -> dict[str, Any]:
    """Return the errors of Algorithm 1 with the printed noise and without noise, each tuned on test."""
    cell = FigureCell(name, n)
    values, settings, bounds = {}, {}, {}
    for epsilon in STEP_EPSILONS:

        def error(setting: Setting, seed: int, epsilon: float = epsilon) -> float:
            params: dict[str, Any] = {"n_steps": n_steps, "noise": "paper", "random_state": seed, **setting}
            return cell.error(CnvxAdap(epsilon, DELTA, **params), seed)

        # A quick run, of two splits, takes the first setting.
        grid = _SETTINGS if seeds > 2 else _SETTINGS[:1]
        chosen, values[f"{epsilon:g}"] = tuned(grid, error, seeds)
        settings[f"{epsilon:g}"] = spoken(chosen)
        if math.isfinite(epsilon):
            m, d = len(cell.public.y), cell.public.X.shape[1] + 1
            # The discrepancy gets the other part of epsilon.
            spent = (1 - PAPER_SHARE) * epsilon
            theory = ConvergenceBounds(m, n, d, chosen["alpha"], chosen["radius"], Penalties(), spent, DELTA)
            bounds[f"{epsilon:g}"] = {
                "required": theory.required_steps,
                "bound": theory.optimisation(n_steps).total,
                "largest loss": (chosen["radius"] + 1) ** 2,
            }
    return {"set": name, "n": n, "n_steps": n_steps, "values": values, "settings": settings, "bounds": bounds}


def solved_exactly(name: str, seed: int) -> dict[str, Any]:
    """Return the accuracy of problem (7)'s solution on one split, at the penalties that validation rows choose.

    First alpha and lambda 1 are chosen, at the least lambda 2 and lambda infinity; then these two, one after the other.
    """
    part = split(named(name), seed)
    classes = np.unique(np.concatenate([np.asarray(part.public.y), part.y]))
    geometry = unit_geometry(part.X.shape[1], np.asarray(part.public.X, dtype=np.float64))
    rows = {
        key: bounded_rows(geometry.transform(np.asarray(X, dtype=np.float64)), np.zeros(len(X))).X
        for key, X in (("source", part.public.X), ("target", part.X), ("val", part.X_validation), ("test", part.X_test))
    }
    codes, codes_source = (np.searchsorted(classes, np.asarray(y)) for y in (part.y, part.public.y))

    def accuracies(alpha: float, one: float, two: float, top: float) -> tuple[float, float]:
        solution = solve_smooth(
            rows["source"],
            codes_source,
            rows["target"],
            codes,
            n_classes=len(classes),
            alpha=alpha,
            radius=_RADIUS,
            penalties=Penalties(one, two, top),
            tolerance=1e-6,
        )
        guessed = [classes[(rows[key] @ solution.coef > 0).astype(int)] for key in ("val", "test")]
        truth = (part.y_validation, part.y_test)
        return tuple(100 * float(np.mean(a == b)) for a, b in zip(guessed, truth, strict=True))  # type: ignore[return-value]

    best: tuple[tuple[float, float], tuple[float, ...]] = ((-1.0, -1.0), ())
    ones, twos, tops = (LAMBDAS[name] for name in ("lambda1", "lambda2", "lambda_inf"))
    for stage in (
        [(alpha, one, twos[0], tops[0]) for alpha in ALPHAS for one in ones],
        [(None, None, two, tops[0]) for two in twos[1:]],
        [(None, None, None, top) for top in tops[1:]],
    ):
        fixed = best[1]
        for setting in stage:
            chosen = tuple(fixed[i] if value is None else value for i, value in enumerate(setting))
            scores = accuracies(*chosen)
            if scores[0] > best[0][0]:
                best = scores, chosen
    return {"set": name, "seed": seed, "accuracy": best[0][1], "setting": list(best[1])}


def penalties_changed(name: str, n_steps: int) -> dict[str, Any]:
    """Return how far the least and the largest penalties of Appendix E's grids move the predictions on test rows."""
    part = split(named(name), 0)
    regression = name == "Gas"
    scores = []
    for pick in (0, -1):
        values = {key: float(grid[pick]) for key, grid in (KAPPAS if regression else LAMBDAS).items()}
        options: dict[str, Any] = {"n_steps": n_steps, **values}
        model: Any = CnvxAdap(math.inf, DELTA, radius=20.0, **options) if regression else None
        model = model or NCnvxAdap(math.inf, DELTA, radius=_RADIUS, **options)
        model.fit(part.X, part.y, public=part.public)
        scores.append(model.predict(part.X_test) if regression else model.decision_function(part.X_test))
    return {
        "set": name,
        "algorithm": 1 if regression else 2,
        "n_steps": n_steps,
        "change": float(np.sqrt(np.mean((scores[0] - scores[1]) ** 2)) / np.std(scores[0])),
    }


def run(*, quick: bool) -> dict[str, Any]:
    """Return all results as plain data."""
    start, todo = time.perf_counter(), pieces(quick=quick)
    parts: dict[str, list[Any]] = {"steps": [], "seven": [], "penalties": []}
    skipped: set[str] = set()
    for piece, result in watched(measure, todo, cores(), name=lambda piece: f"{piece.part}: {piece.key}"):
        if "row" in result:
            parts[piece.part].append(result["row"])
        else:
            skipped.add(result["skipped"])
    parts["steps"].sort(key=lambda row: (row["n"], row["n_steps"]))
    order = list(TABLE_2_AND_6)
    parts["seven"].sort(key=lambda row: (order.index(row["set"]), row["seed"]))
    minutes = (time.perf_counter() - start) / 60
    return {"quick": quick, "versions": versions(), "minutes": minutes, "skipped": sorted(skipped), **parts}


def claims(results: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Yield the paper's claims and ours on these parts; each verdict follows from the numbers that are shown.

    Examples
    --------
    >>> values = {"inf": [0.2, 0.3] * 3, "10": [0.31, 0.29] * 3}
    >>> cell = {"set": "Gas", "n": CLAIMED_ROWS, "n_steps": CLAIMED_STEPS, "values": values}
    >>> [row["verdict"] for row in claims({"steps": [cell], "seven": [], "penalties": []})]
    ['holds']
    """
    for cell in results["steps"]:
        # Fewer rows or steps are shown, but the claim is not about them.
        if (cell["n"], cell["n_steps"]) != (CLAIMED_ROWS, CLAIMED_STEPS):
            continue
        plain = cell["values"]["inf"]
        for epsilon in [key for key in cell["values"] if key != "inf"]:
            values = cell["values"][epsilon]
            what = (
                f"Paper, Figure 1, {cell['set']}, {cell['n']:,} rows, epsilon {epsilon}, {cell['n_steps']:,} steps: "
                f"at most one deviation above the same algorithm without noise"
            )
            text = f"{shown(values)}, without noise {shown(plain)}"
            near = _rounded(mean(values)) <= _rounded(mean(plain)) + _rounded(spread(plain))
            yield with_enough_splits(claim(what, text, near), values)
    for name, values in _by_set(results["seven"]).items():
        figure, deviation = TABLE_2_AND_6[name]["Algorithm 2"]
        near = abs(round(mean(values), 2) - figure) <= max(deviation, round(spread(values), 2))
        row = claim(f"Tables 2, 6, {name}, exact (7): within one deviation of the paper", shown(values, 2), near)
        row["paper"] = f"{figure:.2f} ± {deviation:.2f}"
        if not named(name).complete:
            row["verdict"] = "other data"
        yield with_enough_splits(row, values)
    for row in results["penalties"]:
        what = (
            f"{row['set']}, Algorithm {row['algorithm']} without noise, {row['n_steps']:,} steps: the least and the "
            f"largest penalties of Appendix E give predictions that differ by less than 1% of their deviation"
        )
        yield claim(what, f"{100 * row['change']:.2f}%", round(100 * row["change"], 2) < 1)


def _rounded(value: float) -> float:
    """Return a value as it is shown."""
    return round(value, 3)


def _by_set(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    return {
        name: [row["accuracy"] for row in rows if row["set"] == name] for name in dict.fromkeys(r["set"] for r in rows)
    }


def tables(results: Mapping[str, Any]) -> Iterator[tuple[str, str, list[str], list[list[str]]]]:
    """Yield title, words, header and rows of each table."""
    rows = [
        [
            cell["set"],
            f"{cell['n']:,}",
            f"{cell['n_steps']:,}",
            *(f"{shown(values)} ({cell['settings'][key]})" for key, values in cell["values"].items()),
            *(f"{_power(b['required'])}; {b['bound']:.3f} of {b['largest loss']:.0f}" for b in cell["bounds"].values()),
        ]
        for cell in results["steps"]
    ]
    names = [f"epsilon {epsilon:g}" if math.isfinite(epsilon) else "without noise" for epsilon in STEP_EPSILONS]
    theory = [f"Theorem 4.3, {name}: steps; bound" for name in names[1:]]
    words = (
        "Mean squared error over the variance of the test labels, ± one deviation over splits and noise; Algorithm 1 "
        f"with the printed noise, delta 0.01, {'one alpha and radius' if results['quick'] else 'tuned on test'}. "
        "Theorem 4.3: the number of steps from which on it promises its rate, and its bound on the excess of problem "
        "(6)'s objective at the steps taken, for weights at their reference, beside the largest possible loss."
    )
    yield "Figure 1 with more steps", words, ["set", "rows", "steps", *names, *theory], rows
    rows = []
    for name, values in _by_set(results["seven"]).items():
        figure, _ = TABLE_2_AND_6[name]["Algorithm 2"]
        settings = [tuple(row["setting"]) for row in results["seven"] if row["set"] == name]
        common = max(set(settings), key=settings.count)
        rows.append([name, f"{shown(values, 2)} [{figure:.2f}]", ", ".join(f"{value:g}" for value in common)])
    words = (
        "Accuracy in percent of the exact solution, with alpha and the three lambdas of Appendix E chosen by "
        "validation rows; the paper's figure for Algorithm 2 in brackets. Last column: the most frequent choice."
    )
    yield "Problem (7), solved", words, ["set", "(7)", "alpha, lambda 1, 2, infinity"], rows


def _power(value: float) -> str:
    """Return a large number as a power of ten with one digit."""
    return f"{value:.0e}".replace("e+0", "e").replace("e+", "e")


def facts(results: Mapping[str, Any]) -> str:
    """Return how much was measured."""
    used = ", ".join(f"{name} {number}" for name, number in results["versions"].items())
    left_out = "".join(f" Left out, {reason}." for reason in results["skipped"])
    return f"{'Quick' if results['quick'] else 'Full'} run, {results['minutes']:.1f} minutes; {used}.{left_out}"


def markdown(results: Mapping[str, Any]) -> str:
    """Return the tables for the documentation."""
    parts = [f"Printed by `python -m benchmarks adaptation-limits`. {facts(results)}"]
    judged = [[row["claim"], row.get("paper", ""), row["measured"], row["verdict"]] for row in claims(results)]
    parts.append(pipes(["claim", "paper", "measured", "verdict"], judged))
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
