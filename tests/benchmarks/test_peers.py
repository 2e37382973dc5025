"""Every peer that is installed computes the same clipped gradient as we do, so the times compare like with like."""

import importlib

import numpy as np
import pytest

from benchmarks.performance import peers
from benchmarks.performance.performance import Case
from dpadapt.learning.descent import LogisticLoss, SoftmaxLoss, gradient_weights
from dpadapt.mechanisms.bounded import clipped_outer_sum
from dpadapt.mechanisms.randomness import SeededRandom
from dpadapt.rows import Rows

# The peers' own: hooks on a first layer, whose inputs need no gradient, and names that optax and scipy have retired.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Full backward hook"),
    pytest.mark.filterwarnings("ignore:optax.global_norm"),
    pytest.mark.filterwarnings("ignore:scipy.optimize"),
]

SOFTMAX = Case("softmax, full batch", 300, 12, 5, 1.0, 1, np.float32)
SAMPLED = Case("softmax, sampled", 300, 12, 5, 0.3, 1, np.float32)
BINARY = Case("binary, full batch", 300, 7, 1, 1.0, 1, np.float64)
BINARY_SAMPLED = Case("binary, sampled", 300, 7, 1, 0.3, 1, np.float64)
CASES = [SOFTMAX, SAMPLED, BINARY, BINARY_SAMPLED]

PEERS = {
    "Opacus hooks": "opacus",
    "Opacus hooks, in parts": "opacus",
    "Opacus ghost": "opacus",
    "jax-privacy": "jax_privacy",
    "jax-privacy, in parts": "jax_privacy",
}


def problem(case):
    """Coefficients away from zero, and rows of which some are clipped and some are not."""
    random = np.random.default_rng(3)
    X = random.standard_normal((case.n_rows, case.n_features)) * random.uniform(0.05, 1.5, (case.n_rows, 1))
    codes = random.integers(0, max(2, case.n_scores), case.n_rows)
    coef = 0.3 * random.standard_normal((case.n_features, case.n_scores)).astype(case.dtype)
    binary = case.n_scores == 1
    return X.astype(case.dtype), codes.astype(case.dtype) if binary else codes, coef[:, 0] if binary else coef


def our_gradient(case, X, y, coef, clip_norm):
    rows = Rows(X, y)
    if case.rate < 1:
        rows = rows.take(SeededRandom(1).poisson_sample(case.n_rows, case.rate))
    loss = LogisticLoss() if case.n_scores == 1 else SoftmaxLoss()
    return clipped_outer_sum(rows, gradient_weights(loss, coef), clip_norm).value / (case.rate * case.n_rows)


def peer(name, case, data, **options):
    pytest.importorskip(PEERS[name], exc_type=ImportError)
    return peers.peer_steps(case, *data, part=16, **options)[name]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("name", PEERS)
def test_peer_computes_our_clipped_gradient(name, case):
    data = problem(case)
    before = data[2].copy()
    after = np.asarray(peer(name, case, data, noise_multiplier=0.0)(), dtype=np.float64)
    assert after.shape == before.shape
    # The peers' step is 0.1 long.
    gradient = (before - after) / 0.1
    ours = our_gradient(case, *data, clip_norm=1.0)
    np.testing.assert_allclose(gradient, ours, rtol=0, atol=1e-4 * np.abs(ours).max())
    # The comparison can fail: without the clip, the gradient is another one.
    assert np.abs(gradient - our_gradient(case, *data, clip_norm=1e6)).max() > 0.02 * np.abs(ours).max()


@pytest.mark.parametrize("name", PEERS)
def test_peer_adds_noise_of_the_stated_scale(name):
    case = Case("softmax", 300, 40, 25, 1.0, 1, np.float32)
    data = problem(case)
    quiet = np.asarray(peer(name, case, data, noise_multiplier=0.0)())
    noisy = np.asarray(peer(name, case, data, noise_multiplier=50.0)())
    # 1,000 draws: their deviation is within 15 % of the true one but for one run in 10¹¹.
    assert np.std(noisy - quiet) * 300 / 0.1 == pytest.approx(50.0, rel=0.15)


def test_ghost_step_gives_opacus_one_loss_per_example(monkeypatch):
    pytest.importorskip("opacus")
    wrapped = importlib.import_module("opacus.utils.fast_gradient_clipping_utils")
    shapes, original = [], wrapped.DPTensorFastGradientClipping.backward
    monkeypatch.setattr(
        wrapped.DPTensorFastGradientClipping,
        "backward",
        lambda loss: shapes.append(tuple(loss.loss_per_sample.shape)) or original(loss),
    )
    for case in (SOFTMAX, BINARY):
        peer("Opacus ghost", case, problem(case))()
    assert shapes == [(300,), (300,)]


def test_diffprivlib_fit_has_one_coefficient_per_feature():
    pytest.importorskip("diffprivlib.models", exc_type=ImportError)
    steps = peers.peer_steps(BINARY, *problem(BINARY))
    assert steps["diffprivlib (whole fit)"]().shape == (BINARY.n_features,)
    assert "diffprivlib (whole fit)" not in peers.peer_steps(SOFTMAX, *problem(SOFTMAX))


def test_peers_that_are_not_installed_are_left_out(monkeypatch):
    monkeypatch.setattr(peers, "_importable", lambda *modules: False)
    assert peers.peer_steps(BINARY, *problem(BINARY)) == {}


def test_gradients_too_large_to_store_are_run_in_parts_only(monkeypatch):
    monkeypatch.setattr(peers, "_importable", lambda *modules: True)
    for build in ("_opacus_hooks", "_opacus_ghost", "_jax_privacy"):
        monkeypatch.setattr(peers, build, lambda *data, part=None: part)
    data = problem(SOFTMAX)
    assert set(peers.peer_steps(SOFTMAX, *data, part=16)) == set(PEERS)
    assert "Opacus hooks, in parts" not in peers.peer_steps(SOFTMAX, *data)
    monkeypatch.setattr(peers, "LARGEST_MB", 0.01)
    assert peers.peer_steps(SOFTMAX, *data, part=16) == {
        "Opacus hooks, in parts": 16,
        "Opacus ghost": None,
        "jax-privacy, in parts": 16,
    }
