"""`RowsLoss` and the clipped sum of per-row gradients: the same for both engines, and bounded for hostile rows."""

import copy
import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from small_networks import norms, problem  # noqa: E402
from torch import nn  # noqa: E402

from dpadapt import Adjacency, PrivacyError  # noqa: E402
from dpadapt.inputs.persons import person_shares  # noqa: E402
from dpadapt.networks import ghost_clipping, row_gradients  # noqa: E402
from dpadapt.networks.ghost_clipping import GhostEngine  # noqa: E402
from dpadapt.networks.row_gradients import RowsLoss, VmapEngine, clipped_gradient_sum, cross_entropy  # noqa: E402

HOSTILE = [1e3, 1e10, 1e19, 1e30, 3e38, 1e-30, float("inf"), float("nan"), 0.0]


@pytest.mark.parametrize("engine_of", [GhostEngine, VmapEngine])
@pytest.mark.parametrize("name", ["perceptron", "emnist", "odd convolutions", "used twice"])
def test_no_row_moves_the_sum_beyond_its_sensitivity(name, engine_of):
    """Brute force: the sum with each hostile row minus the sum without it."""
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


def removed(engine_of, dtype, row, ids, left_out, *, shared):
    """Return how far the removal of each id moves the sum of many aligned gradients, in clipping norms, and the sum."""
    torch.manual_seed(0)
    rows_loss = RowsLoss(nn.Linear(3, 2).to(dtype), cross_entropy)
    inputs = (row[None] * (1 + 1e-3 * torch.rand(len(ids), 1))).to(dtype)
    engine, targets = engine_of(rows_loss), torch.zeros(len(ids), dtype=torch.long)

    def total(kept):
        shares = person_shares(ids[kept], int(kept.sum())) if shared else None
        index = torch.from_numpy(np.flatnonzero(kept))
        return clipped_gradient_sum(engine, inputs[index], targets[index], 0.1, shares)

    whole = total(ids == ids)
    return [float(np.linalg.norm(whole.value - total(ids != each).value)) / 0.1 for each in left_out], whole


@pytest.mark.parametrize("engine_of", [GhostEngine, VmapEngine])
def test_a_removed_row_moves_a_sum_in_float64_by_its_bound_and_sums_in_float32_are_refused(engine_of):
    rows, row = np.arange(6000), torch.tensor([1.5, -0.3, -2.2])
    moved, double = removed(engine_of, torch.float64, row, rows, rows[::375], shared=False)
    assert 0.9 < max(moved) <= 1 + 1e-9
    assert double.sensitivity("l2", Adjacency.ADD_REMOVE) == 0.1
    moved, single = removed(engine_of, torch.float32, row, rows, rows[::375], shared=False)
    assert max(moved) > 1 + 1e-7  # rounding of the other rows adds up
    with pytest.raises(PrivacyError, match="float32"):
        single.sensitivity("l2", Adjacency.ADD_REMOVE)
    assert single.sensitivity("l2", Adjacency.ZERO_OUT) == 0.1


@pytest.mark.parametrize("engine_of", [GhostEngine, VmapEngine])
@pytest.mark.parametrize("name", ["perceptron", "emnist", "odd convolutions", "used twice"])
def test_no_person_moves_the_sum_beyond_its_sensitivity(name, engine_of):
    """Brute force: the sum with all rows of a person minus the sum without the person; others have several rows too."""
    rows_loss, inputs, targets = problem(name, 12)
    engine, inputs = engine_of(RowsLoss(rows_loss.module.double(), rows_loss.loss)), inputs.double()
    # The person is 0, with 5 rows among those of others; one row has no id.
    ids = [0, 1, 0, 2, 2, 0, 1, 3, 0, "", 2, 0]
    own = np.array([each == 0 for each in ids])
    targets[own] = targets[0]  # so that their gradients point one way
    clip_norm, furthest, without_shares = 0.5, 0.0, 0.0

    def summed(kept, rows, *, shared=True):
        shares = person_shares([each for each, keep in zip(ids, kept, strict=True) if keep], int(kept.sum()))
        index = torch.from_numpy(np.flatnonzero(kept))
        return clipped_gradient_sum(engine, rows[index], targets[index], clip_norm, shares if shared else None)

    without, without_plain = (summed(~own, inputs, shared=shared).value for shared in (True, False))
    for value in HOSTILE:
        for pattern in (torch.ones_like(inputs[0]), inputs[0]):
            changed = inputs.clone()
            changed[own] = value * pattern
            made = summed(np.ones(12, dtype=bool), changed)
            assert made.unit == "person"
            assert np.isfinite(made.value).all()
            furthest = max(furthest, float(np.linalg.norm(made.value - without)))
            plain = summed(np.ones(12, dtype=bool), changed, shared=False)
            without_shares = max(without_shares, float(np.linalg.norm(plain.value - without_plain)))
    assert 0.95 * clip_norm < furthest <= clip_norm * (1 + 1e-9)
    assert without_shares > 4.5 * clip_norm  # the same rows show if shares are passed over


