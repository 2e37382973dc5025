"""A whole private training: calibrated, charged once, and resumed from a checkpoint if it was killed.

A checkpoint holds parameters and moments, which follow from releases and public data, and the mark of the run in the
ledger. The ledger, not the checkpoint, holds the number of releases that are left: a copied or stale checkpoint can't
make more releases than were paid for. Loading a checkpoint runs no code.
"""

import hashlib
import io
import json
import pickle
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dpadapt.accounting.calibrate import calibrate
from dpadapt.accounting.ledger import Ledger
from dpadapt.disk import write_atomically
from dpadapt.mechanisms.mechanism import Gaussian, Plan, Repeated, Sampled
from dpadapt.networks.private_training import Recipe, State, progress, train_privately
from dpadapt.networks.public_training import Pair
from dpadapt.networks.row_gradients import Engine
from dpadapt.rows import Shares, Unit

_CHECKPOINT_FORMAT = "dpadapt network checkpoint 1"
_RUN_LABEL = "gradients"


@dataclass(frozen=True)
class Keeping:
    """Where checkpoints are kept, the number of steps between them, and the fingerprint that they must have."""

    path: Path
    every: int
    fingerprint: str


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The content of a checkpoint.

    Parameters
    ----------
    fingerprint : str
        Digest of the public facts that must not change.
    mark : str
        Mark of the run in the ledger.
    noise_multiplier : float
        Noise multiplier that the run was charged for.
    state : State
    """

    fingerprint: str
    mark: str
    noise_multiplier: float
    state: State


def fingerprint(facts: list[Any]) -> str:
    """Return a digest of public facts. No fact may be private: a short secret can be guessed from its digest."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=repr).encode()).hexdigest()


def digest(*arrays: Any) -> str:
    """Return a digest of public arrays; any of them may be None."""
    whole = hashlib.sha256()
    for array in arrays:
        whole.update(b"none" if array is None else str(array.shape).encode() + array.tobytes())
    return whole.hexdigest()


def digest_of_function(function: Any, name: str) -> str:
    """Return a digest of a function's name and code, or of an object with its state.

    A function without a name of its own is refused: another process could not tell whether it is the same one.
    """
    try:
        whole = hashlib.sha256(pickle.dumps(function))
    except (pickle.PicklingError, AttributeError, TypeError):
        raise ValueError(
            f"checkpoint needs a {name} that can be recognised after a crash: a function defined at the top of a "
            f"module, or an object that can be pickled. A lambda or a function inside another one is neither."
        ) from None
    while isinstance(function, partial):
        function = function.func
    code = getattr(function, "__code__", None)
    if code is not None:
        whole.update(repr((_of_code(code), function.__defaults__, function.__kwdefaults__)).encode())
    return whole.hexdigest()


def _of_code(code: Any) -> tuple[Any, ...]:
    """Return what a function computes with: instructions, names and constants, also of functions inside it."""

    def constant(value: Any) -> Any:
        if isinstance(value, frozenset):
            return sorted(map(repr, value))  # its order differs between processes
        return _of_code(value) if hasattr(value, "co_code") else repr(value)

    return code.co_code, code.co_names, code.co_varnames, [constant(value) for value in code.co_consts]


def require_writable(path: Path) -> None:
    """Raise a ValueError if no checkpoint can be written to `path`, before anything is charged."""
    try:
        if path.is_dir():
            raise IsADirectoryError("it is a folder")
        with tempfile.NamedTemporaryFile(prefix=f".{path.name}.", dir=path.parent):
            pass
    except OSError as error:
        raise ValueError(
            f"checkpoint {path.name} can't be written: {error.strerror or error}. Nothing was spent. Give a path in a "
            f"folder that exists and can be written to."
        ) from None


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint atomically."""
    state = checkpoint.state
    content = {
        "format": _CHECKPOINT_FORMAT,
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
    write_atomically(path, buffer.getbuffer())


def load_checkpoint(path: Path, expected: str) -> Checkpoint:
    """Read a checkpoint; its fingerprint must be `expected`."""
    try:
        content = torch.load(path, weights_only=True)
        if content["format"] != _CHECKPOINT_FORMAT:
            raise ValueError
        state = State(content["weights"], int(content["step"]), content["average"], list(content["moments"]))
        noise_multiplier = float(content["noise_multiplier"])
        checkpoint = Checkpoint(str(content["fingerprint"]), str(content["mark"]), noise_multiplier, state)
    except (OSError, RuntimeError, ValueError, TypeError, KeyError, EOFError, pickle.UnpicklingError):
        raise ValueError(
            f"checkpoint {path.name} can't be read: it is damaged, or no checkpoint of this version. Remove it to "
            f"start a new training; the charge of the old one stays spent."
        ) from None
    if checkpoint.fingerprint != expected:
        raise ValueError(
            f"checkpoint {path.name} belongs to another training: parameters, network, shape of the rows, classes or "
            f"public data differ. Give the same ones, or another checkpoint path. To start a new training, remove it."
        )
    return checkpoint


def carry_out(
    ledger: Ledger,
    engine: Engine,
    recipe: Recipe,
    rows: Pair,
    *,
    shares: Shares | None = None,
    prepare: Callable[[], None],
    public: Pair | None,
    public_batch_size: int,
    generator: np.random.Generator,
    keeping: Keeping | None,
    verbose: bool,
    look: Callable[[int, NDArray[np.float32]], None] | None = None,
) -> None:
    """Train the engine's module on private rows, spending the whole budget of `ledger`.

    `shares` says how much each row counts, if the ledger protects persons.
    `prepare` trains the module on public rows first; a training that is resumed from a checkpoint does not call it.
    `look` is called with the number of each finished step and the parameters with which a fit would end there.
    """
    earlier = None
    if keeping is not None and keeping.path.exists():
        earlier = load_checkpoint(keeping.path, keeping.fingerprint)
    if keeping is not None:
        require_writable(keeping.path)
    if earlier is None:
        steps, rate = recipe.n_private, recipe.rate
        noise = calibrate(ledger.epsilon, ledger.delta, steps=steps, rate=rate, adjacency=ledger.adjacency)
        prepare()
        state = State(torch.from_numpy(engine.rows_loss.get()))
        run = ledger.start(_plan(recipe, noise, ledger.unit), label=_RUN_LABEL, resumable=keeping is not None)
    else:
        noise, state = earlier.noise_multiplier, earlier.state
        run = ledger.resume(_plan(recipe, noise, ledger.unit), earlier.mark, label=_RUN_LABEL)

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
            shares=shares,
            public=public,
            public_batch_size=public_batch_size,
            generator=generator,
            block=1 if keeping is None else keeping.every,
            save=None if keeping is None else save,
            tick=tick,
        )
    engine.rows_loss.put(result())


def _plan(recipe: Recipe, noise_multiplier: float, unit: Unit) -> Plan:
    """Return the plan of all releases: Poisson samples of rows or persons, or all rows if the sampling rate is 1."""
    mechanism = Gaussian(noise_multiplier)
    if recipe.rate < 1:
        return Sampled(mechanism, recipe.rate, recipe.n_private, unit)
    return Repeated(mechanism, recipe.n_private)
