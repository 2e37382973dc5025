"""Training on private rows (DP-SGD): clipped gradient sums through the ledger, optionally mixed with public gradients.

Everything kept between steps (parameters, averages, moments) is computed from releases and public data.

Mixing is first-order mirror descent, Eq. (1) of paper 2. The paper has alpha_t = cos(pi t / 2K) and prints values of K
far below the number of steps. Taken literally, alpha is negative after K steps and the training would increase the
private loss. Three readings make sense: alpha clamped at zero, so that the training continues on public data alone
after K steps (K as printed); a slow decay, with K twice the number of steps, so that alpha ends at 0.71, or with a
floor under alpha; or t counts epochs, so that alpha hardly falls (K times the steps of an epoch as `decay_steps`).

A training is calibrated, charged once, and resumed from a checkpoint if it was killed. A checkpoint holds parameters
and moments, which follow from releases and public data, and the mark of the run in the ledger. The ledger, not the
checkpoint, holds the number of releases that are left: a copied or stale checkpoint can't make more releases than were
paid for. Loading a checkpoint runs no code.
"""

import hashlib
import io
import json
import math
import pickle
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dpadapt import checks
from dpadapt.accounting.calibrate import calibrate
from dpadapt.accounting.ledger import Ledger, Run
from dpadapt.disk import write_atomically
from dpadapt.errors import PrivacyError
from dpadapt.mechanisms.bounded import Bounded
from dpadapt.mechanisms.mechanism import Gaussian, Plan, Repeated, Sampled
from dpadapt.networks.public_training import Pair, public_batches
from dpadapt.networks.row_gradients import Engine, clipped_gradient_sum
from dpadapt.rows import Shares, Unit

OPTIMIZERS = ("sgd", "adam")
SCHEDULES = ("constant", "cosine")
_CHECKPOINT_FORMAT = "dpadapt network checkpoint 1"
_RUN_LABEL = "gradients"

# Steps over which the average over iterates grows to its full memory: the decay at step t is at most t / (t + 10). A
# larger value forgets the start for longer. Chosen by hand.
_AVERAGE_WARM_UP = 10


def mixing_weights(n_steps: int, *, decay_steps: int | None = None, floor: float = 0.0) -> NDArray[np.float64]:
    """Return the weight alpha of the private gradient at each step; the public gradient has 1 - alpha.

    Parameters
    ----------
    n_steps : int
    decay_steps : int, optional
        K: number of steps after which the weight is `floor`. Default: twice `n_steps`.
    floor : float, default=0.0
        Least weight, below 1.

    Examples
    --------
    >>> mixing_weights(4, decay_steps=2).round(2)
    array([1.  , 0.71, 0.  , 0.  ])
    >>> mixing_weights(4, decay_steps=2, floor=0.5).round(2)
    array([1.  , 0.71, 0.5 , 0.5 ])
    """
    n_steps = checks.count(n_steps, "n_steps")
    K = 2 * n_steps if decay_steps is None else checks.count(decay_steps, "decay_steps")
    floor = checks.share(floor, "floor")
    steps = np.arange(n_steps)
    # After K steps the cosine is negative, which would reverse the private gradient.
    cosine = np.where(steps < K, np.cos(math.pi * np.minimum(steps, K) / (2 * K)), 0.0)
    return np.maximum(cosine, floor)


@dataclass(frozen=True, eq=False)
class Recipe:
    """The settings of a private training, all of them public.

    Each row, or each person, takes part in a step with probability `rate`; there are `n_rows` of them. `average` is the
    decay of the average over iterates, 0 to keep the last one; `mixing` the weight of the private gradient at each
    step, where steps with weight 0 use no private row. With `clip_released` the released mean gradient is clipped to
    `clip_norm` again, noise included (Appendix F.2 of paper 2).
    """

    rate: float
    n_rows: float
    clip_norm: float
    learning_rate: float
    optimizer: str
    momentum: float
    average: float
    mixing: NDArray[np.float64]
    clip_released: bool = False
    schedule: str = "constant"

    def rate_at(self, step: int) -> float:
        """Return the learning rate of a step, a function of public numbers alone.

        "cosine" is `learning_rate` times (1 + cos(pi step / n_steps)) / 2, which falls to nearly 0.
        """
        if self.schedule == "constant":
            return self.learning_rate
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * step / len(self.mixing)))

    @property
    def n_private(self) -> int:
        """Number of steps with a release. They come before all others: mixing weights never rise again from 0."""
        return int(np.count_nonzero(self.mixing))


