"""One private gradient step of each installed peer on the same rows as ours, for the performance benchmark.

Each peer is used in its fastest way: batches are drawn by our sampler and gathered by index, never row by row through a
data loader; no peer runs its accountant during steps. Opacus hooks and jax-privacy store every per-example gradient.
Both can process a batch in parts, which is meant to save memory and also saves time. Where a batch has more than one
part they therefore have two rows: with their defaults, and in parts.

What is left out, and why:

- Per-example gradients above `LARGEST_MB` in one piece (the full softmax batch: 4.4 GB, and twice that at the peak).
  That batch is run in parts only.
- diffprivlib has no gradient step, and only its two-class model is comparable. It is run on the two-class case as a
  whole fit.
"""

import importlib
import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.performance.performance import Case
from dpadapt.mechanisms.randomness import SeededRandom

LARGEST_MB = 1024
# Megabytes of per-example gradients in one part; they stay in the processor's cache. The peers were fastest with this.
PART_MB = 4
_LENGTH = 0.1
_CLIP_NORM = 1.0

Array = NDArray[Any]
Step = Callable[[], Any]


def peer_steps(
    case: Case, X: Array, y: Array, coef: Array, *, noise_multiplier: float = 1.0, part: int | None = None
) -> dict[str, Step]:
    """Return a callable per installed peer: sample, gather, clip each gradient, add noise, update.

    Each returns the coefficients after its step, in the shape of `coef`; unlike ours, each step of a peer starts from
    the result of its last one. `noise_multiplier` and `part`, the rows processed at once, are for tests: without noise,
    a peer's gradient can be compared with ours.
    """
    expected = case.rate * case.n_rows
    one_gradient_mb = coef.size * X.itemsize / 2**20
    part = part or 2 ** max(0, math.floor(math.log2(PART_MB / one_gradient_mb)))
    ways: dict[str, int | None] = {}
    if expected * one_gradient_mb <= LARGEST_MB:
        ways[""] = None
    if expected > part:
        ways[", in parts"] = part
    data = X, y, coef, noise_multiplier
    steps: dict[str, Step] = {}
    if _importable("torch", "opacus"):
        steps |= {f"Opacus hooks{way}": _opacus_hooks(case, *data, part=size) for way, size in ways.items()}
        steps["Opacus ghost"] = _opacus_ghost(case, *data)
    # XLA reads these once, when it starts. The second one sets the size of its thread pool.
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    os.environ.setdefault("NPROC", "1")
    if _importable("jax", "jax_privacy.clipping"):
        steps |= {f"jax-privacy{way}": _jax_privacy(case, *data, part=size) for way, size in ways.items()}
    if case.n_scores == 1 and _importable("diffprivlib.models"):
        steps["diffprivlib (whole fit)"] = _diffprivlib(X, y)
    return steps


def _importable(*modules: str) -> bool:
    """Return whether all modules can be imported; an installed one may not support this scikit-learn."""
    try:
        for module in modules:
            importlib.import_module(module)
    except ImportError:
        return False
    return True


def _opacus_hooks(
    case: Case, X: Array, y: Array, coef: Array, noise_multiplier: float, *, part: int | None = None
) -> Step:
    torch = importlib.import_module("torch")
    layer = _layer(coef)
    model = importlib.import_module("opacus.grad_sample").GradSampleModule(layer)
    optimizer = importlib.import_module("opacus.optimizers").DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=_LENGTH),
        noise_multiplier=noise_multiplier,
        max_grad_norm=_CLIP_NORM,
        expected_batch_size=case.rate * case.n_rows,
    )
    batch, criterion, scores = _batches(case, X, y), _criterion(coef), _scores(model, coef)

    def step() -> Any:
        rows, target = batch()
        size = part or max(1, len(rows))
        pieces = list(zip(rows.split(size), target.split(size), strict=True))
        for left, (some, their) in zip(reversed(range(len(pieces))), pieces, strict=True):
            # What Opacus's BatchMemoryManager does: clip and add up now, noise and update after the last part.
            optimizer.signal_skip_step(do_skip=left > 0)
            criterion(scores(some), their).backward()
            optimizer.step()
            optimizer.zero_grad()
        return _coefficients(layer, coef)

    return step


def _opacus_ghost(case: Case, X: Array, y: Array, coef: Array, noise_multiplier: float) -> Step:
    torch = importlib.import_module("torch")
    layer = _layer(coef)
    model = importlib.import_module("opacus.grad_sample").GradSampleModuleFastGradientClipping(
        layer, max_grad_norm=_CLIP_NORM, use_ghost_clipping=True
    )
    optimizer = importlib.import_module("opacus.optimizers").DPOptimizerFastGradientClipping(
        torch.optim.SGD(model.parameters(), lr=_LENGTH),
        noise_multiplier=noise_multiplier,
        max_grad_norm=_CLIP_NORM,
        expected_batch_size=case.rate * case.n_rows,
    )
    losses = importlib.import_module("opacus.utils.fast_gradient_clipping_utils")
    criterion = losses.DPLossFastGradientClipping(model, optimizer, _criterion(coef))
    batch, scores = _batches(case, X, y), _scores(model, coef)

    def step() -> Any:
        rows, target = batch()
        criterion(scores(rows), target).backward()
        optimizer.step()
        optimizer.zero_grad()
        return _coefficients(layer, coef)

    return step


