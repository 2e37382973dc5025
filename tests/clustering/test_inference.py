"""The gate keeps its error rate, and the model of the sources and the choice of centres follow the released counts."""

import numpy as np
import pytest

from dpadapt.clustering import inference
from dpadapt.clustering.inference import (
    ExpectedCost,
    Noise,
    Released,
    cautious,
    clumping,
    count_posterior,
    gate_opens,
    model_sources,
    none_near,
    partition,
    pool_weights,
    surroundings,
)
from dpadapt.clustering.solver import nearest
from dpadapt.mechanisms.randomness import SeededRandom


def draw(noise, size, random):
    if not noise.whole:
        draws = np.random.default_rng(int(random.discrete_laplace(1e6, 1)[0]) % 2**32)
        return (draws.laplace if noise.law == "laplace" else draws.normal)(0.0, noise.scale, size)
    return (random.discrete_laplace if noise.law == "laplace" else random.discrete_gaussian)(noise.scale, size)


NOISES = [Noise("laplace", 0.4), Noise("laplace", 3.0), Noise("gaussian", 0.5), Noise("gaussian", 4.0)]
NOISES += [Noise(noise.law, noise.scale, whole=False) for noise in NOISES]
every_noise = pytest.mark.parametrize("noise", NOISES, ids=str)


@every_noise
@pytest.mark.parametrize("n_sources", [0, 1])
def test_gate_opens_no_more_often_than_its_rate_with_at_most_one_source(noise, n_sources):
    """At a rate of 0.1 at most 100 of 1000 on average; more than 140 has probability below 1e-4."""
    random = SeededRandom(0)
    opened = 0
    for _ in range(1000):
        counts = draw(noise, 60, random)
        counts[7] += n_sources
        opened += gate_opens(counts, noise, 0.1)
    assert opened <= 140


@pytest.mark.parametrize("noise", [noise for noise in NOISES if not noise.whole], ids=str)
def test_gate_opens_no_more_often_than_its_rate_with_one_person_in_several_parts(noise):
    """As above: the counts of a person add up to at most 1."""
    random, person = SeededRandom(3), np.repeat([0.25, 0.0], [4, 56])
    assert sum(gate_opens(draw(noise, 60, random) + person, noise, 0.1) for _ in range(1000)) <= 140


@every_noise
def test_sources_in_one_part_or_few_in_all_parts_open_the_gate(noise):
    random = SeededRandom(2)
    one, everywhere = draw(noise, 60, random), draw(noise, 60, random)
    one[5] += int(30 * noise.scale) + 10
    everywhere += int(np.ceil(2 * noise.scale)) + 1
    assert gate_opens(one, noise, 0.001)
    assert gate_opens(everywhere, noise, 0.001)
    assert gate_opens(np.array([1000]), noise, 0.001)
    assert not gate_opens(np.zeros(60, int), noise, 0.001)


EXACT = Noise("laplace", 0.1)


@pytest.fixture(scope="module")
def around():
    return surroundings(np.random.default_rng(0).standard_normal((250, 3)), [5])


def counted(around, codes, noise=EXACT, n_bands=2):
    """Return a release without noise."""
    cells = around.cells
    group = cells.coarse()
    coarse = np.bincount(group[codes], minlength=int(group.max()) + 1).reshape(-1, len(cells.edges))
    part, parent = partition(coarse, cells, n_bands, 1.0, 0.0)
    counts = np.bincount(part[codes], minlength=len(parent))
    return Released(coarse.ravel(), noise, counts, part, parent, n_bands, noise)


@pytest.mark.parametrize("true", [1.0, 4.0, 15.0])
def test_clumping_is_estimated_from_uneven_counts(true):
    """Counts are drawn from Pólya's urn, with noise added."""
    random = np.random.default_rng(int(true))
    sizes = random.uniform(0.5, 2.0, (60, 8))
    shares = sizes / sizes.sum(axis=1, keepdims=True)
    urns = np.array([random.dirichlet(true * share) for share in shares])
    counts = np.array([random.multinomial(300, urn) for urn in urns]).ravel()
    counts = counts + np.rint(random.laplace(0, 2.0, counts.shape)).astype(np.int64)
    estimate = clumping(counts, np.repeat(np.arange(60), 8), sizes.ravel(), Noise("laplace", 2.0))
    assert estimate == pytest.approx(true, rel=0.35)


def test_clumping_is_the_usual_one_where_noise_exceeds_the_counts():
    random = np.random.default_rng(2)
    parent, noise = np.repeat(np.arange(20), 2), Noise("laplace", 200.0)
    estimates = [
        clumping(np.rint(random.laplace(0, 200.0, 40)).astype(np.int64) + 30, parent, np.ones(40), noise)
        for _ in range(20)
    ]
    assert 1.0 < np.median(estimates) < 6.0


