"""The networks of paper 2 (Table 2). No layer mixes the rows of a batch.

Table 2 of [2]_ gives layers and sizes but neither padding nor activations. We use tanh, as the work that it cites for
these networks does [3]_, and the padding stated at each network.

References
----------
.. [2] E. Amid, A. Ganesh, R. Mathews, S. Ramaswamy, S. Song, T. Steinke, V. M. Suriyakumar, O. Thakkar, A. Thakurta.
   Public Data-Assisted Mirror Descent for Private Model Training. 2022. arXiv:2112.00193
.. [3] N. Papernot, A. Thakurta, S. Song, S. Chien, Ú. Erlingsson. Tempered Sigmoid Activations for Deep Learning with
   Differential Privacy. 2021. arXiv:2007.14191
"""

from torch import nn

from dpadapt import checks
from dpadapt.networks.models import LSTMLayer


def emnist_cnn(n_outputs: int = 47, *, side: int = 28) -> nn.Module:
    """Return the network for EMNIST of [2]_, Table 2b: two convolutions, 32 units, a score per class.

    The first convolution is padded to halve the image, the second is not padded. At 28 x 28 and ten classes there are
    46,490 parameters.

    Parameters
    ----------
    n_outputs : int, default=47
        Classes.
    side : int, default=28
        Width and height of the grey images, which have shape (n_rows, 1, side, side); at least 14.

    Examples
    --------
    >>> n_parameters(emnist_cnn(10))
    46490
    """
    side = checks.count(side, "side", least=14)
    after = ((side - 2) // 2 + 1 - 4) // 2 + 1
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, stride=2, padding=3),
        nn.Tanh(),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(32 * after**2, 32),
        nn.Tanh(),
        nn.Linear(32, checks.count(n_outputs, "n_outputs")),
    )


def cifar_cnn(n_outputs: int = 10) -> nn.Module:
    """Return the network for CIFAR-10 of [2]_, Table 2a: three pairs of convolutions with pooling, 128 units.

    Convolutions are padded to keep the image's size. Images have shape (n_rows, 3, 32, 32).

    Parameters
    ----------
    n_outputs : int, default=10
        Classes.

    Examples
    --------
    >>> n_parameters(cifar_cnn())
    550570
    """
    layers: list[nn.Module] = []
    for before, after in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.Tanh()]
        layers += [nn.Conv2d(after, after, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2)]
    head = [nn.Flatten(), nn.Linear(128 * 16, 128), nn.Tanh(), nn.Linear(128, checks.count(n_outputs, "n_outputs"))]
    return nn.Sequential(*layers, *head)


def lstm_language_model(n_words: int = 8000, *, n_units: int = 120, n_layers: int = 2) -> nn.Module:
    """Return the network for WikiText-2 of [2]_, Table 2c: an embedding, two LSTM layers, a score per word.

    Rows are sequences of word numbers, shape (n_rows, length). Targets have the same shape: the next word at each
    position. Train it with `sequence_loss`.

    Parameters
    ----------
    n_words : int, default=8000
        Vocabulary size, the unknown word included.
    n_units : int, default=120
        Size of the embedding and of the state of each layer.
    n_layers : int, default=2

    Examples
    --------
    >>> n_parameters(lstm_language_model())
    2159360
    """
    n_words, n_units = checks.count(n_words, "n_words"), checks.count(n_units, "n_units")
    layers = [LSTMLayer(n_units, n_units) for _ in range(checks.count(n_layers, "n_layers"))]
    return nn.Sequential(nn.Embedding(n_words, n_units), *layers, nn.Linear(n_units, n_words))


def n_parameters(module: nn.Module) -> int:
    """Return the number of trainable parameters of a module."""
    return sum(weights.numel() for weights in module.parameters() if weights.requires_grad)