def _layer(coef: Array) -> Any:
    """Return torch's linear layer with these coefficients, and limit torch to one thread."""
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    weight = torch.tensor(coef.reshape(len(coef), -1).T.copy())
    layer = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False, dtype=weight.dtype)
    with torch.no_grad():
        layer.weight.copy_(weight)
    return layer


def _coefficients(layer: Any, coef: Array) -> Any:
    return layer.weight.detach().numpy().T.reshape(coef.shape)


def _criterion(coef: Array) -> Any:
    nn = importlib.import_module("torch.nn")
    return nn.BCEWithLogitsLoss() if coef.ndim == 1 else nn.CrossEntropyLoss()


def _scores(model: Any, coef: Array) -> Callable[[Any], Any]:
    # One loss per example, of shape (B,). From shape (B, 1), the ghost mode of Opacus 1.6.0 multiplies B losses by B
    # clip factors into a B x B table without an error, and gradients are not clipped correctly.
    return (lambda rows: model(rows).squeeze(1)) if coef.ndim == 1 else model


def _batches(case: Case, X: Array, y: Array) -> Callable[[], tuple[Any, Any]]:
    """Return a function that draws a batch of rows and targets as tensors; at a rate of 1, all rows, not copied."""
    torch = importlib.import_module("torch")
    rows, targets, random = torch.from_numpy(X), torch.from_numpy(y), SeededRandom(1)

    def batch() -> tuple[Any, Any]:
        if case.rate >= 1:
            return rows, targets
        index = torch.from_numpy(random.poisson_sample(case.n_rows, case.rate))
        return rows.index_select(0, index), targets.index_select(0, index)

    return batch


def _jax_privacy(case: Case, X: Array, y: Array, coef: Array, noise_multiplier: float, *, part: int | None) -> Step:
    # In float32, the default of jax, for every case.
    jax = importlib.import_module("jax")
    jnp = importlib.import_module("jax.numpy")
    pad = importlib.import_module("jax_privacy.batch_selection").pad_to_multiple_of
    expected, random = case.rate * case.n_rows, SeededRandom(1)

    def loss(now: Any, row: Any, target: Any) -> Any:
        scores = row @ now
        if coef.ndim == 1:
            return jnp.logaddexp(0.0, scores) - target * scores
        return jax.nn.logsumexp(scores) - scores[target]

    clipped = importlib.import_module("jax_privacy.clipping").clipped_grad(
        loss,
        l2_clip_norm=_CLIP_NORM,
        batch_argnums=(1, 2),
        keep_batch_dim=False,
        normalize_by=expected,
        microbatch_size=part,
    )
    noise = importlib.import_module("jax_privacy.noise_addition").gaussian_privatizer(
        stddev=noise_multiplier * clipped.sensitivity(), prng_key=1
    )

    def update(now: Any, state: Any, rows: Any, targets: Any, is_padding: Any) -> Any:
        gradient = clipped(now, rows, targets, is_padding_example=is_padding)
        noisy, state = noise.update(gradient, state)
        return now - _LENGTH * noisy, state

    compiled = jax.jit(update)
    # One batch shape means one compilation. A batch rarely exceeds the mean by five standard deviations; then it is
    # padded to twice that size.
    multiple = part or 32
    capacity = multiple * math.ceil((expected + 5 * math.sqrt(expected)) / multiple)
    now = jnp.asarray(coef, jnp.float32)
    state = noise.init(now)
    if case.rate >= 1:
        index = pad(np.arange(case.n_rows), part or 1)
        everything = jnp.asarray(X[index], jnp.float32), jnp.asarray(y[index]), jnp.asarray(index < 0)

    def step() -> Any:
        nonlocal now, state
        if case.rate >= 1:
            batch = everything
        else:
            index = pad(random.poisson_sample(case.n_rows, case.rate), capacity)
            batch = X.take(index, axis=0), y[index], index < 0
        now, state = compiled(now, state, *batch)
        return now.block_until_ready()

    return step


def _diffprivlib(X: Array, y: Array) -> Step:
    models = importlib.import_module("diffprivlib.models")
    # The rows are synthetic, so their bound may be computed from them.
    longest = float(np.linalg.norm(X, axis=1).max())

    def fit() -> Any:
        return models.LogisticRegression(epsilon=1.0, data_norm=longest, fit_intercept=False).fit(X, y).coef_[0]

    return fit
