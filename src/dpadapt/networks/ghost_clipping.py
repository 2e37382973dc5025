"""Ghost clipping: the length of every row's gradient and their weighted sum, from one backward pass.

A layer's part of a row's gradient is a product of what went into the layer and what came back to its output. Both are
caught on one pass; lengths and weighted sums follow from them, mostly without any row's gradient being stored. The
idea is that of Goodfellow (2015, arXiv:1510.01799) and of Bu, Wang, Zha and Karypis (2022, arXiv:2205.10683).

Lengths are upper bounds: they allow for rounding, and what is not finite counts as infinitely long.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from dpadapt.networks.row_gradients import RowsLoss

# What ghost clipping knows of each layer: its part of every row's squared gradient length and of the weighted sum.
#
# For a layer with inputs a and returned gradients b, both with T places per row, a row's gradient is Σ_t b_t a_t'.
# Where T = 1 its length is |a| |b|. Otherwise it is stored if that is affordable, or its length comes from the two T
# x T tables of inner products.


# Per-row gradients of a layer are stored up to this many numbers (64 MB).
_STORED = 2**24
# Windows of a convolution are made for so many numbers at once (1 MB).
_CACHED = 2**18
_EPS = torch.finfo(torch.float32).eps
_TINY = torch.finfo(torch.float32).tiny


@dataclass(eq=False)
class Caught:
    """What went into one call of a layer, and what came back to its output."""

    went_in: Any
    back: Any = None


class Term:
    """One layer's part in the gradients of a batch."""

    def squares(self) -> Any:
        """Return an upper bound on each row's squared length, in float64."""
        raise NotImplementedError

    def drop(self, rows: Any) -> None:
        """Make the chosen rows zero."""
        raise NotImplementedError

    def weighted(self, weights: Any) -> tuple[Any, Any]:
        """Return the sums of weight and bias gradients over rows, each row times its weight."""
        raise NotImplementedError


LayerRule = Callable[[Any, Sequence[Caught]], Term]


class _Stored(Term):
    """Gradients that are stored row by row: weight (B, ...), its last two sides maybe exchanged, and bias or None."""

    def __init__(self, weight: Any, bias: Any, *, transposed: bool = False) -> None:
        self._weight, self._bias, self._transposed = weight, bias, transposed

    def squares(self) -> Any:
        total = _squares(self._weight)
        return total if self._bias is None else total + _squares(self._bias)

    def drop(self, rows: Any) -> None:
        for part in (self._weight, self._bias):
            if part is not None:
                part[rows] = 0

    def weighted(self, weights: Any) -> tuple[Any, Any]:
        weight = (weights @ self._weight.flatten(1)).reshape(self._weight.shape[1:])
        weight = weight.T if self._transposed else weight
        return weight, None if self._bias is None else weights @ self._bias.flatten(1)


class _Outer(Term):
    """Gradients b a' with one place per row."""

    def __init__(self, a: Any, b: Any, *, bias: bool) -> None:
        self._a, self._b, self._bias = a, b, bias

    def squares(self) -> Any:
        # |b a'|_F = |a| |b|, and a bias is one more input that is always 1.
        return (_squares(self._a) + float(self._bias)) * _squares(self._b)

    def drop(self, rows: Any) -> None:
        self._a, self._b = _without(self._a, rows), _without(self._b, rows)

    def weighted(self, weights: Any) -> tuple[Any, Any]:
        b = self._b * weights[:, None]
        return b.T @ self._a, b.sum(dim=0) if self._bias else None


class _Grams(Term):
    """Gradients Σ_t b_t a_t' that are too large to store: a is (B, T, p), b is (B, T, d)."""

    def __init__(self, a: Any, b: Any, *, bias: bool) -> None:
        self._a, self._b, self._bias = a, b, bias

    def squares(self) -> Any:
        a, b = torch.bmm(self._a, self._a.transpose(1, 2)), torch.bmm(self._b, self._b.transpose(1, 2))
        # |Σ_t b_t a_t'|² = Σ_st (a_s' a_t) (b_s' b_t).
        found = ((a + float(self._bias)) * b).sum(dim=(1, 2), dtype=torch.float64)
        return found + _slack(_lengths(self._a, self._bias) * _lengths(self._b, False), self._a, self._b)

    def drop(self, rows: Any) -> None:
        self._a, self._b = _without(self._a, rows), _without(self._b, rows)

    def weighted(self, weights: Any) -> tuple[Any, Any]:
        b = (self._b * weights[:, None, None]).flatten(0, 1)
        return b.T @ self._a.flatten(0, 1), b.sum(dim=0) if self._bias else None


