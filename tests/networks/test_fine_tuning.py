"""Scratch, fine-tuning and probing: what each does with the module's weights, and that features help."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from dpadapt import Ledger, Public  # noqa: E402
from dpadapt.networks import PrivateNetwork, pretrained, three_ways  # noqa: E402
from dpadapt.networks.fine_tuning import with_head  # noqa: E402
from dpadapt.networks.models import perceptron  # noqa: E402


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


def test_public_rows_do_not_change_the_weights_in_the_three_ways(module):
    X, y = task(1000, 1, "private")
    rows = task(100, 2, "private")
    model = network(module, transfer="finetune").set_params(epsilon=1e-9).fit(X, y, public=Public(*rows))
    assert all(np.array_equal(a, b) for a, b in zip(weights(module), weights(model.module_), strict=True))


def test_public_features_help_where_public_labels_do_not(module):
    results = three_ways(
        network(module),
        *task(2000, 1, "private"),
        test=task(2000, 3, "private"),
        epsilons=(1.0,),
        settings={"probe": {"learning_rate": 4.0}},
    )
    accuracy = {result.transfer: result.accuracy for result in results}
    assert [result.transfer for result in results] == ["public only", "scratch", "finetune", "probe"]
    assert abs(accuracy["public only"] - 0.5) < 0.05
    assert accuracy["probe"] > accuracy["scratch"] + 0.05


def test_every_way_is_charged(module):
    X, y = task(600, 1, "private")
    ledger = Ledger(10.0, 1e-4)
    three_ways(network(module, n_steps=2), X, y, test=(X[:5], y[:5]), epsilons=(0.5, 1.0), ledger=ledger)
    assert len(ledger.entries) == 6


def test_pretraining_does_not_change_the_given_module_and_adds_a_head_of_zeros():
    given = perceptron(6, 2, hidden=(4,))
    before = weights(given)
    X, y = task(200, 0, "public")
    made = pretrained(given, Public(X, y), 7, n_steps=20)
    assert all(np.array_equal(a, b) for a, b in zip(before, weights(given), strict=True))
    assert weights(made)[-2].shape == (7, 4)
    assert not weights(made)[-2].any()
    assert not np.array_equal(weights(made)[0], before[0])


def test_modules_and_settings_that_fit_no_way_are_refused_before_anything_is_spent(module):
    X, y = task(600, 1, "private")
    ledger = Ledger(10.0, 1e-4)
    with pytest.raises(ValueError, match="Linear"):
        network(nn.Sequential(nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 2, 6), nn.Flatten()), transfer="probe").fit(
            X, y, ledger=ledger
        )
    with pytest.raises(ValueError, match="transfer must be one of"):
        network(module, transfer="frozen").fit(X, y, ledger=ledger)
    with pytest.raises(ValueError, match="settings must be one of"):
        three_ways(network(module), X, y, test=(X, y), settings={"warm": {}}, ledger=ledger)
    with pytest.raises(ValueError, match="module"):
        three_ways(PrivateNetwork(), X, y, test=(X, y), ledger=ledger)
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


def test_a_new_head_replaces_the_last_linear_layer_at_any_depth():
    whole = with_head(nn.Linear(3, 2), 5)
    nested = with_head(nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 2))), 5)
    assert whole.out_features == 5
    assert nested[1][1].out_features == 5
    assert copy.deepcopy(nested)(torch.zeros(1, 3)).shape == (1, 5)


def test_results_that_were_paid_for_are_returned_when_the_cap_is_reached(module):
    X, y = task(300, 1, "private")
    ledger = Ledger(epsilon=2.5, delta=1e-4)
    with pytest.warns(UserWarning, match="stopped before finetune at epsilon 2"):
        results = three_ways(
            network(module, n_steps=3), X, y, test=task(200, 2, "private"), epsilons=[2.0], ledger=ledger
        )
    assert [result.transfer for result in results] == ["public only", "scratch"]
    assert len(ledger.entries) == 1
