"""Measurements of the clustering benchmark: cost of each method's centres, bounds, the solver, and a run at scale."""

import math
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from benchmarks.clustering.sets import PaperSet
from benchmarks.transfer.common import claim
from dpadapt.accounting.closed_forms import gaussian_epsilon, rho_to_epsilon
from dpadapt.clustering import inference, releases
from dpadapt.clustering.estimator import PrivateSourceTargetClustering
from dpadapt.clustering.solver import capped_k_medoids, cluster_t, distances, faster_pam, greedy, nearest
from dpadapt.data import Public
from dpadapt.papers.source_target.baselines import PrivateHistogramSource, PrivateKMeansSource, accelerated_k_medoids
from dpadapt.papers.source_target.bounds import concentrated_bound, delta_t, diff_bound, pure_bound
from dpadapt.papers.source_target.proxies import NAS, NNA, Ball, ProxyClustering, coreset

Array = NDArray[Any]
Solutions = Sequence[NDArray[np.int64]]

DELTA, RHO = 1e-6, 3.0
GAMMA = 0.05  # probability that a bound on the cost may fail
BUDGETS = ("epsilon 3", "rho 3", "epsilon 1", "epsilon 0.3", "epsilon 0.1")


class Problem:
    """One set with its distances, solved in the same way for every method: greedy, then FasterPAM."""

    def __init__(self, S: Array, T: Array, ks: Sequence[int], public: Public | None = None) -> None:
        self.S, self.T, self.ks = S, T, tuple(ks)
        # The same `Public` for all fits: its preparation is cached.
        self.public = Public(T) if public is None else public
        self.matrix = np.asfortranarray(distances(T, T), dtype=np.float32)
        self.cap = nearest(T, S)[1]

    def solve(self, free: Array) -> Solutions:
        """Return the centres for every k; `free` has each target's distance to the nearest point that is free."""
        order = greedy(self.matrix, free, max(self.ks))
        return [faster_pam(self.matrix, free, order[:k]) for k in self.ks]

    def solve_for(self, proxies: Array) -> Solutions:
        """Return the centres for every k where `proxies` already serve as centres."""
        return self.solve(nearest(self.T, proxies)[1])

    def costs(self, centres: Solutions) -> list[float]:
        """Return the true cost for every k: the mean distance to the nearest centre or source."""
        return [
            float(np.minimum(self.cap, self.matrix[:, rows].min(axis=1)).mean(dtype=np.float64)) for rows in centres
        ]

    def prior(self) -> Solutions:
        """Return the centres for every k if sources were everywhere, as `baselines.public_prior`."""
        alone = self.solve(np.full(len(self.T), np.inf))
        caps = [float(self.matrix[:, rows].min(axis=1).mean(dtype=np.float64)) for rows in alone]
        centres = []
        for k, cap in zip(self.ks, caps, strict=True):
            free = np.full(len(self.T), cap)
            centres.append(faster_pam(self.matrix, free, greedy(self.matrix, free, k)))
        return centres


def budget_of(name: str) -> dict[str, Any]:
    """Return epsilon and delta of a budget; for zCDP, the epsilon at which Gaussian noise has exactly that rho."""
    if name.startswith("rho"):
        return {"epsilon": gaussian_epsilon(math.sqrt(2 * RHO), DELTA), "delta": DELTA}
    return {"epsilon": float(name.split()[1])}


PROXIES: dict[str, Callable[..., ProxyClustering]] = {
    "NNA": lambda **options: NNA(1, constants="paper", threshold="paper", **options),
    "NNA, tight": lambda **options: NNA(1, **options),
    "NAS": lambda **options: NAS(1, **options),
    "private k-means": lambda **options: PrivateKMeansSource(1, **options),
    "private generator": lambda **options: PrivateHistogramSource(1, **options),
}
VARIANTS: dict[str, Callable[..., ProxyClustering]] = {
    "NAS, t 75": lambda **options: NAS(1, n_neighbours=75, **options),
    "NAS, t 150": lambda **options: NAS(1, **options),
    "NAS, t 300": lambda **options: NAS(1, n_neighbours=300, **options),
    "NAS, no coreset": lambda **options: NAS(1, coreset_distance=None, **options),
    "NNA, coreset": PROXIES["NNA"],
    "NNA, no coreset": lambda **options: NNA(1, constants="paper", threshold="paper", coreset_distance=None, **options),
}


