"""`CnvxAdap`: equal to a verbatim loop, exact about its cost, refuses printed noise whose claim is false."""

import math

import numpy as np
import pytest

from dpadapt import Adjacency, Ledger, PrivacyError, Public, audit
from dpadapt.papers.adaptation.bounded_losses import Moments
from dpadapt.papers.adaptation.cnvx import CnvxAdap
from dpadapt.papers.adaptation.preparation import bounded_rows, target_scale, unit_geometry


def make_data(m, n, d, seed=0):
    rng = np.random.default_rng(seed)
    X_source, X = rng.standard_normal((m, d)), rng.standard_normal((n, d)) + 0.3
    w = rng.standard_normal(d) / math.sqrt(d)
    y_source = X_source @ w + 0.1 * rng.standard_normal(m)
    y = X @ (w + 0.3 * rng.standard_normal(d) / math.sqrt(d)) + 0.1 * rng.standard_normal(n)
    return X_source, y_source, X, y


def verbatim(X_s, y_s, X, y, *, alpha, radius, kappa, T, sigma1, sigma2, z, z_weights, discrepancy, moves):
    """Algorithm 1 as printed, with the noise given: the averages of w, u and v; `moves` says which weights do."""
    m, n, d = len(X_s), len(X), X.shape[1]
    r = 1.0
    B, G = (radius * r + 1) ** 2, 2 * r * (radius * r + 1)
    B_bar = B + sum(kappa)
    eta_w = radius / math.sqrt(T * (G**2 + d * sigma1**2))
    eta_pub = m**1.5 / (math.sqrt(T) * alpha**2 * (B + B_bar))
    eta_priv = n**1.5 / math.sqrt(T * ((1 - alpha) ** 4 * B_bar**2 + n**4 * sigma2**2))
    w, u, v = np.zeros(d), np.full(m, m / alpha), np.full(n, n / (1 - alpha))
    totals = [np.zeros(d), np.zeros(m), np.zeros(n)]
    for t in range(T):
        e_s, e = X_s @ w - y_s, X @ w - y
        g_w = 2 * X_s.T @ (e_s / u) + 2 * X.T @ (e / v)
        size = math.sqrt((1 / u**2).sum() + (1 / v**2).sum())
        least = min(u.min(), v.min())
        g_u = -(e_s**2 + discrepancy) / u**2 + kappa[0] * alpha**2 / m**2
        g_u = g_u - kappa[1] / u**3 / size - kappa[2] * (u == least) / u**2
        g_v = -(e**2) / v**2 + kappa[0] * (1 - alpha) ** 2 / n**2
        g_v = g_v - kappa[1] / v**3 / size - kappa[2] * (v == least) / v**2
        w = w - eta_w * (g_w + z[t])
        if np.linalg.norm(w) > radius:
            w = radius * w / np.linalg.norm(w)
        if moves[0]:
            u = np.maximum(u - eta_pub * g_u, m / alpha)
        if moves[1]:
            v = np.maximum(v - eta_priv * (g_v + z_weights[t]), n / (1 - alpha))
        for total, part in zip(totals, (w, u, v), strict=True):
            total += part / T
    return totals


def scaled(data):
    X_s, y_s, X, y = data
    geometry, scale = unit_geometry(X.shape[1], X_s), target_scale(None, y_s)
    parts = []
    for rows, labels in ((X_s, y_s), (X, y)):
        limited = bounded_rows(geometry.transform(rows), scale.apply(labels))
        parts += [limited.X, limited.y]
    return parts, geometry, scale


@pytest.mark.parametrize("form", ["exact", "paper", "inf", "exact with discrepancy"])
@pytest.mark.parametrize(
    ("sizes", "kappa"),
    [((60, 40, 3), (0.02, 10.0, 0.0)), ((60, 40, 3), (0.02, 5.0, 1.0)), ((400, 150, 10), (1.0, 0.0, 0.0))],
)
def test_the_fast_descent_equals_a_verbatim_loop(make_tape, sizes, form, kappa):
    data = make_data(*sizes)
    T, alpha, radius = 500, 0.4, 2.0
    n, d = sizes[1], sizes[2] + 1
    estimator = CnvxAdap(
        epsilon={"inf": math.inf, "paper": 3.0}.get(form, 1.0),
        delta=0.01,
        alpha=alpha,
        radius=radius,
        kappa1=kappa[0],
        kappa2=kappa[1],
        kappa_inf=kappa[2],
        n_steps=T,
        noise="paper" if form == "paper" else "exact",
        discrepancy_share=0.1 if "with" in form else None,
    )
    X_s, y_s, X, y = data
    tape = make_tape(noiseless=False, adjacency=Adjacency.of(estimator.adjacency))
    estimator.fit(X, y, public=Public(X_s, y_s), ledger=tape.ledger)
    noises = list(zip(tape.noises, tape.scales, strict=True))
    parts, geometry, scale = scaled(data)
    gradients = [(z, s) for z, s in noises if z.shape == (d,)]
    losses = [(z, s) for z, s in noises if z.shape == (n,)]
    assert len(gradients) == T
    p = (1 - alpha) / n
    B = (radius + 1) ** 2
    spread = {"paper": 2 * math.sqrt(T * math.log(3 / 0.01)) / 1.5}.get(form, 0.0)
    # The noise of a block of steps, spread evenly over them: the sum is what moves the weights.
    z_weights = np.zeros((T, n))
    if losses and form == "paper":
        at = 0
        for z, s in losses:
            k = round((B * spread / s) ** 2)
            z_weights[at : at + k] = p**2 * -z
            at += k
        assert at == T
    expected, _, _ = verbatim(
        *parts,
        alpha=alpha,
        radius=radius,
        kappa=kappa,
        T=T,
        sigma1=p * gradients[0][1],
        sigma2=p**2 * B * spread,
        z=p * np.stack([z for z, _ in gradients]),
        z_weights=z_weights,
        discrepancy=estimator.discrepancy_ or 0.0,
        moves=(form != "exact", form in ("paper", "inf")),
    )
    if form == "paper":
        assert gradients[0][1] == pytest.approx(spread * 2 * 2 * (radius + 1))  # the printed noise
    solution = np.append(estimator.coef_ * geometry.scale, 0.0) * (1 / geometry.basis[0, 0]) / scale.half
    level = (estimator.intercept_ + geometry.center @ estimator.coef_ - scale.middle) / scale.half
    solution[-1] = level / geometry.basis[0, 0]
    assert np.linalg.norm(solution - expected) <= 1e-4 * np.linalg.norm(expected)


