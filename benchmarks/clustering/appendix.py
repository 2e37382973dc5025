"""Paper 5's figures on all of its sets: `python -m benchmarks clustering-appendix`.

C.1 to C.3 (Figures 4, 5, 7 to 56): `NAS` with other t, `NAS` and `NNA` with a coreset of the targets and without. C.4
(Figures 57 to 80, with Figure 3): all methods at epsilon 3. C.2 and C.5 (Figures 6, 81 to 104): zCDP. C.6 (Figures 105
to 176): the baselines with a coreset and without. C.7 (Figures 177 to 200): run times. On the paper's 24 real pairs and
on its three synthetic sets; without real data in `DPADAPT_DATA`, or with `--quick`, on fewer. All methods of a set are
timed in one process, in turn.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from benchmarks.clustering.claims import mean_gap, on_few_sets, rival_claims, variant_claims
from benchmarks.clustering.measure import PROXIES, VARIANTS, Problem, Solutions, budget_of, cost_runs, variants
from benchmarks.clustering.sets import named, papers_pairs
from benchmarks.pages import pipes, write_between
from benchmarks.rivals.clustering import accelerated_k_medoids
from benchmarks.running import command, cores, watched
from benchmarks.transfer.common import claim, real_data, run_text, versions
from dpadapt.clustering.estimator import PrivateSourceTargetClustering
from dpadapt.clustering.solver import faster_pam, greedy, nearest
from dpadapt.data import Public
from dpadapt.errors import DataUnavailable
from dpadapt.papers.source_target import proxies
from dpadapt.papers.source_target.proxies import Ball, coreset

Array = NDArray[Any]

START, END = "<!-- bench clustering-appendix -->", "<!-- end of bench clustering-appendix -->"

BUDGET, SEED, KS = "epsilon 3", 11, (10, 40, 70)
DISTANCE = 0.05  # of a target to the coreset, where the longest target is 1/2; the paper's C
BASELINES = ("ClusterT", "private k-means", "private generator")
# Methods that are run at rho 3 for Figures 6 and 81 to 104 alone.
ONLY_ZCDP = ("NNA, tight", "private k-means", "private generator")
# Runs of each method on a real pair, and on a synthetic set, where the results of runs differ more. The paper has 30.
RUNS, SYNTHETIC_RUNS = 3, 10
# How the targets that a representative stands for count: the paper does not say.
READINGS = ("coreset", "weighted coreset")
# Largest change of the mean cost that counts as negligible, as a share of it. Ours: the paper judges by eye.
NEGLIGIBLE = 0.01
# Largest ratio of mean run times that counts as "no significant differences". Ours, likewise.
SIMILAR = 2.0
TIMED = ("ClusterT", "NNA", "NAS", "private k-means", "private generator", "ours")
# The methods of C.7 that are here: DP-GAN is not; the histogram in its place is timed, but not judged.
PAPERS_TIMED = ("ClusterT", "NNA", "NAS", "private k-means")


@dataclass(frozen=True)
class AppendixPiece:
    """The work of one process at a time: one set, and how often methods are run and timed on it."""

    name: str
    runs: int
    timed: int


def pieces(*, quick: bool) -> list[AppendixPiece]:
    """Return the sets to measure."""
    names = [name for name in papers_pairs() if real_data() or not named(name).real]
    if quick:
        return [AppendixPiece(name, 2, 1) for name in names if named(name).main]
    return [AppendixPiece(name, RUNS if named(name).real else SYNTHETIC_RUNS, 2) for name in names]


def measure(piece: AppendixPiece) -> dict[str, Any]:
    """Return the costs of the baselines with and without a coreset, and all run times, on one set."""
    start = time.process_time()
    paper_set = named(piece.name)
    try:
        problem = Problem(paper_set, SEED, KS)
    except DataUnavailable as missing:
        return {"skipped": f"{piece.name}: {missing}"}
    row = {"set": piece.name, "family": paper_set.family, "real": paper_set.real, "n": len(problem.T)}
    row |= with_coresets(problem, piece.runs)
    row["seconds"] = run_times(problem, piece.timed)
    row["variants"] = variants(problem, piece.runs)
    # What `variants` and `with_coresets` measure under other names is not measured again.
    concentrated = {name: cost_runs(problem, PROXIES[name], "rho 3", piece.runs) for name in ONLY_ZCDP}
    row["compared"] = compared(row, concentrated)
    return row | {"cpu": time.process_time() - start}


def compared(row: Mapping[str, Any], concentrated: Mapping[str, Any]) -> dict[str, Any]:
    """Return the costs of the paper's methods, as Figures 3, 6 and 57 to 104 compare them; `concentrated` has rho 3."""
    other = row["variants"]
    own = {
        budget: {"NNA": values["NNA, coreset"], "NAS": values["NAS, t 150"]}
        for budget, values in other["values"].items()
    }
    pure = {name: row["costs"][name]["all targets"] for name in BASELINES if name != "ClusterT"}
    values = {BUDGET: own[BUDGET] | pure, "rho 3": own["rho 3"] | dict(concentrated)}
    return {"non-private": other["non-private"], "ClusterT": other["ClusterT"], "values": values}


