import numpy as np
import pytest

from dpadapt.datasets.shared_subspace import shared_subspace


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
        found = np.linalg.lstsq(drawn.public.X[mine], drawn.public.y[mine], rcond=None)[0]
        # Standard error 0.5 / sqrt(10,000) = 0.005.
        np.testing.assert_allclose(found, drawn.public_coef[task], atol=0.025)
    residual = drawn.y - drawn.X @ drawn.private_coef
    assert np.std(residual) == pytest.approx(0.5, abs=0.02)


def test_rows_are_shared_out_evenly_and_seeds_repeat():
    first, second = (shared_subspace(250, 10, n_tasks=100, seed=2) for _ in range(2))
    assert np.ptp(np.bincount(first.public.tasks)) <= 1
    assert np.array_equal(first.public.X, second.public.X)
    assert not np.array_equal(first.y, shared_subspace(250, 10, n_tasks=100, seed=3).y)


def test_more_dimensions_than_features_are_refused():
    with pytest.raises(ValueError, match="n_components must be at most"):
        shared_subspace(10, 10, n_features=3, n_components=4, seed=0)
