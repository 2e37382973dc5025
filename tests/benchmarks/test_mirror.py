"""The benchmark of the mirror-descent paper measures what it says."""

import numpy as np
import pytest

from benchmarks.mirror import figure1 as figure
from benchmarks.mirror import figure1 as oracle
from benchmarks.mirror import theory
from dpadapt import Public
from dpadapt.papers.mirror.estimators import PDADPMDRegressor
from dpadapt.papers.mirror.gradient_descent import PrivateGradientDescentRegressor


@pytest.fixture(scope="module")
def problem():
    return figure.make_problem(300, 0)


def test_the_setting_is_that_of_section_3(problem):
    X = problem.X.toarray()
    assert set(np.unique(X)) == {0.0, 0.05}
    assert np.all((X[:, :60] > 0).sum(axis=1) == 40)
    assert np.all((X[:, 60:] > 0).sum(axis=1) == 80)
    assert problem.X_public.shape == (450, 300)
    assert X.shape == (10_000, 300)


def test_population_loss_is_exact(problem):
    solution = problem.coef + np.random.default_rng(0).standard_normal(300)
    other = figure.make_problem(300, 1).X
    errors = (other @ (solution - problem.coef)) ** 2
    # Four standard errors.
    assert abs(problem.excess(solution[:, None])[0] - errors.mean()) < 4 * errors.std() / 100


@pytest.mark.parametrize(
    ("shape", "make"),
    [
        (oracle.plain, lambda **k: PrivateGradientDescentRegressor(**k)),
        (oracle.mirror, lambda **k: PDADPMDRegressor(average="tail", ridge=0.3, **k)),
        (oracle.whitened, lambda **k: PrivateGradientDescentRegressor(whiten=True, ridge=0.3, **k)),
    ],
    ids=["plain", "mirror", "whitened"],
)
def test_tuned_rows_take_the_steps_of_the_estimators(problem, shape, make):
    X_public = problem.X_public.toarray()
    hessian = X_public.T @ X_public / len(X_public)
    geometry = shape(problem.X, hessian, 0.3)
    clip, rate = (2.0, 0.5) if shape is oracle.whitened else (0.03, 0.5)
    raw = {"standardise": False, "fit_intercept": False, "random_state": 0}
    public = Public(X_public, problem.y_public)
    start = make(epsilon=1e-7, delta=1e-12, n_steps=1, **raw).fit(problem.X.toarray(), problem.y, public=public).coef_
    length = rate / geometry.fastest
    if shape is oracle.mirror:
        # The estimator normalises by the smallest eigenvalue, the oracle by the mean one.
        ridged = hessian + 0.3 * np.trace(hessian) / 300 * np.eye(300)
        length *= (np.trace(hessian) / 300) / np.linalg.eigvalsh(ridged)[0]
    model = make(epsilon=1e9, delta=0.5, n_steps=2, clip_norm=clip, learning_rate=length, **raw)
    model.fit(problem.X.toarray(), problem.y, public=public)
    setting = oracle.Setting(0.3, 2, rate, clip)
    random = np.random.default_rng(0)
    tried = oracle.descend(problem.X, problem.y, start, geometry, [setting], noise=0.0, random=random)
    last = next(one.solution for one in tried if one.average == "last")
    # The tail of two steps is the last one.
    assert np.allclose(last, model.coef_, atol=2e-4 * np.abs(last - start).max())


def test_ranking_puts_runaways_last(problem):
    good, bad = problem.coef, np.full(300, np.inf)
    setting = oracle.Setting(0.0, 1, 1.0, 1.0)
    tried = [oracle.Tried(setting, "last", bad), oracle.Tried(setting, "last", good)]
    with np.errstate(invalid="ignore"):
        assert oracle.ranked(tried, problem.excess)[0].solution is good


def test_noise_stability_is_measured_and_holds():
    found = theory.stability(quick=True)
    assert len(found["claims"]) == 4
    assert all(row["verdict"] == "holds" for row in found["claims"])
    assert all(len(row) == len(table["columns"]) for table in found["tables"] for row in table["rows"])


def test_the_printed_noise_is_judged_by_its_true_cost():
    verdicts = {row["claim"]: row["verdict"] for row in theory.noise_claims()["claims"]}
    assert verdicts["Algorithm 1's noise is (1, 1e-05)-private"] == "holds"
    assert verdicts["Algorithm 1's noise is (200, 1e-05)-private"] == "missed"