def ours(problem: Problem, budget: str, seed: int) -> Solutions:
    """Return our centres for every k, from one release."""
    options = budget_of(budget)
    if budget.startswith("rho"):
        # Discrete Gaussian noise is charged by its zCDP.
        options = {"epsilon": rho_to_epsilon(RHO, DELTA) * (1 + 1e-9), "delta": DELTA, "noise": "gaussian"}
    model = PrivateSourceTargetClustering(problem.ks, random_state=seed, **options)
    centres = model.fit(problem.S, public=problem.public).centers_
    return [centres[k] for k in problem.ks]


def cells(
    paper_set: PaperSet, seed: int, ks: Sequence[int], runs: dict[str, int], rival_runs: dict[str, int]
) -> dict[str, Any]:
    """Return the costs of every method on one set: for each budget and run a list over `ks`."""
    problem = Problem(*paper_set.draw(seed), ks)
    T = problem.T
    values: dict[str, dict[str, list[list[float]]]] = {}
    for budget in runs:
        row = {"ours": [problem.costs(ours(problem, budget, 100 + run)) for run in range(runs[budget])]}
        for name, make in PROXIES.items() if rival_runs.get(budget) else ():
            row[name] = _runs(problem, make, budget, rival_runs[budget])
        values[budget] = row
    return {
        "set": paper_set.name,
        "family": paper_set.family,
        "main": paper_set.main,
        "real": paper_set.real,
        "development": paper_set.development,
        "seed": seed,
        "size": [len(T), len(problem.S), T.shape[1]],
        "non-private": problem.costs(problem.solve(problem.cap)),
        "ClusterT": problem.costs(problem.solve(np.full(len(T), np.inf))),
        "public prior": problem.costs(problem.prior()),
        "values": values,
    }


def variants(paper_set: PaperSet, seed: int, ks: Sequence[int], runs: int) -> dict[str, Any]:
    """Return the costs of `NAS` and `NNA` with other settings: Figures 4, 5, 7, 8 and 15 to 56."""
    problem = Problem(*paper_set.draw(seed), ks)
    return {
        "set": paper_set.name,
        "main": paper_set.main,
        "non-private": problem.costs(problem.solve(problem.cap)),
        "ClusterT": problem.costs(problem.solve(np.full(len(problem.T), np.inf))),
        "values": {
            budget: {name: _runs(problem, make, budget, runs) for name, make in VARIANTS.items()}
            for budget in ("epsilon 3", "rho 3")
        },
    }


def _runs(problem: Problem, make: Callable[..., ProxyClustering], budget: str, runs: int) -> list[list[float]]:
    costs = []
    for run in range(runs):
        model = make(random_state=200 + run, **budget_of(budget)).fit(problem.S, public=problem.public)
        costs.append(problem.costs(problem.solve_for(model.proxies_)))
    return costs


def no_harm(paper_set: PaperSet, seed: int, ks: Sequence[int], runs: int) -> dict[str, Any]:
    """Return our cost over ClusterT's, the worst of all k and runs, where the sources are useless."""
    S, T = paper_set.draw(seed)
    useless = {"empty": S[:0], "far away": S + 1e3 * np.ptp(T), "one source": S[:1]}
    worst, differ, public = {}, {}, Public(T)
    for name, sources in useless.items():
        problem = Problem(sources, T, ks, public)
        alone = np.array(problem.costs(problem.solve(np.full(len(T), np.inf))))
        fits = [(budget, run) for budget in ("epsilon 3", "epsilon 1", "epsilon 0.1") for run in range(runs)]
        chosen = [ours(problem, budget, 300 + run) for budget, run in fits]
        worst[name] = float(np.max([np.array(problem.costs(centres)) / alone for centres in chosen]))
        differ[name] = sum(
            not np.array_equal(rows, cluster_t(T, k)) for centres in chosen for k, rows in zip(ks, centres, strict=True)
        )
    return {"set": paper_set.name, "worst": worst, "differ": differ, "answers": 3 * runs * len(ks)}


