"""Audit: measured lower bounds on epsilon, and replays that find what a fit shows without a release.

Everything here reads the rows that it is given in the clear: use it with made-up data only. `audit_model` makes up its
own rows and never needs the private ones.
"""

from dpadapt.audit.battery import AuditRow, Pace, audit_all
from dpadapt.audit.measured_epsilon import LowerBound, lower_bound
from dpadapt.audit.releases import MechanismOutputs, ReleaseScores
from dpadapt.audit.replay import PathDiffers, Release, Tape, leaks, record, replay
from dpadapt.audit.saved_model import Finding, ModelAudit, audit_model

__all__ = [
    "AuditRow",
    "Finding",
    "LowerBound",
    "MechanismOutputs",
    "ModelAudit",
    "Pace",
    "PathDiffers",
    "Release",
    "ReleaseScores",
    "Tape",
    "audit_all",
    "audit_model",
    "leaks",
    "lower_bound",
    "record",
    "replay",
]
