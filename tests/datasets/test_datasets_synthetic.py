import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

from dpadapt.datasets import synthetic

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


@pytest.mark.parametrize("make", MAKERS)
def test_seed_decides_everything(make):
    first, again, other = (make(10, 10, n_features=2, shift="none", seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.domains.target.X, again.domains.target.X)
    np.testing.assert_array_equal(first.domains.target.y, again.domains.target.y)
    assert not np.array_equal(first.domains.target.X, other.domains.target.X)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"shift": "label"}, "shift must be one of"),
        ({"seed": None}, "seed must be a whole number"),
        ({"n_features": 0}, "n_features must be a whole number"),
        ({"size": 0.0}, "size must be a positive number"),
    ],
)
@pytest.mark.parametrize("make", MAKERS)
def test_wrong_arguments_are_named(make, wrong, message):
    with pytest.raises(ValueError, match=message):
        make(10, 10, **{"n_features": 2, "shift": "none", "seed": 0, **wrong})
