"""A release on a Poisson sample is computed from the rows of that sample, and from no other sample.

Sampling lowers the cost of a release because nobody knows whether a record took part in it. Two releases on one sample
would both have that record or both lack it, and cost more than is charged. `Run.release` refuses a statistic that was
made from another batch; what these tests find is one that only carries the right name.
"""

import itertools

import numpy as np
import pytest
from cases import CASES

from dpadapt import Adjacency, audit
from dpadapt.audit.replay import _sample_apart
from dpadapt.mechanisms.events import SampledEvent

SAMPLED = [case for case in CASES if case.recipe.name in ("Poisson samples", "online") and not case.recipe.slow]


def fit_with(case, changed=None):
    """Return a fit whose sample number `changed` is another one; all others are as ever."""

    def fit(data, ledger):
        streams = (np.random.default_rng([number == changed, number]) for number in itertools.count())
        return case.fit(data, ledger=_sample_apart(ledger, streams), adjacency="add-remove")

    return fit


@pytest.mark.parametrize("case", SAMPLED, ids=str)
def test_each_release_uses_its_own_sample_and_no_other(case):
    options = {"adjacency": Adjacency.ADD_REMOVE}
    tape = audit.record(fit_with(case), case.data(), **options)
    n_samples = sum(entry.times for entry in tape.entries if isinstance(entry.event, SampledEvent))
    assert n_samples > 3
    moved = []
    for number in {0, 1, 2, n_samples - 1}:
        played = audit.replay(fit_with(case, number), case.data(), tape, **options)
        pairs = enumerate(zip(tape.releases, played.releases, strict=True))
        differ = [place for place, (before, after) in pairs if not np.array_equal(before.value, after.value)]
        assert len(differ) == 1
        moved += differ
    assert len(set(moved)) == len(moved)


def test_estimators_that_sample_are_among_the_cases():
    assert {case.cls.__name__ for case in SAMPLED} >= {"DPAMBSSGD", "DescentProbe"}
