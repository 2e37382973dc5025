"""The exception tree: one `except PrivacyError` catches every error about the guarantee, and no other."""

from dpadapt.errors import (
    AssumedBoundsWarning,
    BudgetExceeded,
    DataUnavailable,
    LedgerError,
    NoLedgerWarning,
    PrivacyError,
    PrivacyWarning,
)


def test_ledger_and_budget_errors_are_privacy_errors():
    assert issubclass(BudgetExceeded, PrivacyError)
    assert issubclass(LedgerError, PrivacyError)
    assert not issubclass(BudgetExceeded, LedgerError)


def test_privacy_errors_are_not_argument_errors():
    for error in (PrivacyError, DataUnavailable):
        assert issubclass(error, RuntimeError)
        assert not issubclass(error, ValueError | TypeError)
    assert not issubclass(DataUnavailable, PrivacyError)


def test_one_filter_silences_every_warning_of_the_library():
    for warning in (AssumedBoundsWarning, NoLedgerWarning):
        assert issubclass(warning, PrivacyWarning)
    assert issubclass(PrivacyWarning, UserWarning)