@dataclass(eq=False)
class State:
    """The state of a training: the number of the next step, the iterate, its average, and the optimizer's moments."""

    weights: Any
    step: int = 0
    average: Any = None
    moments: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.average is None:
            self.average = self.weights.clone()
        if not self.moments:
            self.moments = [torch.zeros_like(self.weights), torch.zeros_like(self.weights)]

    def update(self, gradient: Any, recipe: Recipe) -> None:
        """Take one step along `gradient`."""
        first, second = self.moments
        rate = recipe.rate_at(self.step)
        if recipe.optimizer == "sgd":
            first.mul_(recipe.momentum).add_(gradient)
            self.weights.sub_(rate * first)
        else:
            first.mul_(recipe.momentum).add_(gradient, alpha=1 - recipe.momentum)
            second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
            t = self.step + 1
            scaled = (second / (1 - 0.999**t)).sqrt_().add_(1e-8)
            self.weights.sub_(rate / (1 - recipe.momentum**t) * first / scaled)
        # Early averages forget quickly, so that they do not depend on the start.
        decay = min(recipe.average, self.step / (self.step + _AVERAGE_WARM_UP))
        self.average.mul_(decay).add_(self.weights, alpha=1 - decay)
        self.step += 1


def train_privately(
    run: Run,
    engine: Engine,
    rows: tuple[Any, Any],
    state: State,
    recipe: Recipe,
    *,
    shares: Shares | None = None,
    public: tuple[Any, Any] | None,
    public_batch_size: int,
    generator: np.random.Generator,
    block: int = 1,
    save: Callable[[State], None] | None = None,
    tick: Callable[[int], None] = lambda step: None,
) -> None:
    """Run the remaining steps of a training; `state` holds the result.

    `run` was charged for the recipe's private steps, some of which may have been made before. `shares` says how much
    each private row counts, if persons are protected. Public rows are needed if a mixing weight is below 1, and
    `generator` shuffles them. `save` stores the state durably after every `block` releases, which are reserved together
    in a resumable run. `tick` is called with the number of each finished step.
    """
    batches_of_public = None if public is None else public_batches(len(public[0]), public_batch_size, generator)
    # Releases that were reserved before a crash count as made, so their steps are over.
    state.step = max(state.step, recipe.n_private - run.left)
    batches = run.batches(len(rows[0]), shares)
    reserved = 0
    while state.step < len(recipe.mixing):
        at = state.step
        if save is not None and reserved == 0 and at < recipe.n_private:
            # First the ledger, then the releases, then the checkpoint: a crash may lose steps but never repeats them.
            reserved = min(block, recipe.n_private - at)
            run.reserve(reserved)
        engine.rows_loss.put(state.weights.numpy())
        weight = float(recipe.mixing[at])
        gradient = torch.zeros_like(state.weights)
        if weight > 0:
            summed = next(batches).of(partial(_private_sum, engine, rows, shares, recipe.clip_norm))
            # Divided by the expected number of rows or persons in a batch: the actual one is private.
            noisy = run.release(summed) / (recipe.rate * recipe.n_rows)
            if recipe.clip_released:
                # Post-processing: a mean of clipped gradients is never longer than clip_norm.
                noisy *= min(1.0, recipe.clip_norm / max(float(np.linalg.norm(noisy)), 1e-300))
            gradient += weight * torch.from_numpy(noisy.astype(np.float32))
        if weight < 1 and batches_of_public is not None and public is not None:
            chosen = next(batches_of_public)
            public_gradient = engine.rows_loss.gradient(public[0][chosen], public[1][chosen])
            gradient += (1 - weight) * torch.from_numpy(public_gradient)
        state.update(gradient, recipe)
        tick(state.step)
        if save is not None and at < recipe.n_private:
            reserved -= 1
            if reserved == 0:
                save(state)


def _private_sum(engine: Engine, rows: tuple[Any, Any], shares: Shares | None, clip_norm: float, index: Any) -> Bounded:
    """Return the clipped sum of the rows at `index`.

    An error is raised without torch's message, which may quote private targets.
    """
    counted = None if shares is None else shares.take(index)
    if isinstance(index, np.ndarray):
        index = torch.from_numpy(index)
    try:
        # A warning may hold the size of the batch.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return clipped_gradient_sum(engine, rows[0][index], rows[1][index], clip_norm, counted)
    except Exception:
        pass
    # Raised outside the handler: the original error would be kept as this error's context.
    raise PrivacyError(
        "module or loss failed on private rows, though not before the charge; its message is not shown, as it may "
        "quote private values. The charge stays spent."
    )


@contextmanager
def progress(total: int, *, verbose: bool) -> Iterator[Callable[[int], None]]:
    """Show a progress bar, and give the function that sets its number of finished steps.

    It shows only steps: a private loss would be a release.
    """
    if not verbose:
        yield lambda step: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("private training"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns) as bar:
        task = bar.add_task("steps", total=total)
        yield lambda step: bar.update(task, completed=step)


# Checkpoints, and the whole training.


@dataclass(frozen=True)
class Keeping:
    """Where checkpoints are kept, the number of steps between them, and the fingerprint that they must have."""

    path: Path
    every: int
    fingerprint: str


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The content of a checkpoint.

    `fingerprint` is a digest of the public facts that must not change, `mark` is the mark of the run in the ledger, and
    `noise_multiplier` is the one that the run was charged for.
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
