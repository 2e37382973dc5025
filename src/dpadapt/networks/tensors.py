"""Rows and targets as tensors, and the public rows that are trained on and held out."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dpadapt.networks.public_training import split_public

Pair = tuple[Any, Any]


@dataclass(frozen=True, eq=False)
class PublicRows:
    """Labelled public rows in two parts: inputs and targets to train on, and others to choose and calibrate by."""

    training: Pair
    held_out: Pair


def as_inputs(X: NDArray[Any], words: int | None, name: str) -> Any:
    """Return rows as float32, or as word numbers below `words`; a wrong word is refused, not shown."""
    if words is None:
        # A number beyond float32 becomes infinite, and its row a null row when gradients are clipped.
        with np.errstate(over="ignore"):
            return torch.from_numpy(np.ascontiguousarray(X, dtype=np.float32))
    if not bool(np.all((X >= 0) & (words > X) & (np.floor(X) == X))):
        raise ValueError(
            f"{name} must hold whole numbers from 0 to {words - 1}, as the module's embedding has {words} words."
        )
    return torch.from_numpy(np.ascontiguousarray(X, dtype=np.int64))


def as_targets(y: NDArray[Any], name: str) -> Any:
    """Return targets as whole numbers if they are, else as float32."""
    if y.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold numbers for a loss of your own; it holds text. Give classes= too.")
    kind = np.float32 if y.dtype.kind == "f" else np.int64
    with np.errstate(over="ignore"):
        return torch.from_numpy(np.ascontiguousarray(y, dtype=kind))


def split_rows(inputs: Any, targets: Any, share: float, generator: np.random.Generator) -> PublicRows:
    """Return public rows with a share of them held out."""
    training, held_out = (torch.from_numpy(part) for part in split_public(len(inputs), share, generator))
    return PublicRows((inputs[training], targets[training]), (inputs[held_out], targets[held_out]))


def outputs_of(module: Any, inputs: Any) -> NDArray[Any]:
    """Return what a module says of rows, in parts, dropout and the like switched off."""
    module.eval()
    with torch.no_grad():
        parts = [module(inputs[start : start + 1024]) for start in range(0, len(inputs), 1024)]
    return np.asarray(torch.cat(parts).numpy())