class _Looked(Term):
    """Gradients of an embedding: row s of the table gets Σ b_t over the places t where word s stood."""

    def __init__(self, words: Any, b: Any, n_words: int) -> None:
        self._words, self._b, self._n_words = words, b, n_words

    def squares(self) -> Any:
        same = self._words[:, :, None] == self._words[:, None, :]
        found = (torch.bmm(self._b, self._b.transpose(1, 2)) * same).sum(dim=(1, 2), dtype=torch.float64)
        return found + _slack(_lengths(self._b, False), self._b, self._b)

    def drop(self, rows: Any) -> None:
        self._b = _without(self._b, rows)

    def weighted(self, weights: Any) -> tuple[Any, Any]:
        b = self._b * weights[:, None, None]
        table = torch.zeros(self._n_words, b.shape[2])
        return table.index_add_(0, self._words.flatten(), b.flatten(0, 1)), None


def rule_for(layer: nn.Module) -> LayerRule | None:
    """Return how to treat `layer`, or None if it is not known."""
    # Exact classes: a subclass may compute something else.
    if type(layer) is nn.Linear:
        return _linear
    if type(layer) in (nn.Conv1d, nn.Conv2d) and layer.groups == 1 and layer.padding_mode == "zeros":
        return _convolution
    if type(layer) is nn.Embedding and layer.max_norm is None and not layer.scale_grad_by_freq:
        return _embedding
    if type(layer) is nn.LayerNorm:
        return _layer_norm
    if type(layer) is nn.GroupNorm:
        return _group_norm
    return None


def _linear(layer: Any, calls: Sequence[Caught]) -> Term:
    a = _joined([_places(call.went_in) for call in calls], dim=1)
    b = _joined([_places(call.back) for call in calls], dim=1)
    bias, size = layer.bias is not None, a.shape[2] * b.shape[2]
    if a.shape[1] == 1:
        return _Outer(a[:, 0], b[:, 0], bias=bias)
    if len(a) * size > _STORED and 2 * a.shape[1] ** 2 <= size:
        return _Grams(a, b, bias=bias)
    return _Stored(torch.bmm(b.transpose(1, 2), a), b.sum(dim=1) if bias else None)


