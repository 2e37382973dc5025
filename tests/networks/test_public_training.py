"""Public training: tensors, the held-out split, early stopping, and temperature scaling."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from dpadapt import Ledger  # noqa: E402
from dpadapt.learning.losses import SoftmaxLoss  # noqa: E402
from dpadapt.networks import PrivateNetwork  # noqa: E402
from dpadapt.networks.models import perceptron  # noqa: E402
from dpadapt.networks.public_training import (  # noqa: E402
    as_targets,
    fit_temperature,
    held_out_loss,
    train_publicly,
)
from dpadapt.networks.row_gradients import RowsLoss, cross_entropy  # noqa: E402

RANDOM = np.random.default_rng(0)


def test_the_temperature_undoes_a_scale_and_lowers_the_loss():
    random = np.random.default_rng(0)
    codes = random.integers(0, 4, 4000)
    scores = np.eye(4)[codes] + random.gumbel(size=(4000, 4))
    temperature = fit_temperature(7 * scores, codes)
    assert temperature == pytest.approx(7 * fit_temperature(scores, codes), rel=1e-2)
    assert SoftmaxLoss().value(7 * scores / temperature, codes) < SoftmaxLoss().value(7 * scores, codes) - 0.1


def rows(n, seed):
    """Return rows of two classes that a perceptron can separate, with a tenth of the labels wrong."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, 3)).astype(np.float32)
    y = (X[:, 0] * X[:, 1] > 0) ^ (random.random(n) < 0.1)
    return torch.from_numpy(X), torch.from_numpy(y.astype(np.int64))


def trained(n_steps, training, held_out):
    torch.manual_seed(0)
    rows_loss = RowsLoss(perceptron(3, 2, hidden=(32,)), cross_entropy)
    generator = np.random.default_rng(0)
    train_publicly(
        rows_loss, training, held_out, n_steps=n_steps, batch_size=16, learning_rate=0.02, generator=generator
    )
    return rows_loss


def test_training_lowers_the_held_out_loss():
    held_out = rows(500, 1)
    before, after = (held_out_loss(trained(steps, rows(500, 0), held_out), *held_out) for steps in (1, 400))
    assert after < before - 0.15


def test_early_stopping_never_ends_worse_than_the_start():
    """A few rows with wrong labels: training on them can only raise the held-out loss."""
    held_out = rows(500, 1)
    inputs, targets = rows(20, 2)
    torch.manual_seed(0)
    start = held_out_loss(RowsLoss(perceptron(3, 2, hidden=(32,)), cross_entropy), *held_out)
    stopped = held_out_loss(trained(400, (inputs, 1 - targets), held_out), *held_out)
    assert stopped <= start


def test_targets_keep_whether_they_are_integers_and_text_is_refused():
    assert as_targets(np.array([True, False]), "y").dtype == torch.int64
    assert as_targets(np.array([1.0, 2.0]), "y").dtype == torch.float32
    with pytest.raises(ValueError, match="y must hold numbers for a custom loss"):
        as_targets(np.array(["a", "b"]), "y")


def test_words_out_of_range_are_refused_without_showing_them():
    module = nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(12, 2))
    y, words = RANDOM.integers(0, 2, 60), RANDOM.integers(0, 5, (60, 4))
    words[3, 1] = 77123
    ledger = Ledger(epsilon=5.0, delta=1e-5)
    with pytest.raises(ValueError, match="whole numbers from 0 to 4") as failure:
        PrivateNetwork(module, n_steps=2).fit(words, y, ledger=ledger)
    assert "77123" not in str(failure.value)
    assert ledger.entries == []
