"""The plan of a hybrid fit: what the curator releases, with which noise, and how many people each stage asks.

Everything here follows from public numbers, before a private value is used.
"""

import math
from dataclasses import dataclass
from typing import Any

from dpadapt.hybrid.agents import Agents, bit_scale
from dpadapt.hybrid.curator_releases import DESCENT_STEPS, TILT_RELEASES
from dpadapt.hybrid.mapped_questions import PublicMap
from dpadapt.learning.estimator import Budget
from dpadapt.mechanisms.mechanism import Repeated
from dpadapt.mechanisms.noise import Gaussian

MODES = ("auto", "hybrid", "local", "curator")

# The constants below were set on the populations of docs/hybrid.md, with other seeds than the benchmark's. Unless a
# comment says otherwise, neighbouring values were not compared.
#
# Shares of the curator's mu² by release, if rows are weighted ("tilted"), and if not. Each trades noise in one release
# for noise in the others.
_SHARES_WITH_TILT = {
    "second moments": 0.10,
    "source model": 0.35,
    "tilted means": 0.10,
    "tilted model": 0.441,
    "weights": 0.009,
}
_SHARES_WITHOUT_TILT = {"second moments": 0.10, "source model": 0.90}
# How many releases each share pays for, where it is more than one.
_RELEASES_PER_SHARE = {
    "source model": DESCENT_STEPS,
    "tilted means": TILT_RELEASES,
    "tilted model": DESCENT_STEPS,
}
# The noise that a weighted model may have, relative to its signal. It sets the largest weight.
_TILT_NOISE = 0.1
# The largest weight, relative to the mean weight: at most the first, and no weights if it would be below the second. A
# larger bound corrects larger shifts, with more noise. Without the lower limit the error on Adult's older people rose
# by up to 0.029.
_LARGEST_WEIGHT, _LEAST_USEFUL_WEIGHT = 10.0, 2.0
# Shares of all people, by stage. The people who are left correct the model.
_PEOPLE_SHARES = {"means": 0.15, "squares": 0.05, "base": 0.05, "recalibration": 0.06, "test": 0.33}
# The share of people for squares is at most this for each numeric feature.
_PEOPLE_PER_SQUARE = 0.005
# The share of people for means if rows are not weighted: the means then only improve the second moments.
_MEANS_WITHOUT_TILT = 0.02
# Standard deviation of a mean residual above which people are not asked to correct all coefficients. Mean residuals are
# rarely above 0.1: with more noise they would correct nothing.
_MOST_RESIDUAL_NOISE = 0.08
# The final test asks at most this many times (1.645 scale / (sqrt(2) tolerance))² people: three times as many as let a
# model that is no better and no worse pass half of the time. More would take people from the correction.
_TEST_FACTOR = 6
# Fewer people than this (at epsilon 1) can't prove a gain below 0.05: "auto" then means "curator".
_FEWEST_PEOPLE = 20_000
# Fewer people than this can't be divided among the stages.
_LEAST_PEOPLE = 1_000
# With this many people (at epsilon 1), at most 10 variables and 15 columns, "auto" means "local", which skips the test.
# On the populations of docs/hybrid.md people alone then do as well. On one of four other populations their error was
# 0.281, that of the curator alone 0.265.
_PEOPLE_ALONE, _FEW_VARIABLES, _FEW_COLUMNS = 1_000_000, 10, 15


@dataclass(frozen=True)
class HybridPlan:
    """What a hybrid fit will release and ask, with the public facts that its stages need.

    Parameters
    ----------
    mode : {"hybrid", "local", "curator"}
    where : PublicMap
        The map from rows to features.
    shares : dict of str to float
        The share of the curator's mu² of each release.
    releases : dict of str to Repeated
        What the ledger is charged, all at once.
    people : dict of str to int
        How many people each stage asks.
    clip_norm : float
        The clipping norm of a row's gradient.
    bound : float
        The largest weight of a row, relative to the mean weight; 1 if rows are not weighted.
    moments_noise, means_noise : float
        Standard deviation of an entry of the released second moments, and of the released sums of weighted rows.
    n_rows : float
        The number of rows of the curator.
    exact_rows : bool
        Whether this number is exact.
    tolerance : float
        The result is returned only if people rule out that it is wrong this much more often than the source model.
    positive : object
        The label that counts as 1.
    """

    mode: str
    where: PublicMap
    shares: dict[str, float]
    releases: dict[str, Repeated]
    people: dict[str, int]
    clip_norm: float
    bound: float
    moments_noise: float
    means_noise: float
    n_rows: float
    exact_rows: bool
    tolerance: float
    positive: Any


