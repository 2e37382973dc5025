"""The trial of a network on public or synthetic rows, before anything is spent; it chooses the engine.

Networks that would break the guarantee are refused: a loss that is not one number per row, rows that influence each
other, buffers that a forward pass changes. An engine is used only if it agrees with gradients computed row by row.
"""

import copy
import math
import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dpadapt.learning.row_by_row import ROWS_TRIED_ALONE
from dpadapt.networks.fine_tuning import BATCH_NORMS
from dpadapt.networks.ghost_clipping import GhostEngine, Unsupported
from dpadapt.networks.models import perceptron
from dpadapt.networks.row_gradients import FORWARD_ROWS, Engine, RowsLoss, VmapEngine

_MIXES = (
    "module or loss mixes the rows of a batch, or draws at random outside a Dropout layer: the loss of a row is not "
    "its own, so clipping would not bound the effect of one row. Treat each row by itself."
)
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


def refuse_batch_norm(module: nn.Module) -> None:
    """Refuse batch normalisation, which mixes the rows of a batch."""
    for name, layer in module.named_modules():
        if isinstance(layer, BATCH_NORMS):
            raise ValueError(
                f"module has {type(layer).__name__} ({name}), which mixes the rows of a batch: one row would change "
                f"the gradients of all others. Use GroupNorm or LayerNorm; of a pretrained module, give "
                f"freeze_batch_norm(module)."
            )


def new_module(given: Any, shape: tuple[int, ...], n_classes: int | None) -> nn.Module:
    """Return the module to train for rows of this shape: a copy of the given one, or a new one."""
    if given is None:
        if n_classes is None:
            raise ValueError("module must be given with a custom loss: the loss takes its outputs.")
        return perceptron(math.prod(shape), n_classes)
    made = given if isinstance(given, nn.Module) or not callable(given) else given()
    if not isinstance(made, nn.Module):
        raise TypeError(
            f"module must be a torch Module or a function without arguments that returns one, got "
            f"{type(made).__name__}."
        )
    refuse_batch_norm(made)
    if any(weights.dtype != torch.float32 for weights in made.parameters() if weights.requires_grad):
        raise ValueError("module must hold its trainable parameters in float32. Call module.float().")
    return _copy_without_inplace(made)


def tried_engine(
    rows_loss: RowsLoss, rows: tuple[Any, Any], public: tuple[Any, Any] | None, classes: NDArray[Any] | None
) -> Engine:
    """Try the network on public rows, or on synthetic rows of the private rows' shape, and return the chosen engine."""
    if public is not None:
        tried = public[0][:ROWS_TRIED_ALONE], public[1][:ROWS_TRIED_ALONE]
    else:
        targets = torch.zeros((ROWS_TRIED_ALONE, *rows[1].shape[1:]), dtype=rows[1].dtype)
        targets[1::2] = 1
        tried = _synthetic_rows(tuple(rows[0].shape[1:]), rows_loss.module).to(rows[0].dtype), targets
    if classes is not None:
        _require_scores(rows_loss.module, tried[0], len(classes))
    return choose_engine(rows_loss, *tried)


def require_private_rows(rows_loss: RowsLoss, rows: tuple[Any, Any]) -> None:
    """Refuse a module or loss that fails on private rows, or that mixes rows in large batches; show none of them.

    The trial can't find everything: a loss may fail on a target that only private rows have. Here every private row
    passes through the network once, without gradients, before anything is spent.
    """
    inputs, targets = rows
    refusal = ""
    _dropout_off(rows_loss.module)
    try:
        # A warning may hold the size of a batch, and an error a target.
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for start in range(0, len(inputs), FORWARD_ROWS):
                part = slice(start, start + FORWARD_ROWS)
                together = rows_loss(inputs[part], targets[part])
                if start == 0:
                    few = min(ROWS_TRIED_ALONE, len(together))
                    alone = [rows_loss(inputs[i : i + 1], targets[i : i + 1]) for i in range(few)]
                    if not _close(together[:few].numpy(), torch.cat(alone).numpy()):
                        refusal = _MIXES
    except Exception as error:
        refusal = (
            f"module or loss fails on private rows ({type(error).__name__}), though not on the rows of the trial. The "
            f"message is not shown, as it may quote private values. Check the range of the targets. Nothing was spent."
        )
    finally:
        rows_loss.module.train()
    # Raised outside the handler: the original error would be kept as this error's context.
    if refusal:
        raise ValueError(refusal)


def _dropout_off(module: nn.Module) -> None:
    """Set training mode, because some modules mix rows only there, but without Dropout, which draws at random."""
    module.train()
    for layer in module.modules():
        if isinstance(layer, _DROPOUTS):
            layer.eval()


def _close(together: NDArray[Any], alone: NDArray[Any]) -> bool:
    """Return whether rows have the same losses together and alone, up to rounding."""
    # The tolerance is relative to the losses, so that it also holds for a loss in small units.
    size = float(np.max(np.abs(alone), initial=0.0, where=np.isfinite(alone)))
    return bool(np.allclose(together, alone, rtol=1e-3, atol=1e-5 * size, equal_nan=True))


