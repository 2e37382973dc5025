"""Warnings before a fit: shown once for each line that asks for fits, and naming the ledger to open."""

import sys
import warnings
from types import FrameType

from dpadapt.errors import NoLedgerWarning
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.rows import Unit

# Libraries whose frames stand between a fit and the line that asked for it.
_BETWEEN = ("sklearn.", "joblib.")
# Fits that these ask for are on public or made-up rows, or inside a fit that has warned already: they get no warnings.
_QUIET_CALLERS = ("dpadapt.", "sklearn.utils.estimator_checks")
# Warnings that were shown, with their places. Python's own record of them is emptied whenever scikit-learn checks an
# array, so that a search over parameters would repeat each warning for each fit.
_SHOWN: set[tuple[str, int, str]] = set()
# Unit: the first fit's epsilon. The cap that is proposed for a new ledger: room for a few more fits, none of them free.
# Chosen by hand.
PROPOSED_FITS = 3.0


def no_ledger(call: str, epsilon: float, delta: float, adjacency: str, unit: Unit) -> str:
    """Return the text of a `NoLedgerWarning` about a call, with the line to write."""
    further = "" if adjacency == Adjacency.ZERO_OUT.value else f', adjacency="{adjacency}"'
    further += "" if unit == "row" else f', unit="{unit}"'
    line = f'Ledger.open("private.ledger", epsilon={PROPOSED_FITS * epsilon:.12g}, delta={delta:.12g}{further})'
    return (
        f"no ledger is charged, so nothing adds up what further fits on the same rows cost. Write {call}(..., "
        f"ledger={line}), with the name of your private data set."
    )


def warn_of_no_ledger(call: str, epsilon: float, delta: float, adjacency: str, unit: Unit) -> None:
    """Warn whoever called the function that calls this one, whose name is `call`: it was given no ledger."""
    caller = asked_by(sys._getframe(2))
    if caller is not None:
        warn_once_per_line(no_ledger(call, epsilon, delta, adjacency, unit), NoLedgerWarning, caller)


def asked_by(frame: FrameType | None) -> FrameType | None:
    """Return the frame of the line that asked for a fit, or None if it gets no warnings."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.startswith(_QUIET_CALLERS):
            return None
        if not name.startswith(_BETWEEN):
            return frame
        frame = frame.f_back
    return None


def warn_once_per_line(text: str, category: type[Warning], caller: FrameType) -> None:
    """Warn as Python's default filter does; where the filters ask for every warning, or for errors, each time."""
    place = (caller.f_code.co_filename, caller.f_lineno, category.__name__)
    matching = (
        action
        for action, message, kind, *_ in warnings.filters
        if issubclass(category, kind) and (message is None or message.match(text))
    )
    if place not in _SHOWN or next(matching, "default") in ("error", "always", "all"):
        warnings.warn_explicit(text, category, place[0], place[1], registry={})
    _SHOWN.add(place)
