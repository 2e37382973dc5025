"""Verdicts on paper 5 and on ours: for each claim what was measured, and whether the claim holds."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from benchmarks.clustering.sets import papers_pairs
from benchmarks.transfer.common import claim, judged

Claim = dict[str, str]
Row = Mapping[str, Any]
Array = NDArray[np.float64]

# Share of ClusterT's cost. Where sources save less than this, a gap only shows the variation of the solver.
LEAST_WORTH = 1e-3
# Targets: largest gap by budget, on real pairs and on synthetic sets; cost over ClusterT's that counts as harm, its
# largest share of all answers, and the largest such cost; the solver's cost over that of Accelerated k-Medoids, and its
# CPU seconds; median of the bound over the true cost.
BUDGETS = ("epsilon 3", "epsilon 1", "epsilon 0.3", "epsilon 0.1")
MOST_GAP = {
    "real": dict(zip(BUDGETS, (0.15, 0.25, 0.35, 0.46), strict=True)),
    "synthetic": dict(zip(BUDGETS, (0.07, 0.12, 0.21, 0.20), strict=True)),
}
HARM, MOST_HARMED, MOST_HARM = 1.01, 0.001, 1.03
SOLVER_RATIO, SOLVER_SECONDS = 0.99, 1.5
MOST_BOUND = 1.5
# Limits for what the paper judges by eye, all ours: the largest gap that is close to non-private; how far from 1 a gap
# may lie that is like ClusterT's; by how much gaps for different t, or with a coreset and without, may differ.
CLOSE, LIKE, NOT_SENSITIVE, CORESET = 0.25, 0.05, 0.1, 0.05
# Where the paper compares its algorithms with ClusterT, on real pairs and on synthetic sets.
FIGURES = {
    ("epsilon 3", True): "Figures 3, 57 to 80",
    ("epsilon 3", False): "Figure 3",
    ("rho 3", True): "Figures 81 to 104",
    ("rho 3", False): "Figure 6",
}
KINDS = {True: "real pairs", False: "synthetic sets"}
LEAST_DRAWS = 15  # set-draws for a verdict on a mean of them; a quick run has fewer


def gaps(row: Row, budget: str, method: str) -> Array:
    """Return, run by run, Σ (cost - non-private) / Σ (ClusterT - non-private), the sums over k.

    0 is as good as without privacy; 1 is as good as without sources.

    Examples
    --------
    >>> row = {"non-private": [1.0, 1.0], "ClusterT": [2.0, 3.0], "values": {"epsilon 1": {"ours": [[1.5, 1.5]]}}}
    >>> gaps(row, "epsilon 1", "ours").round(3)
    array([0.333])
    """
    return _gaps(row, np.asarray(row["values"][budget][method]))


def gaps_by_k(row: Row, budget: str, method: str) -> Array:
    """Return, run by run, the mean over k of (cost - non-private) / (ClusterT - non-private)."""
    best, alone = np.asarray(row["non-private"]), np.asarray(row["ClusterT"])
    kept = alone - best > LEAST_WORTH * alone
    costs = np.asarray(row["values"][budget][method])
    return np.asarray(((costs - best) / (alone - best))[:, kept].mean(axis=1) if kept.any() else np.zeros(len(costs)))


def prior_gap(row: Row) -> float:
    """Return the gap of the public prior, which needs no private row."""
    return float(_gaps(row, np.asarray([row["public prior"]]))[0])


def _gaps(row: Row, costs: Array) -> Array:
    best, alone = np.asarray(row["non-private"]), np.asarray(row["ClusterT"])
    worth = float((alone - best).sum())
    return np.asarray((costs - best).sum(axis=1) / worth if worth > LEAST_WORTH * alone.sum() else np.zeros(len(costs)))


def worst_ratio(row: Row, budget: str, method: str) -> tuple[float, int]:
    """Return the largest cost over ClusterT's at a single k, over all runs, and which k."""
    values = ratios(row, budget, method)
    return float(values.max()), int(values.max(axis=0).argmax())


def ratios(row: Row, budget: str, method: str) -> Array:
    """Return costs over ClusterT's, by run and k."""
    return np.asarray(np.asarray(row["values"][budget][method]) / np.asarray(row["ClusterT"]))


def named(row: Row, results: Row) -> str:
    """Return the set's name, with the seed where it is not the usual one."""
    return str(row["set"]) + ("" if row["seed"] == results["seed"] else f" (seed {row['seed']})")


