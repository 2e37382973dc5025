"""How much the private gradient weighs at each step of first-order mirror descent: Eq. (1) of paper 2.

The paper has alpha_t = cos(pi t / 2K) and prints values of K far below the number of steps. Taken at its word, alpha
turns negative after K steps, and the training would climb the private loss. Two readings make sense:

* clamped at zero: after K steps the training goes on with public data alone (K as printed);
* a slow decay: K of twice the number of steps, so that alpha ends at 0.71, or a floor under it.
"""

import math

import numpy as np
from numpy.typing import NDArray

from dpadapt import _validate


def mixing_weights(n_steps: int, *, decay_steps: int | None = None, floor: float = 0.0) -> NDArray[np.float64]:
    """Return the weight of the private gradient at each step; the public one has the rest.

    Parameters
    ----------
    n_steps : int
    decay_steps : int, optional
        K: after so many steps the weight has come down to `floor`. Default: twice `n_steps`.
    floor : float, default=0.0
        The least weight, below 1.

    Examples
    --------
    >>> mixing_weights(4, decay_steps=2).round(2)
    array([1.  , 0.71, 0.  , 0.  ])
    >>> mixing_weights(4, decay_steps=2, floor=0.5).round(2)
    array([1.  , 0.71, 0.5 , 0.5 ])
    """
    n_steps = _validate.count(n_steps, "n_steps")
    K = 2 * n_steps if decay_steps is None else _validate.count(decay_steps, "decay_steps")
    if isinstance(floor, bool) or not isinstance(floor, int | float) or not 0 <= floor < 1:
        raise ValueError(f"floor must lie in [0, 1), got {floor!r}.")
    steps = np.arange(n_steps)
    # Beyond K the cosine is negative; it would turn the private gradient round.
    cosine = np.where(steps < K, np.cos(math.pi * np.minimum(steps, K) / (2 * K)), 0.0)
    return np.maximum(cosine, floor)