# What is left out of ours, one at a time: module, name and value.
ABLATIONS: dict[str, list[tuple[Any, str, Any]]] = {
    "nothing": [],
    "no gate": [(inference, "gate_opens", lambda counts, noise, probability: True)],
    "no strict model": [(inference, "_MOST_STRICT_RISE", math.inf)],
    "sources spread evenly in a part": [(inference, "clumping", lambda counts, parent, sizes, noise: 1e6)],
    "odds of empty parts not raised": [(inference, "_EMPTY_ODDS", 1.0)],
    "always ring by ring": [(releases, "_SCALES_PER_RING", 0.0)],
    "coarse cells never split": [(releases, "_SCALES_PER_PART", 1e9), (releases, "_SCALES_PER_PART_FEW_COLUMNS", 1e9)],
}


def ablation(paper_set: PaperSet, seed: int, ks: Sequence[int], runs: int) -> dict[str, Any]:
    """Return the costs of ours with one part left out at a time: for each budget and run a list over `ks`."""
    problem = Problem(*paper_set.draw(seed), ks)
    values: dict[str, dict[str, list[list[float]]]] = {"epsilon 1": {}, "epsilon 0.1": {}}
    for name, changes in ABLATIONS.items():
        with ExitStack() as stack:
            for owner, attribute, value in changes:
                stack.enter_context(patch.object(owner, attribute, value))
            for budget, row in values.items():
                row[name] = [problem.costs(ours(problem, budget, 500 + run)) for run in range(runs)]
    return {
        "set": paper_set.name,
        "real": paper_set.real,
        "non-private": problem.costs(problem.solve(problem.cap)),
        "ClusterT": problem.costs(problem.solve(np.full(len(problem.T), np.inf))),
        "values": values,
    }


def certificates(paper_set: PaperSet, seed: int, ks: Sequence[int], runs: int) -> dict[str, Any]:
    """Return the bound on the cost over the true cost, run by run; the choice and the bound spend epsilon 1 each."""
    S, T = paper_set.draw(seed)
    public, cap = Public(T), nearest(T, S)[1]
    ratios = []
    for k in ks:
        for run in range(runs):
            model: Any = PrivateSourceTargetClustering(
                k, 2.0, certificate_share=0.5, gamma=GAMMA, random_state=400 + run
            )
            model.fit(S, public=public)
            true = float(np.minimum(cap, nearest(T, T[model.centers_])[1]).mean())
            ratios.append(float(model.cost_bound_) / true)
    return {"set": paper_set.name, "real": paper_set.real, "ks": list(ks), "ratios": ratios}


def theorems(paper_set: PaperSet, seed: int) -> dict[str, Any]:
    """Return the bounds of Theorems 5.9 and 5.11 on one set, and the measured distance of the proxies."""
    S, T = paper_set.draw(seed)
    ball = Ball.of(T)
    targets = ball.scaled(T)
    sources = ball.scaled(S)
    sources = sources[np.linalg.norm(sources, axis=1) <= 0.5]
    around = targets[coreset(targets, 0.05)]
    measure, shape = delta_t(sources, around, 150), {"n": len(around), "d": T.shape[1], "t": 150, "gamma": 0.1}
    real = {}
    for budget in ("epsilon 3", "rho 3"):
        model = NAS(1, random_state=0, **budget_of(budget)).fit(S, public=Public(T))
        real[budget] = diff_bound(sources, ball.scaled(model.proxies_), around)
    return {
        "set": paper_set.name,
        "n": len(around),
        "delta_t": measure,
        "bounds": {
            "epsilon 3": pure_bound(measure, **shape, epsilon=3.0),
            "rho 3": concentrated_bound(measure, **shape, rho=RHO),
        },
        "real": real,
    }


