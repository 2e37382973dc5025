"""The solver agrees with brute force and another package, and stays within its memory."""

import itertools
import tracemalloc

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from benchmarks.rivals.clustering import accelerated_k_medoids
from dpadapt.clustering.solver import capped_k_medoids, cluster_t, each_k_medoids, faster_pam, greedy, nearest


def cost_of(matrix, free, chosen):
    return float(np.minimum(free, matrix[:, chosen].min(axis=1)).sum())


def small(seed, n=12, *, capped=True):
    random = np.random.default_rng(seed)
    T = random.normal(size=(n, 2))
    free = random.uniform(0.1, 2.5, n) if capped else np.full(n, np.inf)
    return T, cdist(T, T), free


def plain_greedy(matrix, free, k):
    served, order = np.minimum(free, matrix.max(axis=1)), []
    for _ in range(k):
        gains = np.maximum(served[:, None] - matrix, 0.0).sum(axis=0)
        gains[order] = -1.0
        order.append(int(gains.argmax()))
        served = np.minimum(served, matrix[:, order[-1]])
    return order


@pytest.mark.parametrize("capped", [False, True])
def test_lazy_greedy_gives_the_choice_of_plain_greedy(capped):
    for seed in range(20):
        _, matrix, free = small(seed, 40, capped=capped)
        assert greedy(matrix, free, 8).tolist() == plain_greedy(matrix, free, 8)


def test_every_prefix_of_the_greedy_choice_is_a_greedy_choice():
    _, matrix, free = small(3, 60)
    assert np.array_equal(greedy(matrix, free, 9)[:4], greedy(matrix, free, 4))


@pytest.mark.parametrize("capped", [False, True])
def test_no_single_swap_lowers_the_cost_further(capped):
    for seed in range(20):
        _, matrix, free = small(seed, 25, capped=capped)
        start = np.array([0, 1, 2])
        medoids = faster_pam(matrix, free, start)
        reached = cost_of(matrix, free, medoids)
        assert reached <= cost_of(matrix, free, start)
        for place, candidate in itertools.product(range(3), range(25)):
            other = medoids.copy()
            other[place] = candidate
            assert cost_of(matrix, free, other) >= reached * (1 - 1e-6)


@pytest.mark.parametrize("capped", [False, True])
def test_the_solver_is_close_to_exhaustive_search(capped):
    ratios = []
    for seed in range(25):
        T, matrix, free = small(seed, 13, capped=capped)
        best = min(cost_of(matrix, free, list(medoids)) for medoids in itertools.combinations(range(13), 3))
        ratios.append(cost_of(matrix, free, capped_k_medoids(T, 3, free if capped else None)) / best)
    assert min(ratios) >= 1 - 1e-6
    assert np.mean(np.array(ratios) < 1 + 1e-6) >= 0.7
    assert max(ratios) < 1.1


@pytest.mark.parametrize("capped", [False, True])
def test_the_solver_is_as_good_as_the_kmedoids_package(capped):
    kmedoids = pytest.importorskip("kmedoids", reason="the kmedoids package (GPL) is a test oracle only")
    T, matrix, free = small(5, 400, capped=capped)
    limited = np.minimum(matrix, free[:, None])  # its points are rows
    theirs = min(kmedoids.fasterpam(limited, 20, random_state=seed).loss for seed in range(3))
    ours = cost_of(limited, free, capped_k_medoids(T, 20, free if capped else None))
    assert ours <= 1.01 * theirs


def test_no_centre_is_chosen_where_a_free_centre_already_is():
    T = np.concatenate([np.random.default_rng(0).normal(size=(100, 2)), [[50.0, 0.0]], [[60.0, 0.0]]])
    cap = np.full(102, np.inf)
    cap[100] = 0.0
    chosen = capped_k_medoids(T, 2, cap)
    assert 101 in chosen
    assert 100 not in chosen


