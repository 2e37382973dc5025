"""`dpadapt audit`: attack every mechanism and estimator, or check a saved model and its receipt."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpadapt.cli.ledger import open_existing
from dpadapt.cli.options import Json, teach
from dpadapt.cli.screen import console, print_json, say

if TYPE_CHECKING:
    from rich.table import Table

    from dpadapt.accounting.ledger import Ledger
    from dpadapt.audit.battery import AuditRow, Pace
    from dpadapt.audit.saved_model import ModelAudit

_HELP = teach(
    """
Without a model: attack every mechanism and every private estimator of dpadapt. With one: check it and its receipt.

Each mechanism and estimator is run many times on two neighbouring made-up data sets. How well an attack can tell the
outcomes apart bounds epsilon from below. A bound above the claim refutes it. Each is then run with half its noise: only
if the attack detects that, it could have found such a flaw, and the verdict is "holds". If not, the verdict says about
how many runs would decide.

Of a saved model it is checked that a second accountant confirms its receipt, that the entries add up and agree with the
model's parameters and, with --ledger, that they were charged.

An audit is no proof: it can refute a claim, never confirm it. Nothing private is read and nothing is spent.

The exit code is 1 if a claim is refuted, and 0 otherwise: also if some are undecided, which the last line counts.

Examples:

\b
  dpadapt audit
  dpadapt audit model/ --ledger patients.ledger
"""
)

# Largest values of the options. Chosen by hand: more runs or fits would take days.
_MOST_RUNS, _MOST_FITS, _MOST_MINUTES = 10_000_000, 1_000_000, 7 * 24 * 60


def mount(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("audit", help=_HELP)(_audit)


def _audit(
    model: Annotated[
        Path | None, typer.Argument(help="A folder made by dpadapt fit or dpadapt.save. Default: audit dpadapt itself.")
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            help="With a model: the ledger of its private data set, to look for its charges; a file, or "
            "postgresql://user@host/database."
        ),
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="With --ledger on a server: the name of the private data set there.")
    ] = None,
    runs: Annotated[int, typer.Option(help="Draws of each mechanism on each data set; at least 30.")] = 20_000,
    fits: Annotated[int, typer.Option(help="Fits of each estimator on each data set; at least 30.")] = 100,
    confidence: Annotated[
        float, typer.Option(help="Probability that no correct claim is refuted, in all; above 0.5 and below 1.")
    ] = 0.99,
    minutes: Annotated[
        float, typer.Option(help="Stop after this long; what is not finished then is undecided.")
    ] = 20.0,
    full: Annotated[bool, typer.Option("--full", help="Without a model: also the cases that take long.")] = False,
    as_json: Json = False,
) -> int:
    """Audit dpadapt or a model; the exit code is 1 if a claim is refuted."""
    from dpadapt.audit.measured_epsilon import LEAST_RUNS, check_confidence

    _between(runs, LEAST_RUNS, _MOST_RUNS, "--runs")
    _between(fits, LEAST_RUNS, _MOST_FITS, "--fits")
    check_confidence(confidence, "--confidence")
    if not (0 < minutes <= _MOST_MINUTES):
        raise ValueError(f"--minutes must be above 0 and at most {_MOST_MINUTES:,}, got {minutes!r}.")
    if model is None:
        if ledger is not None:
            raise ValueError("--ledger is for the audit of a model. Name its folder first: dpadapt audit model/.")
        return _audit_dpadapt(runs, fits, confidence, minutes, full, as_json)
    if full:
        raise ValueError("--full is for the audit of dpadapt itself. Leave it out with a model.")
    # The model may come from somebody else: its folder does not say which ledger is opened.
    opened = None if ledger is None else open_existing(ledger, dataset)[0]
    return _audit_saved(model, opened, as_json)


def _between(value: int, least: int, most: int, option: str) -> None:
    if not least <= value <= most:
        raise ValueError(f"{option} must be a whole number from {least} to {most:,}, got {value}.")


def _audit_dpadapt(runs: int, fits: int, confidence: float, minutes: float, full: bool, as_json: bool) -> int:
    """Attack every mechanism and every estimator."""
    from dpadapt.audit.battery import audit_all, summary
    from dpadapt.audit.battery_cases import all_cases, reasons_not_audited

    with _pace(minutes) as pace:
        pace.report("preparing", 0.0)
        rows = audit_all(runs, fits, confidence=confidence, cases=all_cases(full=full), pace=pace)
    refuted = any(row.verdict == "refuted" for row in rows)
    reasons = reasons_not_audited()
    if as_json:
        facts = {"summary": summary(rows), "refuted": refuted, "cases": [row.to_dict() for row in rows]}
        print_json({**facts, "not_audited": reasons})
        return int(refuted)
    console().print(battery_table(rows))
    for reason in dict.fromkeys(reasons.values()):
        say(f"not audited: {', '.join(name for name in reasons if reasons[name] == reason)} ({reason})")
    say(summary(rows))
    return int(refuted)


def _audit_saved(model: Path, ledger: "Ledger | None", as_json: bool) -> int:
    """Check a saved model and its receipt."""
    from dpadapt.audit.saved_model import audit_model

    audit = audit_model(model, ledger=ledger)
    if as_json:
        print_json(audit.to_dict())
    else:
        console().print(_model_table(model.name, audit))
        say(audit.words)
    return int(audit.verdict == "refuted")


@contextmanager
def _pace(minutes: float) -> Iterator["Pace"]:
    """Show on standard error, if it is a terminal, what is done and how long it will take; end after `minutes`."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    from dpadapt.audit.battery import Pace

    screen = console(stderr=True)
    text = TextColumn("{task.description}", markup=False)
    columns = text, BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as progress:
        bar = progress.add_task("audit", total=1.0)
        show: Callable[[str, float], None] = lambda what, share: progress.update(  # noqa: E731
            bar, description=what, completed=share
        )
        yield Pace(60 * minutes if math.isfinite(minutes) else None, show)