def solver_speed(n: int, k: int, repeats: int) -> dict[str, float]:
    """Return our solver's cost over that of Accelerated k-Medoids, and the CPU seconds of both, on `n` targets."""
    ratios, seconds = [], []
    for seed in range(repeats):
        random = np.random.default_rng([5, seed])
        middles = random.standard_normal((60, 8))
        T, S = (middles[random.integers(high, size=n)] + 0.3 * random.standard_normal((n, 8)) for high in (60, 20))
        cap = nearest(T, S)[1]
        for free in (None, cap):
            costs, times = [], []
            for solve in (capped_k_medoids, accelerated_k_medoids):
                start = time.process_time()
                chosen = solve(T, k, free, random_state=seed)
                times.append(time.process_time() - start)
                distance = nearest(T, T[chosen])[1]
                costs.append(float((distance if free is None else np.minimum(distance, free)).mean()))
            ratios.append(costs[0] / costs[1])
            seconds.append(times)
    mine, theirs = np.median(seconds, axis=0)
    return {"n": n, "k": k, "ratio": float(np.mean(ratios)), "worst": max(ratios), "ours": mine, "AkM": theirs}


def picture(paper_set: PaperSet, seed: int, k: int, budget: str) -> dict[str, Any]:
    """Return one run in two dimensions: targets, sources, NNA's proxies and the centres of three methods."""
    problem = Problem(*paper_set.draw(seed), [k])
    proxies = PROXIES["NNA, tight"](random_state=0, **budget_of(budget)).fit(problem.S, public=problem.public).proxies_
    random = np.random.default_rng(0)
    shown = {"targets": problem.T, "sources": problem.S, "proxies": proxies}
    points = {name: part[random.permutation(len(part))[:500]].round(4).tolist() for name, part in shown.items()}
    centres = {
        "non-private": problem.solve(problem.cap)[0],
        "ClusterT": problem.solve(np.full(len(problem.T), np.inf))[0],
        "ours": ours(problem, budget, 0)[0],
    }
    return {
        "set": paper_set.name,
        "budget": budget,
        "k": k,
        **points,
        "centres": {name: problem.T[rows].round(4).tolist() for name, rows in centres.items()},
        "costs": {name: problem.costs([rows])[0] for name, rows in centres.items()},
    }


# The run at scale: a million targets, ten million sources that are read in blocks, eight dimensions, fifty centres.
# Time and memory are those of one fit in a process of its own, without making the data and computing the costs.


# Synthetic data: dimensions, clusters of targets, how many of these have sources, standard deviation in a cluster.
DIMENSIONS, CLUSTERS, COVERED, SPREAD = 8, 60, 20, 0.3
_BLOCK = 250_000  # sources
# Targets on which costs are computed, and others on which the non-private choice is made.
_EVALUATED, _NON_PRIVATE = 5000, 20_000


@dataclass(frozen=True)
class ScalePiece:
    """The size of one run at scale: targets, sources, centres, epsilon, seed."""

    n: int
    m: int
    k: int
    epsilon: float
    seed: int


def scale_pieces(*, quick: bool) -> list[ScalePiece]:
    """Return the sizes to measure."""
    n, m = (30_000, 300_000) if quick else (1_000_000, 10_000_000)
    return [ScalePiece(n, m, 50, 1.0, seed) for seed in (22, 23, 24, 25, 26)]


