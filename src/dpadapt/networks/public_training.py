"""Training on public rows alone: ordinary, unprotected, stopped where held-out public rows like it best."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from dpadapt.networks.row_gradients import RowsLoss

# How often the held-out loss is looked at.
_LOOKS = 25


def public_batches(n_rows: int, batch_size: int, generator: np.random.Generator) -> Any:
    """Yield row numbers of batches, each row once per epoch, without end."""
    batch_size = min(batch_size, n_rows)
    while True:
        order = torch.from_numpy(generator.permutation(n_rows))
        for start in range(0, n_rows - batch_size + 1, batch_size):
            yield order[start : start + batch_size]


def train_publicly(
    rows_loss: RowsLoss,
    rows: tuple[Any, Any],
    held_out: tuple[Any, Any],
    *,
    n_steps: int,
    batch_size: int,
    learning_rate: float,
    generator: np.random.Generator,
) -> None:
    """Train by Adam and leave the parameters at their average of the stretch with the least held-out loss.

    Parameters
    ----------
    rows_loss : RowsLoss
        Changed in place.
    rows, held_out : pairs of inputs and targets
        Public.
    n_steps, batch_size : int
    learning_rate : float
        At the start; it falls to zero along a cosine.
    generator : Generator
        For the order of the batches.
    """
    optimizer = torch.optim.Adam(rows_loss.trainable, lr=learning_rate)
    average = rows_loss.get().astype(np.float64)
    best, best_loss = rows_loss.get(), held_out_loss(rows_loss, *held_out)
    every = max(1, n_steps // _LOOKS)
    for step, batch in zip(range(1, n_steps + 1), public_batches(len(rows[0]), batch_size, generator), strict=False):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * 0.5 * (1 + math.cos(math.pi * (step - 1) / n_steps))
        optimizer.zero_grad()
        rows_loss(rows[0][batch], rows[1][batch]).mean().backward()
        optimizer.step()
        decay = min(0.99, step / (step + 9))
        average += (1 - decay) * (rows_loss.get() - average)
        if step % every == 0 or step == n_steps:
            current = rows_loss.get()
            rows_loss.put(average)
            loss = held_out_loss(rows_loss, *held_out)
            if loss < best_loss:
                best, best_loss = rows_loss.get(), loss
            rows_loss.put(current)
    optimizer.zero_grad()
    rows_loss.put(best)


def held_out_loss(rows_loss: RowsLoss, inputs: Any, targets: Any) -> float:
    """Return the mean loss of public rows, with dropout and the like switched off."""
    rows_loss.module.eval()
    try:
        with torch.no_grad():
            losses = [
                rows_loss(inputs[start : start + 1024], targets[start : start + 1024])
                for start in range(0, len(inputs), 1024)
            ]
        return float(torch.cat(losses).double().mean())
    finally:
        rows_loss.module.train()


def split_public(n_rows: int, share: float, generator: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return which public rows to train on and which to hold out; at least one of each."""
    order = generator.permutation(n_rows)
    cut = min(max(1, round(share * n_rows)), n_rows - 1)
    return order[cut:], order[:cut]


# Temperature scaling: one number, fitted on held-out public rows, that makes a network's probabilities honest.
#
# Clipping leaves a network's scores too large or too small; dividing them by a temperature corrects that and changes
# no prediction. Guo, Pleiss, Sun and Weinberger (2017, arXiv:1706.04599).


_LARGEST = math.log(50.0)


def log_loss(scores: NDArray[np.float64], codes: NDArray[np.int64], temperature: float = 1.0) -> float:
    """Return the mean cross-entropy of scores over a temperature."""
    scaled = scores / temperature
    return float(np.mean(logsumexp(scaled, axis=1) - scaled[np.arange(len(codes)), codes]))


def fit_temperature(scores: NDArray[np.float64], codes: NDArray[np.int64]) -> float:
    """Return the temperature with the least cross-entropy on these public rows, between 1/50 and 50.

    A few rows that are all classified right would ask for zero, so that one over the rows' number times half the
    squared logarithm is added.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> codes = random.integers(0, 3, 5000)
    >>> scores = np.eye(3)[codes] + random.gumbel(size=(5000, 3))
    >>> round(fit_temperature(5 * scores, codes) / fit_temperature(scores, codes), 1)
    5.0
    """
    found = minimize_scalar(
        lambda power: log_loss(scores, codes, math.exp(power)) + power**2 / (2 * len(codes)),
        bounds=(-_LARGEST, _LARGEST),
        method="bounded",
    )
    return math.exp(float(found.x))


# Rows and targets as tensors, and the public rows that are trained on and held out.


Pair = tuple[Any, Any]


@dataclass(frozen=True, eq=False)
class PublicRows:
    """Labelled public rows in two parts: inputs and targets to train on, and others to choose and calibrate by."""

    training: Pair
    held_out: Pair


def as_inputs(X: NDArray[Any], words: int | None, name: str) -> Any:
    """Return rows as float32, or as word numbers below `words`; a wrong word is refused, not shown."""
    if words is None:
        # A number beyond float32 becomes infinite, and its row a null row when gradients are clipped.
        with np.errstate(over="ignore"):
            return torch.from_numpy(np.ascontiguousarray(X, dtype=np.float32))
    if not bool(np.all((X >= 0) & (words > X) & (np.floor(X) == X))):
        raise ValueError(
            f"{name} must hold whole numbers from 0 to {words - 1}, as the module's embedding has {words} words."
        )
    return torch.from_numpy(np.ascontiguousarray(X, dtype=np.int64))


def as_targets(y: NDArray[Any], name: str) -> Any:
    """Return targets as whole numbers if they are, else as float32."""
    if y.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold numbers for a loss of your own; it holds text. Give classes= too.")
    kind = np.float32 if y.dtype.kind == "f" else np.int64
    with np.errstate(over="ignore"):
        return torch.from_numpy(np.ascontiguousarray(y, dtype=kind))


def split_rows(inputs: Any, targets: Any, share: float, generator: np.random.Generator) -> PublicRows:
    """Return public rows with a share of them held out."""
    training, held_out = (torch.from_numpy(part) for part in split_public(len(inputs), share, generator))
    return PublicRows((inputs[training], targets[training]), (inputs[held_out], targets[held_out]))


def outputs_of(module: Any, inputs: Any) -> NDArray[Any]:
    """Return what a module says of rows, in parts, dropout and the like switched off."""
    module.eval()
    with torch.no_grad():
        parts = [module(inputs[start : start + 1024]) for start in range(0, len(inputs), 1024)]
    return np.asarray(torch.cat(parts).numpy())
