"""What is believed of each bin's number of sources after its noisy count: empirical Bayes with a cautious zero."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.clustering.stages import Released

Array = NDArray[Any]

_ROUNDS = 150
_STEPS = 36
# A number of sources below this many noise scales can't be told from none, so it counts as none.
_LEAST = 2.0
# A prior's weight on all numbers alike, in parts: what was not seen may still be.
_UNSEEN = 1.0
# Fewer bins than this share a prior with others.
_SMALL_GROUP = 8


@dataclass(frozen=True, eq=False)
class Belief:
    """What is believed of the number of sources in each part of the partition.

    Parameters
    ----------
    grid : ndarray of shape (n_grid,)
        Numbers that are thought possible; the first is 0.
    probability : ndarray of shape (n_parts, n_grid)
    evidence : ndarray of shape (n_parts,)
        How much likelier a part's counts are under the best number than under none, as a logarithm.
    """

    grid: Array
    probability: Array
    evidence: Array

    def cautious(self, odds: float) -> Array:
        """Return the probabilities with the odds of "none" multiplied by `odds`.

        Believing in sources that are not there leaves targets uncovered; missing some only wastes a centre.
        """
        moved = self.probability.copy()
        moved[:, 0] *= odds
        return np.asarray(moved / moved.sum(axis=1, keepdims=True))

    def empty(self, parts: NDArray[np.bool_]) -> "Belief":
        """Return the same with no source in `parts`."""
        nothing = (self.grid == 0).astype(float)
        return replace(self, probability=np.where(parts[:, None], nothing, self.probability))


def belief(released: Released) -> Belief:
    """Return the posterior of every part's number of sources, with priors fitted to like parts."""
    _, coarse, fine = released.noise
    grid = _grid(float(released.counts.max(initial=0)), fine.scale)
    likelihood = fine.log_density(released.counts[:, None] - grid)
    # A coarse bin that was not split was counted twice, with independent noise.
    whole = ~released.split
    likelihood[whole] += coarse.log_density(released.coarse[released.parent[whole]][:, None] - grid)
    evidence = likelihood.max(axis=1) - likelihood[:, 0]
    likelihood = np.exp(likelihood - likelihood.max(axis=1, keepdims=True))
    probability = np.empty_like(likelihood)
    for group in _groups(2 * released.band + released.split):
        probability[group] = _fitted(likelihood[group])
    return Belief(grid, probability, evidence)


def _grid(largest: float, scale: float) -> Array:
    """Return the numbers of sources that are thought possible: 0, then from two noise scales up."""
    low = max(1.0, np.ceil(_LEAST * scale))
    high = max(largest + 3 * scale, 2 * low)
    return np.unique(np.concatenate([[0.0], np.rint(np.geomspace(low, high, _STEPS))]))


def _groups(kind: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the parts of each kind; kinds of few parts are put together."""
    groups = [np.flatnonzero(kind == one) for one in np.unique(kind)]
    large = [group for group in groups if len(group) >= _SMALL_GROUP]
    small = [group for group in groups if len(group) < _SMALL_GROUP]
    if small:
        rest = np.concatenate(small)
        if large and len(rest) < _SMALL_GROUP:
            rest = np.concatenate([large.pop(), rest])
        large.append(rest)
    return large


def _fitted(likelihood: Array) -> Array:
    """Return posteriors, each under the prior that the other parts make most likely.

    The prior is found by nonparametric maximum likelihood (EM) on all parts. Then each part's own weight is taken
    out of it: a count far out, which may be noise, would otherwise be its own evidence that such counts occur.
    """
    n_grid = likelihood.shape[1]
    prior = np.full(n_grid, 0.5 / (n_grid - 1))
    prior[0] = 0.5
    joint = likelihood
    for _ in range(_ROUNDS):
        joint = likelihood * prior
        joint /= joint.sum(axis=1, keepdims=True)
        prior = joint.mean(axis=0)
    others = len(joint) * prior - joint + _UNSEEN / n_grid
    joint = likelihood * np.maximum(others, 0.0)
    return np.asarray(joint / joint.sum(axis=1, keepdims=True))
