"""An e-value against "no source is near": how sure the released counts make us that there are sources at all.

Under that hypothesis every released count is noise of a known law, so the likelihood ratio of any fixed alternative has
mean 1, and so has any mean of such ratios. By Markov's inequality it reaches 1 / gamma with probability at most gamma,
for every budget, number of bins and set of targets; nothing is approximated and nothing is spent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

Array = NDArray[Any]

# Alternatives: a share of the bins holds the same number of sources, in noise scales.
_SHARES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
_HEIGHTS = (0.5, 1, 2, 3, 5, 8, 12, 20, 35, 60, 100, 200, 400, 1000)

_MOST = 600.0


@dataclass(frozen=True)
class Noise:
    """The law of the noise on a count: discrete Laplace or discrete Gaussian of a known scale."""

    law: Literal["laplace", "gaussian"]
    scale: float

    @property
    def variance(self) -> float:
        """Its variance, but for what discreteness takes away."""
        return (2.0 if self.law == "laplace" else 1.0) * self.scale**2

    def log_density(self, errors: Array) -> Array:
        """Return the log probability of each whole number, less a constant that cancels in every ratio."""
        if self.law == "laplace":
            return -np.abs(errors) / self.scale
        return -0.5 * (errors / self.scale) ** 2


def log_evidence(counts: NDArray[np.int64], noise: Noise) -> float:
    """Return the log of an e-value against "these counts are noise alone"."""
    n = len(counts)
    if n == 0:
        return 0.0
    heights = np.unique(np.maximum(1, np.rint(np.array(_HEIGHTS) * noise.scale)))
    shares = np.unique([1 / n, min(1.0, 2 / n), *_SHARES])
    # P(count | v more) / P(count | noise alone): exact, as v is a whole number and both laws have one normaliser.
    ratio = noise.log_density(counts[:, None] - heights) - noise.log_density(counts[:, None])
    # A ratio is cut off where it would overflow, which only makes the mean smaller.
    excess = np.expm1(np.minimum(ratio, _MOST))
    # Bins are independent: for one share p and height v the ratio of all is the product of 1 + p (ratio - 1).
    with np.errstate(divide="ignore"):
        terms = np.log1p(shares[:, None, None] * excess).sum(axis=1)
    return float(logsumexp(terms) - np.log(terms.size))


def pooled_evidence(stages: Sequence[tuple[NDArray[np.int64], Array, Noise]]) -> float:
    """Return the log of one e-value for several stages, each counts, their group and their noise.

    A later stage's bins may depend on earlier counts: given those its noise is still of its known law, so products over
    stages are e-values, and the mean of e-values is one.
    """
    whole = [log_evidence(counts, noise) for counts, _, noise in stages]
    groups = [[log_evidence(counts[group == g], noise) for g in np.unique(group)] for counts, group, noise in stages]
    # As many terms whatever was released: each coarse bin keeps a part at least, so that the last stage has all groups.
    found = [whole[-1], sum(whole), sum(map(sum, groups)), *groups[-1]]
    return float(logsumexp(found) - np.log(len(found)))
