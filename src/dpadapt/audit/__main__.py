"""``python -m dpadapt.audit``: audit everything, print a table; exit code 1 if a claim falls or a bug goes unseen."""

import argparse
import sys
from collections.abc import Sequence

from dpadapt.audit.cases import estimator_cases, mechanism_cases
from dpadapt.audit.run import audit_all, table


def main(arguments: Sequence[str] | None = None) -> int:
    """Audit, print, and return the exit code."""
    from rich.console import Console

    parser = argparse.ArgumentParser(prog="python -m dpadapt.audit", description="Measure epsilon from outside.")
    parser.add_argument("--runs", type=int, default=20_000, help="draws of each mechanism in each world")
    parser.add_argument("--fits", type=int, default=300, help="fits of each method in each world")
    parser.add_argument("--confidence", type=float, default=0.999, help="of each lower bound")
    options = parser.parse_args(arguments)
    console = Console()
    cases = [*mechanism_cases(), *estimator_cases()]
    with console.status("audit") as status:
        rows = audit_all(
            options.runs,
            options.fits,
            confidence=options.confidence,
            cases=cases,
            tick=lambda name: status.update(f"auditing {name}"),
        )
    console.print(table(rows))
    return 0 if all(row.holds and row.caught for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
