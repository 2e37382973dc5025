"""Per-row gradients: ghost clipping against vmap, both against plain ones, and measured against claimed sensitivity."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from dpadapt.networks import ghost_clipping  # noqa: E402
from dpadapt.networks.ghost_clipping import GhostEngine, Unsupported  # noqa: E402
from dpadapt.networks.models import LSTMLayer, cifar_cnn, emnist_cnn, lstm_language_model, perceptron, sequence_loss  # noqa: E402
from dpadapt.networks.row_gradients import RowsLoss, VmapEngine, clipped_gradient_sum, cross_entropy  # noqa: E402


class Twice(nn.Module):
    """Uses one layer twice on each row."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, rows):
        return self.outer(torch.tanh(self.inner(torch.tanh(self.inner(rows)))))


def odd_convolutions():
    return nn.Sequential(
        nn.Conv1d(3, 4, 3, padding="same", dilation=2),
        nn.GroupNorm(2, 4),
        nn.ReLU(),
        nn.Conv1d(4, 5, 2, stride=2, padding=1, bias=False),
        nn.LayerNorm(6),
        nn.Flatten(),
        nn.Linear(30, 3, bias=False),
    )


def wide_image():
    return nn.Sequential(nn.Conv2d(2, 3, (3, 5), padding=(0, 2)), nn.Flatten(), nn.Linear(72, 3))


def words_to_class():
    return nn.Sequential(nn.Embedding(9, 4, padding_idx=2), LSTMLayer(4, 5), nn.Flatten(), nn.Linear(30, 3))


# name -> module, shape of a row, words (or None), classes
CASES = {
    "perceptron": (lambda: perceptron(12, 3, hidden=(7, 5)), (12,), None, 3),
    "emnist": (lambda: emnist_cnn(10, side=14), (1, 14, 14), None, 10),
    "wide image": (wide_image, (2, 5, 8), None, 3),
    "odd convolutions": (odd_convolutions, (3, 10), None, 3),
    "used twice": (Twice, (6,), None, 3),
    "words": (words_to_class, (6,), 9, 3),
}


def problem(name, n_rows, seed=0):
    make, shape, words, n_classes = CASES[name]
    torch.manual_seed(seed)
    inputs = torch.randn(n_rows, *shape) if words is None else torch.randint(words, (n_rows, *shape))
    return RowsLoss(make(), cross_entropy), inputs, torch.randint(n_classes, (n_rows,))


def lengths(engine, inputs, targets):
    return np.concatenate([part for part, _ in engine.parts(inputs, targets)])


def one_by_one(rows_loss, inputs, targets):
    return np.stack([rows_loss.gradient(inputs[i : i + 1], targets[i : i + 1]) for i in range(len(inputs))])


@pytest.mark.parametrize("name", CASES)
def test_ghost_and_vmap_give_the_plain_gradients_clipped(name):
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
        ratio = lengths(engine, inputs, targets) / np.linalg.norm(plain, axis=1)
        assert (ratio > 1 - 1e-6).all()
        assert (ratio < 1 + 2e-4).all()


@pytest.mark.parametrize("name", ["odd convolutions", "words", "emnist"])
def test_lengths_from_inner_products_are_close_upper_bounds(name, monkeypatch):
    rows_loss, inputs, targets = problem(name, 40)
    stored = lengths(GhostEngine(rows_loss), inputs, targets)
    expected = clipped_gradient_sum(GhostEngine(rows_loss), inputs, targets, 1e6).value
    used = []
    monkeypatch.setattr(ghost_clipping, "_STORED", 0)
    squares = ghost_clipping._Grams.squares
    monkeypatch.setattr(ghost_clipping._Grams, "squares", lambda term: used.append(1) or squares(term))
    ghost = GhostEngine(rows_loss)
    ratio = lengths(ghost, inputs, targets) / stored
    assert used or name == "odd convolutions"
    assert ((ratio > 1 - 1e-5) & (ratio < 1 + 1e-3)).all()
    assert np.allclose(clipped_gradient_sum(ghost, inputs, targets, 1e6).value, expected, rtol=1e-4, atol=1e-5)


def test_language_models_are_clipped_by_sequence():
    torch.manual_seed(0)
    rows_loss = RowsLoss(lstm_language_model(50, n_units=8), sequence_loss)
    inputs, targets = torch.randint(50, (20, 7)), torch.randint(50, (20, 7))
    plain = one_by_one(rows_loss, inputs, targets)
    norms = np.linalg.norm(plain, axis=1)
    for engine in (GhostEngine(rows_loss), VmapEngine(rows_loss)):
        assert lengths(engine, inputs, targets) == pytest.approx(norms, rel=1e-4)
        expected = (plain * np.minimum(1, 0.3 / norms)[:, None]).sum(axis=0)
        assert np.allclose(clipped_gradient_sum(engine, inputs, targets, 0.3).value, expected, atol=1e-5)


def test_the_network_for_cifar_is_supported():
    torch.manual_seed(0)
    rows_loss = RowsLoss(cifar_cnn(), cross_entropy)
    inputs, targets = torch.randn(3, 3, 32, 32), torch.tensor([0, 5, 9])
    plain = one_by_one(rows_loss, inputs, targets)
    assert lengths(GhostEngine(rows_loss), inputs, targets) == pytest.approx(np.linalg.norm(plain, axis=1), rel=1e-3)


