"""Ghost clipping: the norm of every row's gradient and their weighted sum, from one backward pass.

A layer's part of a row's gradient is a product of the layer's inputs and the gradients of its outputs. Both are
recorded in one forward and backward pass. Norms and weighted sums follow from them, mostly without storing any row's
gradient. The idea is that of Goodfellow (2015, arXiv:1510.01799) and of Bu, Wang, Zha and Karypis (2022,
arXiv:2205.10683).

For a layer with inputs a and output gradients b, both with T positions per row, a row's gradient is Σ_t b_t a_t'. For T
= 1 its norm is |a| |b|. Otherwise the gradient is stored if memory allows, or its norm is computed from the two T x T
tables of inner products.

Norms are upper bounds: they allow for rounding, and a gradient that is not finite has infinite norm.
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

from dpadapt.networks.row_gradients import FORWARD_ROWS, STORED_GRADIENTS, Engine, Part, RowsLoss
from dpadapt.rows import CACHE_BYTES

# Numbers up to which the per-row gradients of a layer are stored. A larger limit takes more memory and needs the
# tables of inner products less often.
_GHOST_STORED = STORED_GRADIENTS
# Weights from which on a layer is large. Below, storing gradients costs little. Chosen by hand.
_LARGE_LAYER = 2**16
# Numbers of float32 of a convolution's windows that are unfolded at once: windows are many times the size of the rows,
# and should stay in the cache.
_WINDOW_NUMBERS = CACHE_BYTES // 4
# Numbers that the layers of a part may record (256 MB); beyond, a part has fewer rows. A larger limit takes more
# memory, and more time once a part exceeds the caches. Chosen on EfficientNet-Lite0 with images of 64 pixels, where
# twice the limit took a fifth more CPU time.
_GHOST_RECORDED = 2**26
# The same in float64, where every part is filled up to this number (`row_gradients._full_parts`): a multiple of the
# number of rows that matrix products compute at once, usually 4 to 48. More rows are wasted on small batches.
_GHOST_FIXED_ROWS = 240
_EPS = torch.finfo(torch.float32).eps
_TINY = torch.finfo(torch.float32).tiny


@dataclass(eq=False)
class LayerCall:
    """The inputs of one call of a layer, and the gradients of its outputs once the backward pass has run."""

    inputs: Any
    output_gradients: Any = None


class Term:
    """One layer's part of the gradients of a batch."""

    def squares(self) -> Any:
        """Return an upper bound on the squared norm of each row, in float64."""
        raise NotImplementedError

    def drop(self, rows: Any) -> None:
        """Set the chosen rows to zero."""
        raise NotImplementedError

    def weighted(self, weights: Any) -> tuple[Any, Any]:
        """Return the sums over rows of weight and bias gradients, each row times its weight."""
        raise NotImplementedError


LayerRule = Callable[[Any, Sequence[LayerCall]], Term]


class _Stored(Term):
    """Gradients stored per row: weight (B, ...), perhaps with its last two axes exchanged, and bias or None."""

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
        weight = weight.mT if self._transposed else weight
        return weight, None if self._bias is None else weights @ self._bias.flatten(1)


class _Outer(Term):
    """Gradients b a' with one position per row."""

    def __init__(self, a: Any, b: Any, *, bias: bool) -> None:
        self._a, self._b, self._bias = a, b, bias

    def squares(self) -> Any:
        # |b a'|_F = |a| |b|, and a bias is one more input that is constantly 1.
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
        squares = ((a + float(self._bias)) * b).sum(dim=(1, 2), dtype=torch.float64)
        norms = _position_norms(self._a, self._bias) * _position_norms(self._b, False)
        return squares + _rounding_slack(norms, self._a, self._b)

    def drop(self, rows: Any) -> None:
        self._a, self._b = _without(self._a, rows), _without(self._b, rows)

    def weighted(self, weights: Any) -> tuple[Any, Any]:
        b = (self._b * weights[:, None, None]).flatten(0, 1)
        return b.T @ self._a.flatten(0, 1), b.sum(dim=0) if self._bias else None


