import numpy as np
import pytest

from dpadapt.representation import subspace_distance, task_diversity


@pytest.mark.parametrize("angle", [0.0, 1e-9, 0.3, 1.2, np.pi / 2])
def test_distance_is_the_sine_of_the_largest_angle(angle):
    first = np.eye(5)[:, :2]
    second = first.copy()
    second[:, 1] = [0, np.cos(angle), 0, np.sin(angle), 0]
    assert subspace_distance(first, second) == pytest.approx(np.sin(angle), rel=1e-6, abs=1e-12)


def test_distance_belongs_to_spans_not_to_columns():
    random = np.random.default_rng(0)
    first, second = random.standard_normal((2, 8, 3))
    turned = first @ random.standard_normal((3, 3))
    assert subspace_distance(first, turned) < 1e-9
    assert subspace_distance(turned, second) == pytest.approx(subspace_distance(first, second))
    assert subspace_distance(first, second) == pytest.approx(subspace_distance(second, first))
    assert subspace_distance(first[:, :1], first) < 1e-9


def test_lemma_5_1_brackets_the_distance():
    random = np.random.default_rng(1)
    B, other = (np.linalg.qr(random.standard_normal((9, 4)))[0] for _ in range(2))
    frobenius = np.linalg.norm(B - other @ (other.T @ B))
    assert frobenius / np.sqrt(4) <= subspace_distance(B, other) <= frobenius


@pytest.mark.parametrize(
    ("bad", "words"),
    [([1.0, 2.0], "shape"), ([[1.0, 2.0], [1.0, 2.0]], "independent"), ([[np.nan], [1.0]], "finite")],
)
def test_what_spans_no_subspace_is_refused(bad, words):
    with pytest.raises(ValueError, match=f"first must.*{words}|first must be {words}"):
        subspace_distance(bad, [[1.0], [0.0]])


def test_subspaces_of_different_spaces_are_refused():
    with pytest.raises(ValueError, match="as many rows"):
        subspace_distance(np.eye(3)[:, :1], np.eye(4)[:, :1])


def test_diversity_is_that_of_the_tasks_second_moment():
    tasks = np.random.default_rng(2).standard_normal((500, 3)) * [2.0, 1.0, 0.5]
    values = np.linalg.eigvalsh(tasks.T @ tasks / 500)
    found = task_diversity(tasks)
    assert found.weakest == pytest.approx(values[0])
    assert found.average_condition == pytest.approx(values.mean() / values[0])
    assert found.worst_condition == pytest.approx(values[-1] / values[0])


def test_tasks_that_miss_a_direction_have_no_diversity():
    found = task_diversity([[1.0, 0.0], [2.0, 0.0]])
    assert found.weakest == 0.0
    assert found.worst_condition == np.inf