def test_transform_applies_to_distances_and_to_the_cap():
    T, matrix, free = small(2, 30)
    chosen = capped_k_medoids(
        T, 4, free, transform=lambda points, distances: np.minimum(distances, 0.7) * (1 + points[:, None])
    )
    other = np.minimum(matrix, 0.7) * (1 + np.arange(30))[:, None]
    limit = np.minimum(free, 0.7) * (1 + np.arange(30))
    assert cost_of(other, limit, chosen) <= cost_of(other, limit, np.array(plain_greedy(other, limit, 4))) + 1e-5


def test_centres_among_repeated_targets_are_distinct_rows():
    T = np.repeat([[0.0, 0.0], [1.0, 1.0]], 20, axis=0)
    chosen = capped_k_medoids(T, 6)
    assert len(set(chosen.tolist())) == 6
    assert nearest(T, T[chosen])[1].max() == 0.0
    assert sorted(capped_k_medoids(T, 40).tolist()) == list(range(40))


@pytest.fixture(scope="module")
def many():
    random = np.random.default_rng(4)
    middles = random.normal(size=(40, 8))
    T, S = (middles[random.integers(high, size=8000)] + 0.3 * random.normal(size=(8000, 8)) for high in (40, 15))
    return T, nearest(T, S[:4000])[1]


def test_many_targets_cost_less_than_accelerated_k_medoids(many):
    T, cap = many
    ours, theirs = (
        np.minimum(cap, nearest(T, T[solve(T, 70, cap)])[1]).mean()
        for solve in (capped_k_medoids, accelerated_k_medoids)
    )
    assert ours <= 0.995 * theirs


def test_memory_stays_within_max_bytes(many):
    T, cap = many
    tracemalloc.start()
    chosen = capped_k_medoids(T, 20, cap, max_bytes=2**22)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(set(chosen.tolist())) == 20
    # Distances, a few arrays per target, and blocks; all pairs would be 256 MB.
    assert peak < 2**22 + 2**24


@pytest.mark.parametrize("n", [1, 2, 6, 40])
def test_any_memory_limit_gives_k_distinct_centres(n):
    T = np.random.default_rng(n).normal(size=(n, 2))
    for k in {1, (n + 1) // 2, n}:
        chosen = capped_k_medoids(T, k, np.full(n, 0.5), max_bytes=1)
        assert len(set(chosen.tolist())) == k


def test_bad_arguments_are_refused():
    T = np.zeros((3, 2))
    for k in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="k must be a whole number"):
            capped_k_medoids(T, k)
    with pytest.raises(ValueError, match="k must be at most the number of targets, 3"):
        capped_k_medoids(T, 4)
    with pytest.raises(ValueError, match="T must be finite"):
        capped_k_medoids(np.full((3, 2), np.nan), 1)
    with pytest.raises(ValueError, match="T must have two dimensions"):
        capped_k_medoids(np.zeros(3), 1)
    with pytest.raises(ValueError, match="cap must hold one number"):
        capped_k_medoids(T, 1, np.zeros(2))
    with pytest.raises(ValueError, match="cap must hold one number of at least 0"):
        capped_k_medoids(T, 1, np.array([0.0, np.nan, 1.0]))


@pytest.mark.parametrize("n", [60, 5200])
def test_several_numbers_of_centres_give_the_answers_of_each(n):
    T = np.random.default_rng(6).standard_normal((n, 2))
    for k, centres in each_k_medoids(T, [2, 7]).items():
        assert np.array_equal(centres, cluster_t(T, k))


def test_centres_may_be_any_target_even_if_few_are_served():
    random = np.random.default_rng(3)
    T = random.standard_normal((8000, 4))
    rows = np.arange(0, 8000, 40)
    inside, anywhere = (capped_k_medoids(T[rows], 5), capped_k_medoids(T, 5, rows=rows))
    assert not np.isin(anywhere, rows).all()
    assert nearest(T[rows], T[anywhere])[1].mean() < nearest(T[rows], T[rows[inside]])[1].mean()