def main_rows(results: Row) -> list[Row]:
    """Return the sets that means are taken over."""
    return [row for row in results["cells"] if row["main"] and row["seed"] == results["seed"]]


def mean_gap(rows: Sequence[Row], budget: str, method: str) -> float:
    """Return the mean gap over sets; not a number if none was measured."""
    gaps_by_set = [gaps(row, budget, method).mean() for row in rows if method in row["values"].get(budget, {})]
    return float(np.mean(gaps_by_set)) if gaps_by_set else float("nan")


def groups(results: Row) -> dict[str, list[Row]]:
    """Return the set-draws that are judged together, by name."""
    rows = results["cells"]
    named_groups = {
        "real": [row for row in rows if row["real"]],
        "real, no draw used for choices": [row for row in rows if row["real"] and not row["development"]],
        "synthetic": [row for row in rows if not row["real"]],
    }
    return {name: chosen for name, chosen in named_groups.items() if chosen}


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the half-width of its 95% interval over set-draws, as they are shown."""
    half = 1.96 * np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return round(float(np.mean(values)), 3), round(float(half), 3)


def with_interval(values: Sequence[float]) -> str:
    """Return the mean with the half-width of its 95% interval over set-draws."""
    return "{:.3f} ± {:.3f}".format(*interval(values))


def on_few_sets(row: Claim, *, quick: bool) -> Claim:
    """Return a claim on every set; a quick run has few of them, so it can refute the claim but not confirm it.

    Examples
    --------
    >>> on_few_sets({"verdict": "holds"}, quick=True), on_few_sets({"verdict": "missed"}, quick=True)
    ({'verdict': 'few sets'}, {'verdict': 'missed'})
    """
    return row | {"verdict": "few sets"} if quick and row["verdict"] == "holds" else row


def our_claims(results: Row) -> Iterator[Claim]:
    """Yield ours against its targets."""
    quick = results["quick"]
    for group, rows in groups(results).items():
        for budget, most in MOST_GAP[group.partition(",")[0]].items():
            values = [float(gaps(row, budget, "ours").mean()) for row in rows if budget in row["values"]]
            if values:
                what = f"ours, {budget}: mean gap of {len(values)} set-draws ({group}) at most {most:.2f}"
                middle, half = interval(values)
                row = judged(what, with_interval(values), most - middle, half)
                yield row if len(values) >= LEAST_DRAWS else row | {"verdict": "few sets"}
    cells = [(row, budget) for row in results["cells"] for budget in row["values"]]
    largest = [worst_ratio(row, budget, "ours") for row, budget in cells]
    worst = int(np.argmax([ratio for ratio, _ in largest]))
    every = np.concatenate([ratios(row, budget, "ours").ravel() for row, budget in cells])
    harmed = int((every > HARM).sum())
    text = f"{harmed / len(every):.2%}: {harmed} of {len(every):,}"
    what = f"ours: cost above {HARM:g} times ClusterT's, at single k and run, in at most {MOST_HARMED:.1%} of answers"
    yield on_few_sets(claim(what, text, round(harmed / len(every), 4) <= MOST_HARMED), quick=quick)
    row, budget = cells[worst]
    text = f"{largest[worst][0]:.3f} ({named(row, results)}, {budget}, k {results['ks'][largest[worst][1]]})"
    what = f"ours: worst cost over ClusterT's at most {MOST_HARM:g}"
    yield on_few_sets(claim(what, text, round(largest[worst][0], 3) <= MOST_HARM), quick=quick)
    yield from _useless(results)
    yield from _prior(main_rows(results))
    yield from _certificates(results["certificates"])
    solver = results["solver"]
    what = (
        f"solver, {solver['n']:,} targets, k {solver['k']}: cost at most {SOLVER_RATIO} of AkM's, in {SOLVER_SECONDS} s"
    )
    text = (
        f"{solver['ratio']:.4f} (worst {solver['worst']:.4f}) in {solver['ours']:.2f} s CPU; AkM {solver['AkM']:.2f} s"
    )
    yield claim(what, text, solver["ratio"] <= SOLVER_RATIO and solver["ours"] <= SOLVER_SECONDS)


def _useless(results: Row) -> Iterator[Claim]:
    for name in ("empty", "far away", "one source"):
        differ = [row["differ"][name] for row in results["no harm"]]
        if differ:
            answers = sum(row["answers"] for row in results["no harm"])
            yield claim(
                f"ours, sources {name}: exactly ClusterT's centres",
                f"{sum(differ)} of {answers} differ",
                not sum(differ),
            )


def _prior(rows: Sequence[Row]) -> Iterator[Claim]:
    """Yield on how many sets ours costs less than the public prior."""
    won = [row["set"] for row in rows if gaps(row, "epsilon 3", "ours").mean() < min(1.0, prior_gap(row))]
    what = "ours, epsilon 3: less cost than a public-only prior on every set"
    yield claim(what, f"{len(won)} of {len(rows)}", len(won) == len(rows))


def _certificates(rows: Sequence[Row]) -> Iterator[Claim]:
    """Yield how tight the bounds on the cost are, and whether they hold as often as they promise."""
    real = [(row["set"], float(np.median(row["ratios"]))) for row in rows if row["real"]]
    if real:
        over = [f"{name} {median:.2f}" for name, median in real if median > MOST_BOUND]
        text = f"{len(real) - len(over)} of {len(real)}" + (f"; {', '.join(over)}" if over else "")
        yield claim(
            f"the bound on the cost, epsilon 1: median at most {MOST_BOUND:g} of it on real sets", text, not over
        )
    ratios = np.concatenate([np.empty(0), *(row["ratios"] for row in rows)])
    if len(ratios):
        held = float(np.mean(ratios >= 1))
        yield claim("the bound on the cost holds in 95% of runs", f"{held:.1%} of {len(ratios)}", held >= 0.95)


def paper_claims(results: Row) -> Iterator[Claim]:
    """Yield the paper's claims on more draws of its synthetic sets and on pairs that it does not have; its theorems.

    The benchmark `clustering-appendix` judges the paper's own sets, with more runs of the paper's algorithms.
    """
    cells, quick, own = results["cells"], results["quick"], papers_pairs()
    synthetic = [row for row in cells if not row["real"]]
    others = [row for row in cells if row["real"] and row["set"] not in own]
    names = f"{len(synthetic)} draws of the synthetic sets", f"{len(others)} real pairs that the paper does not have"
    yield from rival_claims(synthetic, "epsilon 3", real=False, quick=quick, name=names[0])
    for row in rival_claims(others, "epsilon 3", real=True, quick=quick, name=names[1]):
        yield row | {"paper": "not shown"}
    yield from _bound_claims(results["theorems"])


def rival_claims(rows: Sequence[Row], budget: str, *, real: bool, quick: bool, name: str = "") -> Iterator[Claim]:
    """Yield the paper's claims on how its algorithms and baselines compare with ClusterT at one budget.

    On synthetic sets both algorithms improve on ClusterT and are close to non-private, and the baselines perform
    "comparably or worse". On real pairs the baselines perform "like" ClusterT, and both algorithms improve on it, with
    one exception: NAS at epsilon 3.
    """
    where = f"{name or f'{len(rows)} {KINDS[real]}'}, {FIGURES[budget, real]}, {budget}"
    means: dict[str, list[float]] = {}
    for method in ("NNA", "NAS", "private k-means", "private generator"):
        having = [float(gaps(row, budget, method).mean()) for row in rows if method in row["values"].get(budget, {})]
        if having:
            means[method] = having

    def on_sets(method: str, what: str, kept: Callable[[float], bool], *, every: bool = True) -> Claim:
        # Rounded as in the tables: a gap of 0.999 is no improvement.
        count, n = sum(kept(round(value, 2)) for value in means[method]), len(means[method])
        text = f"{count} of {n}; mean gap {np.mean(means[method]):.2f}"
        row = claim(f"{where}: {method} {what}", text, count == (n if every else 0)) | {"paper": "yes"}
        return on_few_sets(row, quick=quick)

    for method in [name for name in ("NNA", "NAS") if name in means]:
        if real and (budget, method) == ("epsilon 3", "NAS"):
            yield on_sets(method, "improves on ClusterT on no set", lambda gap: gap < 1, every=False)
        else:
            yield on_sets(method, "improves on ClusterT on every set", lambda gap: gap < 1)
        if not real:
            what = f"is close to non-private on every set (gap at most {CLOSE:g})"
            yield on_sets(method, what, lambda gap: gap <= CLOSE)
    for method in [name for name in means if name.startswith("private")]:
        if real:
            middle, half = interval(means[method])
            what = f"{where}: {method} is like ClusterT (mean gap within {LIKE:g} of 1)"
            row = judged(what, with_interval(means[method]), round(LIKE - abs(middle - 1), 3), half)
            few = len(means[method]) < LEAST_DRAWS
            yield (row | {"verdict": "few sets"} if few else row) | {"paper": "yes"}
        else:
            # "Comparably or worse".
            what = f"is no better than ClusterT on every set (gap at least {1 - LIKE:g})"
            yield on_sets(method, what, lambda gap: gap >= 1 - LIKE)


def variant_claims(rows: Sequence[Row], *, real: bool) -> Iterator[Claim]:
    """Yield the paper's claims on t, which it shows for real pairs alone, and on coresets for its own algorithms."""
    for budget in ("epsilon 3", "rho 3") if rows else ():
        where = f"{len(rows)} {KINDS[real]}"
        if real:
            means = {t: round(mean_gap(rows, budget, f"NAS, t {t}"), 2) for t in (75, 150, 300)}
            text = ", ".join(f"t {t}: {value:.2f}" for t, value in means.items())
            what = f"{where}, Figures 4, 5, {budget}: NAS is not sensitive to t (mean gaps within {NOT_SENSITIVE:g})"
            apart = round(max(means.values()) - min(means.values()), 2)
            yield claim(what, text, apart <= NOT_SENSITIVE) | {"paper": "yes"}
        for method, coreset, figure in (("NAS", "NAS, t 150", "Figure 7"), ("NNA", "NNA, coreset", "Figure 8")):
            names = coreset, f"{method}, no coreset"
            what = f"{where}, {'Figures 9 to 56' if real else figure}, {budget}: a coreset"
            means_text = "mean gap {:.2f}, without {:.2f}".format(*(mean_gap(rows, budget, name) for name in names))
            changes = [rise(row, budget, *names) for row in rows]
            text, clear, some = _exceed(changes)
            verdict = "missed" if clear else "undecided" if some else "holds"
            harm = {"claim": f"{what} never harms {method} (by over {CORESET:g})", "paper": "never"}
            yield harm | {"measured": f"harms on {text}; {means_text}", "verdict": verdict}
            if (real, method) == (False, "NAS"):
                # "The synthetic experiments (Figure 7) show that coresets can provide significant improvements."
                text, clear, some = _exceed([(-middle, half) for middle, half in changes])
                verdict = "holds" if clear else "undecided" if some else "missed"
                gain = {"claim": f"{what} improves {method} on some set (by over {CORESET:g})", "paper": "yes"}
                yield gain | {"measured": f"improves on {text}", "verdict": verdict}


