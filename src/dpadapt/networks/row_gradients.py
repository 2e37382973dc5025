"""Per-row gradients of a network and their clipped sum: `RowsLoss`, the class `Engine`, and `VmapEngine`.

An engine gives the norm of each row's gradient and the weighted sum of the gradients. `VmapEngine` computes every row's
gradient by `torch.func.vmap`, in chunks. It works for any module that vmap supports; `ghost_clipping` is faster for
known layers.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.func import functional_call, grad, vmap

from dpadapt.mechanisms.bounded import Bounded, clipped_term_sum
from dpadapt.rows import Shares, norm_bounds

Loss = Callable[[Any, Any], Any]
# A function that takes one factor per row and returns the sum of factor times gradient.
Combine = Callable[[NDArray[Any]], NDArray[Any]]
# Gradient norms of some rows, and their sums.
Part = tuple[NDArray[np.float64], Combine]

# Rows per chunk of `VmapEngine`, as far as memory allows. Larger chunks need more memory. Chosen on the EMNIST network
# with a batch of 500: a step took 0.171 CPU seconds in chunks of 64, and 0.257 with the whole batch at once.
_VMAP_CHUNK = 64
# Numbers in gradients of rows that are stored together, at most (64 MB). A larger limit takes more memory, and keeps
# chunks long for large networks. Chosen by hand.
STORED_GRADIENTS = 2**24
# Rows that pass through a network at once, at most; more take more memory. Chosen by hand.
FORWARD_ROWS = 1024
# Rows per chunk in float64, the largest that memory allows. Every row of a chunk must be rounded alike (`_full_parts`),
# so they are multiples of the number of rows that matrix products compute at once, usually 4 to 24; or there is one.
_VMAP_FIXED_CHUNKS = (48, 24, 1)


def cross_entropy(scores: Any, codes: Any) -> Any:
    """Return the cross-entropy of each row: scores (B, classes), codes (B,), losses (B,)."""
    return nn.functional.cross_entropy(scores, codes, reduction="none")


class RowsLoss:
    """A module with its per-row loss, and its trainable parameters as one flat vector.

    Parameters that require gradients are trainable: all float32, or all float64, as gradients then are. `loss` takes
    outputs and targets, and returns one loss per row.
    """

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        self.module = module
        self.loss = loss
        self.trainable = [weights for weights in module.parameters() if weights.requires_grad]
        self.dtype = self.trainable[0].dtype if self.trainable else torch.float32
        self.slices: dict[int, slice] = {}
        end = 0
        for weights in self.trainable:
            self.slices[id(weights)] = slice(end, end + weights.numel())
            end += weights.numel()
        self.n_parameters = end

    def __call__(self, inputs: Any, targets: Any) -> Any:
        """Return the loss of each row, shape (B,)."""
        return checked_losses(self.loss(self.module(inputs), targets), len(inputs))

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Switch gradients of the parameters off, so that a backward pass does not compute their sum over rows."""
        for weights in self.trainable:
            weights.requires_grad_(False)
        try:
            yield
        finally:
            for weights in self.trainable:
                weights.requires_grad_(True)

    def get(self) -> NDArray[np.float32]:
        """Return the trainable parameters as one flat vector in float32."""
        return np.asarray(torch.cat([weights.detach().reshape(-1) for weights in self.trainable]).float())

    def put(self, flat: NDArray[Any]) -> None:
        """Set the trainable parameters from one flat vector."""
        values = torch.from_numpy(np.asarray(flat, dtype=np.float32))
        with torch.no_grad():
            for weights in self.trainable:
                weights.copy_(values[self.slices[id(weights)]].reshape(weights.shape))

    def gradient(self, inputs: Any, targets: Any) -> NDArray[np.float32]:
        """Return the gradient of the mean loss as a flat vector. It is not clipped: for public rows only."""
        mean = self(inputs, targets).mean()
        parts = torch.autograd.grad(mean, self.trainable, allow_unused=True, materialize_grads=True)
        return np.asarray(torch.cat([part.reshape(-1) for part in parts]).float())


def checked_losses(losses: Any, n_rows: int) -> Any:
    """Return `losses` if there is exactly one per row; with any other shape a row could count several times."""
    shape = getattr(losses, "shape", None)
    if shape is None or tuple(shape) != (n_rows,):
        got = "no tensor" if shape is None else f"shape {tuple(shape)}"
        raise ValueError(
            f"loss must return one loss per row, shape ({n_rows},) for {n_rows} rows, got {got}. "
            f"Use reduction='none', and average over all axes but the first."
        )
    return losses


