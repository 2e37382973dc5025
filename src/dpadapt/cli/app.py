"""The `dpadapt` command: its parts, and how errors are shown.

Modules that take long to import are imported inside the commands that need them, so that `--help` is quick.
"""

import sqlite3
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from dpadapt import __version__
from dpadapt.cli import audit, before_spending, cost, demo, fit, ledger, predict, schema
from dpadapt.cli.options import Incomplete, teach
from dpadapt.errors import DataUnavailable, PrivacyError

_HELP = teach(
    """
Differentially private transfer learning: a model for private rows, helped by public ones.

You have a table that must stay private and perhaps a similar one that is public. dpadapt fits a model on the private
rows that reveals almost nothing about any one of them. The public rows help at no privacy cost. A receipt lists what
was released and what it cost.

From two CSV files to a receipt and predictions (dpadapt demo shows it on real data):

\b
  dpadapt schema public.csv -o schema.toml      (then edit schema.toml)
  dpadapt rehearse --public public.csv --schema schema.toml --label y \\
              --task regression --rows 1000     (free: what error to expect)
  dpadapt fit --private private.csv --public public.csv \\
              --schema schema.toml --label y --task regression \\
              --epsilon 1 --out model/
  dpadapt predict model/ new.csv -o predictions.csv
"""
)

app = typer.Typer(name="dpadapt", add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
# One line per command or group of commands.
schema.mount(app)
before_spending.mount_forecast(app)
before_spending.mount_rehearse(app)
fit.mount(app)
predict.mount(app)
cost.mount(app)
ledger.mount(app)
demo.mount(app)
audit.mount(app)


@app.callback(help=_HELP, invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and stop.")] = False,
) -> None:
    """Show the version, or the help if nothing was asked for."""
    if version:
        typer.echo(f"dpadapt {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


# What typer returns for Ctrl-C, without a message; some versions raise instead.
_INTERRUPTED = 130

# typer's own usage errors; where the base class lives differs between its versions.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, or 2 with one line on standard error and nothing spent.

    1 means that something failed after the budget was spent, or that an audit found a flaw; 130 means interrupted.

    Parameters
    ----------
    arguments : sequence of str, optional
        Default: those of the process.

    Examples
    --------
    >>> main(["--version"])
    dpadapt 0.2.0
    0
    """
    try:
        outcome = app(args=None if arguments is None else list(arguments), prog_name="dpadapt", standalone_mode=False)
    except _UsageError as error:
        return _fail(error.format_message())  # type: ignore[attr-defined]
    except (typer.Abort, KeyboardInterrupt):
        outcome = _INTERRUPTED
    except Incomplete as error:
        return _fail(str(error), code=1)
    except (ValueError, TypeError, PrivacyError, DataUnavailable) as error:
        return _fail(str(error))
    except sqlite3.Error as error:
        return _fail(f"the ledger can't be used now: {error}. Try again when no other process holds it.")
    except OSError as error:
        named = f"{error.filename}: " if error.filename else ""
        return _fail(f"{named}{error.strerror or error}")
    if outcome == _INTERRUPTED:
        return _fail("interrupted. What a ledger had recorded stays spent.", code=_INTERRUPTED)
    return outcome if isinstance(outcome, int) else 0


def _fail(message: str, *, code: int = 2) -> int:
    """Print one line on standard error and return the exit code."""
    print(f"dpadapt: error: {' '.join(message.split())}", file=sys.stderr)
    return code
