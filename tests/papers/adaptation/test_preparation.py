"""Public scales, the base class of the private regressions of paper 1, and the weighted regressions."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from dpadapt import Ledger, Public
from dpadapt.learning.scaling import Scaling
from dpadapt.papers.adaptation.matching import PrivateDiscrepancyMinimization
from dpadapt.papers.adaptation.noisy_sgd import NoisySGD
from dpadapt.papers.adaptation.preparation import (
    bounded_rows,
    target_scale,
    unit_geometry,
    unit_rows,
    weighted_ridge,
)
from dpadapt.papers.adaptation.private_statistics import PrivateMixture, ReverseAdaptation


def samples(seed=0, m=400, n=600, shift=0.5):
    random = np.random.default_rng(seed)
    X_source, X = random.uniform(-1, 1, (m, 3)), random.uniform(-1, 1, (n, 3))
    y_source, y = X_source @ [0.5, 0.5, 0.0], X @ [0.5, 0.5 - shift, 0.0]
    return X, y + 0.05 * random.normal(size=n), Public(X_source, y_source + 0.05 * random.normal(size=m))


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (NoisySGD(radius=0.0), "radius"),
        (NoisySGD(n_steps=0), "n_steps"),
        (NoisySGD(sampling_rate=2.0), "sampling_rate"),
        (NoisySGD(target_bounds=(1.0, 0.0)), "target_bounds"),
        (PrivateMixture(alpha=3.0), "alpha"),
        (PrivateDiscrepancyMinimization(tolerance=0.0), "tolerance"),
        (PrivateDiscrepancyMinimization(ridge=0.0), "ridge"),
        (ReverseAdaptation(alpha=-1.0), "alpha"),
    ],
)
def test_bad_parameters_are_named_and_cost_nothing(model, name):
    X, y, public = samples()
    ledger = Ledger(epsilon=5.0, delta=1e-5)
    with pytest.raises(ValueError, match=name):
        model.fit(X, y, public=public, ledger=ledger)
    assert ledger.entries == []


@pytest.mark.parametrize("public_too", [True, False])
def test_unit_geometry_gives_most_public_rows_a_length_of_at_most_one(public_too):
    X = np.random.default_rng(0).normal(size=(1000, 3)) * [1.0, 50.0, 0.01] + [5.0, 0.0, 0.0]
    if public_too:
        lengths = np.linalg.norm(unit_geometry(3, X).transform(X), axis=1)
        assert np.mean(lengths <= 1) == pytest.approx(0.95, abs=0.002)
    else:
        # Features declared to lie in [-1, 1]: the longest row has length 1 exactly.
        corners = unit_geometry(3, None).transform(np.ones((1, 3)))
        assert np.linalg.norm(corners) == pytest.approx(1.0)


def test_unit_rows_are_those_of_the_geometry_and_raise_no_numerical_error():
    random = np.random.default_rng(0)
    X = random.standard_normal((50, 3)) * [1.0, 10.0, 0.1] + 5
    for geometry in (unit_geometry(3, X), unit_geometry(3, None)):
        assert unit_rows(geometry, X) == pytest.approx(geometry.transform(X), rel=1e-14)
        with np.errstate(all="raise"):
            rows = unit_rows(geometry, np.array([[1e308, -1e308, 0.0], [np.inf, 1.0, np.nan], [5e-324, 0.0, 0.0]]))
        assert not np.isfinite(rows[1]).all()


def test_a_constant_public_column_has_no_scale_and_is_left_out():
    X = np.random.default_rng(0).normal(size=(50, 3))
    X[:, 1] = 4.0
    moved = X.copy()
    moved[:, 1] = 1e6
    geometry, scaling = unit_geometry(3, X), Scaling.of(X)
    assert np.array_equal(geometry.transform(moved), geometry.transform(X))
    assert np.array_equal(scaling.scaled(moved), scaling.scaled(X))


def test_target_scale_is_that_of_the_bounds_or_of_public_labels():
    labels = np.append(np.linspace(-1.0, 3.0, 999), 1e6)
    scale = target_scale(None, labels)
    assert scale.middle == pytest.approx(labels.mean())
    assert np.mean(np.abs(scale.apply(labels)) <= 1) == pytest.approx(0.99, abs=0.002)
    declared = target_scale((0.0, 10.0), None)
    assert declared.apply(np.array([0.0, 5.0, 10.0])).tolist() == [-1.0, 0.0, 1.0]
    # Bounds with public labels: the mean of the labels becomes 0, and both ends stay within [-1, 1].
    both = target_scale((0.0, 10.0), np.array([1.0, 3.0]))
    assert both.apply(np.array([2.0, 10.0])).tolist() == [0.0, 1.0]
    assert target_scale(None, np.full(5, 3.0)).half > 0
    for bad in ((1.0, 0.0), (0.0, np.inf), 3.0, (1.0,)):
        with pytest.raises(ValueError, match="target_bounds"):
            target_scale(bad, None)


def test_bounded_rows_shorten_a_row_together_with_its_target():
    rows = bounded_rows(np.array([[3.0, 4.0], [0.3, 0.4], [np.nan, 1.0]]), np.array([1.0, 9.0, 0.5]))
    assert rows.X[:2] == pytest.approx(np.array([[0.6, 0.8], [0.3, 0.4]]))
    assert rows.y[:2] == pytest.approx([0.2, 1.0])
    # A row that is not finite becomes a null row.
    assert not rows.X[2].any()
    assert rows.y[2] == 0.0


def test_weighted_ridge_equals_scikit_learns():
    random = np.random.default_rng(0)
    Z, y, weights = random.normal(size=(30, 3)), random.normal(size=30), random.uniform(0, 1, 30)
    share = weights / weights.sum()
    centred = Z - share @ Z
    size = np.trace((centred * share[:, None]).T @ centred) / 3
    oracle = Ridge(alpha=0.2 * size).fit(Z, y, sample_weight=share)
    coef, intercept = weighted_ridge(Z, y, weights, 0.2)
    assert coef == pytest.approx(oracle.coef_)
    assert intercept == pytest.approx(oracle.intercept_)
