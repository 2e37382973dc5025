"""Private baselines of paper 1: a verbatim loop, exact mixtures, weights that match source to target."""

import math

import numpy as np
import pytest
from scipy.optimize import linprog

from benchmarks.rivals.adaptation import AlphaMixture, DiscrepancyMinimization, discrepancy_weights
from benchmarks.rivals.private_adaptation import NoisySGD, PrivateDiscrepancyMinimization, PrivateMixture
from dpadapt import Adjacency, Public, calibrate
from dpadapt.papers.adaptation.bounded_losses import gradient_bounds
from tests.papers.adaptation.conftest import Tape

BUDGET = {"epsilon": 2.0, "delta": 1e-5}


def samples(seed=0, m=400, n=600, shift=0.5):
    random = np.random.default_rng(seed)
    X_source, X = random.uniform(-1, 1, (m, 3)), random.uniform(-1, 1, (n, 3))
    y_source, y = X_source @ [0.5, 0.5, 0.0], X @ [0.5, 0.5 - shift, 0.0]
    return X, y + 0.05 * random.normal(size=n), Public(X_source, y_source + 0.05 * random.normal(size=m))


def test_noisy_steps_equal_a_verbatim_loop():
    X, y, public = samples()
    tape = Tape(adjacency=Adjacency.REPLACE_ONE)
    model = NoisySGD(**BUDGET, radius=2.0, n_steps=50, adjacency="replace-one").fit(
        X, y, public=public, ledger=tape.ledger
    )
    single, replaced = gradient_bounds(1.0, 1.0, 2.0)
    sigma = replaced * math.sqrt(50) / (calibrate(**BUDGET) ** -1 * len(X))
    length = 2.0 / math.sqrt(50 * (single**2 + 4 * sigma**2))
    center, scale = public.X.mean(axis=0), public.X.std(axis=0)
    rows = np.column_stack([(X - center) / scale, np.ones(len(X))])
    source = np.column_stack([(public.X - center) / scale, np.ones(len(public.X))])
    rows /= np.quantile(np.linalg.norm(source, axis=1), 0.95)
    middle = public.y.mean()
    half = np.quantile(np.abs(public.y - middle), 0.99)
    shorter = np.maximum(1.0, np.linalg.norm(rows, axis=1))
    rows /= shorter[:, None]
    labels = np.clip((y - middle) / half, -1, 1) / shorter
    w, visited = np.zeros(4), []
    for _ in range(50):
        gradient = sum(2 * (w @ row - label) * row for row, label in zip(rows, labels, strict=True)) / len(rows)
        w = w - length * gradient
        w *= min(1.0, 2.0 / np.linalg.norm(w))
        visited.append(w)
    mean = np.mean(visited, axis=0)
    predicted = (model.predict(X) - middle) / half
    whole = np.column_stack([(X - center) / scale, np.ones(len(X))]) / np.quantile(np.linalg.norm(source, axis=1), 0.95)
    assert predicted == pytest.approx(whole @ mean, abs=1e-9)
    assert tape.scales[0] == pytest.approx(sigma * len(X), rel=1e-6)


def test_mixture_moves_from_the_private_target_to_the_public_source():
    X, y, public = samples(n=5000, shift=0.2)
    slopes = []
    for alpha in (0.0, 0.25, 0.5, 0.75, 1.0):
        tape = Tape()
        model = PrivateMixture(50.0, 1e-5, alpha=alpha).fit(X, y, public=public, ledger=tape.ledger)
        exact = AlphaMixture(alpha).fit(X, y, public=public)
        slopes.append(model.coef_[1])
        assert model.coef_ == pytest.approx(exact.coef_, abs=0.02)
    assert np.all(np.diff(slopes) > 0)


def test_mixture_of_the_source_alone_spends_nothing():
    X, y, public = samples()
    model = PrivateMixture(**BUDGET, alpha=1.0).fit(X, y, public=public)
    assert model.privacy_.epsilon == 0.0
    assert model.privacy_.entries == ()


def spectral_oracle(source, moment, n_angles=2000):
    """Least spectral distance in the plane, by a linear program over a dense set of directions."""
    angles = np.linspace(0, np.pi, n_angles, endpoint=False)
    directions = np.column_stack([np.cos(angles), np.sin(angles)])
    along, goal = (directions @ source.T) ** 2, np.einsum("ij,jk,ik->i", directions, moment, directions)
    one = np.ones((n_angles, 1))
    m = len(source)
    program = linprog(
        np.append(np.zeros(m), 1.0),
        A_ub=np.block([[along, -one], [-along, -one]]),
        b_ub=np.concatenate([goal, -goal]),
        A_eq=np.append(np.ones(m), 0.0)[None],
        b_eq=[1.0],
    )
    return program.fun


@pytest.mark.parametrize("stretch", [0.5, 2.0, 5.0])
def test_discrepancy_weights_reach_the_least_distance(stretch):
    random = np.random.default_rng(1)
    source, target = random.normal(size=(30, 2)), stretch * random.normal(size=(30, 2))
    moment = target.T @ target / 30
    least = spectral_oracle(source, moment)
    size = np.linalg.norm(moment, 2)
    for tolerance in (0.03, 0.003):
        matched = discrepancy_weights(source, moment, tolerance=tolerance, most_steps=5000)
        assert matched.weights.sum() == pytest.approx(1.0)
        assert matched.weights.min() >= 0
        reached = np.linalg.norm((source * matched.weights[:, None]).T @ source - moment, 2)
        assert matched.distance == pytest.approx(reached)
        assert matched.at_least <= least + 1e-5 * size
        assert least - 1e-5 * size <= matched.distance <= least + tolerance * size


def shifted_features(m=800, n=2000):
    random = np.random.default_rng(0)
    X_source, X = random.uniform(-2, 2, (m, 2)), random.uniform(0.5, 1.5, (n, 2))
    curve = lambda X: X[:, 0] ** 2 + X[:, 1]  # noqa: E731
    return X, curve(X), Public(X_source, curve(X_source))


def test_private_matching_comes_close_to_matching_without_privacy():
    X, y, public = shifted_features()
    error = lambda model: np.mean((model.predict(X) - y) ** 2)  # noqa: E731
    source, without_privacy = (
        AlphaMixture(1.0).fit(X, y, public=public),
        DiscrepancyMinimization().fit(X, y, public=public),
    )
    private = PrivateDiscrepancyMinimization(4.0, 1e-5, random_state=0).fit(X, public=public)
    assert error(without_privacy) < 0.3 * error(source)
    assert error(private) < 0.5 * error(source)


def test_private_matching_uses_no_private_label():
    X, y, public = shifted_features(n=300)
    tapes = [Tape(), Tape()]
    first = PrivateDiscrepancyMinimization(2.0, 1e-5).fit(X, y, public=public, ledger=tapes[0].ledger)
    second = PrivateDiscrepancyMinimization(2.0, 1e-5).fit(X, public=public, ledger=tapes[1].ledger)
    assert np.array_equal(first.coef_, second.coef_)
    assert np.array_equal(tapes[0].values[0], tapes[1].values[0])
    with pytest.raises(ValueError, match="requires y"):
        PrivateDiscrepancyMinimization(2.0, 1e-5).fit(X, public=Public(public.X))