def with_coresets(problem: Problem, runs: int) -> dict[str, Any]:
    """Return the size of the coreset, and for each baseline and reading the costs: a list over k for each run."""
    targets = Ball.of(problem.T).scaled(problem.T)
    rows = coreset(targets, DISTANCE)
    sizes = np.bincount(nearest(targets, targets[rows])[0], minlength=len(rows)).astype(np.float64)
    weights = {"coreset": np.ones(len(rows)), "weighted coreset": sizes}
    costs: dict[str, dict[str, list[list[float]]]] = {}
    for name in BASELINES:
        costs[name] = {reading: [] for reading in ("all targets", *READINGS)}
        for run in range(1 if name == "ClusterT" else runs):
            free = np.full(len(problem.T), np.inf)
            if name != "ClusterT":
                model = PROXIES[name](random_state=200 + run, **budget_of(BUDGET)).fit(problem.S, public=problem.public)
                free = nearest(problem.T, model.proxies_)[1]
            costs[name]["all targets"].append(problem.costs(problem.solve(free)))
            for reading, weight in weights.items():
                costs[name][reading].append(problem.costs(on_coreset(problem, free, rows, weight)))
    return {"coreset": len(rows), "costs": costs}


def on_coreset(problem: Problem, free: Array, rows: NDArray[np.int64], weights: Array) -> Solutions:
    """Return the centres for every k if the targets were `rows` alone, each with its weight.

    Σ_i weight_i min(free_i, min_j distance_ij) is the usual sum for distances that are multiplied by the weight of
    their row, so the usual solver minimises it. Where `rows` has fewer than k, all of them are centres.
    """
    scale = weights.astype(np.float32)[:, None]
    matrix = np.asfortranarray(problem.matrix[np.ix_(rows, rows)] * scale)
    # A row that stands for no target, as a repeated one, costs nothing, also where nothing is free.
    capped = np.multiply(free[rows], weights, out=np.zeros(len(rows)), where=weights > 0)
    order = greedy(matrix, capped, min(max(problem.ks), len(rows)))
    return [rows[faster_pam(matrix, capped, order[:k])] for k in problem.ks]


def run_times(problem: Problem, runs: int) -> dict[str, list[float]]:
    """Return the CPU seconds of whole fits at single k, by method, one number for each k and run."""
    seconds: dict[str, list[float]] = {name: [] for name in TIMED}
    for run in range(runs):
        for k in problem.ks:
            for name in TIMED:
                work = _fit(problem, name, k, run)
                # The paper's solver for the paper's methods.
                with patch.object(proxies, "capped_k_medoids", accelerated_k_medoids):
                    start = time.process_time()
                    work()
                    seconds[name].append(time.process_time() - start)
    return seconds


def _fit(problem: Problem, name: str, k: int, run: int) -> Callable[[], Any]:
    """Return one fit from the rows on: the cache of public preparation is empty."""
    public = Public(problem.T)
    if name == "ClusterT":
        return lambda: accelerated_k_medoids(problem.T, k)
    if name == "ours":
        model: Any = PrivateSourceTargetClustering(k, random_state=run, **budget_of(BUDGET))
    else:
        model = PROXIES[name](random_state=run, **budget_of(BUDGET)).set_params(n_clusters=k)
    return lambda: model.fit(problem.S, public=public)