def fitted(data, **params):
    X_s, y_s, X, y = data
    return CnvxAdap(**{"epsilon": 3.0, "delta": 0.01, "n_steps": 60, "random_state": 0, **params}).fit(
        X, y, public=Public(X_s, y_s)
    )


def test_exact_noise_spends_the_budget_and_printed_noise_states_its_true_cost():
    data = make_data(200, 120, 4)
    exact = fitted(data).privacy_
    assert exact.epsilon == pytest.approx(3.0, rel=1e-6)
    assert [entry.label for entry in exact.entries] == ["gradient"]
    paper = fitted(data, noise="paper").privacy_
    assert [entry.label.split(",")[0] for entry in paper.entries][:3] == ["discrepancy", "gradient", "private weights"]
    assert paper.epsilon < 2.2 < 3.0
    assert any("claims epsilon = 3" in text for text in paper.warnings)
    assert paper.verify().lower <= paper.epsilon


def test_printed_noise_is_refused_where_its_claim_is_false_and_nothing_is_spent():
    X_s, y_s, X, y = make_data(200, 120, 4)
    ledger = Ledger(100.0, 0.01, adjacency=Adjacency.REPLACE_ONE)
    for public, epsilon in ((Public(X_s, y_s), 20.0), (None, 9.0)):
        with pytest.raises(PrivacyError, match="does not give what it claims"):
            CnvxAdap(epsilon, 0.01, noise="paper").fit(X, y, public=public, ledger=ledger)
    with pytest.raises(PrivacyError, match="number"):
        CnvxAdap(1.0, 0.01, noise="paper", adjacency="add-remove", n_rows=100).fit(X, y)
    assert ledger.entries == []


def test_without_privacy_the_receipt_says_so_and_a_cap_refuses():
    X_s, y_s, X, y = make_data(200, 120, 4)
    model = fitted((X_s, y_s, X, y), epsilon=math.inf)
    assert model.privacy_.epsilon == math.inf
    assert any("not private" in text for text in model.privacy_.warnings)
    ledger = Ledger(100.0, 0.01, adjacency=Adjacency.REPLACE_ONE)
    with pytest.raises(PrivacyError, match="cap"):
        CnvxAdap(math.inf, 0.01, n_steps=5).fit(X, y, public=Public(X_s, y_s), ledger=ledger)
    assert ledger.entries == []


@pytest.mark.parametrize(
    "params",
    [
        {"noise": "paper"},
        {"noise": "paper", "adjacency": "zero-out"},
        {"discrepancy_share": 0.1},
        {"average": "tail"},
        {"alpha": 1.0},
    ],
    ids=str,
)
def test_replay_finds_no_leak_in_any_variant(params):
    X_s, y_s, X, y = make_data(80, 50, 3)
    make = lambda: CnvxAdap(1.0, 0.01, n_steps=30, random_state=0, **params)  # noqa: E731
    for row, label in ((np.full(3, 1e6), 1e9), (np.zeros(3), -3.0)):
        X_other, y_other = X.copy(), y.copy()
        X_other[5], y_other[5] = row, label
        assert audit.leaks(make, (X, y), (X_other, y_other), public=Public(X_s, y_s)) == []


def test_public_weights_do_not_follow_the_private_number_of_rows(monkeypatch):
    """The public part of a gradient goes through the release, so that a replay of the result would not show it."""
    X_s, y_s, X, y = make_data(80, 50, 3)
    seen, plus = [], Moments.plus
    monkeypatch.setattr(Moments, "plus", lambda self, *public: seen.append(public) or plus(self, *public))
    settings = {"n_steps": 30, "discrepancy_share": 0.3, "kappa1": 0.1, "kappa2": 0.5}
    make = lambda: CnvxAdap(4.0, 0.01, adjacency="add-remove", n_rows=50, random_state=0, **settings)  # noqa: E731
    audit.leaks(make, (X, y), (X[:-20], y[:-20]), public=Public(X_s, y_s))
    first, second = seen[: len(seen) // 2], seen[len(seen) // 2 :]
    assert len(first) > 1
    assert all(np.array_equal(a, b) for parts in zip(first, second, strict=True) for a, b in zip(*parts, strict=True))


@pytest.mark.parametrize("adjacency", ["add-remove", Adjacency.ADD_REMOVE])
def test_the_papers_private_weights_are_refused_where_their_number_is_private(adjacency):
    X_s, y_s, X, y = make_data(80, 50, 3)
    model = CnvxAdap(4.0, 0.01, noise="paper", adjacency=adjacency, n_rows=50)
    ledger = Ledger(4.0, 0.01, adjacency=Adjacency.ADD_REMOVE)
    with pytest.raises(PrivacyError, match="one weight per private row"):
        model.fit(X, y, public=Public(X_s, y_s), ledger=ledger)
    assert ledger.entries == []
