"""What is tried before anything is spent: networks and losses that can't be trained privately are refused."""

import traceback

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from dpadapt import Ledger, PrivacyError, Public  # noqa: E402
from dpadapt.networks import PrivateNetwork  # noqa: E402
from dpadapt.networks.models import perceptron, squared_loss  # noqa: E402

RANDOM = np.random.default_rng(0)
X, y = RANDOM.standard_normal((60, 4)), RANDOM.integers(0, 2, 60)


class Centred(nn.Module):
    """Takes the mean of the batch off each row."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, rows):
        return self.layer(rows - rows.mean(dim=0))


class CentredInTraining(Centred):
    """Does so in training alone."""

    def forward(self, rows):
        return super().forward(rows) if self.training else self.layer(rows)


class Counting(nn.Module):
    """Keeps something of what it saw."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, rows):
        if self.training:
            self.seen += rows.detach().sum(dim=0)
        return self.layer(rows)


class Hidden(nn.Module):
    """Keeps the rows themselves, where no buffer shows it."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, rows):
        self.kept = rows
        return self.layer(rows)


class Odd(nn.Module):
    """Owns a parameter that is no known layer's."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 4))

    def forward(self, rows):
        return rows @ self.weight.T


class Sorted(nn.Module):
    """Branches on the value of a row, which vmap can't follow, and owns a parameter that ghost clipping can't."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 4))

    def forward(self, rows):
        return torch.stack([row @ self.weight.T if float(row.sum()) > 0 else -row @ self.weight.T for row in rows])


def fit(module, *, loss=None, y=y, public=None, **params):
    """Fit with a ledger; return the model and the ledger."""
    ledger = Ledger(epsilon=5.0, delta=1e-5)
    params = {"n_steps": 2, "batch_size": 60, "epsilon": 3.0, "delta": 1e-5, "public_steps": 3, **params}
    try:
        return PrivateNetwork(module, loss=loss, random_state=0, **params).fit(
            X, y, public=public, ledger=ledger
        ), ledger
    except Exception as error:
        assert ledger.entries == []
        raise error


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)), "BatchNorm1d.*mixes the rows.*GroupNorm"),
        (Centred(), "mixes the rows of a batch"),
        (CentredInTraining(), "mixes the rows of a batch"),
        (Counting(), "changes its buffer seen"),
        (Sorted(), "can't be taken row by row"),
        (nn.Linear(4, 3), r"a score per class, shape \(4, 2\).*got \(4, 3\)"),
        (nn.Linear(5, 2), r"fails on rows of shape \(4,\)"),
        (nn.Linear(4, 2).double(), r"float32|fails"),
        (nn.Linear(4, 2).requires_grad_(False), "no parameter that requires a gradient"),
    ],
)
def test_unfit_modules_are_refused_and_nothing_is_spent(module, message):
    with pytest.raises(ValueError, match=message):
        fit(module)


@pytest.mark.parametrize("module", ["linear", 3, [nn.Linear(4, 2)], lambda: "linear"])
def test_what_is_no_module_is_refused(module):
    with pytest.raises(TypeError, match="module must be a torch Module"):
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
    with pytest.raises(ValueError, match=r"one loss per row, shape \(4,\)"):
        fit(nn.Linear(4, 2), loss=loss, classes=[0, 1])


def test_opacus_trap_of_a_column_loss_is_refused():
    """Targets (B,) against outputs (B, 1): the squared error broadcasts to (B, B)."""
    with pytest.raises(ValueError, match=r"got shape \(4, 4\)"):
        fit(nn.Linear(4, 1), loss=lambda outputs, targets: (outputs - targets).square(), y=y.astype(float))
    model, _ = fit(nn.Linear(4, 1), loss=squared_loss, y=y.astype(float))
    assert model.predict(X).shape == (60, 1)


def test_known_layers_use_ghost_clipping_and_others_vmap():
    assert fit(perceptron(4, 2))[0].engine_ == "ghost"
    assert fit(Odd())[0].engine_ == "vmap"
    overwriting = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 2))
    assert fit(overwriting)[0].engine_ == "ghost"
    assert overwriting[1].inplace  # the given module stays as it is


def test_a_layer_whose_output_is_overwritten_by_a_function_falls_back():
    class Overwriting(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 2)

        def forward(self, rows):
            return self.last(torch.relu_(self.first(rows)))

    assert fit(Overwriting())[0].engine_ == "vmap"


def test_what_a_module_keeps_of_private_rows_is_not_handed_out():
    model, _ = fit(Hidden())
    assert not hasattr(model.module_, "kept")


def test_dropout_trains_and_predicts_without_chance():
    model, _ = fit(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2)))
    assert model.engine_ == "ghost"
    assert np.array_equal(model.predict_proba(X), model.predict_proba(X))


def test_words_out_of_range_are_refused_without_showing_them():
    module = nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(12, 2))
    words = RANDOM.integers(0, 5, (60, 4))
    words[3, 1] = 77123
    ledger = Ledger(epsilon=5.0, delta=1e-5)
    with pytest.raises(ValueError, match="whole numbers from 0 to 4") as failure:
        PrivateNetwork(module, n_steps=2).fit(words, y, ledger=ledger)
    assert "77123" not in str(failure.value)
    assert ledger.entries == []


def test_a_loss_that_fails_on_private_targets_does_not_show_them():
    """torch quotes a target that is no class; the trial, on made-up targets, can't know."""
    targets = np.append(np.zeros(59, int), 77123)
    loss = lambda outputs, targets: nn.functional.cross_entropy(outputs, targets, reduction="none")  # noqa: E731
    with pytest.raises(PrivacyError, match="failed on private rows") as failure:
        PrivateNetwork(nn.Linear(4, 2), n_steps=2, batch_size=60, loss=loss, random_state=0).fit(X, targets)
    assert "77123" not in "".join(traceback.format_exception(failure.value))
    assert failure.value.__context__ is None


def test_public_rows_need_labels_and_the_private_rows_shape():
    with pytest.raises(ValueError, match="public must hold labels"):
        fit(None, public=Public(X[:10].copy()))
    images = X.reshape(60, 1, 2, 2)
    with pytest.raises(ValueError, match="shape"):
        PrivateNetwork(n_steps=2).fit(images, y, public=Public(np.zeros((9, 1, 4, 1)), y[:9]))


@pytest.mark.parametrize(
    "params",
    [
        {"transfer": "hot"},
        {"optimizer": "lbfgs"},
        {"n_steps": 0},
        {"batch_size": 0},
        {"clip_norm": 0.0},
        {"learning_rate": -1.0},
        {"momentum": 1.0},
        {"average": 1.5},
        {"epsilon": 0.0},
        {"delta": 0.0},
        {"mixing_floor": 2.0, "transfer": "mirror"},
        {"holdout": 0.0},
        {"public_steps": -1},
    ],
    ids=str,
)
def test_bad_parameters_are_named(params):
    with pytest.raises(ValueError, match=f"{'floor' if 'mixing_floor' in params else next(iter(params))} must"):
        fit(None, public=Public(X[:20] + 0.1, y[:20]), **params)
