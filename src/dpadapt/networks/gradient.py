"""The clipped sum of per-row gradients of a network, ready for release."""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpadapt.mechanisms.bounded import Bounded, clipped_term_sum
from dpadapt.networks.rows_loss import RowsLoss


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
