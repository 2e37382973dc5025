"""How sources lie within their bins, by the released counts: how far from the targets, and how clumped."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.clustering.stages import Released

Array = NDArray[Any]

# Weight of the pool's own distances against the counted ones, in noise scales.
_POOL = 0.5
# Clumping over parts where the counts can't tell; sources are spread more evenly within parts than over them; the least
# and the most that is believed.
_USUAL, _WITHIN, _LEAST, _MOST = 8.0, 1.4, 0.5, 32.0
_LEAST_POOL = 1e-3  # of all, in a ring: a few points must not stand for all sources there


def pool_weights(released: Released, sizes: Array) -> Array:
    """Return the weight of a pool point of each finest bin, such that the pool is as far from the targets as sources.

    Directions from the targets are known to the pool, not distances: sources may all lie near, or far out.

    Parameters
    ----------
    released : Released
    sizes : ndarray of shape (n_bins,)
        Pool points of each finest bin.
    """
    n_rings = len(released.profile)
    pool = sizes.reshape(-1, n_rings).sum(axis=0)
    found = np.maximum(released.profile, 0) + _POOL * released.noise[0].scale * pool / pool.sum()
    return np.tile(found / np.maximum(pool, _LEAST_POOL * pool.sum()), len(sizes) // n_rings)


def clumping(released: Released, sizes: Array) -> float:
    """Return the parameter of Pólya's urn with which sources fill the parts of coarse bins, taken to hold within parts.

    N sources in parts of shares q have variance q (1 - q) N (1 + (N - 1) / (clumping + 1)) each. The squared deviations
    of all counts, less the noise's, give the last factor; as much of the usual one is mixed in as they are uncertain.

    Parameters
    ----------
    released : Released
    sizes : ndarray of shape (n_parts,)
        Weight of each part's pool.
    """
    whole, found, siblings = (
        np.bincount(released.parent, weights=values)[released.parent]
        for values in (sizes, released.counts, np.ones(len(sizes)))
    )
    used = released.split & (found > 0) & (sizes > 0)
    shares, total = sizes[used] / whole[used], found[used]
    spread = shares * (1 - shares)
    variance = released.noise[-1].variance
    # Of a count less its share of the sum, of which it is one.
    noise = variance * ((1 - shares) ** 2 + shares**2 * (siblings[used] - 1))
    excess = (released.counts[used] - total * shares) ** 2 - noise - total * spread
    # The squared noise of n counts sums to n variances, give or take sqrt(5 n) of Laplace noise, fewer of Gaussian.
    doubt = variance * np.sqrt(5.0 * max(len(shares), 1))
    # The sum's own noise squared is no sign of many sources.
    pairs = np.maximum(total * (total - 1) - siblings[used] * variance, 0.0)
    together = (excess.sum() + doubt) / ((pairs * spread).sum() + doubt * (1 + _USUAL))
    return float(np.clip(_WITHIN * (1 / max(together, 1e-9) - 1), _LEAST, _MOST))
