"""The stages of a hybrid fit, one after the other: what the curator releases, what people are asked, what is kept.

Everything that follows from a release or from people's bits is post-processing, so each stage may use all before it.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.accounting.run import Run
from dpadapt.hybrid.agents import Agents
from dpadapt.hybrid.correction import correct
from dpadapt.hybrid.curator import Moments, descend, release_moments
from dpadapt.hybrid.hybrid_plan import HybridPlan
from dpadapt.hybrid.local_only import fit_locally
from dpadapt.hybrid.people_moments import PeopleMoments, ask_moments
from dpadapt.hybrid.public_map import PublicMap
from dpadapt.hybrid.recalibration import recalibrate
from dpadapt.hybrid.switching import compare
from dpadapt.hybrid.tilt import find_tilt, release_total
from dpadapt.learning.base import Budget
from dpadapt.rows import Rows

Array = NDArray[np.float64]

# How likely it is, a priori, that a base needs no correction.
_DOUBT = {"source": 0.6, "tilted": 0.9}


@dataclass(eq=False)
class Outcome:
    """What came out.

    Parameters
    ----------
    coef, source : ndarray of shape (n_columns + 1,)
        The model and the one from the curator's rows alone, constants last.
    chosen : str
        How the model came about.
    estimates : dict of str to float
        What people's bits and releases say of it.
    people : dict of str to int
        How many were asked, by stage.
    """

    coef: Array = field(repr=False)
    source: Array = field(repr=False)
    chosen: str = "nothing"
    estimates: dict[str, float] = field(default_factory=dict)
    people: dict[str, int] = field(default_factory=dict)


class Stages:
    """A hybrid fit under way.

    Parameters
    ----------
    plan : HybridPlan
    where : PublicMap
    budget : Budget
    public_rows : bool
        Whether the number of rows is exact and public.
    rows : Rows
        The curator's rows, mapped, with their constant and labels 0 and 1.
    agents : Agents, optional
    positive : object
        The people's label that counts as 1.
    tolerance : float
    """

    def __init__(
        self,
        plan: HybridPlan,
        where: PublicMap,
        budget: Budget,
        rows: Rows,
        agents: Agents | None,
        *,
        public_rows: bool,
        positive: Any,
        tolerance: float,
    ) -> None:
        self.plan, self.where, self.budget, self.rows = plan, where, budget, rows
        self.agents, self.positive, self.tolerance = agents, positive, tolerance
        self.public_rows = public_rows
        nothing = np.zeros(where.n_columns + 1)
        self.outcome = Outcome(nothing, nothing)

    def carry_out(self, runs: dict[str, Run]) -> Outcome:
        """Run all stages of the plan; `runs` were charged for its releases."""
        if self.agents is not None and self.plan.mode == "local":
            before = self.agents.asked
            self.outcome.coef = fit_locally(self.agents, self.where, self.plan.people["descent"], self.positive)
            self.outcome.chosen = "people alone"
            self._count("descent", self.agents, before)
        elif runs:
            moments = self._second_moments(runs["second moments"])
            self._keep_source(self._descend(runs["source model"], moments, moments.second, moments.n_rows))
            if self.agents is not None and self.plan.mode == "hybrid":
                self._hybrid(runs, moments, self.agents)
        return self.outcome

    def _hybrid(self, runs: dict[str, Run], moments: Moments, agents: Agents) -> None:
        people, outcome = self.plan.people, self.outcome
        before = agents.asked
        theirs = ask_moments(agents, self.where, moments, people["means"], people.get("squares", 0))
        before = self._count("moments", agents, before)
        outcome.estimates["noise of a mean"] = theirs.noise
        base, chosen = outcome.source, "source"
        if self.plan.tilting and theirs.shifted:
            tilted = self._tilted(runs, moments, theirs)
            lead = compare(agents, self.where, tilted, base, people["base"], self.positive, tolerance=0.0)
            before = self._count("choice of a base", agents, before)
            if lead.difference < 0:
                base, chosen = tilted, "tilted"
        elif self.plan.tilting:
            # No shift to be seen: what was to buy the tilted model buys a second source model.
            again = self._descend(runs["tilted model"], moments, moments.second, moments.n_rows)
            shares = [self.plan.shares[name] for name in ("source model", "tilted model")]
            self._keep_source((shares[0] * base + shares[1] * again) / sum(shares))
            base = outcome.source
        model = recalibrate(agents, self.where, base, theirs.second, people["recalibration"], self.positive)
        before = self._count("recalibration", agents, before)
        if "correction" in people:
            # A tilted model has seen the shift already.
            doubt = _DOUBT[chosen]
            model = correct(agents, self.where, model, theirs.second, people["correction"], self.positive, doubt=doubt)
            before = self._count("correction", agents, before)
        if np.array_equal(model, outcome.source):
            return
        # Nobody of those asked so far takes part, so the choices above do not flatter the candidate.
        lead = compare(
            agents, self.where, model, outcome.source, people["test"], self.positive, tolerance=self.tolerance
        )
        self._count("test", agents, before)
        outcome.estimates |= {"lead over the source model": -lead.difference, "margin of the lead": lead.margin}
        if lead.proven:
            outcome.coef, outcome.chosen = model, f"{chosen}, corrected"

    def _second_moments(self, run: Run) -> Moments:
        plan, budget, where = self.plan, self.budget, self.where
        # Replacing a row moves a second moment by sqrt 2 times its bound, not by twice.
        noise = plan.multiplier("second moments", budget.mu) * where.max_norm**2 * budget.factor**0.5
        return release_moments(run, self.rows, where, n_rows=budget.n_rows, public=self.public_rows, noise=noise)

    def _keep_source(self, coef: Array) -> None:
        self.outcome.coef = self.outcome.source = coef
        self.outcome.chosen = "source"

    def _descend(self, run: Run, moments: Moments, second: Array, total: float, weights: Any = None) -> Array:
        limits = {"clip_norm": self.plan.clip_norm, "blur": moments.blur}
        return descend(run, self.rows, second, total, weights=weights, **limits)

    def _tilted(self, runs: dict[str, Run], moments: Moments, theirs: PeopleMoments) -> Array:
        """Return the model fitted on the curator's rows, weighted to look like the people."""
        scale = self.plan.multiplier("tilted means", self.budget.mu) * self.where.max_norm * self.budget.factor
        tilt = find_tilt(
            runs["tilted means"],
            self.rows,
            self.where,
            moments,
            theirs.mean,
            bound=self.plan.bound,
            noise=theirs.noise,
            scale=scale,
        )
        self.outcome.estimates |= {"size of the shift": tilt.size, "largest weight": tilt.bound}
        total = release_total(runs["weights"], self.rows, tilt, moments.n_rows)
        return self._descend(runs["tilted model"], moments, theirs.second, total, tilt.weights)

    def _count(self, stage: str, agents: Agents, before: int) -> int:
        """Note how many people a stage asked; return how many were asked in all."""
        self.outcome.people[stage] = agents.asked - before
        return agents.asked
