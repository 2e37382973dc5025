"""Per-row gradients by `torch.func.vmap`, in chunks: slower than ghost clipping, for any module that vmap can map."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.func import functional_call, grad, vmap

from dpadapt.mechanisms.bounded import Bounded, clipped_term_sum
from dpadapt.rows import norm_bounds

# `RowsLoss`: a module together with the loss of each row, and where its trainable parameters lie in a flat vector.


Loss = Callable[[Any, Any], Any]


def cross_entropy(scores: Any, codes: Any) -> Any:
    """Return each row's cross-entropy: scores (B, classes), codes (B,), losses (B,)."""
    return nn.functional.cross_entropy(scores, codes, reduction="none")


class RowsLoss:
    """The losses of rows under a module.

    Parameters
    ----------
    module : Module
        Its parameters that require gradients are the trainable ones.
    loss : callable
        Takes outputs and targets, returns one loss per row, shape (B,).
    """

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        self.module = module
        self.loss = loss
        self.trainable = [weights for weights in module.parameters() if weights.requires_grad]
        self.places: dict[int, slice] = {}
        end = 0
        for weights in self.trainable:
            self.places[id(weights)] = slice(end, end + weights.numel())
            end += weights.numel()
        self.n_parameters = end

    def __call__(self, inputs: Any, targets: Any) -> Any:
        """Return each row's loss, shape (B,)."""
        return checked(self.loss(self.module(inputs), targets), len(inputs))

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Keep gradients from the parameters, so that no backward pass computes what nobody asks for."""
        for weights in self.trainable:
            weights.requires_grad_(False)
        try:
            yield
        finally:
            for weights in self.trainable:
                weights.requires_grad_(True)

    def get(self) -> NDArray[np.float32]:
        """Return the trainable parameters as one flat vector."""
        return np.asarray(torch.cat([weights.detach().reshape(-1) for weights in self.trainable]))

    def put(self, flat: NDArray[Any]) -> None:
        """Set the trainable parameters from one flat vector."""
        values = torch.from_numpy(np.asarray(flat, dtype=np.float32))
        with torch.no_grad():
            for weights in self.trainable:
                weights.copy_(values[self.places[id(weights)]].reshape(weights.shape))

    def gradient(self, inputs: Any, targets: Any) -> NDArray[np.float32]:
        """Return the gradient of the mean loss, flat: for public rows, as nothing is clipped."""
        mean = self(inputs, targets).mean()
        parts = torch.autograd.grad(mean, self.trainable, allow_unused=True, materialize_grads=True)
        return np.asarray(torch.cat([part.reshape(-1) for part in parts]))


def checked(losses: Any, n_rows: int) -> Any:
    """Return `losses` if there is exactly one per row; any other shape would let a row count many times."""
    shape = getattr(losses, "shape", None)
    if shape is None or tuple(shape) != (n_rows,):
        found = "no tensor" if shape is None else f"shape {tuple(shape)}"
        raise ValueError(
            f"loss must return one loss per row, shape ({n_rows},) for {n_rows} rows, got {found}. "
            f"Use reduction='none', and average over all axes but the first."
        )
    return losses


# The clipped sum of per-row gradients of a network, ready for release.


class Engine(Protocol):
    """A way to take the gradients of a batch apart by row."""

    name: str
    rows_loss: RowsLoss

    def parts(
        self, inputs: Any, targets: Any
    ) -> Iterator[tuple[NDArray[np.float64], Callable[[NDArray[Any]], NDArray[Any]]]]:
        """Yield, for each part of the rows, their gradients' lengths and the function that sums them with factors."""
        ...


def clipped_gradient_sum(engine: Engine, inputs: Any, targets: Any, clip_norm: float) -> Bounded:
    """Sum the rows' gradients, flat, each first scaled down to length `clip_norm`; no rows give zeros."""
    return clipped_term_sum(engine.parts(inputs, targets), engine.rows_loss.n_parameters, clip_norm)


_CHUNK = 64
# Stored gradients of one chunk, at most so many numbers (64 MB).
_STORED = 2**24


class VmapEngine:
    """Per-row gradients of any module that `torch.func` can map over rows; each row is a batch of its own.

    Parameters
    ----------
    rows_loss : RowsLoss
        The module and the loss of each row.
    """

    name = "vmap"

    def __init__(self, rows_loss: RowsLoss) -> None:
        self.rows_loss = rows_loss
        named = dict(rows_loss.module.named_parameters())
        self._trained = {name: weights for name, weights in named.items() if weights.requires_grad}
        self._fixed = {name: weights for name, weights in named.items() if not weights.requires_grad}
        self._fixed |= dict(rows_loss.module.named_buffers())

        def loss_of_one(trained: Any, fixed: Any, row: Any, target: Any) -> Any:
            outputs = functional_call(rows_loss.module, {**trained, **fixed}, (row[None],))
            return checked(rows_loss.loss(outputs, target[None]), 1)[0]

        # Dropout and the like draw for each row on its own.
        self._gradients = vmap(grad(loss_of_one), in_dims=(None, None, 0, 0), randomness="different")
        self._size = max(1, min(_CHUNK, _STORED // max(1, rows_loss.n_parameters)))

    def parts(
        self, inputs: Any, targets: Any
    ) -> Iterator[tuple[NDArray[np.float64], Callable[[NDArray[Any]], NDArray[Any]]]]:
        """Yield, for each part of the rows, their gradients' lengths and the function that sums them with factors."""
        for start in range(0, len(inputs), self._size):
            part = slice(start, start + self._size)
            yield self._part(inputs[part], targets[part])

    def _part(self, inputs: Any, targets: Any) -> tuple[NDArray[np.float64], Callable[[NDArray[Any]], NDArray[Any]]]:
        trained = {name: weights.detach() for name, weights in self._trained.items()}
        fixed = {name: weights.detach() for name, weights in self._fixed.items()}
        found = self._gradients(trained, fixed, inputs, targets)
        rows = torch.cat([found[name].flatten(1) for name in self._trained], dim=1).numpy()
        squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64, casting="same_kind")

        def combine(factors: NDArray[Any]) -> NDArray[Any]:
            # Such a row may hold infinities, and zero times infinity is not zero.
            rows[factors == 0] = 0
            return np.asarray(factors.astype(np.float32) @ rows)

        return norm_bounds(squares, rows.shape[1]), combine
