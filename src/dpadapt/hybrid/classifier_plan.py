"""The plan of a hybrid fit: what the curator releases, with which noise, and how many people each stage asks.

Everything here follows from public numbers, before a private value is used and before anybody is asked.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpadapt.hybrid.agents import Agents, bit_scale
from dpadapt.hybrid.curator_releases import DESCENT_STEPS, TILT_RELEASES
from dpadapt.hybrid.mapped_questions import PublicMap
from dpadapt.learning.base import Budget
from dpadapt.mechanisms.mechanism import Gaussian, Repeated

MODES = ("auto", "hybrid", "local", "curator")

# "Development data" are the populations of docs/benchmarks/hybrid.md, with two or three other seeds of each.
# Where a comment names no comparison, neighbouring values were not compared.
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
# The clipping norm of a row's gradient, in lengths sqrt(number of variables + 1) of a typical row: a residual is about
# one half where a model is unsure. A larger norm clips fewer rows and adds more noise.
_CLIPPING_SHARE = 0.5
# The noise that a weighted model may have, relative to its signal. It sets the largest weight.
_TILT_NOISE = 0.1
# The largest weight, relative to the mean weight: at most the first, and no weights if it would be below the second. A
# larger bound corrects larger shifts, with more noise. Without the lower limit the error on Adult's older people rose
# by up to 0.029.
_LARGEST_WEIGHT, _LEAST_USEFUL_WEIGHT = 10.0, 2.0
# Shares of all people, by stage, where there are weights; the people who are left correct the model. More people for
# the means find a better tilt, and take people from the correction.
_PEOPLE_SHARES = {"means": 0.15, "base": 0.05, "constant": 0.06}
# The share of people for means if rows are not weighted: the means then only improve the second moments.
_MEANS_WITHOUT_TILT = 0.02
# The share of people for the test, at most. More people choose better among the candidates, and fewer are left to make
# them. On development data 0.3 and 0.25 differed by less than their noise.
_TEST_SHARE = 0.25
# The share of people for a candidate of people alone, where this is a candidate next to the curator's.
_PEOPLE_ALONE_SHARE = 0.3
# Standard deviation of a step's mean residual up to which people alone are a candidate next to the curator's: with more
# noise they were not best on any development data, and took people from the correction.
_MOST_NOISE_ALONE = 0.1
# So many people are asked first whether their label can be read that the standard deviation of the share is the first
# number, but no fewer and no more than these shares of all people. A smaller deviation finds fewer readable labels
# among many people, and takes people from the other stages. Chosen by hand.
_LABELS_NOISE, _LABELS_SHARES = 0.1, (0.01, 0.1)
# Steps of descent on people's answers alone. More steps come closer to the optimum, with fewer people in each.
LOCAL_STEPS = 10
# Fewer people than this, at epsilon 1, can't tell candidates apart: the standard deviation of the difference of two
# estimated errors is then above 0.04. "auto" returns the source model and asks nobody.
_FEWEST_PEOPLE = 20_000
# Fewer people than this can't be divided among the stages.
_LEAST_PEOPLE = 1_000


@dataclass(frozen=True)
class HybridPlan:
    """What a hybrid fit will release and ask, with the public facts that its stages need.

    Parameters
    ----------
    mode : {"hybrid", "local", "curator"}
    reason : str
        Why this mode, if it is not the one that was asked for; otherwise empty.
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
    classes : sequence of two
        The labels that count as 0 and as 1.
    """

    mode: str
    reason: str
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
    classes: Sequence[Any]


def make_plan(
    mode: str,
    where: PublicMap,
    budget: Budget,
    agents: Agents | None,
    *,
    tolerance: float,
    classes: Sequence[Any],
    exact_rows: bool,
) -> HybridPlan:
    """Return the plan for `mode`, or for the mode that public numbers choose."""
    clip_norm = _CLIPPING_SHARE * math.sqrt(where.n_features + 1)
    available, scale = 0, 1.0
    if agents is not None:
        agents.check_columns(where.n_columns)
        available, scale = agents.available, bit_scale(agents.epsilon)
    if mode in ("hybrid", "local") and available < _LEAST_PEOPLE:
        raise ValueError(
            f"mode={mode!r} needs agents with at least {_LEAST_PEOPLE:,} people who have not been asked before, got "
            f"{available:,}. Give agents=, or use mode='curator'."
        )
    used, reason = _used_mode(mode, budget, agents, scale)
    bound = _weight_bound(where, budget, clip_norm) if used == "hybrid" else 1.0
    people: dict[str, int] = {}
    if used != "curator":
        least, most = _LABELS_SHARES
        enough = (scale / 2.0 / _LABELS_NOISE) ** 2
        people = {"labels": math.ceil(min(max(enough, least * available), most * available))}
        available -= people["labels"]
    if used == "hybrid":
        people |= _people_by_stage(where, available, scale, tolerance, tilting=bound > 1)
    elif used == "local":
        test = 0 if mode == "local" else _people_in_test(available, scale, tolerance, candidates=2)
        people |= {"people alone": available - test} | ({"test": test} if test else {})
    shares: dict[str, float] = {}
    if used != "local" and budget.worthwhile:
        shares = dict(_SHARES_WITH_TILT if bound > 1 else _SHARES_WITHOUT_TILT)
    times = {name: _RELEASES_PER_SHARE.get(name, 1) for name in shares}
    multipliers = {name: math.sqrt(times[name] / share) / budget.mu for name, share in shares.items()}
    # Replacing a row moves second moments by at most sqrt 2 times their bound, max_norm², and sums by twice theirs.
    moments_noise = multipliers.get("second moments", 0.0) * where.max_norm**2 * budget.factor**0.5
    means_noise = multipliers.get("tilted means", 0.0) * where.max_norm * budget.factor
    return HybridPlan(
        used,
        reason,
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
        classes,
    )


def step_noise(where: PublicMap, n: int, scale: float) -> float:
    """Return the standard deviation of a mean residual in one step of descent on the answers of `n` people in all."""
    return scale * math.sqrt(where.reach * LOCAL_STEPS / max(n, 1))


def _used_mode(mode: str, budget: Budget, agents: Agents | None, scale: float) -> tuple[str, str]:
    """Return the mode that is used, and why if it is not the one that was asked for."""
    if mode == "auto":
        if agents is None:
            return "curator", ""
        # That many people at this epsilon give as little noise as the constant says at epsilon 1.
        fewest = math.ceil(_FEWEST_PEOPLE * (scale / bit_scale(1.0)) ** 2)
        if agents.available < fewest:
            untested = "nobody was asked, and the source model was not tested"
            return "curator", f"fewer than {fewest:,} people can't tell candidates apart: {untested}"
    if mode in ("auto", "hybrid"):
        if not budget.worthwhile:
            return "local", "the curator's budget is too small: nothing was released and nothing was spent"
        return "hybrid", ""
    return mode, ""


def _weight_bound(where: PublicMap, budget: Budget, clip_norm: float) -> float:
    """Return the largest weight that keeps a weighted model's noise small; 1 if it would be too small to be useful."""
    # The noise of a weighted model is bound * clip_norm * sqrt(steps * columns) / (mu * rows).
    share = _SHARES_WITH_TILT["tilted model"] + _SHARES_WITH_TILT["weights"]
    signal = _TILT_NOISE * math.sqrt(share) * budget.mu * budget.n_rows / budget.factor
    bound = signal / (clip_norm * math.sqrt(DESCENT_STEPS * (where.n_columns + 1)))
    return min(bound, _LARGEST_WEIGHT) if bound >= _LEAST_USEFUL_WEIGHT else 1.0


def _people_in_test(available: int, scale: float, tolerance: float, *, candidates: int) -> int:
    """Return how many people test the candidates."""
    # An estimated error has variance scale² candidates / (4 people). This many make the standard deviation of the
    # difference of two of them half the tolerance; more would resolve less than the user cares about.
    enough = 2 * candidates * (scale / tolerance) ** 2
    return min(int(_TEST_SHARE * available), math.ceil(enough))


def _people_by_stage(
    where: PublicMap, available: int, scale: float, tolerance: float, *, tilting: bool
) -> dict[str, int]:
    """Return how many people each stage of the mode "hybrid" asks."""
    shares = dict(_PEOPLE_SHARES)
    if not tilting:
        del shares["base"]
        shares["means"] = _MEANS_WITHOUT_TILT
    people = {name: int(share * available) for name, share in shares.items()}
    alone = int(_PEOPLE_ALONE_SHARE * available)
    if step_noise(where, alone, scale) <= _MOST_NOISE_ALONE:
        people["people alone"] = alone
    people["test"] = _people_in_test(available, scale, tolerance, candidates=3 + ("people alone" in people))
    people["correction"] = available - sum(people.values())
    return people