def measure_scale(piece: ScalePiece) -> dict[str, Any]:
    """Return time, memory and gap of one size."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        centres, facts = pool.submit(_fit, piece).result()
    T = _targets(piece)
    order = np.random.default_rng([piece.seed, 3]).permutation(piece.n)
    evaluated, known = order[:_EVALUATED], order[_EVALUATED : _EVALUATED + _NON_PRIVATE]
    # A tree over all sources: distances to the nearest one are exact.
    tree = cKDTree(np.concatenate(list(_sources(piece))), leafsize=64, balanced_tree=False)
    cap, cap_known = (np.asarray(tree.query(T[rows])[0]) for rows in (evaluated, known))
    chosen = capped_k_medoids(T, piece.k, cap_known, rows=known)
    costs = {
        name: float(np.minimum(cap, nearest(T[evaluated], T[rows])[1]).mean())
        for name, rows in (("ours", centres), ("ClusterT", cluster_t(T, piece.k)), ("non-private", chosen))
    }
    gap = (costs["ours"] - costs["non-private"]) / (costs["ClusterT"] - costs["non-private"])
    return {"n": piece.n, "m": piece.m, "k": piece.k, "epsilon": piece.epsilon, "gap": gap, "costs": costs, **facts}


def scale_claims(rows: list[dict[str, Any]]) -> Iterator[dict[str, str]]:
    """Yield each target of the runs at scale, what was measured, and whether it was met."""
    if not rows:
        return
    row = rows[0]
    size = f"n = {row['n']:,}, m = {row['m']:,}, d = {DIMENSIONS}, k = {row['k']}, ε = {row['epsilon']:g}"
    slowest, largest = max(row["cpu"] for row in rows), max(row["gigabytes"] for row in rows)
    gaps = np.array([row["gap"] for row in rows])
    spread = 1.96 * float(gaps.std(ddof=1)) / math.sqrt(len(gaps)) if len(gaps) > 1 else math.nan
    for target, measured, met in (
        ("at most 120 s of CPU time", f"{slowest:.0f} s", round(slowest) <= 120),
        ("at most 1.2 GB", f"{largest:.2f} GB", round(largest, 2) <= 1.2),
        ("below ClusterT's cost (gap below 1)", f"gap {gaps.mean():.2f} ± {spread:.2f}", gaps.mean() + spread < 1),
    ):
        yield claim(f"{size}, {len(rows)} seeds: {target}", measured, met)


def _fit(piece: ScalePiece) -> tuple[NDArray[np.int64], dict[str, float]]:
    """Return the centres, and the time and memory of one fit without making its data."""
    public = Public(_targets(piece))
    made = 0.0, 0.0

    def watched() -> Iterator[Array]:
        nonlocal made
        start = time.perf_counter(), time.process_time()
        for block in _sources(piece):
            made = made[0] + time.perf_counter() - start[0], made[1] + time.process_time() - start[1]
            yield block
            start = time.perf_counter(), time.process_time()

    start = time.perf_counter(), time.process_time()
    model = PrivateSourceTargetClustering(piece.k, piece.epsilon, random_state=piece.seed)
    model.fit(watched(), public=public)
    return np.asarray(model.centers_), {
        "seconds": time.perf_counter() - start[0] - made[0],
        "cpu": time.process_time() - start[1] - made[1],
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def _middles(piece: ScalePiece) -> Array:
    return np.random.default_rng([piece.seed, 0]).standard_normal((CLUSTERS, DIMENSIONS))


def _targets(piece: ScalePiece) -> Array:
    random = np.random.default_rng([piece.seed, 1])
    return _middles(piece)[random.integers(CLUSTERS, size=piece.n)] + SPREAD * random.standard_normal(
        (piece.n, DIMENSIONS)
    )


def _sources(piece: ScalePiece) -> Iterator[NDArray[np.float32]]:
    """Yield the sources in blocks; they lie around some of the targets' clusters."""
    random, middles = np.random.default_rng([piece.seed, 2]), _middles(piece)[:COVERED].astype(np.float32)
    for start in range(0, piece.m, _BLOCK):
        size = min(_BLOCK, piece.m - start)
        noise = random.standard_normal((size, DIMENSIONS), dtype=np.float32)
        yield middles[random.integers(COVERED, size=size)] + np.float32(SPREAD) * noise
