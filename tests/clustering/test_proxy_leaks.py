"""Nothing of the sources shows in a fitted estimator but what was released; outliers, too few sources, empty cells."""

import numpy as np
import pytest

from dpadapt import Public
from dpadapt.audit.replay import leaks
from dpadapt.clustering.baselines import PrivateHistogramSource, PrivateKMeansSource
from dpadapt.clustering.nas import NAS
from dpadapt.clustering.nna import NNA

MAKERS = {
    "NAS": lambda **options: NAS(4, n_neighbours=30, random_state=0, **options),
    "NAS as printed": lambda **options: NAS(4, 3.0, 1e-6, constants="paper", coreset_distance=0.2, random_state=0),
    "NNA": lambda **options: NNA(4, random_state=0, **options),
    "NNA as printed": lambda **options: NNA(4, constants="paper", threshold="paper", random_state=0, **options),
    "k-means": lambda **options: PrivateKMeansSource(4, n_proxies=10, random_state=0, **options),
    "histogram": lambda **options: PrivateHistogramSource(4, random_state=0, **options),
}
random = np.random.default_rng(0)
T = random.normal(size=(80, 2))
S = random.normal(size=(200, 2))
# Pairs of data sets that differ by one source.
NEIGHBOURS = {
    "an outlier": (np.vstack([S, [[1e9, -1e9]]]), S),
    "the mean": (S, np.delete(S, 7, axis=0)),
    "too few": (S[:9], S[:8]),
    "the only one": (S[:1], S[:0]),
    "not finite": (np.vstack([S[:20], [[np.nan, 1.0]]]), S[:20]),
    "huge": (np.vstack([S[:20], [[1e308, -1e308]]]), S[:20]),
}


@pytest.mark.parametrize("pair", NEIGHBOURS)
@pytest.mark.parametrize("name", MAKERS)
def test_replay_finds_no_leak(name, pair):
    first, second = NEIGHBOURS[pair]
    assert leaks(MAKERS[name], (first,), (second,), public=Public(T)) == []


def test_replay_finds_a_scale_taken_from_the_sources():
    class Leaky(NNA):
        def fit(self, S, y=None, *, public=None, ledger=None):
            longest = np.linalg.norm(S, axis=1).max(initial=1.0)
            super().fit(S / longest, public=Public(public.X / longest), ledger=ledger)
            self.proxies_ = self.proxies_ * longest
            return self

    assert leaks(lambda: Leaky(4, random_state=0), *((part,) for part in NEIGHBOURS["an outlier"]), public=Public(T))


@pytest.mark.parametrize("name", ["NAS", "NNA", "k-means", "histogram"])
@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
def test_other_adjacencies_are_charged_as_asked(name, adjacency):
    model = MAKERS[name](adjacency=adjacency, epsilon=2.0).fit(S, public=Public(T))
    assert model.privacy_.epsilon == pytest.approx(2.0)
    assert model.privacy_.adjacency.value == adjacency
    assert model.privacy_.assumptions[0] == "the number of rows"
