"""Training on public rows alone: ordinary, unprotected, stopped where held-out public rows like it best."""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dpadapt.networks.rows_loss import RowsLoss

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
