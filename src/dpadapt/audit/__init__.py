"""Audit: measured lower bounds on epsilon, and replays that find what a fit shows without a release.

Everything here but `audit_model` reads the rows that it is given in the clear: use it with made-up data only.
`audit_model` reads a saved model and its receipt, and no row.
"""

from dpadapt.audit.measured_epsilon import LowerBound, lower_bound
from dpadapt.audit.releases import MechanismOutputs, ReleaseScores
from dpadapt.audit.replay import PathDiffers, Release, Tape, leaks, record, replay
from dpadapt.audit.saved_model import Finding, ModelAudit, audit_model

__all__ = [
    "Finding",
    "LowerBound",
    "MechanismOutputs",
    "ModelAudit",
    "PathDiffers",
    "Release",
    "ReleaseScores",
    "Tape",
    "audit_model",
    "leaks",
    "lower_bound",
    "record",
    "replay",
]
