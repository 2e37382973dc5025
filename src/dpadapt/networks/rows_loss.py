"""`RowsLoss`: a module together with the loss of each row, and where its trainable parameters lie in a flat vector."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

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
