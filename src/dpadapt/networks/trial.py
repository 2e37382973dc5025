"""The trial: before anything is spent, a network is tried on public or made-up rows, and its engine is chosen.

What would break the guarantee is refused here: a loss that is not one number per row, rows that influence each other,
buffers that a forward pass changes. An engine is only used if it agrees with plain gradients taken row by row.
"""

import copy
import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dpadapt.networks.ghost_clipping import GhostEngine, Unsupported
from dpadapt.networks.models import perceptron
from dpadapt.networks.row_gradients import Engine, RowsLoss, VmapEngine

_TRIED = 4

_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def refuse_batch_norm(module: nn.Module) -> None:
    """Refuse layers that mix the rows of a batch by design."""
    for name, layer in module.named_modules():
        if isinstance(layer, _BATCH_NORMS):
            raise ValueError(
                f"module has {type(layer).__name__} ({name}), which mixes the rows of a batch: one row would move "
                f"every other's gradient. Use GroupNorm or LayerNorm."
            )


def new_module(given: Any, shape: tuple[int, ...], n_classes: int | None) -> nn.Module:
    """Return the module to train for rows of this shape: a copy, so that the one given stays as it is."""
    if given is None:
        if n_classes is None:
            raise ValueError("module must be given with a loss of your own: its outputs are what the loss takes.")
        return perceptron(math.prod(shape), n_classes)
    made = given if isinstance(given, nn.Module) or not callable(given) else given()
    if not isinstance(made, nn.Module):
        raise TypeError(
            f"module must be a torch Module or a function without arguments that makes one, got {type(made).__name__}."
        )
    refuse_batch_norm(made)
    return _quiet_copy(made)


def tried_engine(
    rows_loss: RowsLoss, rows: tuple[Any, Any], public: tuple[Any, Any] | None, classes: NDArray[Any] | None
) -> Engine:
    """Try the network on public rows, or on made-up ones of the private rows' shape, and choose the engine."""
    if public is not None:
        tried = public[0][:_TRIED], public[1][:_TRIED]
    else:
        targets = torch.zeros((_TRIED, *rows[1].shape[1:]), dtype=rows[1].dtype)
        targets[1::2] = 1
        tried = _made_up_rows(tuple(rows[0].shape[1:]), rows_loss.module), targets
    if classes is not None:
        _require_scores(rows_loss.module, tried[0], len(classes))
    return choose_engine(rows_loss, *tried)


def _quiet_copy(module: nn.Module) -> nn.Module:
    """Return a copy without layers that overwrite their input, which gradients by row still need."""
    copied = copy.deepcopy(module)
    for layer in copied.modules():
        if getattr(layer, "inplace", False) is True:
            layer.inplace = False
    return copied


def _require_scores(module: nn.Module, inputs: Any, n_classes: int) -> None:
    """Refuse a module that does not give one score per class."""
    with torch.no_grad():
        outputs = _run(module, inputs)
    shape = tuple(getattr(outputs, "shape", ()))
    if shape != (len(inputs), n_classes):
        raise ValueError(
            f"module must give a score per class, shape ({len(inputs)}, {n_classes}) for {len(inputs)} rows, got "
            f"{shape}. Give its last layer {n_classes} outputs, or declare the classes with classes=."
        )


def _made_up_rows(shape: tuple[int, ...], module: nn.Module) -> Any:
    """Return rows of this shape that nobody gave: words where the module has an embedding, else normal numbers."""
    generator = torch.Generator().manual_seed(5)
    words = n_words(module)
    if words is None:
        return torch.randn((_TRIED, *shape), generator=generator)
    return torch.randint(0, words, (_TRIED, *shape), generator=generator)


def n_words(module: nn.Module) -> int | None:
    """Return how many words a module knows: None if it has no embedding, so takes numbers."""
    sizes = [layer.num_embeddings for layer in module.modules() if isinstance(layer, nn.Embedding)]
    return min(sizes, default=None)


