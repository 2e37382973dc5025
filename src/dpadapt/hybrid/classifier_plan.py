"""The plan of a hybrid fit: shares of the curator's budget and of the people, from public numbers alone."""

import math
from dataclasses import dataclass

from dpadapt.hybrid import curator_releases
from dpadapt.hybrid.agents import Agents, bit_scale
from dpadapt.hybrid.mapped_questions import PublicMap
from dpadapt.learning.estimator import Budget
from dpadapt.mechanisms.mechanism import Repeated
from dpadapt.mechanisms.noise import Gaussian

MODES = ("auto", "hybrid", "local", "curator")

# Shares of mu²: second moments, source model, tilt's means, tilted model, the sum of its weights.
_TILTING = {"second moments": 0.10, "source model": 0.35, "tilted means": 0.10, "tilted model": 0.441, "weights": 0.009}
_NOT_TILTING = {"second moments": 0.10, "source model": 0.90}
_TIMES = {
    "source model": curator_releases.STEPS,
    "tilted means": curator_releases.RELEASES,
    "tilted model": curator_releases.STEPS,
}
# Weights may be this many times their mean, and below 2 the noise of a weighted fit costs more than it can bring.
_LARGEST, _LEAST = 10.0, 2.0
# People: shares of all there are. What is left corrects the model.
_PEOPLE = {"means": 0.15, "squares": 0.05, "base": 0.05, "recalibration": 0.06, "test": 0.33}
_PER_SQUARE = 0.005
_FEWER_MEANS = 0.02
# Residuals are at most 1 and rarely above 0.1 on average: with more noise than this they correct nothing.
_LOUDEST = 0.08
# Below this many people (at epsilon 1) no gain under 0.05 could be proved.
_FEWEST = 20_000
# Fewer can't be divided among the stages.
_LEAST_PEOPLE = 1_000
# From so many on, few variables are learned as well without a curator.
_LOCALLY = 1_000_000


@dataclass(frozen=True)
class HybridPlan:
    """What will be done, decided before a private row is read.

    Parameters
    ----------
    mode : {"hybrid", "local", "curator"}
    shares : dict
        Of the curator's budget (of mu²), by release.
    people : dict
        How many are asked, by stage.
    clip_norm : float
        Of a gradient.
    bound : float
        The most a weight may be, relative to their mean; 1 without tilting.
    """

    mode: str
    shares: dict[str, float]
    people: dict[str, int]
    clip_norm: float
    bound: float

    @property
    def tilting(self) -> bool:
        """Whether weights are tried."""
        return self.bound > 1

    def multiplier(self, name: str, mu: float) -> float:
        """Return the noise of one release over its sensitivity."""
        return math.sqrt(_TIMES.get(name, 1) / self.shares[name]) / mu

    def releases(self, mu: float) -> list[tuple[Repeated, str]]:
        """Return what the ledger is asked for, at once."""
        return [(Repeated(Gaussian(self.multiplier(name, mu)), _TIMES.get(name, 1)), name) for name in self.shares]


def make_plan(mode: str, where: PublicMap, budget: Budget, agents: Agents | None, tolerance: float) -> HybridPlan:
    """Return the plan for `mode`, or for the one that public numbers choose."""
    available = 0 if agents is None else agents.available
    scale = 1.0 if agents is None else bit_scale(agents.epsilon)
    clip_norm = 0.5 * math.sqrt(where.n_features + 1)
    if mode == "auto":
        worth = available * (bit_scale(1.0) / scale) ** 2
        few = where.n_features <= 10 and where.n_columns + 1 <= 15
        if worth < _FEWEST:
            mode = "curator"
        else:
            mode = "local" if (few and worth >= _LOCALLY) or not budget.worthwhile else "hybrid"
    if mode in ("hybrid", "local") and available < _LEAST_PEOPLE:
        raise ValueError(
            f"mode={mode!r} needs agents with at least {_LEAST_PEOPLE:,} people who were never asked, got "
            f"{available:,}. Give agents=, or use mode='curator'."
        )
    if mode == "local":
        return HybridPlan(mode, {}, {"descent": available}, clip_norm, 1.0)
    if not budget.worthwhile:
        return HybridPlan("curator", {}, {}, clip_norm, 1.0)
    if mode == "curator":
        return HybridPlan(mode, dict(_NOT_TILTING), {}, clip_norm, 1.0)
    # The noise of a weighted fit: bound * clip_norm * sqrt(steps * columns) / (mu * rows) should stay below a tenth.
    signal = 0.1 * math.sqrt(_TILTING["tilted model"] + _TILTING["weights"]) * budget.mu * budget.n_rows / budget.factor
    bound = signal / (clip_norm * math.sqrt(curator_releases.STEPS * (where.n_columns + 1)))
    tilting = bound >= _LEAST
    shares = dict(_PEOPLE)
    shares["squares"] = min(shares["squares"], _PER_SQUARE * len(where.numbers))
    if not tilting:
        del shares["base"]
        shares["means"] = _FEWER_MEANS
    people = {name: int(share * available) for name, share in shares.items()}
    enough = 6 * (1.645 * scale / (math.sqrt(2) * tolerance)) ** 2
    people["test"] = min(people["test"], math.ceil(enough))
    left = available - sum(people.values())
    if tilting and scale * math.sqrt(where.reach / left) > _LOUDEST:
        people["means"] += left
    else:
        people["correction"] = left
    return HybridPlan(
        "hybrid",
        dict(_TILTING if tilting else _NOT_TILTING),
        people,
        clip_norm,
        min(bound, _LARGEST) if tilting else 1.0,
    )
