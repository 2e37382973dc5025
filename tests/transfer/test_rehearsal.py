import numpy as np
import pytest

from dpadapt import (
    PrivateLinearRegression,
    PrivateTransferRegressor,
    Public,
)
from dpadapt.representation import PrivateSubspaceRegressor
from dpadapt.transfer.rehearsal import rehearse

random = np.random.default_rng(9)
X = random.uniform(-1, 1, (1500, 4))
signal = X @ [1.0, -1.0, 0.5, 0.0]
shifted = signal + 1.5 * (X[:, 3] > 0)
public = Public(X, signal + 0.2 * random.standard_normal(1500))


def test_a_large_budget_gives_a_small_rehearsed_error():
    options = {"epsilons": (0.05, 10.0), "split_by": X[:, 0], "random_state": 0}
    rehearsal = rehearse(PrivateLinearRegression(), public, 300, **options)
    assert rehearsal.errors[:, 1].mean() < 0.2
    assert not rehearsal.fewer_rows
    assert "epsilon 10" in str(rehearsal)


def test_private_rows_correct_a_shift_along_a_column():
    moved = Public(X, shifted)
    rehearsal = rehearse(PrivateLinearRegression(), moved, 400, epsilons=(5.0,), split_by=X[:, 3], random_state=0)
    assert rehearsal.errors[:, 0].mean() < 0.8 * rehearsal.public_only.mean()


def test_rehearsals_repeat_with_a_seed_and_differ_without():
    first, second = (rehearse(PrivateLinearRegression(), public, 99, repeats=2, random_state=3) for _ in range(2))
    assert np.array_equal(first.errors, second.errors)
    assert not np.array_equal(first.errors, rehearse(PrivateLinearRegression(), public, 99, repeats=2).errors)


def test_the_split_may_be_along_a_date():
    days = np.datetime64("2020-01-01") + np.arange(1500)
    rehearsal = rehearse(PrivateLinearRegression(), public, 99, epsilons=[1.0], repeats=1, split_by=days)
    assert rehearsal.errors.shape == (1, 1)


def test_private_rows_can_be_rehearsed_alone():
    options = {"epsilons": [0.3], "repeats": 2, "random_state": 0}
    alone = rehearse(PrivateTransferRegressor(), public, 99, use_public=False, **options)
    assert alone.errors.mean() > 3 * rehearse(PrivateTransferRegressor(), public, 99, **options).errors.mean()


def test_one_of_several_tasks_takes_the_role_of_the_private_rows():
    tasks = np.repeat(np.arange(15), 100)
    slopes = random.standard_normal((15, 2))
    # Without noise in the labels: the tiny public residuals must not set the clipping norm.
    y = np.einsum("ij,ij->i", X[:, :2], slopes[tasks])
    several = Public(X, y, tasks=tasks)
    rehearsal = rehearse(PrivateSubspaceRegressor(n_components=2), several, 60, epsilons=(50.0,), random_state=0)
    assert rehearsal.errors.mean() < 0.05 * rehearsal.public_only.mean()
    with pytest.raises(ValueError, match="split_by"):
        rehearse(PrivateSubspaceRegressor(), several, 60, split_by=X[:, 0])
    with pytest.raises(ValueError, match="at least 2 tasks"):
        rehearse(PrivateSubspaceRegressor(), Public(X, y, tasks=np.zeros(1500)), 60)
