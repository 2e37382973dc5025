"""Training on private rows: clipped gradient sums through the ledger, mixed with public gradients if asked.

Everything that is kept between steps (parameters, averages, moments) follows from releases and public data.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dpadapt import checks
from dpadapt.accounting.ledger import Run
from dpadapt.errors import PrivacyError
from dpadapt.mechanisms.bounded import Bounded
from dpadapt.mechanisms.mechanism import Sampled
from dpadapt.networks.public_training import public_batches
from dpadapt.networks.row_gradients import Engine, clipped_gradient_sum

# How much the private gradient weighs at each step of first-order mirror descent: Eq. (1) of paper 2.
#
# The paper has alpha_t = cos(pi t / 2K) and prints values of K far below the number of steps. Taken at its word,
# alpha turns negative after K steps, and the training would climb the private loss. Two readings make sense:
#
# * clamped at zero: after K steps the training goes on with public data alone (K as printed); * a slow decay: K of
# twice the number of steps, so that alpha ends at 0.71, or a floor under it.


def mixing_weights(n_steps: int, *, decay_steps: int | None = None, floor: float = 0.0) -> NDArray[np.float64]:
    """Return the weight of the private gradient at each step; the public one has the rest.

    Parameters
    ----------
    n_steps : int
    decay_steps : int, optional
        K: after so many steps the weight has come down to `floor`. Default: twice `n_steps`.
    floor : float, default=0.0
        The least weight, below 1.

    Examples
    --------
    >>> mixing_weights(4, decay_steps=2).round(2)
    array([1.  , 0.71, 0.  , 0.  ])
    >>> mixing_weights(4, decay_steps=2, floor=0.5).round(2)
    array([1.  , 0.71, 0.5 , 0.5 ])
    """
    n_steps = checks.count(n_steps, "n_steps")
    K = 2 * n_steps if decay_steps is None else checks.count(decay_steps, "decay_steps")
    if isinstance(floor, bool) or not isinstance(floor, int | float) or not 0 <= floor < 1:
        raise ValueError(f"floor must lie in [0, 1), got {floor!r}.")
    steps = np.arange(n_steps)
    # Beyond K the cosine is negative; it would turn the private gradient round.
    cosine = np.where(steps < K, np.cos(math.pi * np.minimum(steps, K) / (2 * K)), 0.0)
    return np.maximum(cosine, floor)


OPTIMIZERS = ("sgd", "adam")


@dataclass(frozen=True, eq=False)
class Recipe:
    """What a private training does, all of it public.

    Parameters
    ----------
    rate : float
        Probability with which each row takes part in a step.
    n_rows : float
        A public number of rows.
    clip_norm : float
    learning_rate : float
    optimizer : {"sgd", "adam"}
    momentum : float
    average : float
        Decay of the average over iterates; 0 keeps the last one.
    mixing : ndarray
        Weight of the private gradient at each step. Where it is 0, no private row is touched.
    """

    rate: float
    n_rows: float
    clip_norm: float
    learning_rate: float
    optimizer: str
    momentum: float
    average: float
    mixing: NDArray[np.float64]

    @property
    def n_private(self) -> int:
        """How many steps release something: they come first, as the weight never rises from 0."""
        return int(np.count_nonzero(self.mixing))


@dataclass(eq=False)
class State:
    """Where a training stands: the number of the next step, the iterate, its average, and the optimizer's moments."""

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
        if recipe.optimizer == "sgd":
            first.mul_(recipe.momentum).add_(gradient)
            self.weights.sub_(recipe.learning_rate * first)
        else:
            first.mul_(recipe.momentum).add_(gradient, alpha=1 - recipe.momentum)
            second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
            t = self.step + 1
            scaled = (second / (1 - 0.999**t)).sqrt_().add_(1e-8)
            self.weights.sub_(recipe.learning_rate / (1 - recipe.momentum**t) * first / scaled)
        # Young averages forget quickly, so that the start does not weigh on them.
        decay = min(recipe.average, self.step / (self.step + 10))
        self.average.mul_(decay).add_(self.weights, alpha=1 - decay)
        self.step += 1


