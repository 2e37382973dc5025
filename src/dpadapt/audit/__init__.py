"""Audit: lower bounds on epsilon measured from outside, and replays that find what leaves past the ledger.

Everything here looks at private values and is for testing with made-up data only.
"""

from dpadapt.audit.battery import AuditRow, audit_all
from dpadapt.audit.measured_epsilon import LowerBound, lower_bound
from dpadapt.audit.releases import MechanismOutputs, ReleaseScores
from dpadapt.audit.replay import PathDiffers, Release, Tape, leaks, record, replay

__all__ = [
    "AuditRow",
    "LowerBound",
    "MechanismOutputs",
    "PathDiffers",
    "Release",
    "ReleaseScores",
    "Tape",
    "audit_all",
    "leaks",
    "lower_bound",
    "record",
    "replay",
]
