"""The trial: networks and losses that can't be trained privately are refused before anything is spent."""

import traceback

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from dpadapt import Adjacency, Ledger  # noqa: E402
from dpadapt.networks import PrivateNetwork  # noqa: E402
from dpadapt.networks.models import perceptron, squared_loss  # noqa: E402

RANDOM = np.random.default_rng(0)
X, y = RANDOM.standard_normal((60, 4)), RANDOM.integers(0, 2, 60)


class OneLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)


class Centred(OneLayer):
    """Subtracts the mean of the batch from each row."""

    def forward(self, rows):
        return self.layer(rows - rows.mean(dim=0))


class CentredInTraining(Centred):
    """Subtracts the mean of the batch in training mode only."""

    def forward(self, rows):
        return super().forward(rows) if self.training else self.layer(rows)


class CentredInLargeBatches(Centred):
    """Mixes rows only where there are more than in the trial."""

    def forward(self, rows):
        return super().forward(rows) if len(rows) > 10 else self.layer(rows)


class Counting(OneLayer):
    """Adds its rows to a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, rows):
        if self.training:
            self.seen += rows.detach().sum(dim=0)
        return self.layer(rows)


class Hidden(OneLayer):
    """Stores its rows as an attribute that is no buffer."""

    def forward(self, rows):
        self.kept = rows
        return self.layer(rows)


class Odd(nn.Module):
    """Owns a parameter that belongs to no known layer."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 4))

    def forward(self, rows):
        return rows @ self.weight.T


class Sorted(Odd):
    """Branches on the value of a row, which vmap can't follow, and owns a parameter that ghost clipping can't."""

    def forward(self, rows):
        return torch.stack([row @ self.weight.T if float(row.sum()) > 0 else -row @ self.weight.T for row in rows])


def fit(module, *, loss=None, y=y, **params):
    """Return a fitted model; if the fit fails, nothing may have been spent."""
    ledger = Ledger(epsilon=5.0, delta=1e-5, adjacency=Adjacency.of(params.get("adjacency", "zero-out")))
    params = {"n_steps": 2, "batch_size": 60, "epsilon": 3.0, "delta": 1e-5, "public_steps": 3, **params}
    try:
        return PrivateNetwork(module, loss=loss, random_state=0, **params).fit(X, y, ledger=ledger)
    except Exception as error:
        assert ledger.entries == []
        raise error


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)), "BatchNorm1d.*mixes the rows.*GroupNorm"),
        (Centred(), "mixes the rows of a batch"),
        (CentredInTraining(), "mixes the rows of a batch"),
        (CentredInLargeBatches(), "mixes the rows of a batch"),
        (Counting(), "changes its buffer seen"),
        (Sorted(), "can't be computed row by row"),
        (nn.Linear(4, 3), r"a score per class, shape \(6, 2\).*got \(6, 3\)"),
        (nn.Linear(5, 2), r"fails on rows of shape \(4,\)"),
        (nn.Linear(4, 2).double(), r"float32|fails"),
        (nn.Linear(4, 2).requires_grad_(False), "no parameter that requires a gradient"),
    ],
)
def test_modules_that_break_the_guarantee_are_refused_and_nothing_is_spent(module, message):
    with pytest.raises(ValueError, match=message):
        fit(module)


@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(),
        lambda outputs, targets: nn.functional.cross_entropy(outputs, targets, reduction="none")[:, None],
        lambda outputs, targets: outputs,
        lambda outputs, targets: 0.0,
    ],
    ids=["mean", "column", "table", "number"],
)
def test_losses_must_be_one_per_row(loss):
    with pytest.raises(ValueError, match=r"one loss per row, shape \(6,\)"):
        fit(nn.Linear(4, 2), loss=loss, classes=[0, 1])


def test_a_loss_that_broadcasts_a_column_is_refused():
    """Targets (B,) against outputs (B, 1): the squared error broadcasts to (B, B)."""
    with pytest.raises(ValueError, match=r"got shape \(6, 6\)"):
        fit(nn.Linear(4, 1), loss=lambda outputs, targets: (outputs - targets).square(), y=y.astype(float))
    model = fit(nn.Linear(4, 1), loss=squared_loss, y=y.astype(float))
    assert model.predict(X).shape == (60, 1)


def test_known_layers_use_ghost_clipping_and_others_vmap():
    assert fit(perceptron(4, 2)).engine_ == "ghost"
    assert fit(Odd()).engine_ == "vmap"
    overwriting = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 2))
    assert fit(overwriting).engine_ == "ghost"
    assert overwriting[1].inplace  # the given module is not changed


def test_a_layer_whose_output_is_overwritten_in_place_uses_vmap():
    class Overwriting(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 2)

        def forward(self, rows):
            return self.last(torch.relu_(self.first(rows)))

    assert fit(Overwriting()).engine_ == "vmap"


def class_loss(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


@pytest.mark.parametrize("adjacency", ["zero-out", "add-remove"])
def test_a_loss_that_fails_on_private_targets_alone_is_refused_and_nothing_is_spent(adjacency):
    """torch quotes a target that is no class; the trial, on synthetic targets, can't find it."""
    targets = np.append(np.zeros(59, int), 77123)
    params = {"adjacency": adjacency, "n_rows": 60 if adjacency == "add-remove" else None}
    with pytest.raises(ValueError, match=r"fails on private rows \(IndexError\).*Nothing was spent") as failure:
        fit(nn.Linear(4, 2), loss=class_loss, y=targets, **params)
    shown = "".join(traceback.format_exception(failure.value))
    assert "77123" not in shown
    assert "60" not in str(failure.value)
    assert failure.value.__context__ is None


def test_private_rows_that_a_module_stored_are_not_in_the_fitted_module():
    model = fit(Hidden())
    assert not hasattr(model.module_, "kept")


def test_private_rows_that_a_module_stored_are_not_watched():
    seen = []
    fit(Hidden(), watch=lambda step, module: seen.append(hasattr(module, "kept")))
    assert seen == [False, False]


def test_dropout_is_allowed_and_predictions_are_not_random():
    model = fit(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2)))
    assert model.engine_ == "ghost"
    assert np.array_equal(model.predict_proba(X), model.predict_proba(X))