def train_privately(
    run: Run,
    engine: Engine,
    rows: tuple[Any, Any],
    state: State,
    recipe: Recipe,
    *,
    public: tuple[Any, Any] | None,
    public_batch_size: int,
    generator: np.random.Generator,
    block: int = 1,
    save: Callable[[State], None] | None = None,
    tick: Callable[[int], None] = lambda step: None,
) -> None:
    """Carry out what is left of a training; `state` holds its end.

    Parameters
    ----------
    run : Run
        Charged for the recipe's private steps, some of which may have been made before.
    engine : Engine
    rows : pair of inputs and targets
        Private.
    state : State
        Changed in place.
    recipe : Recipe
    public : pair of inputs and targets, optional
        Needed where the mixing weight is below 1.
    public_batch_size : int
    generator : Generator
        For the order of public batches.
    block : int, default=1
        With `save`: how many releases are reserved at once, and then saved.
    save : callable, optional
        Takes the state, keeps it durably. The run must be resumable.
    tick : callable
        Told the number of each finished step.
    """
    others = None if public is None else public_batches(len(public[0]), public_batch_size, generator)
    # Releases that were reserved before a crash count as made, so the steps that they belonged to are over.
    state.step = max(state.step, recipe.n_private - run.left)
    batches = _batches(run, len(rows[0]))
    reserved = 0
    while state.step < len(recipe.mixing):
        at = state.step
        if save is not None and reserved == 0 and at < recipe.n_private:
            # First the ledger, then the releases, then the checkpoint: a crash may lose steps but can't repeat them.
            reserved = min(block, recipe.n_private - at)
            run.reserve(reserved)
        engine.rows_loss.put(state.weights.numpy())
        weight = float(recipe.mixing[at])
        gradient = torch.zeros_like(state.weights)
        if weight > 0:
            batch = next(batches)
            summed = _private_sum(engine, rows[0][batch], rows[1][batch], recipe.clip_norm)
            # By the expected number of rows: the drawn one is private.
            noisy = run.release(summed) / (recipe.rate * recipe.n_rows)
            gradient += weight * torch.from_numpy(noisy.astype(np.float32))
        if weight < 1 and others is not None and public is not None:
            chosen = next(others)
            found = engine.rows_loss.gradient(public[0][chosen], public[1][chosen])
            gradient += (1 - weight) * torch.from_numpy(found)
        state.update(gradient, recipe)
        tick(state.step)
        if save is not None and at < recipe.n_private:
            reserved -= 1
            if reserved == 0:
                save(state)


def _private_sum(engine: Engine, inputs: Any, targets: Any, clip_norm: float) -> Bounded:
    """Return the clipped sum, or say that it failed, but not how: torch quotes targets that a loss does not know."""
    try:
        return clipped_gradient_sum(engine, inputs, targets, clip_norm)
    except Exception:
        pass
    # Not inside the handler: the original error would hang on as this one's context.
    raise PrivacyError(
        "module or loss failed on private rows, though not on those of the trial; what it said is not shown. Check the "
        "range of the targets. What was charged stays spent."
    )


def _batches(run: Run, n_rows: int) -> Iterator[Any]:
    if isinstance(run.plan, Sampled):
        for index in run.batches(n_rows):
            yield torch.from_numpy(index)
    else:
        while True:
            yield slice(None)


# A progress bar that shows steps alone: a private loss would be a release.


@contextmanager
def progress(total: int, *, verbose: bool) -> Iterator[Callable[[int], None]]:
    """Give a function that takes the number of finished steps."""
    if not verbose:
        yield lambda step: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("private training"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns) as bar:
        task = bar.add_task("steps", total=total)
        yield lambda step: bar.update(task, completed=step)
