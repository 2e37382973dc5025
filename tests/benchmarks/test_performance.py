"""The performance benchmark: all contenders of a table do the same work, and verdicts follow the figures."""

import numpy as np
import pytest

from benchmarks.performance import networks, peers, performance
from benchmarks.performance.performance import Case
from dpadapt.accounting import ledger
from dpadapt.accounting.ledger import Run
from dpadapt.learning.descent import gradient_weights, released_gradients
from dpadapt.learning.losses import LogisticLoss, SoftmaxLoss
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import clipped_outer_sum
from dpadapt.mechanisms.mechanism import Gaussian
from dpadapt.mechanisms.randomness import SeededRandom
from dpadapt.rows import Rows

# Warnings of the peers: hooks on a first layer, whose inputs need no gradient, and deprecated names of optax and scipy.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Full backward hook"),
    pytest.mark.filterwarnings("ignore:optax.global_norm"),
    pytest.mark.filterwarnings("ignore:scipy.optimize"),
]

TINY = (
    Case("softmax, batch of 1,024", 200, 6, 4, 0.25, 20, np.float32),
    Case("softmax, full batch", 200, 6, 4, 1.0, 20, np.float32),
    Case("binary, full batch", 150, 5, 1, 1.0, 20, np.float64),
)


class Unaccounted:
    """Replaces the ledger: a real run with any noise, whose first batch is that of the non-private step."""

    def __init__(self, **limits):
        pass

    def start(self, plan, *, label):
        return Run(plan, Adjacency.ZERO_OUT, SeededRandom(1), ledger._draw)


def first_steps(case, monkeypatch, *, clip_norm):
    """Return the coefficients before and after both steps; the private step has negligible noise."""
    monkeypatch.setattr(
        performance,
        "released_gradients",
        lambda run, rows, loss, coef, _, n_rows: released_gradients(run, rows, loss, coef, clip_norm, n_rows),
    )
    monkeypatch.setattr(performance, "Gaussian", lambda _: Gaussian(1e-12))
    monkeypatch.setattr(performance, "Ledger", Unaccounted)
    X, y, coef = performance.problem(case)
    coef = coef + 0.3 * np.random.default_rng(5).standard_normal(coef.shape).astype(case.dtype)
    return coef, performance._non_private(case, X, y, coef)(), performance._dpadapt(case, X, y, coef)()


@pytest.mark.parametrize("case", TINY, ids=lambda case: case.name)
def test_private_step_computes_the_non_private_gradient_under_a_huge_clip(case, monkeypatch):
    start, plain, private = first_steps(case, monkeypatch, clip_norm=1e4)
    tolerance = 1e-5 * np.abs(plain - start).max()
    np.testing.assert_allclose(private - start, plain - start, rtol=0, atol=tolerance)


# Peers: each computes the same clipped gradient as ours, so that times compare the same work.

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


def clipped_problem(case):
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
    data = clipped_problem(case)
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
    data = clipped_problem(case)
    quiet = np.asarray(peer(name, case, data, noise_multiplier=0.0)())
    noisy = np.asarray(peer(name, case, data, noise_multiplier=50.0)())
    # 1,000 draws: their deviation is within 15 % of the true one but for one run in 10¹¹.
    assert np.std(noisy - quiet) * 300 / 0.1 == pytest.approx(50.0, rel=0.15)


# Networks.


def test_network_steps_are_compared_with_the_plain_one(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(networks, "N_ROWS", 60)
    monkeypatch.setattr(networks, "BATCH", 20)
    rows = {row["what"]: row for row in networks.step_times(repetitions=1)}
    assert rows["plain"]["ratio"] == 1.0
    assert rows.keys() == {"plain", "private, ghost", "private, vmap"}
    assert all(row["ms"] > 0 for row in rows.values())


def test_ghost_and_vmap_agree_on_the_emnist_network():
    pytest.importorskip("torch")
    assert networks.agreement() < 1e-5