@pytest.mark.parametrize("engine_of", [GhostEngine, VmapEngine])
def test_a_removed_person_moves_a_sum_in_float64_by_its_bound_and_sums_in_float32_are_refused(engine_of):
    """Many aligned gradients, so that what rounding does to the rows of others adds up."""
    ids, moved = np.arange(6000) % 2000, {}
    for dtype in (torch.float64, torch.float32):
        moved[dtype], whole = removed(engine_of, dtype, torch.ones(3), ids, (0, 1, 700, 1999), shared=True)
        for adjacency in Adjacency:
            if dtype is torch.float64:
                assert whole.sensitivity("l2", adjacency) == 0.1 * adjacency.factor
            else:
                with pytest.raises(PrivacyError, match="float32"):
                    whole.sensitivity("l2", adjacency)
    assert 0.9 < max(moved[torch.float64]) <= 1 + 1e-9
    # A person's exact part is the same for all four, so that this is rounding alone.
    assert np.ptp(moved[torch.float64]) < 1e-3 * np.ptp(moved[torch.float32])


@pytest.mark.parametrize("name", ["positions", "convolution"])
def test_in_float64_the_norm_of_a_row_does_not_depend_on_the_number_of_other_rows(name, monkeypatch):
    """Also where few gradients would fit into memory and many would not."""
    torch.manual_seed(0)
    first, shape, size = {
        "positions": (nn.Linear(8, 16), (4, 8), 128),
        "convolution": (nn.Conv1d(8, 16, 1), (8, 4), 128),
    }[name]
    module = nn.Sequential(first, nn.Tanh(), nn.Flatten(), nn.Linear(64, 3))
    monkeypatch.setattr(ghost_clipping, "_GHOST_STORED", 100 * size)
    inputs, targets = torch.randn(300, *shape), torch.randint(3, (300,))
    changed = {}
    for dtype in (torch.float64, torch.float32):
        engine = GhostEngine(RowsLoss(copy.deepcopy(module).to(dtype), cross_entropy))
        alone, together = (norms(engine, inputs[:n].to(dtype), targets[:n])[:80] for n in (80, 300))
        changed[dtype] = np.abs(alone / together - 1).max()
    assert changed[torch.float64] < 1e-12
    assert changed[torch.float32] > 1e-7  # there the two ways take turns, so the test would see it


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


def test_vmap_takes_rows_in_chunks_that_fit_into_memory(monkeypatch):
    rows_loss, inputs, targets = problem("perceptron", 150)
    assert [len(part) for part, _ in VmapEngine(rows_loss).parts(inputs, targets)] == [64, 64, 22]
    expected = clipped_gradient_sum(VmapEngine(rows_loss), inputs, targets, 0.5).value
    monkeypatch.setattr(row_gradients, "STORED_GRADIENTS", 10 * rows_loss.n_parameters)
    engine = VmapEngine(rows_loss)
    assert len(list(engine.parts(inputs, targets))) == 15
    assert np.allclose(clipped_gradient_sum(engine, inputs, targets, 0.5).value, expected, atol=1e-5)


@pytest.mark.parametrize("engine", [GhostEngine, VmapEngine])
def test_one_more_person_moves_no_other_row_across_a_kink(engine):
    """The input of a ReLU is 0 up to rounding in every row, and its gradient is all that a row's gradient holds."""
    width, clip_norm = 20, 1.0
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 2)).double()
    with torch.no_grad():
        module[0].bias[:] = torch.tensor([0.0] + [-1e9] * 63)
        for weights in module[2].parameters():
            weights.zero_()
        module[2].weight[:, 0] = torch.tensor([1.0, -1.0])
    normal = module[0].weight[0].detach()
    X = 1e3 * torch.randn(150, width, dtype=torch.float64)
    X -= (X @ normal / (normal @ normal))[:, None] * normal
    codes = torch.zeros(len(X), dtype=torch.long)

    def total(first):
        n = len(X) - first
        shares = person_shares(np.arange(n), n)
        rows = RowsLoss(module, cross_entropy)
        return clipped_gradient_sum(engine(rows), X[first:], codes[first:], clip_norm, shares).value

    totals = [total(first) for first in range(len(X))]
    moves = [np.linalg.norm(more - less) for more, less in itertools.pairwise(totals)]
    assert max(moves) <= clip_norm * (1 + 1e-9)
