"""`audit_all`: every mechanism and every method, as it is and with its noise halved."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpadapt.audit.cases import Case, estimator_cases, mechanism_cases
from dpadapt.audit.two_worlds import LowerBound, lower_bound

if TYPE_CHECKING:
    from rich.table import Table

# Added to the seed for the halved runs, so that they do not repeat the noise of the others.
_OTHER_SEEDS = 10**6


@dataclass(frozen=True)
class AuditRow:
    """What the audit of one mechanism or method found.

    Parameters
    ----------
    name : str
    claimed : float
        Epsilon at the bounds' delta, by the accountant.
    found : LowerBound
        As it is.
    halved : LowerBound
        With half the noise and the same claim: a planted bug.
    tight : bool
        Whether the claim is exact for the data sets used.
    """

    name: str
    claimed: float
    found: LowerBound
    halved: LowerBound
    tight: bool

    @property
    def holds(self) -> bool:
        """Whether the claim survived."""
        return not self.found.refutes(self.claimed)

    @property
    def caught(self) -> bool:
        """Whether the planted bug was found."""
        return self.halved.refutes(self.claimed)


def audit_all(
    runs: int = 20_000,
    fits: int = 300,
    *,
    confidence: float = 0.999,
    seed: int | None = None,
    cases: Sequence[Case] | None = None,
    tick: Callable[[str], None] | None = None,
) -> list[AuditRow]:
    """Audit every mechanism and every method in the table.

    Parameters
    ----------
    runs : int, default=20_000
        Draws of each mechanism in each world.
    fits : int, default=300
        Fits of each method in each world.
    confidence : float, default=0.999
        Of each bound: a sound mechanism whose claim is exact fails one audit in 1 / (1 - confidence).
    seed : int, optional
        For tests. Default: mechanisms draw secure noise.
    cases : sequence of Case, optional
        Default: all of them.
    tick : callable, optional
        Called with the name of each case before it starts.

    Returns
    -------
    list of AuditRow
    """
    rows = []
    for case in [*mechanism_cases(), *estimator_cases()] if cases is None else cases:
        if tick is not None:
            tick(case.name)
        found, halved = (
            lower_bound(
                case.fit(noise, None if seed is None else seed + shift),
                case.D,
                case.D_neighbour,
                delta=case.delta,
                runs=fits if case.heavy else runs,
                confidence=confidence,
                method=case.method,
            )
            for noise, shift in ((1.0, 0), (0.5, _OTHER_SEEDS))
        )
        rows.append(AuditRow(case.name, case.claimed, found, halved, case.tight))
    return rows


def table(rows: Sequence[AuditRow]) -> "Table":
    """Return `rows` as a table for the terminal."""
    from rich.table import Table

    drawn = Table(title="Lower bounds on epsilon, measured", caption="halved: the same claim with half the noise")
    for head in ("name", "delta", "claimed", "measured", "share", "holds", "halved", "caught"):
        drawn.add_column(head, justify="left" if head == "name" else "right")
    for row in rows:
        drawn.add_row(
            row.name,
            f"{row.found.delta:.3g}",
            f"{row.claimed:.3f}",
            f"{row.found.epsilon_lower:.3f}",
            f"{row.found.epsilon_lower / row.claimed:.0%}",
            "yes" if row.holds else "NO",
            f"{row.halved.epsilon_lower:.3f}",
            "yes" if row.caught else "NO",
        )
    return drawn
