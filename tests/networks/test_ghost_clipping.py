"""Ghost clipping: it agrees with vmap and with gradients computed row by row; its norms are close upper bounds."""

import numpy as np
import pytest

pytest.importorskip("torch")
from small_networks import CASES, norms, one_by_one, problem
from torch import nn

from dpadapt.networks import ghost_clipping
from dpadapt.networks.ghost_clipping import GhostEngine, Unsupported
from dpadapt.networks.row_gradients import RowsLoss, VmapEngine, clipped_gradient_sum, cross_entropy


@pytest.mark.parametrize("name", CASES)
def test_ghost_clipping_and_vmap_agree_with_gradients_computed_row_by_row(name):
    rows_loss, inputs, targets = problem(name, 90)
    plain = one_by_one(rows_loss, inputs, targets).astype(np.float64)
    clip_norm = float(np.median(np.linalg.norm(plain, axis=1)))
    expected = (plain * np.minimum(1, clip_norm / np.linalg.norm(plain, axis=1))[:, None]).sum(axis=0)
    scale = np.linalg.norm(expected)
    ghost, vmapped = GhostEngine(rows_loss), VmapEngine(rows_loss)
    sums = [clipped_gradient_sum(engine, inputs, targets, clip_norm).value for engine in (ghost, vmapped)]
    assert np.linalg.norm(sums[0] - sums[1]) < 1e-5 * scale
    for total in sums:
        assert np.linalg.norm(total - expected) < 2e-5 * scale
    for engine in (ghost, vmapped):
        # Upper bounds, and close ones.
        ratio = norms(engine, inputs, targets) / np.linalg.norm(plain, axis=1)
        assert (ratio > 1 - 1e-6).all()
        assert (ratio < 1 + 2e-4).all()


@pytest.mark.parametrize("name", ["odd convolutions", "words", "emnist"])
def test_norms_from_inner_products_are_close_upper_bounds(name, monkeypatch):
    rows_loss, inputs, targets = problem(name, 40)
    stored = norms(GhostEngine(rows_loss), inputs, targets)
    expected = clipped_gradient_sum(GhostEngine(rows_loss), inputs, targets, 1e6).value
    used = []
    monkeypatch.setattr(ghost_clipping, "_GHOST_STORED", 0)
    squares = ghost_clipping._Grams.squares
    monkeypatch.setattr(ghost_clipping._Grams, "squares", lambda term: used.append(1) or squares(term))
    ghost = GhostEngine(rows_loss)
    ratio = norms(ghost, inputs, targets) / stored
    assert used or name == "odd convolutions"
    assert ((ratio > 1 - 1e-5) & (ratio < 1 + 1e-3)).all()
    assert np.allclose(clipped_gradient_sum(ghost, inputs, targets, 1e6).value, expected, rtol=1e-4, atol=1e-5)


def test_large_batches_are_split_into_parts():
    rows_loss, inputs, targets = problem("perceptron", 2500)
    engine = GhostEngine(rows_loss)
    assert len(list(engine.parts(inputs, targets))) == 3
    parts = slice(1200), slice(1200, None)
    halves = [clipped_gradient_sum(engine, inputs[part], targets[part], 0.1).value for part in parts]
    assert np.allclose(clipped_gradient_sum(engine, inputs, targets, 0.1).value, sum(halves), atol=1e-4)


def test_layers_without_a_rule_and_shared_parameters_are_refused_by_name():
    with pytest.raises(Unsupported, match="LSTM"):
        GhostEngine(RowsLoss(nn.LSTM(3, 4, batch_first=True), cross_entropy))
    tied = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    tied[1].weight = tied[0].weight
    with pytest.raises(Unsupported, match="shares its parameters"):
        GhostEngine(RowsLoss(tied, cross_entropy))