def make_plan(
    mode: str,
    where: PublicMap,
    budget: Budget,
    agents: Agents | None,
    *,
    tolerance: float,
    positive: Any,
    exact_rows: bool,
) -> HybridPlan:
    """Return the plan for `mode`, or for the mode that public numbers choose."""
    clip_norm = 0.5 * math.sqrt(where.n_features + 1)
    available, scale = 0, 1.0
    if agents is not None:
        agents.check_columns(where.n_columns)
        available, scale = agents.available, bit_scale(agents.epsilon)
    if mode == "auto":
        mode = _chosen_mode(where, budget, available, scale)
    if mode in ("hybrid", "local") and available < _LEAST_PEOPLE:
        raise ValueError(
            f"mode={mode!r} needs agents with at least {_LEAST_PEOPLE:,} people who have not been asked before, got "
            f"{available:,}. Give agents=, or use mode='curator'."
        )
    if mode == "hybrid" and not budget.worthwhile:
        mode = "curator"
    bound = _weight_bound(where, budget, clip_norm) if mode == "hybrid" else 1.0
    people: dict[str, int] = {}
    if mode == "hybrid":
        people = _people_by_stage(where, available, scale, tolerance, tilting=bound > 1)
    elif mode == "local":
        people = {"descent": available}
    shares: dict[str, float] = {}
    if mode != "local" and budget.worthwhile:
        shares = dict(_SHARES_WITH_TILT if bound > 1 else _SHARES_WITHOUT_TILT)
    times = {name: _RELEASES_PER_SHARE.get(name, 1) for name in shares}
    multipliers = {name: math.sqrt(times[name] / share) / budget.mu for name, share in shares.items()}
    # Replacing a row moves second moments by at most sqrt 2 times their bound, max_norm², and sums by twice theirs.
    moments_noise = multipliers.get("second moments", 0.0) * where.max_norm**2 * budget.factor**0.5
    means_noise = multipliers.get("tilted means", 0.0) * where.max_norm * budget.factor
    return HybridPlan(
        mode,
        where,
        shares,
        {name: Repeated(Gaussian(multiplier), times[name]) for name, multiplier in multipliers.items()},
        people,
        clip_norm,
        bound,
        moments_noise,
        means_noise,
        budget.n_rows,
        exact_rows,
        tolerance,
        positive,
    )


def _chosen_mode(where: PublicMap, budget: Budget, available: int, scale: float) -> str:
    """Return the mode that "auto" means."""
    # That many people at epsilon 1 would give as little noise.
    people = available * (bit_scale(1.0) / scale) ** 2
    if people < _FEWEST_PEOPLE:
        return "curator"
    if not budget.worthwhile:
        return "local"
    few = where.n_features <= _FEW_VARIABLES and where.n_columns + 1 <= _FEW_COLUMNS
    return "local" if few and people >= _PEOPLE_ALONE else "hybrid"


def _weight_bound(where: PublicMap, budget: Budget, clip_norm: float) -> float:
    """Return the largest weight that keeps a weighted model's noise small; 1 if it would be too small to be useful."""
    # The noise of a weighted model is bound * clip_norm * sqrt(steps * columns) / (mu * rows).
    share = _SHARES_WITH_TILT["tilted model"] + _SHARES_WITH_TILT["weights"]
    signal = _TILT_NOISE * math.sqrt(share) * budget.mu * budget.n_rows / budget.factor
    bound = signal / (clip_norm * math.sqrt(DESCENT_STEPS * (where.n_columns + 1)))
    return min(bound, _LARGEST_WEIGHT) if bound >= _LEAST_USEFUL_WEIGHT else 1.0


def _people_by_stage(
    where: PublicMap, available: int, scale: float, tolerance: float, *, tilting: bool
) -> dict[str, int]:
    """Return how many people each stage of the mode "hybrid" asks."""
    shares = dict(_PEOPLE_SHARES)
    shares["squares"] = min(shares["squares"], _PEOPLE_PER_SQUARE * len(where.numbers))
    if not tilting:
        del shares["base"]
        shares["means"] = _MEANS_WITHOUT_TILT
    people = {name: int(share * available) for name, share in shares.items()}
    enough = _TEST_FACTOR * (1.645 * scale / (math.sqrt(2) * tolerance)) ** 2
    people["test"] = min(people["test"], math.ceil(enough))
    left = available - sum(people.values())
    if tilting and scale * math.sqrt(where.reach / left) > _MOST_RESIDUAL_NOISE:
        people["means"] += left
    else:
        people["correction"] = left
    return people
