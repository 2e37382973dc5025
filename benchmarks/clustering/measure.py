"""Measurements of the clustering benchmark: cost of each method's centres, bounds, and the solver."""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cached_property
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from benchmarks.clustering.sets import PaperSet
from benchmarks.rivals.clustering import accelerated_k_medoids
from benchmarks.rivals.private_clustering import PrivateHistogramSource, PrivateKMeansSource
from benchmarks.theory.source_target import concentrated_bound, delta_t, diff_bound, pure_bound, rho_to_epsilon
from dpadapt.accounting.cost import gaussian_epsilon
from dpadapt.clustering import estimator, inference
from dpadapt.clustering.estimator import PrivateSourceTargetClustering
from dpadapt.clustering.solver import capped_k_medoids, cluster_t, faster_pam, greedy, nearest
from dpadapt.data import Public
from dpadapt.papers.source_target.proxies import NAS, NNA, Ball, ProxyClustering, coreset

Array = NDArray[Any]
Solutions = Sequence[NDArray[np.int64]]

DELTA, RHO = 1e-6, 3.0
GAMMA = 0.05  # probability that a bound on the cost may fail
ABLATION_BUDGETS = ("epsilon 1", "epsilon 0.3", "epsilon 0.1")


class Problem:
    """One draw of a set with its distances, solved in the same way for every method: greedy, then FasterPAM."""

    def __init__(self, paper_set: PaperSet, seed: int, ks: Sequence[int]) -> None:
        self.set, self.ks = paper_set, tuple(ks)
        self.S, self.T = paper_set.draw(seed)
        # The same `Public` for all fits: its preparation is cached.
        self.public = Public(self.T)
        self.matrix = np.asfortranarray(cdist(self.T, self.T), dtype=np.float32)
        self.cap = nearest(self.T, self.S)[1]

    @cached_property
    def alone(self) -> Solutions:
        """The centres for every k without sources: ClusterT's."""
        return self.solve(np.full(len(self.T), np.inf))

    @cached_property
    def ends(self) -> dict[str, list[float]]:
        """The costs for every k between which a gap is measured."""
        return {"non-private": self.costs(self.solve(self.cap)), "ClusterT": self.costs(self.alone)}

    def solve(self, free: Array) -> Solutions:
        """Return the centres for every k; `free` has each target's distance to the nearest point that is free."""
        order = greedy(self.matrix, free, max(self.ks))
        return [faster_pam(self.matrix, free, order[:k]) for k in self.ks]

    def solve_for(self, proxies: Array) -> Solutions:
        """Return the centres for every k where `proxies` already serve as centres."""
        return self.solve(nearest(self.T, proxies)[1])

    def costs(self, centres: Solutions, cap: Array | None = None) -> list[float]:
        """Return the true cost for every k: the mean distance to the nearest centre or source, the latter `cap`."""
        cap = self.cap if cap is None else cap
        return [float(np.minimum(cap, self.matrix[:, rows].min(axis=1)).mean(dtype=np.float64)) for rows in centres]

    def prior(self) -> Solutions:
        """Return the centres for every k if sources were everywhere, as `public_prior`."""
        caps = [float(self.matrix[:, rows].min(axis=1).mean(dtype=np.float64)) for rows in self.alone]
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


def ours(problem: Problem, budget: str, seed: int, S: Array | None = None) -> Solutions:
    """Return our centres for every k, from one release; with `S` instead of the sources of the problem."""
    options = budget_of(budget)
    if budget.startswith("rho"):
        # Discrete Gaussian noise is charged by its zCDP.
        options = {"epsilon": rho_to_epsilon(RHO, DELTA) * (1 + 1e-9), "delta": DELTA, "noise": "gaussian"}
    model = PrivateSourceTargetClustering(problem.ks, random_state=seed, **options)
    centres = model.fit(problem.S if S is None else S, public=problem.public).centers_
    return [centres[k] for k in problem.ks]


def cells(problem: Problem, runs: dict[str, int], rival_runs: dict[str, int]) -> dict[str, Any]:
    """Return the costs of every method on one set: for each budget and run a list over k."""
    values: dict[str, dict[str, list[list[float]]]] = {}
    for budget in runs:
        row = {"ours": [problem.costs(ours(problem, budget, 100 + run)) for run in range(runs[budget])]}
        for name, make in PROXIES.items() if rival_runs.get(budget) else ():
            row[name] = cost_runs(problem, make, budget, rival_runs[budget])
        values[budget] = row
    size = [len(problem.T), len(problem.S), problem.T.shape[1]]
    return {"size": size, **problem.ends, "public prior": problem.costs(problem.prior()), "values": values}


def variants(problem: Problem, runs: int) -> dict[str, Any]:
    """Return the costs of `NAS` and `NNA` with other settings: Figures 4, 5 and 7 to 56."""
    values = {
        budget: {name: cost_runs(problem, make, budget, runs) for name, make in VARIANTS.items()}
        for budget in ("epsilon 3", "rho 3")
    }
    return {**problem.ends, "values": values}


def cost_runs(problem: Problem, make: Callable[..., ProxyClustering], budget: str, runs: int) -> list[list[float]]:
    """Return the costs of a method that releases proxies: a list over k for each run."""
    costs = []
    for run in range(runs):
        model = make(random_state=200 + run, **budget_of(budget)).fit(problem.S, public=problem.public)
        costs.append(problem.costs(problem.solve_for(model.proxies_)))
    return costs


