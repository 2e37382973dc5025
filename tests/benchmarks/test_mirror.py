"""The benchmark of the mirror-descent paper measures what it says."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.mirror import figure1, networks, theory
from benchmarks.rivals.gradient_descent import PrivateGradientDescentRegressor
from dpadapt import Public
from dpadapt.papers.mirror.estimators import PDADPMDRegressor


@pytest.fixture(scope="module")
def problem():
    return figure1.make_problem(300, 0)


def test_the_setting_is_that_of_section_3(problem):
    X = problem.X.toarray()
    assert set(np.unique(X)) == {0.0, 0.05}
    assert np.all((X[:, :60] > 0).sum(axis=1) == 40)
    assert np.all((X[:, 60:] > 0).sum(axis=1) == 80)
    assert problem.X_public.shape == (450, 300)
    assert X.shape == (10_000, 300)


def test_population_loss_is_exact(problem):
    solution = problem.coef + np.random.default_rng(0).standard_normal(300)
    other = figure1.make_problem(300, 1).X
    errors = (other @ (solution - problem.coef)) ** 2
    # Four standard errors.
    assert abs(problem.excess(solution[:, None])[0] - errors.mean()) < 4 * errors.std() / 100


@pytest.mark.parametrize(
    ("shape", "make"),
    [
        (figure1.plain, lambda **k: PrivateGradientDescentRegressor(**k)),
        (figure1.mirror, lambda **k: PDADPMDRegressor(average="tail", ridge=0.3, **k)),
        (figure1.whitened, lambda **k: PrivateGradientDescentRegressor(whiten=True, ridge=0.3, **k)),
    ],
    ids=["plain", "mirror", "whitened"],
)
def test_tuned_rows_take_the_steps_of_the_estimators(problem, shape, make):
    X_public = problem.X_public.toarray()
    hessian = X_public.T @ X_public / len(X_public)
    geometry = shape(problem.X, hessian, 0.3)
    clip, rate = (2.0, 0.5) if shape is figure1.whitened else (0.03, 0.5)
    raw = {"standardise": False, "fit_intercept": False, "random_state": 0}
    public = Public(X_public, problem.y_public)
    start = make(epsilon=1e-7, delta=1e-12, n_steps=1, **raw).fit(problem.X.toarray(), problem.y, public=public).coef_
    length = rate / geometry.fastest
    if shape is figure1.mirror:
        # The estimator normalises by the smallest eigenvalue, the oracle by the mean one.
        ridged = hessian + 0.3 * np.trace(hessian) / 300 * np.eye(300)
        length *= (np.trace(hessian) / 300) / np.linalg.eigvalsh(ridged)[0]
    model = make(epsilon=1e9, delta=0.5, n_steps=2, clip_norm=clip, learning_rate=length, **raw)
    model.fit(problem.X.toarray(), problem.y, public=public)
    setting = figure1.Setting(0.3, 2, rate, clip)
    random = np.random.default_rng(0)
    tried = figure1.descend(problem.X, problem.y, start, geometry, [setting], noise=0.0, random=random)
    last = next(one.solution for one in tried if one.average == "last")
    # The tail of two steps is the last one.
    assert np.allclose(last, model.coef_, atol=2e-4 * np.abs(last - start).max())


def test_noise_stability_is_measured_and_holds():
    stability = theory.stability(quick=True)
    assert len(stability["claims"]) == 4
    assert all(row["verdict"] == "holds" for row in stability["claims"])
    assert all(len(row) == len(table["columns"]) for table in stability["tables"] for row in table["rows"])


def test_the_printed_noise_is_judged_by_its_true_cost():
    verdicts = {row["claim"]: row["verdict"] for row in theory.noise_claims()["claims"]}
    assert verdicts["Algorithm 1's noise is (1, 1e-05)-private"] == "holds"
    assert verdicts["Algorithm 1's noise is (200, 1e-05)-private"] == "missed"


# Networks.

TASK = replace(networks.QUICK[0], paper=({"cold": (80.0, 0.7), "warm": (84.0, 0.5), "mirror": (85.0, 0.45)},))


def test_methods_run_on_a_tiny_set():
    pytest.importorskip("torch")
    rows = networks.measure(replace(TASK, n_steps=3, public_steps=50, rates=(0.5,)))
    assert [row["method"] for row in rows] == [
        "public only",
        "cold",
        "warm",
        "mirror, K = 2 x steps",
        "mirror, K = 6 x steps",
        "mirror, t in epochs",
        "mirror, K = 1 of 3 steps, clamped",
    ]
    by_name = {row["method"]: row for row in rows}
    assert by_name["warm"]["loss"] < by_name["cold"]["loss"]
    # Within one epoch, t in epochs is 0, and the step is the warm one.
    assert by_name["mirror, t in epochs"]["loss"] == pytest.approx(by_name["warm"]["loss"], rel=1e-6)
    assert len({round(row["loss"], 5) for row in rows}) == len(rows) - 1