def _convolution(layer: Any, calls: Sequence[Caught]) -> Term:
    # A convolution is a fully connected layer on its windows.
    n_rows, d, bias = len(calls[0].back), layer.out_channels, layer.bias is not None
    p, n_windows = layer.in_channels * math.prod(layer.kernel_size), sum(call.back[0, 0].numel() for call in calls)
    back = _joined([call.back.flatten(2) for call in calls], dim=2)
    if n_rows * p * d > _STORED and 2 * n_windows**2 <= p * d:
        windows = _joined([_windows(layer, call.went_in) for call in calls], dim=2)
        return _Grams(windows.transpose(1, 2), back.transpose(1, 2), bias=bias)
    weight = torch.empty(n_rows, p, d)
    # A few rows at a time: their windows, many times the size of the rows, stay in the cache.
    few = max(1, _CACHED // (p * n_windows))
    for start in range(0, n_rows, few):
        part = slice(start, start + few)
        windows = _joined([_windows(layer, call.went_in[part]) for call in calls], dim=2)
        torch.bmm(windows, back[part].transpose(1, 2), out=weight[part])
    return _Stored(weight, back.sum(dim=2) if bias else None, transposed=True)


def _embedding(layer: Any, calls: Sequence[Caught]) -> Term:
    words = _joined([call.went_in.flatten(1) for call in calls], dim=1)
    b = _joined([_places(call.back) for call in calls], dim=1)
    if layer.padding_idx is not None:
        b = b.masked_fill((words == layer.padding_idx)[:, :, None], 0.0)
    return _Looked(words, b, layer.num_embeddings)


def _layer_norm(layer: Any, calls: Sequence[Caught]) -> Term:
    shape = tuple(layer.normalized_shape)
    scaled = [functional.layer_norm(call.went_in, shape, eps=layer.eps) * call.back for call in calls]
    rows, middle = len(calls[0].back), tuple(range(1, calls[0].back.ndim - len(shape)))
    weight = sum(part.sum(dim=middle) if middle else part for part in scaled)
    bias = sum(call.back.sum(dim=middle) if middle else call.back for call in calls)
    return _Stored(_own(weight, rows), None if layer.bias is None else _own(bias, rows))


def _group_norm(layer: Any, calls: Sequence[Caught]) -> Term:
    scaled = [functional.group_norm(call.went_in, layer.num_groups, eps=layer.eps) * call.back for call in calls]
    weight = sum(part.flatten(2).sum(dim=2) if part.ndim > 2 else part for part in scaled)
    bias = sum(call.back.flatten(2).sum(dim=2) if call.back.ndim > 2 else call.back for call in calls)
    return _Stored(_own(weight, len(weight)), _own(bias, len(bias)))


def _joined(parts: list[Any], *, dim: int) -> Any:
    """Put the calls of one layer side by side; a single one is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=dim)


def _places(tensor: Any) -> Any:
    """Return a tensor (B, ..., p) as (B, T, p)."""
    return tensor.reshape(len(tensor), -1, tensor.shape[-1])


def _own(tensor: Any, n_rows: int) -> Any:
    """Return (B, p) that may be written to."""
    return tensor.reshape(n_rows, -1).clone()


def _windows(layer: Any, went_in: Any) -> Any:
    """Return the windows that a convolution saw, (B, inputs of a window, windows)."""
    dims = len(layer.kernel_size)
    view = functional.pad(went_in, _padding(layer))
    for side, (size, stride, dilation) in enumerate(
        zip(layer.kernel_size, layer.stride, layer.dilation, strict=True), start=2
    ):
        view = view.unfold(side, dilation * (size - 1) + 1, stride)[..., ::dilation]
    order = (0, 1, *range(2 + dims, 2 + 2 * dims), *range(2, 2 + dims))
    # Half the time of functional.unfold.
    return view.permute(order).reshape(len(went_in), -1, math.prod(view.shape[2 : 2 + dims]))


def _padding(layer: Any) -> list[int]:
    """Return the padding of both ends of each side, last side first."""
    both: list[int] = []
    for at, (size, dilation) in reversed(list(enumerate(zip(layer.kernel_size, layer.dilation, strict=True)))):
        whole = dilation * (size - 1) if layer.padding == "same" else 0
        both += [whole // 2, whole - whole // 2] if isinstance(layer.padding, str) else [layer.padding[at]] * 2
    return both


def _without(tensor: Any, rows: Any) -> Any:
    return tensor.masked_fill(rows.reshape(-1, *[1] * (tensor.ndim - 1)), 0.0)


def _squares(part: Any) -> Any:
    """Return an upper bound on each row's squared length, in float64: (B, ...) to (B,)."""
    flat = part.flatten(1)
    n = flat.shape[1]
    block = max((size for size in range(1, 65) if n % size == 0), default=1)
    if block < 8:
        return torch.linalg.vector_norm(flat, dim=1, dtype=torch.float64).square()
    lengths = torch.linalg.vector_norm(flat.reshape(len(flat), -1, block), dim=2).double()
    # Within a block it is summed in float32: short by at most `block` rounding errors, and by tiny where a square
    # underflows.
    return lengths.square().sum(dim=1) * (1 + block * _EPS) + n * _TINY


def _lengths(part: Any, bias: bool) -> Any:
    """Return the length of the vector at each place, (B, T), with one more input 1 if there is a bias."""
    squares = torch.linalg.vector_norm(part, dim=-1).double().square()
    return (squares + float(bias)).sqrt()


def _slack(products: Any, a: Any, b: Any) -> Any:
    """Return a bound on what rounding may take off a squared length that was summed from inner products.

    Each inner product is off by some rounding errors of |a_s||a_t| and |b_s||b_t|, so the sum by that many of
    (Σ_t |a_t||b_t|)²: all that is left, where the places cancel.
    """
    errors = 8 * math.sqrt(a.shape[2] + b.shape[2]) * _EPS
    return errors * products.sum(dim=1).square() + a.shape[2] * b.shape[2] * _TINY


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
