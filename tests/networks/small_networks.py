"""Small networks with rows for them, on which the tests of per-row gradients run."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from benchmarks.mirror.models import emnist_cnn  # noqa: E402
from dpadapt.networks.models import LSTMLayer, perceptron  # noqa: E402
from dpadapt.networks.row_gradients import RowsLoss, cross_entropy  # noqa: E402


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


def grouped_convolutions():
    return nn.Sequential(
        nn.Conv2d(4, 6, 3, groups=2, padding=1),
        nn.Tanh(),
        nn.Conv2d(6, 6, (5, 3), groups=6, stride=(2, 1), padding=(2, 1), dilation=(1, 2)),
        nn.Tanh(),
        nn.Conv2d(6, 6, 2, groups=6, stride=3, bias=False),  # the last rows and columns are in no window
        nn.Tanh(),
        nn.Conv2d(6, 12, 1, groups=6),  # two kernels per channel
        nn.Tanh(),
        nn.Conv2d(12, 12, 3, groups=12, padding=1),  # one position
        nn.Flatten(),
        nn.Linear(12, 3),
    )


class DepthwiseTwice(nn.Module):
    """Uses one depthwise layer twice on each row, with different lengths."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Conv1d(3, 3, 3, groups=3, dilation=2, padding="same"), nn.Linear(3, 3)

    def forward(self, rows):
        once = torch.tanh(self.inner(rows))
        return self.outer(self.inner(once[..., ::2]).mean(dim=2))


def words_to_class():
    return nn.Sequential(nn.Embedding(9, 4, padding_idx=2), LSTMLayer(4, 5), nn.Flatten(), nn.Linear(30, 3))


# name -> module, shape of a row, words (or None), classes
CASES = {
    "perceptron": (lambda: perceptron(12, 3, hidden=(7, 5)), (12,), None, 3),
    "emnist": (lambda: emnist_cnn(10, side=14), (1, 14, 14), None, 10),
    "wide image": (wide_image, (2, 5, 8), None, 3),
    "odd convolutions": (odd_convolutions, (3, 10), None, 3),
    "grouped convolutions": (grouped_convolutions, (4, 7, 6), None, 3),
    "depthwise, used twice": (DepthwiseTwice, (3, 10), None, 3),
    "used twice": (Twice, (6,), None, 3),
    "words": (words_to_class, (6,), 9, 3),
}


def problem(name, n_rows, seed=0):
    """Return the network of a case with its loss, and random rows and targets."""
    make, shape, words, n_classes = CASES[name]
    torch.manual_seed(seed)
    inputs = torch.randn(n_rows, *shape) if words is None else torch.randint(words, (n_rows, *shape))
    return RowsLoss(make(), cross_entropy), inputs, torch.randint(n_classes, (n_rows,))


def norms(engine, inputs, targets):
    """Return the gradient norms that an engine gives for all rows."""
    return np.concatenate([part for part, _ in engine.parts(inputs, targets)])


def one_by_one(rows_loss, inputs, targets):
    """Return the gradient of each row, as a batch of one."""
    return np.stack([rows_loss.gradient(inputs[i : i + 1], targets[i : i + 1]) for i in range(len(inputs))])
