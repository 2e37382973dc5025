"""Synthetic data have the stated distributions: regressions recover the stated coefficients, seeds repeat."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

from benchmarks.data import synthetic
from benchmarks.data.synthetic import APPENDIX_C, APPENDIX_D_EASY, APPENDIX_D_HARD, GaussianPair, shared_subspace


@pytest.mark.parametrize(("pair", "figure"), [(APPENDIX_C, 3e15), (APPENDIX_D_EASY, 1.35), (APPENDIX_D_HARD, 39.1)])
def test_divergences_are_those_the_paper_prints(pair, figure):
    assert figure < pair.divergence + 1 < 1.02 * figure


@pytest.mark.parametrize("pair", [APPENDIX_C, APPENDIX_D_EASY, GaussianPair(9, 3, 1.0, 0.5, 0.3, "ball", spread=4.0)])
def test_the_share_of_the_target_with_label_0_is_as_stated(pair):
    _, y = pair.target(20_000, seed=1)
    # Five standard errors.
    assert np.mean(y == 0) == pytest.approx(pair.share, abs=5 * (pair.share / 20_000) ** 0.5)


def test_both_populations_follow_one_rule_in_the_same_columns():
    pair = APPENDIX_D_EASY
    close = pair.close(seed=3)
    for X, y in (pair.curator(500, seed=3), pair.target(500, seed=3, single=True)):
        assert ((np.square(X[:, close]).sum(axis=1) > pair.radius) == (y == 1)).mean() > 0.999
    spread = [part[0].std(axis=0)[close].mean() for part in (pair.curator(5000, seed=3), pair.target(5000, seed=3))]
    assert spread == pytest.approx([0.1, 0.07], rel=0.05)
    assert pair.target(10, seed=3, single=True)[0].dtype == np.float32


def test_all_coefficients_lie_in_the_subspace_and_have_the_stated_length():
    drawn = shared_subspace(1000, 50, task_norm=2.0, seed=0)
    for coef in (drawn.public_coef, drawn.private_coef[None]):
        assert np.allclose(coef @ drawn.basis @ drawn.basis.T, coef)
        assert np.allclose(np.linalg.norm(coef, axis=1), 2.0)
    assert np.allclose(drawn.basis.T @ drawn.basis, np.eye(5))


def test_least_squares_finds_each_task():
    drawn = shared_subspace(30_000, 10_000, n_features=4, n_components=2, n_tasks=3, noise=0.5, seed=1)
    for task in range(3):
        mine = drawn.public.tasks == task
        coef = np.linalg.lstsq(drawn.public.X[mine], drawn.public.y[mine], rcond=None)[0]
        # Standard error 0.5 / sqrt(10,000) = 0.005.
        np.testing.assert_allclose(coef, drawn.public_coef[task], atol=0.025)
    residual = drawn.y - drawn.X @ drawn.private_coef
    assert np.std(residual) == pytest.approx(0.5, abs=0.02)


MAKERS = [synthetic.shifted_regression, synthetic.shifted_classification]


@pytest.mark.parametrize("shift", synthetic.SHIFTS)
def test_least_squares_finds_the_stated_coefficients(shift):
    made = synthetic.shifted_regression(20_000, 20_000, n_features=4, shift=shift, seed=1, noise=0.5)
    truths = ((made.public_coef, made.public_intercept), (made.private_coef, made.private_intercept))
    for (X, y), (coef, intercept) in zip((made.domains.source, made.domains.target), truths, strict=True):
        fitted = LinearRegression().fit(X, y)
        # Standard error 0.5 / sqrt(20,000) = 0.0035; 0.02 is more than five of them.
        np.testing.assert_allclose(fitted.coef_, coef, atol=0.02)
        assert fitted.intercept_ == pytest.approx(intercept, abs=0.02)
        assert np.std(y - fitted.predict(X)) == pytest.approx(made.noise, abs=0.02)


@pytest.mark.parametrize("shift", synthetic.SHIFTS)
def test_logistic_regression_finds_the_stated_coefficients(shift):
    made = synthetic.shifted_classification(20_000, 20_000, n_features=3, shift=shift, seed=2, strength=2.0)
    fitted = LogisticRegression(C=1e6).fit(*made.domains.target)
    # Standard errors are at most about 0.04.
    np.testing.assert_allclose(fitted.coef_[0], made.private_coef, atol=0.2)
    assert fitted.intercept_[0] == pytest.approx(made.private_intercept, abs=0.2)


@pytest.mark.parametrize("make", MAKERS)
def test_shift_changes_what_it_says_and_nothing_else(make):
    made = {shift: make(50, 50, n_features=6, shift=shift, seed=0, size=0.7) for shift in synthetic.SHIFTS}
    for sample in made.values():
        np.testing.assert_array_equal(sample.public_coef, made["none"].public_coef)
        np.testing.assert_array_equal(sample.domains.source.X, made["none"].domains.source.X)
    np.testing.assert_array_equal(made["sign"].private_coef, -made["sign"].public_coef)
    assert made["intercept"].private_intercept == 0.7
    moved = made["coefficients"].private_coef - made["coefficients"].public_coef
    assert np.linalg.norm(moved) == pytest.approx(0.7)
    np.testing.assert_array_equal(made["covariate"].private_coef, made["covariate"].public_coef)
    ratio = made["covariate"].domains.target.X / made["none"].domains.target.X
    np.testing.assert_allclose(ratio, [[1.7, 1.7, 1.7, 1, 1, 1]] * 50)