HOSTILE = [1e3, 1e10, 1e19, 1e30, 3e38, 1e-30, float("inf"), float("nan"), 0.0]


@pytest.mark.parametrize("engine_of", [GhostEngine, VmapEngine])
@pytest.mark.parametrize("name", ["perceptron", "emnist", "odd convolutions", "used twice"])
def test_no_row_moves_the_sum_further_than_claimed(name, engine_of):
    """Brute force: the sum with each hostile row, less the sum without it."""
    rows_loss, inputs, targets = problem(name, 6)
    engine = engine_of(rows_loss)
    clip_norm, furthest = 0.5, 0.0
    without = clipped_gradient_sum(engine, inputs[1:], targets[1:], clip_norm).value
    for value in HOSTILE:
        for pattern in (torch.ones_like(inputs[0]), torch.sign(inputs[0]), inputs[0]):
            changed = inputs.clone()
            changed[0] = value * pattern
            made = clipped_gradient_sum(engine, changed, targets, clip_norm)
            moved = float(np.linalg.norm(made.value - without))
            assert np.isfinite(made.value).all()
            assert moved <= made.l2 * (1 + 1e-5)
            furthest = max(furthest, moved)
    assert furthest > 0.95 * clip_norm  # the bound is reached, so a wrong one would show


def test_huge_weights_do_not_break_the_bound():
    rows_loss, inputs, targets = problem("perceptron", 5)
    with torch.no_grad():
        for weights in rows_loss.trainable:
            weights.mul_(1e18)
    for engine in (GhostEngine(rows_loss), VmapEngine(rows_loss)):
        whole = clipped_gradient_sum(engine, inputs, targets, 1.0).value
        without = clipped_gradient_sum(engine, inputs[1:], targets[1:], 1.0).value
        assert np.isfinite(whole).all()
        assert np.linalg.norm(whole - without) <= 1 + 1e-5


def test_the_measurement_catches_a_loss_of_the_wrong_shape_let_through(monkeypatch):
    """What happens without the shape check: a loss (B, B) counts a row as often as there are rows."""
    torch.manual_seed(0)
    inputs, targets = torch.randn(6, 4), torch.tensor([1e4, 0.1, 0.2, 0.3, 0.4, 0.5])
    squared = lambda outputs, targets: (outputs - targets).square()  # noqa: E731  (B, 1) - (B,) is (B, B)
    rows_loss = RowsLoss(nn.Linear(4, 1), squared)
    with pytest.raises(ValueError, match=r"shape \(6,\) for 6 rows, got shape \(6, 6\)"):
        clipped_gradient_sum(GhostEngine(rows_loss), inputs, targets, 1.0)
    monkeypatch.setattr("dpadapt.networks.row_gradients.checked", lambda losses, n_rows: losses)
    whole, without = (
        clipped_gradient_sum(GhostEngine(rows_loss), inputs[at:], targets[at:], 1.0).value for at in (0, 1)
    )
    assert np.linalg.norm(whole - without) > 2.0


def test_an_empty_batch_gives_zeros():
    rows_loss, inputs, targets = problem("emnist", 3)
    for engine in (GhostEngine(rows_loss), VmapEngine(rows_loss)):
        made = clipped_gradient_sum(engine, inputs[:0], targets[:0], 1.0)
        assert made.value.shape == (rows_loss.n_parameters,)
        assert not made.value.any()
        assert made.l2 == 1.0


def test_large_batches_are_taken_in_parts():
    rows_loss, inputs, targets = problem("perceptron", 2500)
    engine = GhostEngine(rows_loss)
    assert len(list(engine.parts(inputs, targets))) == 3
    parts = slice(1200), slice(1200, None)
    halves = [clipped_gradient_sum(engine, inputs[part], targets[part], 0.1).value for part in parts]
    assert np.allclose(clipped_gradient_sum(engine, inputs, targets, 0.1).value, sum(halves), atol=1e-4)


def test_only_trainable_parameters_take_part():
    rows_loss, inputs, targets = problem("perceptron", 8)
    module = rows_loss.module
    module[1].requires_grad_(False)
    probe = RowsLoss(module, cross_entropy)
    assert probe.n_parameters == rows_loss.n_parameters - 12 * 7 - 7
    plain = one_by_one(probe, inputs, targets)
    for engine in (GhostEngine(probe), VmapEngine(probe)):
        assert lengths(engine, inputs, targets) == pytest.approx(np.linalg.norm(plain, axis=1), rel=1e-5)
    assert all(not weights.requires_grad for weights in module[1].parameters())


def test_layers_without_a_rule_and_shared_parameters_are_named():
    with pytest.raises(Unsupported, match="LSTM"):
        GhostEngine(RowsLoss(nn.LSTM(3, 4, batch_first=True), cross_entropy))
    tied = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    tied[1].weight = tied[0].weight
    with pytest.raises(Unsupported, match="shares its parameters"):
        GhostEngine(RowsLoss(tied, cross_entropy))