# What the numbers say.


def change(row: Mapping[str, Any], baseline: str, reading: str) -> float:
    """Return by which share of its cost a coreset changes a baseline: Σ with / Σ without - 1, over k and runs.

    Examples
    --------
    >>> row = {"costs": {"ClusterT": {"all targets": [[1.0, 3.0]], "coreset": [[1.2, 3.0]]}}}
    >>> round(change(row, "ClusterT", "coreset"), 3)
    0.05
    """
    costs = row["costs"][baseline]
    return float(np.sum(costs[reading]) / np.sum(costs["all targets"]) - 1)


def verdicts(rows: Sequence[Mapping[str, Any]], *, quick: bool = False) -> Iterator[dict[str, str]]:
    """Yield the paper's claims, on its real pairs and on its synthetic sets."""
    for real in (True, False):
        mine = [row for row in rows if row["real"] == real]
        for row in variant_claims([row["variants"] | {"set": row["set"]} for row in mine], real=real):
            yield on_few_sets(row, quick=quick)
        for budget in (BUDGET, "rho 3"):
            yield from rival_claims([row["compared"] for row in mine], budget, real=real, quick=quick)
    yield from (on_few_sets(row, quick=quick) for row in _judged(rows))


def _judged(rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, str]]:
    for kind, real in (("real pairs", True), ("synthetic sets", False)):
        mine = [row for row in rows if row["real"] == real]
        for reading in READINGS if mine else ():
            for name in BASELINES:
                changes = [round(change(row, name, reading), 3) for row in mine]
                kept = sum(abs(value) <= NEGLIGIBLE for value in changes)
                what = f"C.6, {kind}: a {reading} changes {name}'s cost by at most {NEGLIGIBLE:.0%} on every set"
                text = f"{kept} of {len(mine)}; from {min(changes):+.1%} to {max(changes):+.1%}"
                yield claim(what, text, kept == len(mine)) | {"paper": "negligible" if real else "not shown"}
    real_rows = [row for row in rows if row["real"]]
    if real_rows:
        ratios = []
        for row in real_rows:
            means = [float(np.mean(row["seconds"][name])) for name in PAPERS_TIMED]
            ratios.append(round(max(means) / min(means), 1))
        similar = sum(ratio <= SIMILAR for ratio in ratios)
        what = f"C.7: mean run times of {', '.join(PAPERS_TIMED)} within a factor of {SIMILAR:g} on every real pair"
        text = f"{similar} of {len(ratios)}; slowest over fastest {np.median(ratios):.1f} in the median"
        yield claim(what, text, similar == len(ratios)) | {"paper": "no significant differences"}