class Engine:
    """A method to compute per-row gradient norms and weighted sums of per-row gradients, `part_rows` at once."""

    name: str
    rows_loss: RowsLoss
    part_rows: int

    def parts(self, inputs: Any, targets: Any) -> Iterator[Part]:
        """Yield, for each part of the batch, its rows' gradient norms and a function that sums gradients times factors.

        The norms are upper bounds.
        """
        # A part may set a smaller `part_rows` for the batches that follow.
        size = self.part_rows
        for start in range(0, len(inputs), size):
            part = slice(start, start + size)
            yield self._part(inputs[part], targets[part])

    def _part(self, inputs: Any, targets: Any) -> Part:
        raise NotImplementedError


def clipped_gradient_sum(
    engine: Engine, inputs: Any, targets: Any, clip_norm: float, shares: Shares | None = None
) -> Bounded:
    """Return the flat sum of the rows' gradients, each clipped to `clip_norm`, times its share; 0 without rows."""
    # Claim: |sum - sum'|_2 <= clip_norm, by `clipped_term_sum`. In float64 the parts of a batch have one shape, so that
    # the gradient of a row does not depend on how many rows were drawn.
    # Not proved: that torch rounds a row alike in every place of a shape (tested). In float32, on Poisson samples,
    # inputs are assumed to be of moderate size.
    rows_loss = engine.rows_loss
    exact = rows_loss.dtype == torch.float64
    parts = _full_parts(engine, inputs, targets) if exact else engine.parts(inputs, targets)
    dtype = np.float64 if exact else np.float32
    return clipped_term_sum(parts, rows_loss.n_parameters, clip_norm, dtype=dtype, shares=shares)


def _full_parts(engine: Engine, inputs: Any, targets: Any) -> Iterator[Part]:
    """Yield the parts of a batch, the last one filled up with copies of a row, which add nothing.

    A matrix product is rounded differently in its last few rows, and where it has few rows. At a kink, such as that of
    ReLU at 0, a rounding error decides between two gradients. So if a part had as many rows as were drawn, one more row
    could change the gradients of others altogether: where the number of rows is private, every part has the same shape.
    """
    n_rows, size = len(inputs), engine.part_rows
    whole = n_rows - n_rows % size
    yield from engine.parts(inputs[:whole], targets[:whole])
    if whole < n_rows:
        last = [
            torch.cat([part[whole:], part[-1:].expand(size - (n_rows - whole), *part.shape[1:])])
            for part in (inputs, targets)
        ]
        for lengths, combine in engine.parts(*last):
            yield lengths[: n_rows - whole], partial(_combine_first, combine, size)


def _combine_first(combine: Combine, n_rows: int, factors: NDArray[Any]) -> NDArray[Any]:
    """Return the sum of factor times gradient over the first rows of a part of `n_rows` rows."""
    return combine(np.concatenate([factors, np.zeros(n_rows - len(factors), dtype=factors.dtype)]))


class VmapEngine(Engine):
    """Per-row gradients of any module that `torch.func.vmap` supports; each row is passed as a batch of one."""

    name = "vmap"

    def __init__(self, rows_loss: RowsLoss) -> None:
        self.rows_loss = rows_loss
        named = dict(rows_loss.module.named_parameters())
        self._trained = {name: weights for name, weights in named.items() if weights.requires_grad}
        self._fixed = {name: weights for name, weights in named.items() if not weights.requires_grad}
        self._fixed |= dict(rows_loss.module.named_buffers())

        def loss_of_one(trained: Any, fixed: Any, row: Any, target: Any) -> Any:
            outputs = functional_call(rows_loss.module, {**trained, **fixed}, (row[None],))
            return checked_losses(rows_loss.loss(outputs, target[None]), 1)[0]

        # Dropout and other random layers draw independently for each row.
        self._gradients = vmap(grad(loss_of_one), in_dims=(None, None, 0, 0), randomness="different")
        self.part_rows = max(1, min(_VMAP_CHUNK, STORED_GRADIENTS // max(1, rows_loss.n_parameters)))
        if rows_loss.dtype == torch.float64:
            self.part_rows = next(size for size in _VMAP_FIXED_CHUNKS if size <= self.part_rows)

    def _part(self, inputs: Any, targets: Any) -> Part:
        trained = {name: weights.detach() for name, weights in self._trained.items()}
        fixed = {name: weights.detach() for name, weights in self._fixed.items()}
        gradients = self._gradients(trained, fixed, inputs, targets)
        rows = torch.cat([gradients[name].flatten(1) for name in self._trained], dim=1).numpy()
        squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64, casting="same_kind")

        def combine(factors: NDArray[Any]) -> NDArray[Any]:
            # A row with factor 0 may hold infinities, and zero times infinity is not zero.
            rows[factors == 0] = 0
            return np.asarray(factors.astype(rows.dtype) @ rows)

        return norm_bounds(squares, rows.shape[1]), combine
