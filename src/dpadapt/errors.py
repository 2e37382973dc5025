"""Exceptions and warnings.

::

    ValueError, TypeError        a wrong argument (the message names it and the remedy)
    PrivacyError                 the guarantee would not hold
    ├── BudgetExceeded           the cap does not allow this release; nothing was drawn or recorded
    └── LedgerError              a ledger that can't be trusted (corrupt, truncated, of another data set) or used now
    DataUnavailable              a data set is neither on disk nor downloadable

    PrivacyWarning (UserWarning) something that a fit takes for granted; raised as an error, it stops before spending
    ├── NoLedgerWarning          nothing adds up what further fits on the same rows cost
    └── AssumedBoundsWarning     bounds were not given, so that default ones are assumed
    CalibrationWarning (UserWarning)  intervals or sets of this coverage are not calibrated well

Warnings follow from arguments, public data and releases alone, never from private rows.

No message contains a private value: no row, norm, count or label.
"""

import dis


class PrivacyError(RuntimeError):
    """The guarantee would not hold."""


class BudgetExceeded(PrivacyError):
    """A release would cost more than the cap allows. Nothing was drawn and nothing was recorded."""


class LedgerError(PrivacyError):
    """A ledger can't be trusted (altered, or made for another data set) or can't be used now (held, unreachable)."""


class PrivacyWarning(UserWarning):
    """A fit takes something for granted. Issued before anything is spent, and never because of a private value."""


class NoLedgerWarning(PrivacyWarning):
    """A fit is charged to no ledger, so that nothing adds up what further fits on the same rows cost."""


class AssumedBoundsWarning(PrivacyWarning):
    """Bounds of private values were not given, so that default ones are assumed; values outside are clipped."""


class DataUnavailable(RuntimeError):
    """A data set is neither on disk nor downloadable from its original source."""


class CalibrationWarning(UserWarning):
    """Intervals or sets of this coverage can't be calibrated well: there are too few rows for the budget."""


def made_here(error: BaseException) -> bool:
    """Return whether a `raise` statement of dpadapt raised the error, so that its text is ours.

    The texts of other libraries, and of Python's own conversions, may quote a private cell.
    """
    trace = error.__traceback__
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    frame = trace.tb_frame
    instruction = dis.opname[frame.f_code.co_code[trace.tb_lasti]]
    return str(frame.f_globals.get("__name__")).startswith("dpadapt.") and instruction == "RAISE_VARARGS"
