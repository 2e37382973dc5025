"""Checkpoints: a training that was killed goes on where it was, and is charged once.

A checkpoint holds parameters and moments, which follow from releases and public data, and the mark of the run in the
ledger. How many releases are left is for the ledger to say, not for the checkpoint: a copied or stale checkpoint can't
make more of them than were paid. Loading one runs no code.
"""

import hashlib
import io
import json
import os
import pickle
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dpadapt.networks.private_training import State

_FORMAT = "dpadapt network checkpoint 1"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """What is needed to go on.

    Parameters
    ----------
    fingerprint : str
        Of everything public that must stay the same.
    mark : str
        Of the run in the ledger.
    noise_multiplier : float
        That the run was charged for.
    state : State
    """

    fingerprint: str
    mark: str
    noise_multiplier: float
    state: State


def fingerprint(facts: list[Any]) -> str:
    """Return a digest of public facts. Nothing private may be among them: short secrets can be guessed from it."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=repr).encode()).hexdigest()


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint, whole or not at all."""
    state = checkpoint.state
    content = {
        "format": _FORMAT,
        "fingerprint": checkpoint.fingerprint,
        "mark": checkpoint.mark,
        "noise_multiplier": checkpoint.noise_multiplier,
        "step": state.step,
        "weights": state.weights,
        "average": state.average,
        "moments": state.moments,
    }
    buffer = io.BytesIO()
    torch.save(content, buffer)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    scratch = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(buffer.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def load_checkpoint(path: Path, expected: str) -> Checkpoint:
    """Read a checkpoint whose fingerprint must be `expected`."""
    try:
        content = torch.load(path, weights_only=True)
        if content["format"] != _FORMAT:
            raise ValueError
        state = State(content["weights"], int(content["step"]), content["average"], list(content["moments"]))
        found = Checkpoint(str(content["fingerprint"]), str(content["mark"]), float(content["noise_multiplier"]), state)
    except (OSError, RuntimeError, ValueError, TypeError, KeyError, EOFError, pickle.UnpicklingError):
        raise ValueError(
            f"checkpoint {path.name} can't be read: it is damaged, or no checkpoint of this version. Remove it to "
            f"start anew; what it was charged stays spent."
        ) from None
    if found.fingerprint != expected:
        raise ValueError(
            f"checkpoint {path.name} belongs to another training: parameters, network, shape of the rows, classes or "
            f"public data differ. Give the same ones, or another checkpoint; to start anew, remove it."
        )
    return found


def digest(*arrays: Any) -> str:
    """Return a digest of public arrays; any of them may be None."""
    whole = hashlib.sha256()
    for array in arrays:
        whole.update(b"none" if array is None else str(array.shape).encode() + array.tobytes())
    return whole.hexdigest()
