"""One private training from charge to end: calibrated, charged once, and resumed if it was killed."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from dpadapt.accounting.calibrate import calibrate
from dpadapt.accounting.ledger import Ledger
from dpadapt.mechanisms.gaussian import Gaussian
from dpadapt.mechanisms.plan import Plan, Repeated, Sampled
from dpadapt.networks.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from dpadapt.networks.gradient import Engine
from dpadapt.networks.private_training import Recipe, State, train_privately
from dpadapt.networks.progress import progress
from dpadapt.networks.tensors import Pair

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
