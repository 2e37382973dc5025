"""`NCnvxAdap`: equal to Algorithm 2 step by step, for logistic, softmax and squared losses."""

import math

import numpy as np
import pytest

from dpadapt import Adjacency, Public, audit
from dpadapt.papers.adaptation.bounded_losses import limited_rows
from dpadapt.papers.adaptation.ncnvx import NCnvxAdap, smoothness_of
from dpadapt.papers.adaptation.preparation import unit_geometry
from dpadapt.papers.adaptation.problem import CrossEntropy, Penalties, SquaredError


def make_data(m=80, n=60, d=3, classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X_s, X = rng.standard_normal((m, d)), rng.standard_normal((n, d)) + 0.3
    W = rng.standard_normal((d, classes))
    return X_s, np.argmax(X_s @ W, axis=1), X, np.argmax(X @ (W + 0.3 * rng.standard_normal(W.shape)), axis=1)


def verbatim(Z_s, c_s, Z, c, loss, *, alpha, radius, penalties, mu, T, beta, noises, weight_noises, d_hat, moves, keep):
    """Algorithm 2 as printed, with the noise given."""
    m, n = len(Z_s), len(Z)
    shape = noises[0].shape
    w, u, v = np.zeros(shape), np.full(m, m / alpha), np.full(n, n / (1 - alpha))
    iterates = []
    one, two, top = penalties.one, penalties.two, penalties.infinity
    for t in range(T):
        l_s, l_t = loss.losses(Z_s @ w, c_s), loss.losses(Z @ w, c)
        grad = Z_s.T @ (loss.weights(Z_s @ w, c_s).T / u).T + Z.T @ (loss.weights(Z @ w, c).T / v).T
        size = math.sqrt((1 / u**2).sum() + (1 / v**2).sum())
        parts = np.exp(mu / u).sum() + np.exp(mu / v).sum()
        g_u = (one - l_s - d_hat) / u**2 - two / u**3 / size - top * np.exp(mu / u) / u**2 / parts
        g_v = (one - l_t) / v**2 - two / v**3 / size - top * np.exp(mu / v) / v**2 / parts
        w = w - (grad + noises[t]) / beta
        if np.linalg.norm(w) > radius:
            w = radius * w / np.linalg.norm(w)
        if moves[0]:
            u = np.maximum(u - g_u / beta, m / alpha)
        if moves[1]:
            v = np.maximum(v - (g_v + weight_noises[t]) / beta, n / (1 - alpha))
        iterates.append(w)
    return np.mean(iterates, axis=0) if keep is None else iterates[keep]


@pytest.mark.parametrize("form", ["exact", "paper", "inf"])
@pytest.mark.parametrize(("classes", "loss"), [(2, CrossEntropy()), (3, CrossEntropy()), (2, SquaredError())])
def test_it_equals_a_verbatim_loop(make_tape, form, classes, loss):
    X_s, y_s, X, y = make_data(classes=classes)
    T, alpha, radius, n = 60, 0.4, 3.0, len(X)
    model = NCnvxAdap(
        math.inf if form == "inf" else 3.0,
        0.01,
        loss=loss,
        alpha=alpha,
        radius=radius,
        lambda1=0.1,
        lambda2=2.0,
        lambda_inf=1.0,
        n_steps=T,
        noise="paper" if form == "paper" else "exact",
        average="paper" if form == "paper" else "mean",
        random_state=4,
    )
    tape = make_tape(noiseless=False, adjacency=Adjacency.REPLACE_ONE)
    model.fit(X, y, public=Public(X_s, y_s), ledger=tape.ledger)
    geometry = unit_geometry(3, X_s)
    Z_s, Z = (limited_rows(geometry.transform(t), np.zeros(len(t)), max_norm=1, max_target=1).X for t in (X_s, X))
    shape = (4,) if classes == 2 else (4, 3)
    k = 1 if classes == 2 else classes
    p, penalties = (1 - alpha) / n, Penalties(0.1, 2.0, 1.0)
    G, B, mu = loss.lipschitz(k, radius), loss.bound(k, radius), math.sqrt(len(X) + len(X_s))
    gradients = [z for z in tape.noises if z.shape == shape]
    own = [z for z in tape.noises if z.shape == (n,)]
    expected = verbatim(
        Z_s,
        y_s,
        Z,
        y,
        loss,
        alpha=alpha,
        radius=radius,
        penalties=penalties,
        mu=mu,
        T=T,
        beta=smoothness_of(loss.smoothness(k), G, B, len(X_s), n, alpha, penalties, mu),
        noises=[p * z for z in gradients],
        weight_noises=[-(p**2) * z for z in own] or [0.0] * T,
        d_hat=model.discrepancy_ or 0.0,
        moves=(form != "exact", form != "exact"),
        keep=np.random.default_rng(4).integers(T) if form == "paper" else None,
    )
    raw, level = geometry.coefficients(expected.reshape(4, -1))
    solution = np.column_stack([model.coef_, model.intercept_])
    assert np.linalg.norm(solution - np.column_stack([raw.T, level])) <= 1e-8 * np.linalg.norm(solution)


@pytest.mark.parametrize(("noise", "share"), [("paper", None), ("exact", 0.1)])
def test_replay_finds_no_leak(noise, share):
    X_s, y_s, X, y = make_data(classes=3)
    make = lambda: NCnvxAdap(  # noqa: E731
        1.0, 0.01, n_steps=20, noise=noise, discrepancy_share=share, classes=[0, 1, 2], random_state=0
    )
    for row, label in ((np.full(3, 1e6), 0), (np.zeros(3), 2)):
        X_other, y_other = X.copy(), y.copy()
        X_other[5], y_other[5] = row, label
        assert audit.leaks(make, (X, y), (X_other, y_other), public=Public(X_s, y_s)) == []
