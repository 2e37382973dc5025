"""The `dpadapt` command: its parts, how errors are shown, and what exit codes mean.

Modules that take long to import are imported inside the commands that need them, so that `--help` is quick.
"""

import codecs
import io
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Annotated, Any

import typer

from dpadapt import __version__
from dpadapt.cli import cost, demo, evaluate, fit, ledger, previews, request, saved_model, schema
from dpadapt.cli.options import teach
from dpadapt.cli.screen import Incomplete, printable, reason, say

_HELP = teach(
    """
Differentially private transfer learning: a model for private rows, helped by public ones.

You have a table that must stay private and perhaps a similar one that is public. dpadapt fits a model on the private
rows that reveals almost nothing about any one of them. The public rows help at no privacy cost. A receipt lists what
was released and what it cost.

From two CSV files to a receipt and predictions (dpadapt demo shows it on real data):

\b
  dpadapt advise public.csv --label y --rows 1000    (free: what to expect)
  dpadapt fit --private private.csv --public public.csv \\
              --schema schema.toml --label y --task regression \\
              --epsilon 1 --out model/
  dpadapt predict model/ new.csv -o predictions.csv
"""
)

app = typer.Typer(name="dpadapt", add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
# In the order of the help.
for module in (schema, previews, request, fit, saved_model, evaluate, cost, ledger, demo):
    module.mount(app)


@app.callback(help=_HELP, invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and stop.")] = False,
) -> None:
    """Show the version, or the help if nothing was asked for."""
    if version:
        say(f"dpadapt {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


# What typer returns for Ctrl-C, without a message; some versions raise instead.
_INTERRUPTED = 130

# typer's own usage errors; where the base class lives differs between its versions.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0: done. 2: nothing was spent; one line on standard error says what was wrong. 1: something failed after a budget
    was spent, and one line says what was written and where; or an audit found a flaw. 130: interrupted; one line says
    whether a budget was spent.

    No error ends in a traceback: its text could quote a private cell.

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
    given = list(sys.argv[1:] if arguments is None else arguments)
    _open_closed_streams()
    with _streams_that_degrade():
        try:
            if any("\0" in argument for argument in given):
                raise ValueError("an argument contains a NUL character, which no file name can. Leave it out.")
            outcome = app(args=given, prog_name="dpadapt", standalone_mode=False)
            if outcome == _INTERRUPTED:
                raise KeyboardInterrupt
        except BaseException as error:
            return _failed(error, given)
        return outcome if isinstance(outcome, int) else 0


def _failed(error: BaseException, given: Sequence[str]) -> int:
    """Print one line on standard error and return the exit code."""
    # After Incomplete alone something was spent: `fit` and `evaluate`, the commands that spend, see to it.
    if isinstance(error, Incomplete):
        message, code = str(error), error.code
    elif isinstance(error, typer.Abort | KeyboardInterrupt):
        message, code = "interrupted. Nothing was spent.", _INTERRUPTED
    elif isinstance(error, _UsageError):
        message, code = error.format_message(), 2  # type: ignore[attr-defined]
    elif isinstance(error, SystemExit):  # by typer, which prints the help
        message, code = "standard output can't be written: Broken pipe.", 2
    else:
        message, code = reason(error), 2
        named = getattr(error, "filename", None)
        if isinstance(error, OSError) and named is not None and str(named) in given:
            message = f"{named}: {message}."
    # If nobody can be told, the exit code still tells.
    with suppress(OSError, ValueError):
        if sys.stderr is not None:
            # Whatever the message quotes, it stays one line.
            print(f"dpadapt: error: {printable(' '.join(message.split()))}", file=sys.stderr)
            if isinstance(error, Incomplete) and error.receipt:
                print(printable(error.receipt), file=sys.stderr)
            sys.stderr.flush()
    _discard_unprintable_output()
    return code


def _open_closed_streams() -> None:
    """Open what stands for standard streams that the caller has closed.

    The next file to be opened would otherwise get their number, and whatever a library prints would go into it, be it
    the ledger. Printing to a closed standard output still fails, as it should: nobody sees the result.
    """
    for number, way in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, way)  # gets the lowest free number
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def _discard_unprintable_output() -> None:
    """Discard what could not be printed: Python would try again at its end, and change the exit code."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# What replaces characters that the terminal's encoding lacks. All others become question marks.
_IN_ASCII = {"ε": "epsilon", "δ": "delta", "±": "+-", "\u2212": "-", "…": "...", "²": "^2", "≤": "<=", "≥": ">="}


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_IN_ASCII.get(c, "?") for c in error.object[error.start : error.end]), error.end


def _say_nothing(*_args: Any, **_options: Any) -> None:
    """Take the place of `warnings.showwarning`: a warning that only some rows cause would reveal such a row."""


@contextmanager
def _streams_that_degrade() -> Iterator[None]:
    """While a command runs, print characters that the terminal lacks in another way, and no messages of libraries."""
    codecs.register_error("dpadapt", _in_ascii)
    streams = [stream for stream in (sys.stdout, sys.stderr) if isinstance(stream, io.TextIOWrapper)]
    before = sys.stdout, sys.stderr, [stream.errors for stream in streams], logging.root.manager.disable
    for stream in streams:
        stream.reconfigure(errors="dpadapt")
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _say_nothing
            yield
    finally:
        sys.stdout, sys.stderr, errors, level = before
        logging.disable(level)
        for stream, handler in zip(streams, errors, strict=True):
            with suppress(OSError, ValueError):
                stream.reconfigure(errors=handler)
