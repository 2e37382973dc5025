"""Per-row gradients by `torch.func.vmap`, in chunks: slower than ghost clipping, for any module that vmap can map."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.func import functional_call, grad, vmap

from dpadapt.networks.rows_loss import RowsLoss, checked
from dpadapt.rows import norm_bounds

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
