"""The model of public tasks, the dimension of its subspace, and the prior that it gives for a private task."""

import numpy as np
import pytest

from benchmarks.data.synthetic import shared_subspace
from dpadapt.learning.task_model import choose_dimension, task_prior
from dpadapt.learning.task_subspaces import by_task
from dpadapt.representation import PublicSubspace, subspace_distance
from dpadapt.representation.subspace import task_model


def test_the_dimension_is_chosen_by_cross_validation():
    assert PublicSubspace().fit(shared_subspace(5000, 1, seed=1).public).n_components_ == 5
    assert PublicSubspace().fit(shared_subspace(3000, 1, n_components=2, seed=2).public).n_components_ == 2


def test_the_dimension_is_at_most_the_number_of_tasks_that_a_fold_leaves():
    random = np.random.default_rng(0)
    tasks = by_task(random.standard_normal((200, 6)), random.standard_normal(200), np.arange(200) % 2, centred=False)
    assert choose_dimension(tasks, "em") == 1


@pytest.fixture(scope="module")
def drawn():
    return shared_subspace(5000, 1, n_features=8, n_components=2, noise=1.0, seed=1)


def learned(drawn, **params):
    return task_model(drawn.public.X, drawn.public, **{"method": "em", "k": 2, "intercept": False, **params})


def test_the_model_has_the_tasks_coefficients_and_the_noise(drawn):
    model = learned(drawn)
    assert subspace_distance(model.basis, drawn.basis) < 0.2
    assert np.allclose(model.basis.T @ model.basis, np.eye(2))
    assert model.noise == pytest.approx(1.0, abs=0.1)
    assert np.mean(model.residuals**2) == pytest.approx(model.noise)
    assert model.variance.sum() == pytest.approx(1.0, abs=0.15)  # tasks have length 1


def test_a_given_subspace_is_kept_and_has_nothing_outside(drawn):
    model = learned(drawn, basis=drawn.basis)
    assert subspace_distance(model.scale.raw(model.basis), drawn.basis) < 1e-9
    assert model.outside == 0.0
    assert learned(drawn).outside > 0.0


def test_a_soft_prior_covers_all_directions_and_a_hard_one_the_subspace(drawn):
    model = learned(drawn)
    soft, hard = (task_prior(model, intercept=False, soft=soft) for soft in (True, False))
    assert soft.turn.shape == (8, 8)
    assert np.allclose(soft.turn.T @ soft.turn, np.eye(8))
    assert soft.blocks == (slice(0, 2), slice(2, 8))
    assert np.all(soft.variance[2:] == model.outside)
    assert hard.turn.shape == (8, 2)
    assert np.array_equal(hard.variance, soft.variance[:2])


def test_coefficients_of_the_prior_predict_like_its_rows():
    random = np.random.default_rng(2)
    drawn = shared_subspace(3000, 1, n_features=5, n_components=2, seed=3)
    public = type(drawn.public)(drawn.public.X * [1, 10, 0.1, 1, 1] + 3, drawn.public.y + 7, tasks=drawn.public.tasks)
    model = task_model(public.X, public, method="em", k=2, intercept=True)
    prior = task_prior(model, intercept=True, soft=True)
    solution, X = random.standard_normal(6), random.standard_normal((20, 5))
    coef, intercept = prior.coefficients(solution)
    assert np.allclose(X @ coef + intercept, prior.rows(X) @ solution)
    # A centred task's intercept is its mean label at the centre of the rows.
    assert prior.mean[-1] == pytest.approx(7.0, abs=0.5)
    assert prior.blocks[-1] == slice(5, 6)