def no_harm(problem: Problem, runs: int) -> dict[str, Any]:
    """Return our cost over ClusterT's, the worst of all k and runs, where the sources are useless."""
    S, T = problem.S, problem.T
    useless = {"empty": S[:0], "far away": S + 1e3 * np.ptp(T), "one source": S[:1]}
    fits = [(budget, 300 + run) for budget in ("epsilon 3", "epsilon 1", "epsilon 0.1") for run in range(runs)]
    exact = [cluster_t(T, k) for k in problem.ks]
    worst, differ = {}, {}
    for name, sources in useless.items():
        cap = nearest(T, sources)[1]
        alone = np.array(problem.costs(exact, cap))
        chosen = [ours(problem, budget, seed, sources) for budget, seed in fits]
        worst[name] = float(np.max([np.array(problem.costs(centres, cap)) / alone for centres in chosen]))
        differ[name] = sum(not np.array_equal(a, b) for each in chosen for a, b in zip(each, exact, strict=True))
    return {"worst": worst, "differ": differ, "answers": len(fits) * len(exact)}


# What is left out of ours, one at a time: module, name and value.
ABLATIONS: dict[str, list[tuple[Any, str, Any]]] = {
    "nothing": [],
    "no gate": [(inference, "gate_opens", lambda counts, noise, probability: True)],
    "gate by the largest count alone": [
        (inference, "gate_opens", lambda counts, noise, gate: counts.max() > noise.scale * math.log(len(counts) / gate))
    ],
    "pool not weighted by rings": [(inference, "pool_weights", lambda released, around: np.ones(around.cells.n_bins))],
    "clumping estimated within coarse cells": [(inference, "_LEVELS_TO_PARENT", 99)],
    "clumping not estimated (8)": [(inference, "clumping", lambda counts, parent, sizes, noise: 8.0)],
    "odds of empty parts not raised": [(inference, "_EMPTY_ODDS", 1.0)],
    "always ring by ring": [(estimator, "_SCALES_PER_RING", 0.0)],
    "splits without a margin": [
        (estimator, "partition", lambda *options, split=inference.partition: split(*options[:-1], 0.0))
    ],
    "coarse cells never split": [
        (estimator, "_SCALES_PER_PART", 1e9),
        (estimator, "_SCALES_PER_PART_FEW_COLUMNS", 1e9),
    ],
}


def ablation(problem: Problem, runs: int) -> dict[str, Any]:
    """Return the costs of ours with one part left out at a time: for each budget and run a list over k."""
    values: dict[str, dict[str, list[list[float]]]] = {budget: {} for budget in ABLATION_BUDGETS}
    for name, changes in ABLATIONS.items():
        with ExitStack() as stack:
            for owner, attribute, value in changes:
                stack.enter_context(patch.object(owner, attribute, value))
            for budget, row in values.items():
                row[name] = [problem.costs(ours(problem, budget, 500 + run)) for run in range(runs)]
    return {**problem.ends, "values": values}


def certificates(problem: Problem, runs: int) -> dict[str, Any]:
    """Return the bound on the cost over the true cost, by run and k; the choice and each bound spend epsilon 1."""
    n, ratios = len(problem.ks), []
    for run in range(runs):
        model: Any = PrivateSourceTargetClustering(
            problem.ks, 1.0 + n, certificate_share=n / (1 + n), gamma=GAMMA, random_state=400 + run
        )
        model.fit(problem.S, public=problem.public)
        true = problem.costs([model.centers_[k] for k in problem.ks])
        ratios += [model.cost_bound_[k] / cost for k, cost in zip(problem.ks, true, strict=True)]
    return {"ratios": ratios}


def theorems(problem: Problem) -> dict[str, Any]:
    """Return the bounds of Theorems 5.9 and 5.11 on one set, and the measured distance of the proxies."""
    S, T = problem.S, problem.T
    ball = Ball.of(T)
    targets = ball.scaled(T)
    sources = ball.scaled(S)
    sources = sources[np.linalg.norm(sources, axis=1) <= 0.5]
    around = targets[coreset(targets, 0.05)]
    measure, shape = delta_t(sources, around, 150), {"n": len(around), "d": T.shape[1], "t": 150, "gamma": 0.1}
    measured = {}
    for budget in ("epsilon 3", "rho 3"):
        model = NAS(1, random_state=0, **budget_of(budget)).fit(S, public=problem.public)
        measured[budget] = diff_bound(sources, ball.scaled(model.proxies_), around)
    return {
        "n": len(around),
        "delta_t": measure,
        "bounds": {
            "epsilon 3": pure_bound(measure, **shape, epsilon=3.0),
            "rho 3": concentrated_bound(measure, **shape, rho=RHO),
        },
        "measured": measured,
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
    problem = Problem(paper_set, seed, [k])
    proxies = PROXIES["NNA, tight"](random_state=0, **budget_of(budget)).fit(problem.S, public=problem.public).proxies_
    random = np.random.default_rng(0)
    shown = {"targets": problem.T, "sources": problem.S, "proxies": proxies}
    points = {name: part[random.permutation(len(part))[:500]].round(4).tolist() for name, part in shown.items()}
    centres = {
        "non-private": problem.solve(problem.cap)[0],
        "ClusterT": problem.alone[0],
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