def tables(rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield a table for each section of the appendix."""
    gap = "Gap: Σ (cost - non-private) / Σ (ClusterT - non-private), summed over k."
    header = ["set", *(f"{name}, {budget}" for budget in ("epsilon 3", "rho 3") for name in VARIANTS)]
    lines = [
        [
            row["set"],
            *(
                f"{mean_gap([row['variants']], budget, name):.2f}"
                for budget in ("epsilon 3", "rho 3")
                for name in VARIANTS
            ),
        ]
        for row in rows
    ]
    title = "C.1 to C.3: NAS with other t, NAS and NNA without a coreset (Figures 4, 5, 7 to 56)"
    yield {
        "title": title,
        "words": f"{gap} NAS has t 150, and a coreset where nothing else is said.",
        "header": header,
        "rows": lines,
    }
    titles = {
        BUDGET: "C.4: all methods at epsilon 3 (Figures 3, 57 to 80)",
        "rho 3": "C.2, C.5: all methods with 3-zCDP (Figures 6, 81 to 104)",
    }
    for budget, title in titles.items():
        methods = [name for name in PROXIES if rows and name in rows[0]["compared"]["values"][budget]]
        lines = [
            [row["set"], *(f"{mean_gap([row['compared']], budget, name):.2f}" for name in methods)] for row in rows
        ]
        yield {"title": title, "words": gap, "header": ["set", *methods], "rows": lines}
    header = ["set", "targets", "coreset", *(f"{name}, {reading}" for name in BASELINES for reading in READINGS)]
    lines = [
        [
            row["set"],
            f"{row['n']:,}",
            f"{row['coreset']:,}",
            *(f"{change(row, name, reading):+.1%}" for name in BASELINES for reading in READINGS),
        ]
        for row in rows
    ]
    words = (
        f"How a coreset of the targets (every target within {DISTANCE} of it, where the longest target is 1/2) changes "
        f"the cost of the baselines at {BUDGET}: Σ cost with / Σ cost without - 1, sums over k and runs. Costs are "
        "those of all targets. The coreset's rows count alike, or each by the number of targets that it stands for; "
        "the paper does not say which."
    )
    yield {
        "title": "C.6: baselines with coresets (Figures 105 to 176)",
        "words": words,
        "header": header,
        "rows": lines,
    }
    lines = [[row["set"], *(f"{np.mean(row['seconds'][name]):.2f}" for name in TIMED)] for row in rows]
    lines.append(["mean", *(f"{np.mean([np.mean(row['seconds'][name]) for row in rows]):.2f}" for name in TIMED)])
    words = (
        f"CPU seconds of a fit from the rows to the centres at {BUDGET}, means over k and runs. Accelerated k-Medoids, "
        "the paper's solver, for all but ours. The private generator is a histogram, not the paper's DP-GAN."
    )
    yield {
        "title": "C.7: run times (Figures 177 to 200)",
        "words": words,
        "header": ["set", *TIMED],
        "rows": lines,
    }


def run(*, quick: bool) -> dict[str, Any]:
    """Return all results as plain data."""
    start = time.perf_counter()
    todo, measured, skipped = pieces(quick=quick), [], []
    for piece, row in watched(measure, todo, cores(), name=lambda piece: piece.name):
        if "skipped" in row:
            skipped.append(row["skipped"])
        else:
            measured.append((todo.index(piece), row))
    return {
        "quick": quick,
        "versions": versions(),
        "runs": {"real" if named(piece.name).real else "synthetic": piece.runs for piece in todo},
        "timed": todo[0].timed,
        # Processes finish in any order; sorted, the tables don't depend on it.
        "rows": [row for _, row in sorted(measured, key=lambda pair: pair[0])],
        "skipped": sorted(skipped),
        "minutes": (time.perf_counter() - start) / 60,
    }


def markdown(results: Mapping[str, Any]) -> str:
    """Return the claims and all tables for the documentation."""
    name = f"python -m benchmarks clustering-appendix{' --quick' if results['quick'] else ''}"
    runs = " and ".join(f"{count} on a {kind} set" for kind, count in results["runs"].items())
    cpu = math.fsum(row["cpu"] for row in results["rows"]) / 60
    parts = [
        f"Printed by `{name}`. {run_text(results)}; {cpu:.1f} minutes of CPU time. Data seed {SEED}; k {KS[0]} to "
        f"{KS[-1]}. Runs of each method: {runs}, where the paper has 30; {results['timed']} timed fits at each k."
    ]
    judged = [
        [row["claim"], row["paper"], row["measured"], row["verdict"]]
        for row in verdicts(results["rows"], quick=results["quick"])
    ]
    parts.append(pipes(["claim", "paper", "measured", "verdict"], judged))
    for table in tables(results["rows"]):
        parts += [f"**{table['title']}.** {table['words']}", pipes(table["header"], table["rows"])]
    parts += [f"Left out, {reason}" for reason in results["skipped"]]
    return "\n\n".join(parts) + "\n"


def show(results: dict[str, Any]) -> None:
    """Print the claims and all tables."""
    print(markdown(results))


def write_markdown(results: Mapping[str, Any], path: Path) -> None:
    """Write the tables between the markers of a documentation page."""
    write_between(path, markdown(results), START, END)


if __name__ == "__main__":
    writers = {"markdown": ("write the tables between this page's markers", write_markdown)}
    command(__spec__.name, __doc__, run, show, writers=writers)
