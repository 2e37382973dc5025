"""Ghost clipping: the length of every row's gradient and their weighted sum, from one backward pass.

A layer's part of a row's gradient is a product of what went into the layer and what came back to its output. Both are
caught on one pass; lengths and weighted sums follow from them, mostly without any row's gradient being stored. The
idea is that of Goodfellow (2015, arXiv:1510.01799) and of Bu, Wang, Zha and Karypis (2022, arXiv:2205.10683).

Lengths are upper bounds: they allow for rounding, and what is not finite counts as infinitely long.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dpadapt.networks.layers import Caught, LayerRule, rule_for
from dpadapt.networks.rows_loss import RowsLoss

# Rows that go through the network at once; a larger batch is taken in parts.
_MOST_ROWS = 1024


class Unsupported(TypeError):
    """A layer whose gradients this engine can't take apart by row."""


@dataclass(frozen=True, eq=False)
class _Tapped:
    """A layer to catch, its rule, and where its parameters lie in the flat gradient."""

    name: str
    layer: nn.Module
    rule: LayerRule
    places: tuple[slice | None, ...]


class _Catch(torch.autograd.Function):  # type: ignore[misc]
    """Passes a layer's output on unchanged and keeps what comes back to it."""

    @staticmethod
    def forward(ctx: Any, output: Any, caught: Caught, first: bool) -> Any:
        ctx.caught, ctx.first = caught, first
        return output.view_as(output)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        ctx.caught.back = gradients[0]
        # Nothing lies behind a first layer.
        return None if ctx.first else gradients[0], None, None


class GhostEngine:
    """Per-row gradients of a module made of known layers.

    Parameters
    ----------
    rows_loss : RowsLoss
        The module and the loss of each row.

    Raises
    ------
    Unsupported
        If a trainable parameter belongs to a layer without a rule, or to two layers.
    """

    name = "ghost"

    def __init__(self, rows_loss: RowsLoss) -> None:
        self.rows_loss = rows_loss
        self._tapped = list(_taps(rows_loss))

    def parts(
        self, inputs: Any, targets: Any
    ) -> Iterator[tuple[NDArray[np.float64], Callable[[NDArray[Any]], NDArray[Any]]]]:
        """Yield, for each part of the rows, their gradients' lengths and the function that sums them with factors."""
        for start in range(0, len(inputs), _MOST_ROWS):
            part = slice(start, start + _MOST_ROWS)
            yield self._part(inputs[part], targets[part])

    def _part(self, inputs: Any, targets: Any) -> tuple[NDArray[np.float64], Callable[[NDArray[Any]], NDArray[Any]]]:
        n_rows = len(inputs)
        caught: list[tuple[_Tapped, Caught]] = []

        def hook_for(tapped: _Tapped) -> Callable[[Any, Any, Any], Any]:
            def hook(layer: Any, arguments: Any, output: Any) -> Any:
                if len(arguments) != 1 or len(arguments[0]) != n_rows:
                    raise Unsupported(f"{tapped.name} must take one argument with a row of the batch in each row.")
                one = Caught(arguments[0].detach())
                caught.append((tapped, one))
                # Parameters are frozen here, so a first layer's output would not be part of any graph.
                first = not output.requires_grad
                return _Catch.apply(output.detach().requires_grad_() if first else output, one, first)

            return hook

        handles = [tapped.layer.register_forward_hook(hook_for(tapped)) for tapped in self._tapped]
        try:
            with self.rows_loss.frozen(), torch.enable_grad():
                losses = self.rows_loss(inputs, targets)
                if losses.requires_grad:
                    losses.sum().backward()
        finally:
            for handle in handles:
                handle.remove()
        calls: dict[str, list[Caught]] = {}
        for tapped, one in caught:
            if one.back is not None:
                calls.setdefault(tapped.name, []).append(one)
        terms = [
            (tapped, tapped.rule(tapped.layer, calls[tapped.name])) for tapped in self._tapped if tapped.name in calls
        ]
        squares = torch.zeros(n_rows, dtype=torch.float64)
        for _, term in terms:
            squares += term.squares()

        def combine(factors: NDArray[Any]) -> NDArray[Any]:
            weights = torch.from_numpy(np.asarray(factors, dtype=np.float32))
            flat = torch.zeros(self.rows_loss.n_parameters)
            dropped = weights == 0
            for tapped, term in terms:
                if bool(dropped.any()):
                    # Such a row may hold infinities, and zero times infinity is not zero.
                    term.drop(dropped)
                for place, total in zip(tapped.places, term.weighted(weights), strict=True):
                    if place is not None:
                        flat[place] = total.reshape(-1)
            return np.asarray(flat)

        return squares.sqrt().numpy(), combine


def _taps(rows_loss: RowsLoss) -> Iterator[_Tapped]:
    """Find the layers that own trainable parameters."""
    places = rows_loss.places
    seen: set[int] = set()
    for name, layer in rows_loss.module.named_modules():
        own = dict(layer.named_parameters(recurse=False))
        trained = [key for key in own if id(own[key]) in places]
        if not trained:
            continue
        rule = rule_for(layer)
        if rule is None:
            raise Unsupported(f"{type(layer).__name__} ({name or 'the module itself'})")
        if seen & {id(own[key]) for key in trained}:
            raise Unsupported(f"{type(layer).__name__} ({name}), which shares its parameters with another layer")
        seen |= {id(own[key]) for key in trained}
        keys = ("weight", "bias")
        yield _Tapped(name, layer, rule, tuple(places.get(id(own[key])) if key in own else None for key in keys))
