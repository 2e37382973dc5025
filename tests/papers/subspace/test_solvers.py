"""`DPAMBSSGD`, the paper's private solver, and the subspace that it shares with `ProjectedDPSGD`."""

import math

import numpy as np
import pytest

from benchmarks.data.synthetic import shared_subspace
from benchmarks.rivals.subspace import ProjectedDPSGD
from dpadapt import Ledger, PrivacyError, audit
from dpadapt.papers.subspace.solvers import DPAMBSSGD

# One budget and ten batches everywhere: calibrating noise for Poisson batches is slow, and its result is cached.
BUDGET = {"epsilon": 1.1, "delta": 1e-5}


def test_every_row_takes_part_once_on_average():
    drawn = shared_subspace(500, 2000, seed=2)
    model = DPAMBSSGD(**BUDGET, basis=drawn.basis, batch_size=200, random_state=0).fit(drawn.X, drawn.y)
    sizes, gradients = model.privacy_.entries
    assert sizes.times == gradients.times == 10
    assert sizes.event.rate == gradients.event.rate == 0.1


def test_the_printed_noise_is_used_and_its_true_cost_is_on_the_receipt():
    drawn = shared_subspace(500, 2000, seed=3)
    model = DPAMBSSGD(**BUDGET, noise="paper", batch_size=200, basis=drawn.basis, random_state=0).fit(drawn.X, drawn.y)
    printed = math.sqrt(8 * math.log(1e5)) / 1.1
    assert all(entry.event.event.noise_multiplier == pytest.approx(printed) for entry in model.privacy_.entries)
    assert model.privacy_.epsilon < 1.1
    assert any("claims epsilon = 1.1" in text for text in model.privacy_.warnings)


def test_printed_noise_that_breaks_its_claim_is_refused_and_nothing_is_spent():
    drawn = shared_subspace(500, 2000, seed=4)
    ledger = Ledger(epsilon=1e4, delta=0.5, adjacency="replace-one")
    with pytest.raises(PrivacyError, match="Use noise='exact'"):
        DPAMBSSGD(200.0, 1e-5, noise="paper", batch_size=200).fit(drawn.X, drawn.y, ledger=ledger)
    assert ledger.entries == []


@pytest.mark.parametrize("scale", [0.1, 1.0, 50.0])
def test_the_clipping_norm_follows_the_residuals(scale):
    drawn = shared_subspace(500, 5000, seed=7)

    def fit(data, ledger):
        return DPAMBSSGD(**BUDGET, batch_size=500, basis=drawn.basis, random_state=0).fit(*data, ledger=ledger)

    tape = audit.record(fit, (drawn.X, scale * drawn.y), adjacency="replace-one")
    noise = tape.entries[0].event.event.noise_multiplier
    # Of each pair of releases the second is a gradient; half of its sensitivity is the clipping norm.
    clips = [release.scale / noise / 2 for release in tape.releases[1::2]]
    assert np.all((np.array(clips) >= scale * math.sqrt(5)) & (np.array(clips) <= 8 * scale * math.sqrt(5)))


def test_public_tasks_give_the_subspace_and_without_them_all_features_are_used():
    drawn = shared_subspace(20_000, 1000, n_features=10, n_components=2, seed=5)
    params = {**BUDGET, "n_epochs": 3, "batch_size": 100, "random_state": 0}
    inside = ProjectedDPSGD(n_components=2, **params).fit(drawn.X, drawn.y, public=drawn.public)
    assert inside.n_components_ == 2
    assert np.linalg.matrix_rank(np.column_stack([inside.coef_, drawn.basis]), tol=0.5) == 2
    assert ProjectedDPSGD(**params).fit(drawn.X, drawn.y).n_components_ == 10