def _copy_without_inplace(module: nn.Module) -> nn.Module:
    """Return a copy whose layers do not overwrite their input, which per-row gradients still need."""
    copied = copy.deepcopy(module)
    for layer in copied.modules():
        if getattr(layer, "inplace", False) is True:
            layer.inplace = False
    return copied


def _require_scores(module: nn.Module, inputs: Any, n_classes: int) -> None:
    with torch.no_grad():
        outputs = _run(module, inputs)
    shape = tuple(getattr(outputs, "shape", ()))
    if shape != (len(inputs), n_classes):
        raise ValueError(
            f"module must return a score per class, shape ({len(inputs)}, {n_classes}) for {len(inputs)} rows, got "
            f"{shape}. Give its last layer {n_classes} outputs, or declare the classes with classes=."
        )


def _synthetic_rows(shape: tuple[int, ...], module: nn.Module) -> Any:
    """Return random rows of this shape: word numbers if the module has an embedding, else normal numbers."""
    generator = torch.Generator().manual_seed(5)
    words = n_words(module)
    if words is None:
        return torch.randn((ROWS_TRIED_ALONE, *shape), generator=generator)
    return torch.randint(0, words, (ROWS_TRIED_ALONE, *shape), generator=generator)


def n_words(module: nn.Module) -> int | None:
    """Return the vocabulary size of a module, or None if it has no embedding and takes numbers."""
    sizes = [layer.num_embeddings for layer in module.modules() if isinstance(layer, nn.Embedding)]
    return min(sizes, default=None)


def choose_engine(rows_loss: RowsLoss, inputs: Any, targets: Any) -> Engine:
    """Try the module on these rows, none of which is private, and return the fastest engine that agrees.

    A module or loss that can't be trained privately is refused.
    """
    module = rows_loss.module
    if not rows_loss.trainable:
        raise ValueError("module has no parameter that requires a gradient. Set requires_grad on those to train.")
    _require_constant_buffers(rows_loss, inputs, targets)
    _dropout_off(module)
    try:
        expected = _one_by_one(rows_loss, inputs, targets)
        together = rows_loss(inputs, targets).detach().numpy()
        alone = np.concatenate([rows_loss(inputs[i : i + 1], targets[i : i + 1]).detach() for i in range(len(inputs))])
        if not (np.isfinite(together).all() and np.isfinite(expected).all()):
            raise ValueError("loss is not finite on the rows of the trial. Check the module's weights and the loss.")
        if not _close(together, alone):
            raise ValueError(_MIXES)
        reasons = []
        for make in (GhostEngine, VmapEngine):
            try:
                engine: Engine = make(rows_loss)
                if _agrees(engine, inputs, targets, expected):
                    return engine
                reasons.append(f"{make.name}: gradients differ from those computed row by row")
            except Unsupported as error:
                reasons.append(f"{make.name}: {error}")
            except (IndexError, RuntimeError, ValueError) as error:
                reasons.append(f"{make.name}: {str(error).splitlines()[0]}")
        raise ValueError(
            f"module has a layer whose gradients can't be computed row by row ({'; '.join(reasons)}). Build it from "
            f"Linear, Conv1d, Conv2d, Embedding, LayerNorm and GroupNorm, or from layers that torch.func.vmap supports."
        )
    finally:
        module.train()


def _require_constant_buffers(rows_loss: RowsLoss, inputs: Any, targets: Any) -> None:
    module = rows_loss.module
    module.train()
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    _run(rows_loss, inputs, targets)
    for name, buffer in module.named_buffers():
        if not torch.equal(buffer, before[name]):
            raise ValueError(
                f"module changes its buffer {name} in a forward pass, which would store private values unprotected. "
                f"Use a layer without running statistics."
            )


def _run(function: Any, *tensors: Any) -> Any:
    """Call a module or loss on rows of the trial. None of them is private, so torch's message may be shown."""
    try:
        return function(*tensors)
    except (RuntimeError, IndexError) as error:
        shapes = " and ".join(str(tuple(tensor.shape[1:])) for tensor in tensors)
        raise ValueError(f"module or loss fails on rows of shape {shapes}: {str(error).splitlines()[0]}") from None


def _one_by_one(rows_loss: RowsLoss, inputs: Any, targets: Any) -> NDArray[np.float32]:
    return np.stack([rows_loss.gradient(inputs[i : i + 1], targets[i : i + 1]) for i in range(len(inputs))])


def _agrees(engine: Engine, inputs: Any, targets: Any, expected: NDArray[np.float32]) -> bool:
    """Return whether the engine's norms are close upper bounds of the expected ones, and its weighted sum is right."""
    norms = np.linalg.norm(expected.astype(np.float64), axis=1)
    factors = np.linspace(1.0, 0.25, len(expected))
    bounds, total = [], np.zeros(expected.shape[1])
    taken = 0
    for part, combine in engine.parts(inputs, targets):
        bounds.append(part)
        total += combine(factors[taken : taken + len(part)].copy())
        taken += len(part)
    largest = float(norms.max())
    ratio = np.concatenate(bounds) / np.maximum(norms, 1e-30)
    close = bool(np.all((ratio >= 1 - 1e-4) & (ratio <= 1.05) | (norms <= 1e-6 * largest)))
    return close and bool(np.allclose(total, factors @ expected, rtol=1e-3, atol=1e-4 * largest))
