"""Water-filling: how a fixed amount of signal is best spread over directions with independent noise."""

import numpy as np
from numpy.typing import NDArray


def water_fill(prior: NDArray[np.float64], noise: float) -> NDArray[np.float64]:
    """Return shares, adding up to 1, that maximise Σ log(1 + share * prior / noise).

    The shares are max(0, level - noise / prior): directions whose prior variance is too small for the noise get none.

    Examples
    --------
    >>> water_fill(np.array([1.0, 0.5, 0.01]), 0.5).round(2)
    array([0.75, 0.25, 0.  ])
    """
    costs = noise / np.maximum(prior, 1e-300)
    ordered = np.sort(costs)
    levels = (1.0 + np.cumsum(ordered)) / np.arange(1, len(ordered) + 1)
    # The level is that of the largest set whose every member stays below it; one member always does.
    level = levels[np.flatnonzero(levels > ordered)[-1]]
    return np.asarray(np.maximum(0.0, level - costs))
