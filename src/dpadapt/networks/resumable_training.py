"""One private training from charge to end: calibrated, charged once, and resumed if it was killed."""

import hashlib
import io
import json
import os
import pickle
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dpadapt.accounting.calibrate import calibrate
from dpadapt.accounting.ledger import Ledger
from dpadapt.mechanisms.mechanism import Plan, Repeated, Sampled
from dpadapt.mechanisms.noise import Gaussian
from dpadapt.networks.private_training import Recipe, State, progress, train_privately
from dpadapt.networks.public_training import Pair
from dpadapt.networks.row_gradients import Engine

# Checkpoints: a training that was killed goes on where it was, and is charged once.
#
# A checkpoint holds parameters and moments, which follow from releases and public data, and the mark of the run in
# the ledger. How many releases are left is for the ledger to say, not for the checkpoint: a copied or stale
# checkpoint can't make more of them than were paid. Loading one runs no code.


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


_LABEL = "gradients"


@dataclass(frozen=True)
class Keeping:
    """Where a training's state is kept, every how many steps, and the fingerprint that it must have."""

    path: Path
    every: int
    fingerprint: str


def carry_out(
    ledger: Ledger,
    engine: Engine,
    recipe: Recipe,
    rows: Pair,
    *,
    prepare: Callable[[], None],
    public: Pair | None,
    public_batch_size: int,
    generator: np.random.Generator,
    keeping: Keeping | None,
    verbose: bool,
    look: Callable[[int, NDArray[np.float32]], None] | None = None,
) -> None:
    """Train the engine's module on private rows, spending the whole of `ledger`.

    `prepare` gives the module its public start; a training that goes on from a checkpoint has it already. `look` is
    shown the number of each finished step and the parameters that a fit would end with there.
    """
    earlier = None
    if keeping is not None and keeping.path.exists():
        earlier = load_checkpoint(keeping.path, keeping.fingerprint)
    if earlier is None:
        steps, rate = recipe.n_private, recipe.rate
        noise = calibrate(ledger.epsilon, ledger.delta, steps=steps, rate=rate, adjacency=ledger.adjacency)
        prepare()
        state = State(torch.from_numpy(engine.rows_loss.get()))
        run = ledger.start(_plan(recipe, noise), label=_LABEL, resumable=keeping is not None)
    else:
        noise, state = earlier.noise_multiplier, earlier.state
        run = ledger.resume(_plan(recipe, noise), earlier.mark, label=_LABEL)

    def save(state: State) -> None:
        if keeping is not None:
            save_checkpoint(keeping.path, Checkpoint(keeping.fingerprint, run.mark, noise, state))

    if earlier is None:
        save(state)

    def result() -> NDArray[np.float32]:
        return np.asarray((state.average if recipe.average else state.weights).numpy())

    with progress(len(recipe.mixing), verbose=verbose) as show:

        def tick(step: int) -> None:
            show(step)
            if look is not None:
                look(step, result())

        train_privately(
            run,
            engine,
            rows,
            state,
            recipe,
            public=public,
            public_batch_size=public_batch_size,
            generator=generator,
            block=1 if keeping is None else keeping.every,
            save=None if keeping is None else save,
            tick=tick,
        )
    engine.rows_loss.put(result())


def _plan(recipe: Recipe, noise_multiplier: float) -> Plan:
    mechanism = Gaussian(noise_multiplier)
    if recipe.rate < 1:
        return Sampled(mechanism, recipe.rate, recipe.n_private)
    return Repeated(mechanism, recipe.n_private)
