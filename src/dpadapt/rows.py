"""Private rows, visited in blocks of bounded memory: the one seam for other engines.

A `Rows` holds private data and gives nothing away by itself: its sums are plain arrays that only become a release once
a maker in `mechanisms/bounded.py` has enforced a bound and the ledger has drawn noise.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BLOCK_BYTES = 8 * 2**20
_BLOCK_ROWS = (1024, 16384)


@dataclass(frozen=True, eq=False, slots=True)
class Block:
    """Some consecutive rows: features, targets, the length of each row (with its constant 1, if any) and its weight."""

    X: NDArray[Any]
    y: NDArray[Any]
    norms: NDArray[Any]
    inverse_norms: NDArray[Any]
    leverage: NDArray[Any] | None
    intercept: bool

    def product(self, coef: NDArray[Any]) -> NDArray[Any]:
        """Return each row times `coef`, whose last row belongs to the constant 1 if there is one."""
        out: NDArray[Any] = self.X @ (coef[:-1] if self.intercept else coef)
        if self.intercept:
            out += coef[-1]
        return out

    def outer(self, weights: NDArray[Any]) -> NDArray[Any]:
        """Return the sum over rows of row times weight: shape (features, ...)."""
        total: NDArray[Any] = self.X.T @ weights
        if not self.intercept:
            return total
        return np.concatenate([total, weights.sum(axis=0)[None]])


class Rows:
    """Private rows in this process's memory.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)
        Features, float32 or float64; never copied unless a row is not finite. Such rows are zeroed: they count as null
        rows.
    y : ndarray of shape (n_rows,)
        Targets or class codes.
    intercept : bool
        Whether every row has a further constant feature 1, which is not stored.
    max_norm : float
        A longer row counts with weight (max_norm / length)² in a descent, so that none dominates the curvature.
    """

    def __init__(
        self, X: NDArray[Any], y: NDArray[Any], *, intercept: bool = False, max_norm: float = math.inf
    ) -> None:
        if X.dtype not in (np.float32, np.float64):
            X = X.astype(np.float64)
        # One pass: the squared length overflows or is not a number exactly where a row can't be used as it is.
        squares = np.einsum("ij,ij->i", X, X)
        finite = np.isfinite(squares)
        if y.dtype.kind == "f":
            finite &= np.isfinite(y)
        if not finite.all():
            X, y = np.where(finite[:, None], X, 0), np.where(finite, y, 0)
            squares = np.where(finite, squares, 0)
        self.X = X
        self.y = y
        self.intercept = intercept
        self.norms = norm_bounds(squares + X.dtype.type(intercept), X.shape[1] + 1)
        # A null row must contribute nothing, not even through its constant.
        self.norms[~finite] = np.inf
        self.inverse_norms = 1 / self.norms
        self.leverage = np.minimum(max_norm / self.norms, 1.0) ** 2 if math.isfinite(max_norm) else None

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return int(self.X.shape[0])

    @property
    def n_columns(self) -> int:
        """How many features each row has, its constant included."""
        return int(self.X.shape[1]) + self.intercept

    def take(self, index: NDArray[np.int64]) -> "Rows":
        """Return the rows at `index`."""
        chosen = object.__new__(Rows)
        chosen.X, chosen.y, chosen.norms = self.X.take(index, axis=0), self.y[index], self.norms[index]
        chosen.inverse_norms = self.inverse_norms[index]
        chosen.leverage = None if self.leverage is None else self.leverage[index]
        chosen.intercept = self.intercept
        return chosen

    def _block(self, part: slice) -> Block:
        leverage = None if self.leverage is None else self.leverage[part]
        lengths = self.norms[part], self.inverse_norms[part]
        return Block(self.X[part], self.y[part], *lengths, leverage, self.intercept)

    def map_sum(self, statistic: Callable[[Block], NDArray[Any]]) -> NDArray[np.float64]:
        """Add up `statistic` over blocks, in float64."""
        n = self.n_rows
        size = min(max(_BLOCK_BYTES // max(1, self.X.shape[1] * self.X.itemsize), _BLOCK_ROWS[0]), _BLOCK_ROWS[1])
        if n <= size:
            lengths = self.norms, self.inverse_norms, self.leverage
            return statistic(Block(self.X, self.y, *lengths, self.intercept)).astype(np.float64, copy=False)
        total: NDArray[np.float64] | None = None
        for start in range(0, n, size):
            term = statistic(self._block(slice(start, min(start + size, n))))
            if total is None:
                total = term.astype(np.float64)
            else:
                total += term
        if total is None:
            raise ValueError("there are no rows to sum over.")
        return total


def norm_bounds(squares: NDArray[Any], n_terms: int) -> NDArray[Any]:
    """Return upper bounds, never 0, on the lengths whose squares were computed as sums of `n_terms` squares."""
    info = np.finfo(squares.dtype)
    # Such a sum is short by at most n_terms rounding errors and, where squares underflow, by `tiny` for each of them.
    # Without the latter a row of 1e-25 in float32 would have length 0, and its product with a weight no bound.
    floor, margin = n_terms * float(info.tiny), 1 + n_terms * float(info.eps)
    return np.asarray(np.sqrt(squares + squares.dtype.type(floor)) * squares.dtype.type(margin))
