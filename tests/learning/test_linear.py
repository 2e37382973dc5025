import numpy as np
import pytest

from dpadapt import Ledger, PrivateLinearRegression, Public

random = np.random.default_rng(11)
X = random.uniform(-1, 1, (4000, 5))
y = X @ [0.5, -0.3, 0.0, 0.2, 0.1] + 0.1 + 0.1 * random.standard_normal(4000)
X_public = random.uniform(-1, 1, (300, 5))
y_public = X_public @ [0.5, -0.3, 0.0, 0.2, 0.6] + 0.1 * random.standard_normal(300)


def _error(model, X=X, y=y):
    return float(np.mean((model.predict(X) - y) ** 2) / np.var(y))


@pytest.mark.parametrize("solver", ["descent", "statistics"])
def test_both_solvers_estimate_the_coefficients(solver):
    model = PrivateLinearRegression(epsilon=4.0, solver=solver, random_state=0).fit(X, y)
    assert model.coef_ == pytest.approx([0.5, -0.3, 0.0, 0.2, 0.1], abs=0.06)
    assert model.intercept_ == pytest.approx(0.1, abs=0.05)


def test_private_rows_correct_a_shifted_public_model():
    public = Public(X_public, y_public)
    alone = PrivateLinearRegression(epsilon=1e-6, delta=1e-12, random_state=0).fit(X, y, public=public)
    assert alone.privacy_.epsilon == 0.0  # nothing could be bought: this is the public model
    together = [PrivateLinearRegression(random_state=seed).fit(X, y, public=public) for seed in range(5)]
    assert np.mean([_error(model) for model in together]) < 0.5 * _error(alone)


def test_solver_is_chosen_from_public_quantities():
    def label(n, epsilon, public=None):
        ledger = Ledger(epsilon=100.0, delta=1e-5)
        PrivateLinearRegression(epsilon, 1e-6, random_state=0).fit(X[:n], y[:n], public=public, ledger=ledger)
        return ledger.entries[-1].label

    assert "second moment" in label(4000, 8.0)
    assert "gradient" in label(400, 1.0)
    assert "gradient" in label(4000, 8.0, Public(X_public, y_public))


def _mean_error(X, y, truth, solver, **params):
    """Return the mean squared distance of predictions from `truth`, over seeds."""
    models = [PrivateLinearRegression(solver=solver, random_state=seed, **params).fit(X, y) for seed in range(12)]
    return float(np.mean([(model.predict(X) - truth) ** 2 for model in models]))


@pytest.mark.parametrize("solver", ["descent", "statistics"])
def test_bounds_ten_times_too_wide_cost_little(solver):
    truth = X @ [0.4, -0.3, 0.0, 0.2, 0.1]
    y = truth + 0.1 * np.random.default_rng(3).standard_normal(4000)
    exact = 0.01 + _mean_error(X, y, truth, solver)
    # Without ranges the ratios are 1.9 and 5 (target), 7 and 6 (features).
    assert 0.01 + _mean_error(X, y, truth, solver, target_bounds=(-10, 10)) < 1.15 * exact
    assert 0.01 + _mean_error(X / 10, y, truth, solver) < 1.3 * exact


@pytest.mark.parametrize("solver", ["descent", "statistics"])
def test_a_target_far_from_the_middle_of_its_bounds_is_fitted(solver):
    truth = 6 + 3 * (X @ [0.4, -0.3, 0.0, 0.2, 0.1])
    error = _mean_error(X, truth, truth, solver, target_bounds=(0, 100))
    assert error < 0.1 * np.var(truth)


def test_ranges_are_charged_with_the_fit_and_only_without_public_data():
    ledger = Ledger(epsilon=10.0, delta=1e-5)
    model = PrivateLinearRegression(random_state=0).fit(X, y, ledger=ledger)
    names = ["length of rows", "mean of the target", "range of the target", "second moment"]
    assert [entry.label for entry in model.privacy_.entries] == names
    assert model.privacy_.charges == 1
    assert model.privacy_.epsilon == pytest.approx(1.0, rel=1e-6)
    for public in (Public(X_public), Public(X_public, y_public)):
        model = PrivateLinearRegression(random_state=0).fit(X, y, public=public)
        assert [entry.label for entry in model.privacy_.entries] == ["gradient"]


@pytest.mark.parametrize("bounds", [(1, -1), (0, np.inf), 3, ("a", "b"), (1, 2, 3)])
def test_bad_target_bounds_are_named(bounds):
    with pytest.raises(ValueError, match="target_bounds must be a pair"):
        PrivateLinearRegression(target_bounds=bounds).fit(X, y)


def test_add_remove_needs_a_public_number_of_rows():
    with pytest.raises(ValueError, match="n_rows must be given"):
        PrivateLinearRegression(adjacency="add-remove").fit(X, y)
    with pytest.raises(ValueError, match="only for add-remove"):
        PrivateLinearRegression(n_rows=4000).fit(X, y)
    model = PrivateLinearRegression(adjacency="add-remove", n_rows=3500, random_state=0).fit(X, y)
    assert _error(model) < 0.4


def test_an_interrupted_refit_does_not_keep_an_old_receipt(monkeypatch):
    model = PrivateLinearRegression(epsilon=0.5, random_state=0).fit(X, y)
    before = model.coef_.copy()

    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(model), "_receipt", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.set_params(epsilon=5.0).fit(X, y)
    assert np.array_equal(model.coef_, before)


@pytest.mark.parametrize("level", [0.0, 40.0])
@pytest.mark.parametrize("solver", ["descent", "statistics"])
def test_public_labels_that_are_all_alike_still_let_private_rows_correct_them(level, solver):
    model = PrivateLinearRegression(epsilon=4.0, solver=solver, random_state=0)
    model.fit(X, y + level, public=Public(X_public, np.full(300, level)))
    assert model.coef_[0] == pytest.approx(0.5, abs=0.1)
    assert model.intercept_ == pytest.approx(level + 0.1, abs=0.1)