_STYLES = {"refuted": "bold red", "undecided": "yellow"}


def battery_table(rows: Sequence["AuditRow"]) -> "Table":
    """Return the results of the battery as a table for the terminal."""
    caption = (
        "half: the bound with half the noise, a planted bug. A claim holds if that is above it and measured is not."
    )
    shown = _table("Lower bounds on epsilon", {"name": 20, "delta": 5, "claimed": 7, "measured": 8, "half": 6})
    shown.caption = caption
    for row in rows:
        bounds = ("-" if bound is None else f"{bound.epsilon_lower:.3f}" for bound in (row.measured, row.halved))
        claimed = "-" if math.isnan(row.claimed) else f"{row.claimed:.3f}"
        cells = row.name, f"{row.delta:.3g}", claimed, *bounds, row.words
        shown.add_row(*map(_escaped, cells), style=_STYLES.get(row.verdict))
    return shown


def _model_table(name: str, audit: "ModelAudit") -> "Table":
    """Return the checks of a model as a table for the terminal."""
    shown = _table(f"Audit of {name}", {"check": 24})
    shown.add_column("found", overflow="fold")
    for finding in audit.findings:
        word = "REFUTED" if finding.verdict == "refuted" else finding.verdict
        shown.add_row(*map(_escaped, (finding.check, word, finding.words)), style=_STYLES.get(finding.verdict))
    return shown


def _table(title: str, columns: dict[str, int]) -> "Table":
    """Return a table with these columns, each with its least width, and one for the verdict."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    shown = Table(title=_escaped(title), title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    for number, (head, width) in enumerate(columns.items()):
        shown.add_column(head, overflow="fold", min_width=width, justify="right" if number else "left")
    shown.add_column("verdict", overflow="fold", min_width=9)
    return shown


def _escaped(text: Any) -> str:
    """Return `text` so that rich prints brackets instead of reading them as markup."""
    from rich.markup import escape

    return escape(str(text))