class _EmbeddingTerm(Term):
    """Gradients of an embedding: row s of the table gets Σ b_t over the positions t of word s."""

    def __init__(self, words: Any, b: Any, n_words: int) -> None:
        self._words, self._b, self._n_words = words, b, n_words

    def squares(self) -> Any:
        same = self._words[:, :, None] == self._words[:, None, :]
        squares = (torch.bmm(self._b, self._b.transpose(1, 2)) * same).sum(dim=(1, 2), dtype=torch.float64)
        return squares + _rounding_slack(_position_norms(self._b, False), self._b, self._b)

    def drop(self, rows: Any) -> None:
        self._b = _without(self._b, rows)

    def weighted(self, weights: Any) -> tuple[Any, Any]:
        b = self._b * weights[:, None, None]
        table = torch.zeros(self._n_words, b.shape[2], dtype=b.dtype)
        return table.index_add_(0, self._words.flatten(), b.flatten(0, 1)), None


def rule_for(layer: nn.Module) -> LayerRule | None:
    """Return the rule for `layer`, or None if there is none."""
    # Exact classes only: a subclass may compute something else.
    if type(layer) is nn.Linear:
        return _linear
    if type(layer) in (nn.Conv1d, nn.Conv2d) and layer.padding_mode == "zeros":
        return _depthwise if layer.groups == layer.in_channels == layer.out_channels > 1 else _convolution
    if type(layer) is nn.Embedding and layer.max_norm is None and not layer.scale_grad_by_freq:
        return _embedding
    if type(layer) is nn.LayerNorm:
        return _layer_norm
    if type(layer) is nn.GroupNorm:
        return _group_norm
    return None


def _linear(layer: Any, calls: Sequence[LayerCall]) -> Term:
    a = _joined([_positions(call.inputs) for call in calls], dim=1)
    b = _joined([_positions(call.output_gradients) for call in calls], dim=1)
    bias = layer.bias is not None
    if a.shape[1] == 1:
        return _Outer(a[:, 0], b[:, 0], bias=bias)
    if _tables_pay(a.shape[1], a.shape[2], b.shape[2], _rows_to_store(a)):
        return _Grams(a, b, bias=bias)
    return _Stored(torch.bmm(b.transpose(1, 2), a), b.sum(dim=1) if bias else None)


