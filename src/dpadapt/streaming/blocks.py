"""`Blocks`: private rows in blocks of a fixed number, kept where there is room for them.

A fit reads its private rows once, maps them from stage to stage (`map`), and sums over each stage many times
(`results`). Where a stage is kept is no matter of the fit: in memory, in a file, or on the workers of a cluster. Block
k holds the rows from k `BLOCK_ROWS` on, whatever the rows came from. So every product and every sum has the same
operands in the same order, and one noise seed gives the same model wherever the rows are.

Blocks hold private rows, and so does what a function returns for one. They become a release only after a function of
`mechanisms/bounded.py` has enforced a bound and the ledger has added noise.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

P = TypeVar("P")
Q = TypeVar("Q")

# Rows of a block: few enough for some blocks to fit beside each other in little memory, and so many that the overhead
# of a block is small beside its sums. Another number changes how sums are rounded.
BLOCK_ROWS = 16_384


class Blocks(ABC, Generic[P]):
    """Private rows in blocks, each of which is an object that holds arrays.

    Functions that are given to `map` and `results` may be sent to another machine: they must be picklable (closures
    are) and must hold neither a ledger nor a run.
    """

    n_rows: int

    @abstractmethod
    def map(self, function: Callable[[P], Q]) -> "Blocks[Q]":
        """Return what `function` makes of each block, computed once and kept where these blocks are."""

    @abstractmethod
    def results(self, function: Callable[..., Q], own: Sequence[Any] | None = None) -> Iterator[Q]:
        """Return what `function` gives for each block, in the order of the blocks. Private.

        With `own`, the function gets the entry of its block as a second argument.
        """


class InMemory(Blocks[P]):
    """Blocks in the memory of this process.

    Examples
    --------
    >>> blocks = InMemory([[1, 2], [3]], 3)
    >>> list(blocks.map(sum).results(lambda total: 10 * total))
    [30, 30]
    """

    def __init__(self, parts: Iterable[P], n_rows: int) -> None:
        self._parts = list(parts)
        self.n_rows = n_rows

    def map(self, function: Callable[[P], Q]) -> "InMemory[Q]":
        """Return what `function` makes of each block."""
        return InMemory(map(function, self._parts), self.n_rows)

    def results(self, function: Callable[..., Q], own: Sequence[Any] | None = None) -> Iterator[Q]:
        """Return what `function` gives for each block."""
        return map(function, self._parts) if own is None else map(function, self._parts, own)


def rows_by_block(index: NDArray[np.int64], n_rows: int) -> list[NDArray[np.int64]]:
    """Return the rows at `index`, which is sorted, by their places in each block.

    Examples
    --------
    >>> rows_by_block(np.array([3, BLOCK_ROWS, BLOCK_ROWS + 5]), BLOCK_ROWS + 6)
    [array([3]), array([0, 5])]
    """
    starts = np.array([one.start for one in block_slices(n_rows)])
    parts = np.split(index, np.searchsorted(index, starts[1:]))
    return [part - start for part, start in zip(parts, starts, strict=True)]


def block_slices(n_rows: int) -> list[slice]:
    """Return where each block of a table begins and ends; a table without rows has one empty block."""
    return [slice(start, min(start + BLOCK_ROWS, n_rows)) for start in range(0, max(n_rows, 1), BLOCK_ROWS)]