def choose_engine(rows_loss: RowsLoss, inputs: Any, targets: Any) -> Engine:
    """Try the module on these rows, none of which is private, and return the quickest engine that is right.

    Raises
    ------
    ValueError
        If the module or the loss can't be trained privately; the message says why.
    """
    module = rows_loss.module
    if not rows_loss.trainable:
        raise ValueError("module has no parameter that requires a gradient. Set requires_grad on those to be trained.")
    if any(weights.dtype != torch.float32 for weights in rows_loss.trainable):
        raise ValueError("module must hold its trainable parameters in float32. Call module.float().")
    _require_still_buffers(rows_loss, inputs, targets)
    # In training mode, as rows may be mixed there alone; but chance would make any two passes differ.
    module.train()
    for layer in module.modules():
        if isinstance(layer, _DROPOUTS):
            layer.eval()
    try:
        expected = _one_by_one(rows_loss, inputs, targets)
        together = rows_loss(inputs, targets).detach().numpy()
        alone = np.concatenate([rows_loss(inputs[i : i + 1], targets[i : i + 1]).detach() for i in range(len(inputs))])
        if not (np.isfinite(together).all() and np.isfinite(expected).all()):
            raise ValueError("loss is not finite on the rows of the trial. Check the module's start and the loss.")
        # Relative to the losses: a loss in small units must not pass for one that differs little.
        if not np.allclose(together, alone, rtol=1e-3, atol=1e-5 * float(np.abs(alone).max())):
            raise ValueError(
                "module or loss mixes the rows of a batch, or draws at random outside a Dropout layer: a row's loss is "
                "not its own, so that clipping would not bound what one row does. Treat each row by itself."
            )
        reasons = []
        for make in (GhostEngine, VmapEngine):
            try:
                engine: Engine = make(rows_loss)
                if _agrees(engine, inputs, targets, expected):
                    return engine
                reasons.append(f"{make.name}: gradients that differ from those taken row by row")
            except Unsupported as error:
                reasons.append(f"{make.name}: {error}")
            except (IndexError, RuntimeError, ValueError) as error:
                reasons.append(f"{make.name}: {str(error).splitlines()[0]}")
        raise ValueError(
            f"module has a layer whose gradients can't be taken row by row ({'; '.join(reasons)}). Build it from "
            f"Linear, Conv1d, Conv2d, Embedding, LayerNorm and GroupNorm, or from what torch.func.vmap can map."
        )
    finally:
        module.train()


def _require_still_buffers(rows_loss: RowsLoss, inputs: Any, targets: Any) -> None:
    module = rows_loss.module
    module.train()
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    _run(rows_loss, inputs, targets)
    for name, buffer in module.named_buffers():
        if not torch.equal(buffer, before[name]):
            raise ValueError(
                f"module changes its buffer {name} on a forward pass, which would keep private values unprotected. "
                f"Use a layer without running statistics."
            )


def _run(function: Any, *tensors: Any) -> Any:
    """Call with rows of the trial; none is private, so what torch says of them may be told."""
    try:
        return function(*tensors)
    except (RuntimeError, IndexError) as error:
        shapes = " and ".join(str(tuple(tensor.shape[1:])) for tensor in tensors)
        raise ValueError(f"module or loss fails on rows of shape {shapes}: {str(error).splitlines()[0]}") from None


def _one_by_one(rows_loss: RowsLoss, inputs: Any, targets: Any) -> NDArray[np.float32]:
    """Return the gradient of each row, as its batch of one gives it."""
    return np.stack([rows_loss.gradient(inputs[i : i + 1], targets[i : i + 1]) for i in range(len(inputs))])


def _agrees(engine: Engine, inputs: Any, targets: Any, expected: NDArray[np.float32]) -> bool:
    """Tell whether lengths bound those of the expected gradients closely, and weighted sums are theirs."""
    lengths = np.linalg.norm(expected.astype(np.float64), axis=1)
    factors = np.linspace(1.0, 0.25, len(expected))
    found, total = [], np.zeros(expected.shape[1])
    taken = 0
    for part, combine in engine.parts(inputs, targets):
        found.append(part)
        total += combine(factors[taken : taken + len(part)].copy())
        taken += len(part)
    longest = float(lengths.max())
    ratio = np.concatenate(found) / np.maximum(lengths, 1e-30)
    close = bool(np.all((ratio >= 1 - 1e-4) & (ratio <= 1.05) | (lengths <= 1e-6 * longest)))
    return close and bool(np.allclose(total, factors @ expected, rtol=1e-3, atol=1e-4 * longest))
