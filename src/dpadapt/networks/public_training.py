"""Training on public rows: tensors, held-out rows, Adam with early stopping, and temperature scaling.

Public rows are not protected, so this is ordinary training. The temperature is one number, fitted on held-out public
rows, that calibrates a network's probabilities: clipping leaves scores too large or too small, and dividing them by a
temperature corrects that without changing a prediction. Guo, Pleiss, Sun and Weinberger (2017, arXiv:1706.04599).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from dpadapt.learning.losses import SoftmaxLoss
from dpadapt.networks.row_gradients import FORWARD_ROWS, RowsLoss

Pair = tuple[Any, Any]

# How often the held-out loss is computed during a public training. More often finds a better stopping point and costs
# time. Chosen by hand.
_HELD_OUT_CHECKS = 25
# The temperature lies between 1/50 and 50; this is the logarithm of the limit. A limit keeps the search bounded.
# Chosen by hand.
_LOG_MOST_TEMPERATURE = math.log(50.0)


@dataclass(frozen=True, eq=False)
class PublicRows:
    """Labelled public rows as inputs and targets: for training, and held out for early stopping and the temperature."""

    training: Pair
    held_out: Pair


def as_inputs(X: NDArray[Any], words: int | None, name: str, *, dtype: Any = np.float32) -> Any:
    """Return rows in `dtype`, or as word numbers below `words`; an error about a word does not show it."""
    if words is None:
        # A number beyond float32 becomes infinite, and its row a null row when gradients are clipped.
        with np.errstate(over="ignore"):
            return torch.from_numpy(np.ascontiguousarray(X, dtype=dtype))
    if not bool(np.all((X >= 0) & (words > X) & (np.floor(X) == X))):
        raise ValueError(
            f"{name} must hold whole numbers from 0 to {words - 1}, as the module's embedding has {words} words."
        )
    return torch.from_numpy(np.ascontiguousarray(X, dtype=np.int64))


def as_targets(y: NDArray[Any], name: str, *, dtype: Any = np.float32) -> Any:
    """Return targets as int64 if they are integers or booleans, else in `dtype`."""
    if y.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold numbers for a custom loss; it holds text. Give classes= too.")
    kind = dtype if y.dtype.kind == "f" else np.int64
    with np.errstate(over="ignore"):
        return torch.from_numpy(np.ascontiguousarray(y, dtype=kind))


def split_rows(inputs: Any, targets: Any, share: float, generator: np.random.Generator) -> PublicRows:
    """Return public rows with a random share of them held out; at least one row in each part."""
    n_rows = len(inputs)
    order = torch.from_numpy(generator.permutation(n_rows))
    cut = min(max(1, round(share * n_rows)), n_rows - 1)
    held_out, training = order[:cut], order[cut:]
    return PublicRows((inputs[training], targets[training]), (inputs[held_out], targets[held_out]))


def public_batches(n_rows: int, batch_size: int, generator: np.random.Generator) -> Any:
    """Yield the row numbers of batches, endlessly; each epoch uses a row at most once."""
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
    """Train by Adam with early stopping: keep the averaged parameters with the least held-out loss.

    The module of `rows_loss` is changed in place. The learning rate falls to zero along a cosine.
    """
    optimizer = torch.optim.Adam(rows_loss.trainable, lr=learning_rate)
    average = rows_loss.get().astype(np.float64)
    best, best_loss = rows_loss.get(), held_out_loss(rows_loss, *held_out)
    every = max(1, n_steps // _HELD_OUT_CHECKS)
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
    """Return the mean loss of public rows in evaluation mode."""
    rows_loss.module.eval()
    try:
        with torch.no_grad():
            losses = [
                rows_loss(inputs[start : start + FORWARD_ROWS], targets[start : start + FORWARD_ROWS])
                for start in range(0, len(inputs), FORWARD_ROWS)
            ]
        return float(torch.cat(losses).double().mean())
    finally:
        rows_loss.module.train()


def outputs_of(module: Any, inputs: Any) -> NDArray[Any]:
    """Return the outputs of a module in evaluation mode."""
    module.eval()
    with torch.no_grad():
        parts = [module(inputs[start : start + FORWARD_ROWS]) for start in range(0, len(inputs), FORWARD_ROWS)]
    return np.asarray(torch.cat(parts).numpy())


def fit_temperature(scores: NDArray[np.float64], codes: NDArray[np.int64]) -> float:
    """Return the temperature with the least cross-entropy on these public rows, between 1/50 and 50.

    Without a penalty, a few rows that are all classified correctly would drive the temperature to zero. The penalty is
    half the squared logarithm of the temperature, divided by the number of rows.
    """
    best = minimize_scalar(
        lambda power: SoftmaxLoss().value(scores / math.exp(power), codes) + power**2 / (2 * len(codes)),
        bounds=(-_LOG_MOST_TEMPERATURE, _LOG_MOST_TEMPERATURE),
        method="bounded",
    )
    return math.exp(float(best.x))