def _convolution(layer: Any, calls: Sequence[LayerCall]) -> Term:
    # A convolution is a fully connected layer on its windows; with groups, one such layer for each group.
    n_rows, groups, bias = len(calls[0].output_gradients), layer.groups, layer.bias is not None
    p, d = layer.in_channels // groups * math.prod(layer.kernel_size), layer.out_channels // groups
    n_windows = sum(call.output_gradients[0, 0].numel() for call in calls)
    b = _joined([call.output_gradients.flatten(2) for call in calls], dim=2)
    if groups == 1 and _tables_pay(n_windows, p, d, _rows_to_store(b)):
        windows = _joined([_windows(layer, call.inputs) for call in calls], dim=2)
        return _Grams(windows.transpose(1, 2), b.transpose(1, 2), bias=bias)
    weight = torch.empty(n_rows, groups, p, d, dtype=b.dtype)
    few = max(1, _WINDOW_NUMBERS // (groups * p * n_windows))
    for start in range(0, n_rows, few):
        part = slice(start, start + few)
        windows = _joined([_windows(layer, call.inputs[part]) for call in calls], dim=2)
        by_group = windows.reshape(-1, p, n_windows), b[part].reshape(-1, d, n_windows)
        torch.bmm(by_group[0], by_group[1].mT, out=weight[part].view(-1, p, d))
    return _Stored(weight, b.sum(dim=2) if bias else None, transposed=True)


def _depthwise(layer: Any, calls: Sequence[LayerCall]) -> Term:
    # Each channel has its own kernel. The gradient of such a convolution is one as well: of the inputs with the output
    # gradients as kernels, one per row and channel, where stride and dilation change places.
    if calls[0].inputs.dtype == torch.float64:
        # torch computes such convolutions one by one.
        return _convolution(layer, calls)
    convolve = functional.conv1d if len(layer.kernel_size) == 1 else functional.conv2d
    weight: Any = 0.0
    for call in calls:
        padded, b = functional.pad(call.inputs, _padding(layer)), call.output_gradients
        n_rows, n_channels = b.shape[:2]
        size = n_rows * n_channels
        if b[0, 0].numel() == 1:
            # With one position it is a product. Convolutions with kernels of one number are several times slower.
            whole = padded[(..., *(slice(None, None, step) for step in layer.dilation))] * b
        else:
            options = {"stride": layer.dilation, "dilation": layer.stride, "groups": size}
            kernels = b.reshape(size, 1, *b.shape[2:])
            whole = convolve(padded.reshape(1, size, *padded.shape[2:]), kernels, **options)
        # Inputs beyond the last window give further positions, which belong to no weight.
        whole = whole.reshape(n_rows, n_channels, *whole.shape[2:])
        weight = weight + whole[(..., *map(slice, layer.kernel_size))].flatten(2)
    b = sum(call.output_gradients.flatten(2).sum(dim=2) for call in calls)
    return _Stored(weight, None if layer.bias is None else b)


def _embedding(layer: Any, calls: Sequence[LayerCall]) -> Term:
    words = _joined([call.inputs.flatten(1) for call in calls], dim=1)
    b = _joined([_positions(call.output_gradients) for call in calls], dim=1)
    if layer.padding_idx is not None:
        b = b.masked_fill((words == layer.padding_idx)[:, :, None], 0.0)
    return _EmbeddingTerm(words, b, layer.num_embeddings)


def _layer_norm(layer: Any, calls: Sequence[LayerCall]) -> Term:
    shape = tuple(layer.normalized_shape)
    scaled = [functional.layer_norm(call.inputs, shape, eps=layer.eps) * call.output_gradients for call in calls]
    gradients = [call.output_gradients for call in calls]
    n_rows, middle = len(gradients[0]), tuple(range(1, gradients[0].ndim - len(shape)))
    weight = sum(part.sum(dim=middle) if middle else part for part in scaled)
    bias = sum(part.sum(dim=middle) if middle else part for part in gradients)
    return _Stored(_flat_copy(weight, n_rows), None if layer.bias is None else _flat_copy(bias, n_rows))


def _group_norm(layer: Any, calls: Sequence[LayerCall]) -> Term:
    groups, eps = layer.num_groups, layer.eps
    scaled = [functional.group_norm(call.inputs, groups, eps=eps) * call.output_gradients for call in calls]
    gradients = [call.output_gradients for call in calls]
    weight = sum(part.flatten(2).sum(dim=2) if part.ndim > 2 else part for part in scaled)
    bias = sum(part.flatten(2).sum(dim=2) if part.ndim > 2 else part for part in gradients)
    return _Stored(_flat_copy(weight, len(weight)), _flat_copy(bias, len(bias)))


def _tables_pay(n_positions: int, p: int, d: int, n_rows: int) -> bool:
    """Return whether norms come from tables of inner products, not from stored gradients of p times d numbers.

    They do if the stored gradients would take too much memory, and in large layers if the tables take less arithmetic.
    Bounds from stored gradients are a little closer.
    """
    too_much = n_rows * p * d > _GHOST_STORED and 2 * n_positions**2 <= p * d
    return too_much or (p * d >= _LARGE_LAYER and 2 * n_positions * (p + d) <= p * d)


def _rows_to_store(rows: Any) -> int:
    """Return the number of rows that decides whether gradients are stored or norms are computed from tables.

    The two ways give different upper bounds on a norm. If the choice depended on how many rows were drawn, one more row
    would change the clipping of all others. Where neighbours may have different numbers of rows, which is where float64
    is used, the choice is that of a full part whatever the batch is.
    """
    return _GHOST_FIXED_ROWS if rows.dtype == torch.float64 else len(rows)


def _joined(parts: list[Any], *, dim: int) -> Any:
    """Concatenate the calls of one layer; a single call is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=dim)


def _positions(tensor: Any) -> Any:
    """Return a tensor (B, ..., p) as (B, T, p)."""
    return tensor.reshape(len(tensor), -1, tensor.shape[-1])


def _flat_copy(tensor: Any, n_rows: int) -> Any:
    """Return a copy of shape (B, p), which may be written to."""
    return tensor.reshape(n_rows, -1).clone()


def _windows(layer: Any, inputs: Any) -> Any:
    """Return the windows of a convolution, (B, inputs of a window, windows)."""
    dims = len(layer.kernel_size)
    if math.prod((*layer.kernel_size, *layer.stride)) == 1 and not any(_padding(layer)):
        return inputs.flatten(2)
    view = functional.pad(inputs, _padding(layer))
    for axis, (size, stride, dilation) in enumerate(
        zip(layer.kernel_size, layer.stride, layer.dilation, strict=True), start=2
    ):
        view = view.unfold(axis, dilation * (size - 1) + 1, stride)[..., ::dilation]
    order = (0, 1, *range(2 + dims, 2 + 2 * dims), *range(2, 2 + dims))
    # Takes half the time of functional.unfold.
    return view.permute(order).reshape(len(inputs), -1, math.prod(view.shape[2 : 2 + dims]))


def _padding(layer: Any) -> list[int]:
    """Return the padding at both ends of each axis, last axis first, as functional.pad takes it."""
    both: list[int] = []
    for at, (size, dilation) in reversed(list(enumerate(zip(layer.kernel_size, layer.dilation, strict=True)))):
        whole = dilation * (size - 1) if layer.padding == "same" else 0
        both += [whole // 2, whole - whole // 2] if isinstance(layer.padding, str) else [layer.padding[at]] * 2
    return both


def _without(tensor: Any, rows: Any) -> Any:
    """Return a copy with the chosen rows set to zero."""
    return tensor.masked_fill(rows.reshape(-1, *[1] * (tensor.ndim - 1)), 0.0)


def _squares(part: Any) -> Any:
    """Return an upper bound on the squared norm of each row, in float64: (B, ...) to (B,)."""
    flat = part.flatten(1)
    n = flat.shape[1]
    block = max((size for size in range(1, 65) if n % size == 0), default=1)
    if block < 8:
        return torch.linalg.vector_norm(flat, dim=1, dtype=torch.float64).square()
    norms = torch.linalg.vector_norm(flat.reshape(len(flat), -1, block), dim=2).double()
    # Claim: |row|² <= the bound returned. Within a block the sum is in float32: it is too small by at most `block`
    # rounding errors, and by tiny where a square underflows.
    return norms.square().sum(dim=1) * (1 + block * _EPS) + n * _TINY


def _position_norms(part: Any, bias: bool) -> Any:
    """Return the norm of the vector at each position, (B, T), with one more input 1 if there is a bias."""
    squares = torch.linalg.vector_norm(part, dim=-1).double().square()
    return (squares + float(bias)).sqrt()


def _rounding_slack(products: Any, a: Any, b: Any) -> Any:
    """Return a bound on how far rounding may lower a squared norm that was summed from inner products.

    `products` holds |a_t||b_t|. Each inner product has an error of some rounding units of |a_s||a_t| and |b_s||b_t|, so
    the sum has an error of that many units of (Σ_t |a_t||b_t|)². Where the positions cancel, this error is all that is
    left.
    """
    errors = 8 * math.sqrt(a.shape[2] + b.shape[2]) * _EPS
    return errors * products.sum(dim=1).square() + a.shape[2] * b.shape[2] * _TINY


class Unsupported(TypeError):
    """A layer for which ghost clipping has no rule."""


@dataclass(frozen=True, eq=False)
class _TrainedLayer:
    """A layer with trainable parameters, its rule, and where its weight and bias lie in the flat gradient."""

    name: str
    layer: nn.Module
    rule: LayerRule
    slices: tuple[slice | None, ...]


class _RecordGradient(torch.autograd.Function):  # type: ignore[misc]
    """Pass a layer's output on unchanged, and record its gradient in the backward pass."""

    @staticmethod
    def forward(ctx: Any, output: Any, call: LayerCall, first: bool) -> Any:
        ctx.call, ctx.first = call, first
        return output.view_as(output)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        ctx.call.output_gradients = gradients[0]
        # There is nothing to differentiate before a first layer.
        return None if ctx.first else gradients[0], None, None


class GhostEngine(Engine):
    """Per-row gradient norms and sums of a module made of known layers.

    `Unsupported` is raised if a trainable parameter belongs to a layer without a rule, or to two layers.
    """

    name = "ghost"

    def __init__(self, rows_loss: RowsLoss) -> None:
        self.rows_loss = rows_loss
        self.part_rows = _GHOST_FIXED_ROWS if rows_loss.dtype == torch.float64 else FORWARD_ROWS
        self._layers = list(_trained_layers(rows_loss))

    def _part(self, inputs: Any, targets: Any) -> Part:
        n_rows = len(inputs)
        calls: dict[str, list[LayerCall]] = {trained.name: [] for trained in self._layers}

        def hook_for(trained: _TrainedLayer) -> Callable[[Any, Any, Any], Any]:
            def hook(layer: Any, arguments: Any, output: Any) -> Any:
                if len(arguments) != 1 or len(arguments[0]) != n_rows:
                    raise Unsupported(f"{trained.name} must take one argument, with one row per row of the batch.")
                call = LayerCall(arguments[0].detach())
                calls[trained.name].append(call)
                # Parameters are frozen here, so the output of a first layer would not be part of any graph.
                first = not output.requires_grad
                return _RecordGradient.apply(output.detach().requires_grad_() if first else output, call, first)

            return hook

        handles = [trained.layer.register_forward_hook(hook_for(trained)) for trained in self._layers]
        try:
            with self.rows_loss.frozen(), torch.enable_grad():
                losses = self.rows_loss(inputs, targets)
                if losses.requires_grad:
                    losses.sum().backward()
        finally:
            for handle in handles:
                handle.remove()
        if self.rows_loss.dtype == torch.float32:
            # A matter of shapes alone; the trial sets it before the first private row.
            recorded = sum(2 * call.inputs[0].numel() for one in calls.values() for call in one)
            self.part_rows = min(FORWARD_ROWS, max(1, _GHOST_RECORDED // max(1, recorded)))
        terms = []
        for trained in self._layers:
            # A call whose output does not reach the loss has no gradient.
            reached = [call for call in calls[trained.name] if call.output_gradients is not None]
            if reached:
                terms.append((trained, trained.rule(trained.layer, reached)))
        squares = torch.zeros(n_rows, dtype=torch.float64)
        for _, term in terms:
            squares += term.squares()

        def combine(factors: NDArray[Any]) -> NDArray[Any]:
            weights = torch.from_numpy(factors).to(self.rows_loss.dtype)
            flat = torch.zeros(self.rows_loss.n_parameters, dtype=self.rows_loss.dtype)
            dropped = weights == 0
            for trained, term in terms:
                if bool(dropped.any()):
                    # A row with factor 0 may hold infinities, and zero times infinity is not zero.
                    term.drop(dropped)
                for where, total in zip(trained.slices, term.weighted(weights), strict=True):
                    if where is not None:
                        flat[where] = total.reshape(-1)
            return np.asarray(flat)

        return squares.sqrt().numpy(), combine


def _trained_layers(rows_loss: RowsLoss) -> Iterator[_TrainedLayer]:
    """Yield the layers that own trainable parameters."""
    slices = rows_loss.slices
    owned: set[int] = set()
    for name, layer in rows_loss.module.named_modules():
        own = dict(layer.named_parameters(recurse=False))
        trained = [key for key in own if id(own[key]) in slices]
        if not trained:
            continue
        rule = rule_for(layer)
        if rule is None:
            raise Unsupported(f"{type(layer).__name__} ({name or 'the module itself'})")
        if owned & {id(own[key]) for key in trained}:
            raise Unsupported(f"{type(layer).__name__} ({name}), which shares its parameters with another layer")
        owned |= {id(own[key]) for key in trained}
        where = tuple(slices.get(id(own[key])) if key in own else None for key in ("weight", "bias"))
        yield _TrainedLayer(name, layer, rule, where)
