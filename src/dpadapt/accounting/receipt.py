"""`Receipt` and its entries: what was released and what it cost, as text, HTML or JSON, with a check of the cost."""

import json
import math
from dataclasses import dataclass
from typing import Any

from dpadapt import checks, notebook
from dpadapt.accounting.cost import add_entries, composed_epsilon, grid_for, pld, pld_supports, rdp, rdp_supports
from dpadapt.errors import PrivacyError
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.events import Entry, Event, NonPrivateEvent, entry_from_dict
from dpadapt.rows import UNITS, Unit

SEED_WARNING = "the noise came from a seed: this fit has no privacy guarantee"


@dataclass(frozen=True)
class Verification:
    """Result of a second accountant: the true epsilon lies between `lower` and `upper`."""

    claimed: float
    lower: float
    upper: float
    accountant: str


@dataclass(frozen=True)
class Receipt:
    """What a fit, or everything charged to a ledger, released and what it cost.

    Parameters
    ----------
    epsilon, delta : float
        The cost, an upper bound; `meaning` says of what.
    adjacency : Adjacency
        Which data sets count as neighbours.
    entries : tuple of Entry
        All charges.
    assumptions : tuple of str
        Facts about the private data that are assumed to be public.
    warnings : tuple of str
        What a reader should know before relying on the receipt.
    charges : int
        How many charges the entries were made in; 0 if unknown. Entries of one charge were fixed before the first of
        them was released.
    cap : float, optional
        The cap of the ledger that was charged.
    unit : {"row", "person"}
        What is protected.

    Examples
    --------
    >>> from dpadapt.accounting import Ledger
    >>> receipt = Ledger(epsilon=1.0, delta=1e-6).receipt()
    >>> receipt.epsilon
    0.0
    >>> Receipt.from_json(receipt.to_json()) == receipt
    True
    """

    epsilon: float
    delta: float
    adjacency: Adjacency
    entries: tuple[Entry, ...]
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    charges: int = 1
    cap: float | None = None
    unit: Unit = "row"

    @property
    def meaning(self) -> str:
        """What `epsilon` is, in words."""
        if not self.entries:
            return "nothing was charged"
        if self.charges == 1:
            return "the cost of one plan, fixed before its first release"
        if self.charges == 0:
            return "the cost of these releases if they were fixed in advance"
        cap = "" if self.cap is None else f" of epsilon = {self.cap:.4g}"
        return (
            f"the least cap that lets {self.charges} charges through however each was chosen; what is guaranteed is "
            f"the ledger's cap{cap}"
        )

    @property
    def seeded(self) -> bool:
        """Whether any noise came from a seed; then there is no guarantee."""
        return any(entry.seeded for entry in self.entries)

    def tally(self) -> dict[Event, int]:
        """Return the number of each event."""
        return add_entries({}, self.entries)

    def verify(self) -> Verification:
        """Recompute the cost from the events, with a second accountant where there is one.

        Raises
        ------
        PrivacyError
            If the claimed epsilon is lower than the events allow.
        """
        counted = self.tally()
        if not counted:
            verification = Verification(self.epsilon, 0.0, 0.0, "none needed")
        elif any(isinstance(event, NonPrivateEvent) for event in counted):
            verification = Verification(self.epsilon, math.inf, math.inf, "none needed")
        else:
            verification = self._recomputed(counted)
        # The tolerance covers the probability mass that the optimistic distribution cuts off its tails.
        if self.epsilon < verification.lower * (1 - 1e-6) - 1e-6:
            raise PrivacyError(
                f"the receipt claims epsilon={self.epsilon:.4g}, but its events cost at least {verification.lower:.4g}."
            )
        return verification

    def _recomputed(self, counted: dict[Event, int]) -> Verification:
        if self.delta > 0 and pld_supports(counted, self.adjacency, pessimistic=False):
            grid = grid_for(self.epsilon)
            optimistic = pld(counted, self.adjacency, grid=grid, pessimistic=False)
            lower, upper = float(optimistic.get_epsilon_for_delta(self.delta)), math.inf
            names = ["optimistic privacy-loss distribution"]
        else:
            lower = upper = composed_epsilon(counted, self.delta, self.adjacency)
            names = ["recomputed"]
        if self.delta > 0 and rdp_supports(counted, self.adjacency):
            upper = float(rdp(counted, self.adjacency).get_epsilon(self.delta))
            names.append("Rényi composition")
        return Verification(self.epsilon, lower, upper, " and ".join(names))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        return {
            "epsilon": self.epsilon if math.isfinite(self.epsilon) else "inf",
            "delta": self.delta,
            "adjacency": self.adjacency.value,
            "unit": self.unit,
            "seeded": self.seeded,
            "entries": [entry.to_dict() for entry in self.entries],
            "assumptions": list(self.assumptions),
            "warnings": list(self.warnings),
            "charges": self.charges,
            "cap": self.cap if self.cap is None or math.isfinite(self.cap) else "inf",
        }

    def to_json(self) -> str:
        """Return the receipt as JSON; `from_json` reads it back."""
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_json(cls, text: str) -> "Receipt":
        """Return the receipt that `to_json` wrote."""
        fields = json.loads(text)
        return cls(
            epsilon=float(fields["epsilon"]),
            delta=float(fields["delta"]),
            adjacency=Adjacency.of(fields["adjacency"]),
            entries=tuple(entry_from_dict(entry) for entry in fields["entries"]),
            assumptions=tuple(fields["assumptions"]),
            warnings=tuple(fields["warnings"]),
            charges=int(fields["charges"]),
            cap=None if fields["cap"] is None else float(fields["cap"]),
            unit=checks.one_of(fields["unit"], UNITS, "unit"),
        )

    def __str__(self) -> str:
        """Return the receipt as text."""
        lines = [
            f"epsilon = {self.epsilon:.4g}, delta = {self.delta:.3g} ({self.meaning})",
            f"protects: {self.adjacency.protects(self.unit)}; {self.adjacency.counted(self.unit)}",
            *(f"released: {entry}" for entry in self.entries),
            *(f"assumed public: {fact}" for fact in self.assumptions),
            *(f"warning: {text}" for text in self.all_warnings),
        ]
        return "\n".join(lines)

    @property
    def all_warnings(self) -> list[str]:
        """`warnings`, after one about seeded noise if there is any."""
        return [*([SEED_WARNING] if self.seeded else []), *self.warnings]

    def _repr_html_(self) -> str:
        cost = f"epsilon = {self.epsilon:.4g}, delta = {self.delta:.3g}"
        return notebook.card(
            "Privacy receipt", notebook.headline(cost), notebook.note(self.meaning), *self.html_parts()
        )

    def html_parts(self) -> list[str]:
        """Return what a notebook shows below the cost; the cards of other results have it too."""
        return [
            *(notebook.warning(text) for text in self.all_warnings),
            notebook.facts({"protects": f"{self.adjacency.protects(self.unit)}; {self.adjacency.counted(self.unit)}"}),
            notebook.folded("released", [str(entry) for entry in self.entries]),
            notebook.folded("assumed public", self.assumptions),
        ]
