"""Three ways to train a publicly pretrained network on private rows: from scratch, fine-tuned, or as a linear probe.

They are the columns of Figure 1 of "On the Benefits of Public Representations for Private Transfer Learning under
Distribution Shift", arXiv:2312.15551. `pretrained` trains a network on a public task. `freeze_batch_norm` makes a
network with batch normalisation fit for private training.
"""

import copy
from typing import Any

import numpy as np
import torch
from torch import nn

from dpadapt import checks
from dpadapt.data import Public
from dpadapt.networks.public_training import as_inputs, as_targets, split_rows, train_publicly
from dpadapt.networks.row_gradients import RowsLoss, cross_entropy

WAYS = ("scratch", "finetune", "probe")
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def prepare_module(module: nn.Module, transfer: str, n_scores: int | None) -> nn.Module:
    """Prepare a module, in place, for one of the three ways, and return it.

    "scratch" reinitialises its weights, "probe" freezes all but its last linear layer, and every other transfer leaves
    it unchanged. `n_scores` is the number of outputs that the last linear layer must have, or None.
    """
    if transfer == "scratch":
        for name, layer in module.named_modules():
            reset = getattr(layer, "reset_parameters", None)
            if callable(reset):
                reset()
            elif next(layer.parameters(recurse=False), None) is not None:
                raise ValueError(
                    f"module has weights in {type(layer).__name__} ({name or 'the module itself'}) that can't be "
                    f"reinitialised for transfer='scratch'. Give that layer a method reset_parameters."
                )
    elif transfer == "probe":
        module.requires_grad_(False)
        name, last = _last_linear(module)
        if n_scores not in (None, last.out_features):
            raise ValueError(
                f"module must define the Linear layer that returns the scores last for transfer='probe'; {name} "
                f"returns {last.out_features} numbers, not {n_scores}."
            )
        last.requires_grad_(True)
    return module


def _last_linear(module: nn.Module) -> tuple[str, nn.Linear]:
    """Return the name of the last linear layer, which gives the scores, and the layer."""
    linear_layers = [(name, layer) for name, layer in module.named_modules() if isinstance(layer, nn.Linear)]
    if not linear_layers:
        raise ValueError("module must end in a Linear layer for transfer='probe': only that layer is trained.")
    return linear_layers[-1]


def with_head(module: nn.Module, n_classes: int, *, zero: bool = True) -> nn.Module:
    """Return a copy of a module with a new last linear layer of `n_classes` outputs, with zero or random weights.

    Examples
    --------
    >>> with_head(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 5)), 4)[1].out_features
    4
    """
    copied = copy.deepcopy(module)
    name, layer = _last_linear(copied)
    head = nn.Linear(layer.in_features, n_classes)
    if zero:
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
    if not name:
        return head
    parent, _, child = name.rpartition(".")
    setattr(copied.get_submodule(parent), child, head)
    return copied


class FixedNorm(nn.Module):  # type: ignore[misc]
    """A batch normalisation with fixed statistics: each channel times a number, plus a number. Nothing is trained.

    The statistics of the layer must come from public rows.
    """

    def __init__(self, layer: Any) -> None:
        super().__init__()
        with torch.no_grad():
            scale = torch.rsqrt(layer.running_var + layer.eps)
            scale = scale if layer.weight is None else scale * layer.weight
            shift = -layer.running_mean * scale
            shift = shift if layer.bias is None else shift + layer.bias
        self.register_buffer("scale", scale.clone())
        self.register_buffer("shift", shift.clone())

    def reset_parameters(self) -> None:
        """Forget the statistics: for training from scratch."""
        self.scale.fill_(1.0)
        self.shift.zero_()

    def forward(self, rows: Any) -> Any:
        """Return the normalised rows, (B, channels, ...)."""
        shape = (1, -1, *[1] * (rows.ndim - 2))
        return rows * self.scale.reshape(shape) + self.shift.reshape(shape)


def freeze_batch_norm(module: nn.Module) -> nn.Module:
    """Return a copy of a pretrained module whose batch normalisations keep the statistics they have.

    Batch normalisation computes statistics over the rows of a batch, so that one private row would change the gradients
    of all others; `PrivateNetwork` refuses it. With the statistics of the public pretraining, each row is treated by
    itself, and nothing is computed from private rows. The scales and shifts are not trained.

    Parameters
    ----------
    module : Module
        Pretrained on public rows, with running statistics.

    Examples
    --------
    >>> network = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).eval()
    >>> rows = torch.ones(4, 3)
    >>> torch.allclose(freeze_batch_norm(network)(rows), network(rows))
    True
    """
    if isinstance(module, BATCH_NORMS):
        if module.running_mean is None:
            raise ValueError("module has a batch normalisation without running statistics, which can't be frozen.")
        return FixedNorm(module)
    copied = copy.deepcopy(module)
    for layer in list(copied.modules()):
        for child, inner in layer.named_children():
            if isinstance(inner, BATCH_NORMS):
                setattr(layer, child, freeze_batch_norm(inner))
    return copied


def pretrained(
    module: nn.Module,
    public: Public,
    n_classes: int,
    *,
    n_steps: int = 1000,
    batch_size: int = 64,
    learning_rate: float = 0.002,
    random_state: int = 0,
) -> nn.Module:
    """Return a copy of `module`, trained on a public task, with a new head of zeros for the private task.

    Public data needs no protection, so this is ordinary training. The public classes may differ from the private ones.
    If they are the same, keep the head: use `PrivateNetwork(transfer="warm")`.

    Parameters
    ----------
    module : Module
        Ends in a Linear layer.
    public : Public
        Labelled.
    n_classes : int
        Number of classes of the private task.
    n_steps, batch_size : int
    learning_rate : float
        Learning rate of Adam.
    random_state : int, default=0
        For the order of public rows and the public head.
    """
    if public.y is None:
        raise ValueError("public must have labels: a network learns nothing from rows without them.")
    labels, codes = np.unique(np.asarray(public.y), return_inverse=True)
    generator = np.random.default_rng(random_state)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(generator.integers(2**63)))
        network = with_head(module, len(labels), zero=False)
        rows = split_rows(
            as_inputs(np.asarray(public.X), None, "public X"), as_targets(codes, "public y"), 0.15, generator
        )
        train_publicly(
            RowsLoss(network, cross_entropy),
            rows.training,
            rows.held_out,
            n_steps=checks.count(n_steps, "n_steps"),
            batch_size=checks.count(batch_size, "batch_size"),
            learning_rate=checks.positive(learning_rate, "learning_rate"),
            generator=generator,
        )
    return with_head(network.eval(), n_classes)
