"""Private sources, all at once or block by block, reduced to the bin that each falls in."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from dpadapt.clustering.cells import Cells
from dpadapt.clustering.proxies import check_columns, checked_sources
from dpadapt.data import Public

Array = NDArray[Any]


def checked(S: Any, public: Public | None) -> tuple[Array | Iterator[Any], NDArray[np.float64]]:
    """Return sources, an array or an iterator of blocks, and targets; an error shows no private value."""
    if isinstance(S, Iterator):
        _, T = checked_sources(np.empty((0, _width(public))), public)
        return S, T
    if issparse(S):
        raise TypeError("S must be dense: sparse data is not supported. Use S.toarray(), or blocks of it.")
    if np.iscomplexobj(S):
        raise ValueError("S must be real: Complex data not supported.")
    return checked_sources(S, public)


def source_codes(S: Array | Iterator[Any], cells: Cells, public: Public | None) -> NDArray[np.int32]:
    """Return the finest bin of each source, in one pass; -1 for one that is out of range or not finite."""
    if not isinstance(S, Iterator):
        return cells.codes(S)
    width = len(cells.origin)
    parts = [np.empty(0, np.int32)]
    for block in S:
        check_columns(block, public)
        rows = _table(block)
        if rows is None or rows.ndim != 2 or rows.shape[1] != width:
            raise ValueError(f"each block of S must be a table of numbers with the targets' {width} columns.")
        parts.append(cells.codes(rows))
    return np.concatenate(parts)


def _table(block: Any) -> Array | None:
    """Return a block as an array, None if it holds anything but numbers."""
    try:
        array = np.asarray(block)
        if array.dtype.kind == "c":
            return None
        return array if array.dtype.kind in "fiu" else array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        return None


def _width(public: Any) -> int:
    shape = list(np.shape(public.X)) if isinstance(public, Public) else []
    return int(shape[1]) if len(shape) == 2 else 0