def rise(row: Row, budget: str, method: str, other: str) -> tuple[float, float]:
    """Return the mean gap of one method minus that of another on one set, and the half-width of its 95% interval.

    The interval is Student's, over runs, of which there are few.
    """
    apart = gaps(row, budget, method) - gaps(row, budget, other)
    n = len(apart)
    half = student.ppf(0.975, n - 1) * apart.std(ddof=1) / np.sqrt(n) if n > 1 else np.inf
    return float(apart.mean()), float(half)


def _exceed(changes: Sequence[tuple[float, float]]) -> tuple[str, int, int]:
    """Return on how many sets a change exceeds `CORESET`: in words, beyond its interval, and by its mean alone."""
    some = sum(middle > CORESET for middle, _ in changes)
    clear = sum(middle - half > CORESET for middle, half in changes)
    return f"{some} of {len(changes)}, on {clear} beyond the 95% interval of its runs", clear, some


def _bound_claims(rows: Sequence[Row]) -> Iterator[Claim]:
    if not rows:
        return
    for budget, theorem in (("epsilon 3", "5.9"), ("rho 3", "5.11")):
        kept = [row for row in rows if row["measured"][budget] <= row["bounds"][budget]]
        what = f"Theorem {theorem}, {budget}: NAS's proxies are within the bound (one draw each)"
        yield claim(what, f"{len(kept)} of {len(rows)} sets", len(kept) == len(rows)) | {"paper": "yes"}
        useful = [row for row in rows if row["bounds"][budget] < 1]
        least = min(row["bounds"][budget] for row in rows)
        what = f"Theorem {theorem}, {budget}: the bound is informative (below 1, the diameter) on every set"
        yield claim(what, f"{len(useful)} of {len(rows)}; least {least:.2f}", len(useful) == len(rows))
