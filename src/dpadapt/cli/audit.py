"""`dpadapt audit`: attack every mechanism and method, and print lower bounds on epsilon."""

from typing import Annotated

import typer

from dpadapt.cli.options import teach

_HELP = teach(
    """
Attack every mechanism and every method, and print lower bounds on the epsilon that they really have.

Each is run many times on two neighbouring data sets; how well an attack can distinguish the outcomes bounds epsilon
from below. A bound above the claim would refute it. Each is then run with half its noise, which the attack must detect.
The data is synthetic: nothing private is read.

Example:

\b
  dpadapt audit --runs 20000 --fits 300
"""
)


def mount(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("audit", help=_HELP)(_audit)


def _audit(
    runs: Annotated[int, typer.Option(help="Draws of each mechanism in each world.")] = 20_000,
    fits: Annotated[int, typer.Option(help="Fits of each method in each world.")] = 300,
    confidence: Annotated[float, typer.Option(help="Confidence of each lower bound, between 0 and 1.")] = 0.999,
) -> int:
    """Audit everything; the exit code is 1 if a claim falls or a planted bug goes unseen."""
    from dpadapt.audit.battery import audit_all, estimator_cases, mechanism_cases, table
    from dpadapt.cli.options import console

    screen = console()
    cases = [*mechanism_cases(), *estimator_cases()]
    with screen.status("audit") as status:
        rows = audit_all(
            runs,
            fits,
            confidence=confidence,
            cases=cases,
            tick=lambda name: status.update(f"auditing {name}"),
        )
    screen.print(table(rows))
    return 0 if all(row.holds and row.caught for row in rows) else 1
