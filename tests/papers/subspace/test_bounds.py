"""The paper's bounds against simulation."""

import math

import numpy as np
import pytest

from benchmarks.data.synthetic import shared_subspace
from dpadapt.papers.subspace.bounds import lower_bound, private_rows_needed, subspace_bound, upper_bound
from dpadapt.representation import PrivateSubspaceRegressor, PublicSubspace, subspace_distance


def excess(n_private, *, epsilon, angle=0.0, k=5, draws=5, delta=1e-5):
    """Return the mean squared error of coefficients fitted inside a subspace at a known angle from the true one.

    The subspace is rotated away along the direction of the private task: the worst case.
    """
    errors = []
    for seed in range(draws):
        drawn = shared_subspace(1000, n_private, n_features=20, n_components=k, seed=seed)
        inside = drawn.basis.T @ drawn.private_coef
        turn = np.linalg.qr(np.column_stack([inside, np.eye(k)]))[0][:, :k]
        basis = drawn.basis @ turn
        away = np.linalg.qr(np.column_stack([basis, np.eye(20)]))[0][:, k]
        basis[:, 0] = math.sqrt(1 - angle**2) * basis[:, 0] + angle * away
        assert subspace_distance(basis, drawn.basis) == pytest.approx(angle, abs=1e-9)
        model = PrivateSubspaceRegressor(epsilon, delta, basis=basis, fit_intercept=False, random_state=seed)
        coef = model.fit(drawn.X, drawn.y, public=drawn.public).coef_
        errors.append(np.sum((coef - drawn.private_coef) ** 2))
    return float(np.mean(errors))


@pytest.mark.parametrize("n_private", [500, 5000])
@pytest.mark.parametrize("epsilon", [0.5, 1.0])
@pytest.mark.parametrize("angle", [0.0, 0.3])
def test_private_regression_lies_between_the_bounds_up_to_a_constant(n_private, epsilon, angle):
    measured = excess(n_private, epsilon=epsilon, angle=angle)
    low = lower_bound(5, n_private, epsilon=epsilon, angle=angle).total
    high = upper_bound(5, n_private, epsilon=epsilon, delta=1e-5, angle=angle).total
    assert 0.5 * low < measured < 3 * high


def test_the_angle_costs_its_square_however_many_rows_there_are():
    for angle in (0.2, 0.5):
        # With many rows and a large budget the other terms vanish.
        assert excess(20_000, epsilon=10.0, angle=angle, draws=3) == pytest.approx(angle**2, rel=0.1)
        assert upper_bound(5, 20_000, epsilon=10.0, delta=1e-5, angle=angle).terms["subspace"] == angle**2


def test_sampling_costs_dimensions_over_rows():
    for k in (2, 8):
        expected = upper_bound(k, 2000, epsilon=50.0, delta=1e-5, angle=0.0).terms["sampling"]
        assert expected == k / 2000
        assert excess(2000, epsilon=50.0, k=k, draws=20) == pytest.approx(expected, rel=0.35)


def test_the_angle_of_the_moments_estimator_falls_like_its_bound():
    angles = []
    for n in (20_000, 80_000):
        measured = []
        for seed in range(4):
            drawn = shared_subspace(n, 1, seed=seed)
            learned = PublicSubspace(5, method="moments", whiten=False, fit_intercept=False).fit(drawn.public)
            measured.append(subspace_distance(learned.components_.T, drawn.basis))
        angles.append(np.mean(measured))
        # The constant is about 2.7 at these sizes.
        assert subspace_bound(25, 5, n) < angles[-1] < 4 * subspace_bound(25, 5, n)
    assert angles[0] / angles[1] == pytest.approx(2.0, rel=0.3)


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_bounds_fall_with_rows_and_grow_with_dimensions_and_angle(epsilon):
    for bound in (
        lambda k, n, angle: upper_bound(k, n, epsilon=epsilon, delta=1e-5, angle=angle).total,
        lambda k, n, angle: lower_bound(k, n, epsilon=epsilon, angle=angle).total,
    ):
        assert bound(5, 2000, 0.1) < bound(5, 1000, 0.1) < bound(10, 1000, 0.1) < bound(10, 1000, 0.2)
    low = lower_bound(5, 1000, epsilon=epsilon, angle=0.3).total
    assert low <= upper_bound(5, 1000, epsilon=epsilon, delta=1e-5, angle=0.3).total


def test_with_the_rows_of_equation_8_the_bound_is_at_most_the_error():
    n = math.ceil(private_rows_needed(5, epsilon=0.5, error=0.02))
    terms = lower_bound(5, n, epsilon=0.5, angle=0.0).terms
    assert terms["sampling"] + terms["privacy"] <= 0.02


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: upper_bound(5, 100, epsilon=1.0, delta=0.0, angle=0.1), "delta must be positive"),
        (lambda: upper_bound(5, 100, epsilon=1.0, delta=1e-5, angle=1.1), "angle must be a sine"),
        (lambda: upper_bound(0, 100, epsilon=1.0, delta=1e-5, angle=0.1), "n_components"),
        (lambda: lower_bound(5, 0, epsilon=1.0, angle=0.1), "n_private"),
        (lambda: lower_bound(5, 10, epsilon=-1.0, angle=0.1), "epsilon must be"),
        (lambda: subspace_bound(3, 5, 10), "n_components must be at most"),
        (lambda: private_rows_needed(5, epsilon=1.0, error=0.0), "error must be"),
    ],
)
def test_bad_arguments_are_refused_by_name(call, words):
    with pytest.raises(ValueError, match=words):
        call()