def test_posterior_finds_the_full_parts_and_a_lone_large_count_is_no_evidence_for_itself():
    noise = Noise("laplace", 2.0)
    counts = np.array([40, 41, 39, 42, 0, -1, 2, 1, 0, -2, 1, 0])
    full = 1 - count_posterior(counts, noise)[1][:, 0]
    assert (full[:4] > 0.99).all()
    assert (full[4:] < 0.2).all()
    several = 1 - count_posterior(np.array([9, 9, 9, 9, 0, 0, 0, 0]), noise)[1][0, 0]
    alone = 1 - count_posterior(np.array([9, 0, 0, 0, 0, 0, 0, 0]), noise)[1][0, 0]
    assert alone < several


def test_larger_odds_of_empty_parts_lower_the_number_of_sources():
    grid, probability = count_posterior(np.array([9, 9, 3, 4, 0, 0, 0, 0]), Noise("laplace", 2.0))
    assert cautious(grid, probability, 1.0) == pytest.approx(probability)
    assert (cautious(grid, probability, 5.0) @ grid < probability @ grid).all()


def test_expected_cost_is_the_distance_without_sources_and_the_mean_capped_distance_with_them(around):
    n, n_radii = len(around.targets), len(around.radii)
    plain = ExpectedCost.of(np.ones((n, n_radii)), around.radii)
    away = np.random.default_rng(1).uniform(0, 2, n)
    assert plain.mean(away) == pytest.approx(away.mean())
    halved = ExpectedCost.of(np.full((n, n_radii), 0.5), around.radii)
    assert 0.45 * away.mean() < halved.mean(away) < 0.75 * away.mean()


def test_more_sources_make_it_less_likely_that_none_is_near_and_clumps_more_likely(around):
    codes = np.repeat(np.flatnonzero(around.sizes > 3)[::4], 3)
    released = counted(around, codes)
    n_parts, grid = len(released.counts), count_posterior(released.counts, released.noise)[0]
    shares = around.shares(released.part, n_parts, np.ones(around.cells.n_bins))
    none, few, many = (np.eye(len(grid))[np.full(n_parts, place)] for place in (0, 1, -1))
    assert (none_near(shares, many, grid, 5.0) <= none_near(shares, few, grid, 5.0) + 1e-12).all()
    assert none_near(shares, many, grid, 0.5).mean() > none_near(shares, many, grid, 30.0).mean()
    assert (none_near(shares, none, grid, 5.0) == 1.0).all()


@pytest.mark.parametrize(("ring", "without"), [(4, 0.85), (5, 0.7)])
def test_expected_distances_to_sources_in_one_ring_are_nearly_the_true_ones(ring, without, monkeypatch):
    """Sources beside the targets: the band that they are counted in has nearer rings, in which there are none.

    The last ring is left out: many of its bins have no pool point, and its sources are still taken to be too near.
    """
    random = np.random.default_rng(8)
    T = random.standard_normal((300, 5))
    around = surroundings(T, [8])
    pool = random.choice(T, 60_000) + random.standard_normal((60_000, 5)) * random.uniform(0, 2.0, (60_000, 1))
    codes = around.cells.codes(pool)
    chosen = np.flatnonzero((codes >= 0) & (codes % 7 == ring))[:3000]
    reach, S = float(around.cells.edges[-1]), pool[chosen]
    released = counted(around, codes[chosen])
    true = float(np.minimum(nearest(T, S)[1], reach).mean())

    def expected_over_true():
        return model_sources(released, around)[0].mean(np.full(300, reach)) / true

    assert abs(expected_over_true() - 1) < 0.1
    monkeypatch.setattr(inference, "pool_weights", lambda released, around: np.ones(around.cells.n_bins))
    assert expected_over_true() < without


def test_rings_of_a_cell_with_few_sources_resemble_those_of_all_cells():
    around = surroundings(np.random.default_rng(0).standard_normal((250, 3)), [5])
    group = around.cells.coarse()
    coarse = np.zeros((int(group.max()) + 1) // 7 * 7, dtype=np.int64).reshape(-1, 7)
    coarse[1:, 2] = 500
    noise = Noise("laplace", 20.0)
    weight = pool_weights(Released(coarse.ravel(), noise, coarse, coarse, coarse, 2, noise), around)
    expected = np.bincount(group, weights=weight * around.sizes).reshape(-1, 7)
    assert expected[0].argmax() == 2
    assert expected[0].sum() < expected[1].sum() / 5


def test_expected_distances_to_clumped_sources_are_closer_to_the_true_ones_than_with_a_fixed_clumping(monkeypatch):
    random = np.random.default_rng(7)
    T = random.standard_normal((400, 5))
    around = surroundings(T, [8])
    reach = float(around.cells.edges[-1])
    S = T[random.integers(15, size=3000)] + 0.02 * random.standard_normal((3000, 5))
    codes = around.cells.codes(S)
    released = counted(around, codes[codes >= 0])
    true = float(np.minimum(nearest(T, S)[1], reach).mean())

    def expected_over_true():
        return model_sources(released, around)[0].mean(np.full(400, reach)) / true

    estimated = expected_over_true()
    monkeypatch.setattr(inference, "clumping", lambda counts, parent, sizes, noise: 8.0)
    assert abs(estimated - 1) < 0.3
    assert expected_over_true() < estimated - 0.03
