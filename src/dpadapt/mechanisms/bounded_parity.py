"""`Bounded` equations over the field of two: one per record, for `RandomParity`."""

import numpy as np
from numpy.typing import NDArray

from dpadapt.mechanisms.bounded import Bounded
from dpadapt.mechanisms.parity import Words


def equations(words: Words, labels: NDArray[np.bool_]) -> Bounded:
    """Hold one equation per record: its bits, packed in words, must add up to its label.

    Parameters
    ----------
    words : ndarray of uint64, shape (n_records, n_words)
    labels : ndarray of bool, shape (n_records,)
        A record of zeros labelled False is null: every solution satisfies it.
    """
    if words.dtype != np.uint64 or words.ndim != 2:
        raise TypeError("words must be rows of 64-bit words; make them with `pack`.")
    right = np.asarray(labels, dtype=bool).astype(np.uint64)
    if right.shape != (len(words),):
        raise ValueError(f"labels must have one entry per record, got shape {right.shape}.")
    # One record owns one row; what it can do to the answer is bounded in `RandomParity.scale`.
    return Bounded(np.column_stack([words, right]))
