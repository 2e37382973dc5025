"""Learners by private choices find the right hypothesis, parity and ellipsoid."""

import numpy as np
import pytest

from dpadapt.hybrid.questions import LinearHypothesis
from dpadapt.papers.reweigh import learners_discrete as module
from dpadapt.papers.reweigh.learners_discrete import FiniteLearner, ParityLearner, SparseLearner
from dpadapt.papers.reweigh.reweigh import SubsampleTestReweigh


def test_finite_learner_chooses_the_best_hypothesis():
    X = np.random.default_rng(0).uniform(-1, 1, (3000, 3))
    y = (X[:, 0] > 0.2).astype(int)
    listed = [LinearHypothesis([1.0, 0.0, 0.0], cut) for cut in np.linspace(-1, 1, 9)]
    model = SubsampleTestReweigh(FiniteLearner(listed), epsilon=0.5, delta=0.0, random_state=0).fit(X, y)
    assert model.hypothesis_.intercept[0] == pytest.approx(-0.25)
    assert model.privacy_.epsilon == pytest.approx(0.5, rel=1e-3)


def test_sparse_learner_counts_votes_once_for_all_choices(monkeypatch):
    counted, released = [], []
    count, choose = module.weighted_votes, module.chosen
    monkeypatch.setattr(module, "weighted_votes", lambda *args: counted.append(count(*args)) or counted[-1])
    monkeypatch.setattr(module, "chosen", lambda run, votes: released.append(votes) or choose(run, votes))
    X = np.random.default_rng(2).standard_normal((4000, 6))
    y = (X[:, 3] ** 2 > 0.5).astype(int)
    SubsampleTestReweigh(SparseLearner(4), random_state=0).fit(X, y)
    assert len(counted) == 1
    choices = [votes.value for votes in released if votes.value.ndim == 1]
    assert [len(votes) for votes in choices] == [6, 5, 4, 3]
    # Each choice is among the votes that were counted, without those of the coordinates chosen before.
    for more, fewer in zip([counted[0].value, *choices], choices, strict=False):
        assert set(fewer) <= set(more)


@pytest.mark.parametrize("share", [0.5, 0.2])
def test_parity_learner_finds_a_parity_of_biased_bits_too(share):
    rng = np.random.default_rng(3)
    X = (rng.random((6000, 64)) < share).astype(float)
    chosen = rng.permutation(64)[:9]
    y = X[:, chosen].sum(axis=1).astype(int) % 2
    model = SubsampleTestReweigh(ParityLearner(), epsilon=0.5, delta=0.0, random_state=0).fit(X, y)
    assert sorted(np.flatnonzero(model.hypothesis_.chosen)) == sorted(chosen)
    assert model.privacy_.epsilon == pytest.approx(0.5, rel=1e-3)
    assert model.privacy_.delta == 0.0
    assert (model.predict(X) == y).all()


def test_a_null_record_is_an_equation_that_every_parity_satisfies(monkeypatch):
    seen, original = [], module.equations
    monkeypatch.setattr(module, "equations", lambda *args: seen.append(original(*args)) or seen[-1])
    X = np.random.default_rng(0).integers(0, 2, (400, 4)).astype(float)
    y = X[:, 0].astype(int)
    X[-1], y[-1] = 1e200, 1  # its square overflows
    SubsampleTestReweigh(ParityLearner(), epsilon=2.0, delta=0.0, classes=[0, 1], random_state=0).fit(X, y)
    assert not seen[0].value[-1].any()
