"""An attacker who sees all releases of a clustering stays within its claim, and one who meets halved noise does not."""

import numpy as np
import pytest

from dpadapt import Public
from dpadapt.audit import lower_bound
from dpadapt.audit.releases import ReleaseScores
from dpadapt.clustering import PrivateSourceTargetClustering

pytestmark = pytest.mark.slow

T = np.random.default_rng(0).uniform(0, 1, (25, 2))
PUBLIC = Public(T)
# Three sources in one bin; in the neighbouring data set the last is null.
SOURCES = (np.repeat(T[:1], 3, axis=0) + 0.001,)
NEIGHBOUR = (np.vstack([SOURCES[0][:-1], [[np.nan, np.nan]]]),)


def audited(factor, **params):
    def make():
        return PrivateSourceTargetClustering(2, 1.0, adjacency="zero-out", **params)

    scores = ReleaseScores(make, SOURCES, NEIGHBOUR, fit_kwargs={"public": PUBLIC}, noise=factor, seed=7)
    return lower_bound(scores, SOURCES, NEIGHBOUR, delta=params.get("delta", 0.0), runs=900, confidence=0.99)


@pytest.mark.parametrize("params", [{}, {"noise": "gaussian", "delta": 1e-2}], ids=["laplace", "gaussian"])
def test_the_releases_together_keep_the_claim(params):
    found = audited(1.0, **params)
    assert not found.refutes(1.0)
    # The attacker is not blind: it finds a good part of what the claim allows.
    assert found.epsilon_lower > (0.5 if not params else 0.05)


def test_halved_noise_is_caught():
    assert audited(0.5).refutes(1.0)
