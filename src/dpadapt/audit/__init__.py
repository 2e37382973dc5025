"""Audit: measured lower bounds on epsilon, and replays that find what a fit shows without a release.

Everything here reads private values and is for tests with made-up data only.
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
