"""Scratch, fine-tuning and probing: what each does with the module's weights, and that features help."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from dpadapt import Ledger, Public  # noqa: E402
from dpadapt.networks import PrivateNetwork, freeze_batch_norm, pretrained  # noqa: E402
from dpadapt.networks.models import perceptron  # noqa: E402

RANDOM = np.random.default_rng(0)


def task(n, seed, labels):
    """Return rows and the labels of the "public" or the "private" task, which depend on the same two features."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, 6)).astype(np.float32)
    first, second = np.abs(X[:, 0]), np.abs(X[:, 1])
    # Neither task is linear in the rows: a network must learn the features.
    return X, 2 * (first > 0.67) + (second > 0.67) if labels == "public" else (first > second).astype(int)


@pytest.fixture(scope="module")
def module():
    torch.manual_seed(0)
    X, y = task(2000, 0, "public")
    return pretrained(perceptron(6, 2, hidden=(16,)), Public(X, y), 2, n_steps=400)


def network(module, **params):
    settings = {"classes": [0, 1], "n_steps": 30, "batch_size": 5000, "random_state": 0} | params
    return PrivateNetwork(module, 2.0, 1e-5, **settings)


def weights(module):
    return [p.detach().numpy().copy() for p in module.parameters()]


def test_a_probe_trains_only_the_last_layer(module):
    model = network(module, transfer="probe").fit(*task(1000, 1, "private"))
    before, after = weights(module), weights(model.module_)
    assert all(np.array_equal(a, b) for a, b in zip(before[:-2], after[:-2], strict=True))
    assert not np.array_equal(before[-2], after[-2])
    assert all(p.requires_grad for p in module.parameters())


def test_fine_tuning_starts_from_the_modules_weights_and_scratch_does_not(module):
    X, y = task(1000, 1, "private")
    # With a budget too small to help, the fitted module is the start.
    tuned, scratch = (
        network(module, transfer=way).set_params(epsilon=1e-9).fit(X, y) for way in ("finetune", "scratch")
    )
    before = weights(module)
    assert all(np.array_equal(a, b) for a, b in zip(before, weights(tuned.module_), strict=True))
    assert not np.array_equal(before[0], weights(scratch.module_)[0])
    tuned = network(module, transfer="finetune").fit(X, y)
    assert not np.array_equal(before[0], weights(tuned.module_)[0])
    assert "weights of the module" in tuned.privacy_.assumptions[-1]
    assert "weights of the module" not in scratch.privacy_.assumptions[-1]


def test_public_features_help_where_public_labels_do_not(module):
    X, y = task(2000, 1, "private")
    accuracy = {
        way: network(module, transfer=way, learning_rate=rate).fit(X, y).score(*task(2000, 3, "private"))
        for way, rate in (("scratch", 1.0), ("probe", 4.0))
    }
    assert accuracy["probe"] > accuracy["scratch"] + 0.05


def test_modules_and_settings_that_fit_no_way_are_refused_before_anything_is_spent(module):
    X, y = task(600, 1, "private")
    ledger = Ledger(10.0, 1e-4)
    with pytest.raises(ValueError, match="Linear"):
        network(nn.Sequential(nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 2, 6), nn.Flatten()), transfer="probe").fit(
            X, y, ledger=ledger
        )
    with pytest.raises(ValueError, match="transfer must be one of"):
        network(module, transfer="frozen").fit(X, y, ledger=ledger)
    with pytest.raises(ValueError, match="labels"):
        pretrained(module, Public(X), 2)
    assert ledger.entries == []


class HeadFirst(nn.Module):
    """Defines its layers in another order than it calls them, and owns a parameter directly."""

    def __init__(self):
        super().__init__()
        self.head, self.body, self.gain = nn.Linear(5, 2), nn.Linear(6, 5), nn.Parameter(torch.ones(6))

    def forward(self, rows):
        return self.head(torch.relu(self.body(rows * self.gain)))


@pytest.mark.parametrize(
    ("transfer", "words"), [("scratch", "reinitialised"), ("probe", "body returns 5 numbers, not 2")]
)
def test_a_module_that_a_way_would_prepare_wrongly_is_refused_before_anything_is_spent(transfer, words):
    ledger = Ledger(10.0, 1e-4)
    with pytest.raises(ValueError, match=words):
        network(HeadFirst(), transfer=transfer).fit(*task(600, 1, "private"), ledger=ledger)
    assert ledger.entries == []


class Skips(nn.Module):
    """Batch normalisations of every kind of use: nested, one without weights, one that is used twice."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU())
        self.plain = nn.BatchNorm2d(3, affine=False)
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(48, 6), nn.BatchNorm1d(6, eps=0.1), nn.Linear(6, 3))

    def forward(self, rows):
        maps = self.inner(rows)
        return self.head(self.plain(maps) + self.plain(maps * 2))


def normalised():
    """A network whose statistics and scales are far from those it starts with."""
    torch.manual_seed(0)
    module = Skips()
    for _ in range(20):
        module(3 * torch.randn(16, 2, 4, 4) + 1)
    for layer in (module.inner[1], module.head[2]):
        nn.init.uniform_(layer.weight, 0.5, 2.0)
        nn.init.normal_(layer.bias)
    return module.eval()


def test_frozen_batch_normalisation_computes_what_the_trained_one_does():
    module = normalised()
    frozen = freeze_batch_norm(module)
    rows = torch.randn(9, 2, 4, 4)
    expected = module(rows)
    assert torch.allclose(frozen(rows), expected, atol=1e-5)
    # Also in training mode, where rows would influence each other, and with one row alone.
    assert torch.allclose(frozen.train()(rows)[:1], frozen(rows[:1]), atol=1e-5)
    assert torch.allclose(frozen(rows), expected, atol=1e-5)
    assert isinstance(module.inner[1], nn.BatchNorm2d)
    alone = freeze_batch_norm(module.inner[1])
    maps = torch.randn(5, 3, 4, 4)
    assert torch.allclose(alone(maps), module.inner[1](maps), atol=1e-5)


def test_private_rows_leave_the_frozen_statistics_and_the_given_module_as_they_are():
    module = freeze_batch_norm(normalised())
    before = {name: value.clone() for name, value in module.state_dict().items()}
    rows, labels = 5 + RANDOM.standard_normal((80, 2, 4, 4)), RANDOM.integers(0, 3, 80)
    ledger = Ledger(10.0, 1e-4)
    settings = {"epsilon": 3.0, "delta": 1e-6, "n_steps": 5, "batch_size": 40, "classes": range(3), "random_state": 0}
    tuned = PrivateNetwork(module, transfer="finetune", **settings).fit(rows, labels, ledger=ledger)
    assert tuned.engine_ == "ghost"
    after = tuned.module_.state_dict()
    for name, value in before.items():
        assert torch.equal(module.state_dict()[name], value)
        assert torch.equal(after[name], value) == name.endswith(("scale", "shift")), name
    scratch = PrivateNetwork(module, transfer="scratch", **settings).fit(rows, labels, ledger=ledger)
    # From scratch, the statistics of the pretraining are not used either.
    assert torch.equal(scratch.module_.inner[1].scale, torch.ones(3))
    assert torch.equal(scratch.module_.inner[1].shift, torch.zeros(3))
