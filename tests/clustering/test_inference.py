"""The gate keeps its error rate, and the model of the sources and the choice of centres follow the released counts."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logsumexp

from dpadapt.clustering import inference
from dpadapt.clustering.inference import (
    SourceModel,
    _less_reliant,
    _solve,
    clumping,
    log_evidence,
    pool_weights,
    pooled_evidence,
)
from dpadapt.clustering.public_cells import surroundings
from dpadapt.clustering.releases import Noise, Released, partition
from dpadapt.clustering.solver import nearest
from dpadapt.mechanisms.randomness import SeededRandom


def draw(noise, size, random):
    return (random.discrete_laplace if noise.law == "laplace" else random.discrete_gaussian)(noise.scale, size)


NOISES = [Noise("laplace", 0.4), Noise("laplace", 3.0), Noise("gaussian", 0.5), Noise("gaussian", 4.0)]
every_noise = pytest.mark.parametrize("noise", NOISES, ids=str)


def mean_of_evidence(noise, n_bins, reach):
    """Return the mean of the e-value under noise alone, by summation over all counts up to `reach`."""
    log_norm = logsumexp(noise.log_density(np.arange(-reach, reach + 1)))
    logs = [
        log_evidence(np.array(counts), noise) + noise.log_density(np.array(counts)).sum() - n_bins * log_norm
        for counts in itertools.product(range(-reach, reach + 1), repeat=n_bins)
    ]
    return math.exp(logsumexp(logs))


@every_noise
def test_e_value_has_mean_one_under_noise_alone(noise, monkeypatch):
    """Exactly, for any noise scale, because likelihood ratios are those of discrete noise."""
    monkeypatch.setattr(inference, "_EVIDENCE_HEIGHTS", (0.5, 2, 8))
    assert mean_of_evidence(noise, 1, int(75 * noise.scale) + 2) == pytest.approx(1.0, rel=1e-9)


def test_e_value_of_two_bins_has_mean_one(monkeypatch):
    monkeypatch.setattr(inference, "_EVIDENCE_HEIGHTS", (1, 5, 9))
    assert mean_of_evidence(Noise("laplace", 0.4), 2, 18) == pytest.approx(1.0, rel=1e-9)
    assert mean_of_evidence(Noise("gaussian", 0.6), 2, 14) == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("noise", [NOISES[0], NOISES[3]], ids=str)
def test_gate_opens_no_more_often_than_its_rate_without_sources(noise):
    """At gamma = 0.1 at most 100 of 1000 on average; more than 140 has probability below 1e-4."""
    random, groups = SeededRandom(0), np.arange(60) % 3
    coarse = Noise(noise.law, 2 * noise.scale)
    opened = 0
    for _ in range(1000):
        stages = [(draw(coarse, 60, random), groups, coarse), (draw(noise, 60, random), groups, noise)]
        opened += pooled_evidence(stages) >= math.log(10)
    assert opened <= 140


@every_noise
def test_gate_opens_if_the_noise_is_larger_than_stated(noise):
    """The error rate holds for the stated noise: three times as much opens the gate nearly always."""
    random, groups = SeededRandom(1), np.arange(60) % 3
    wrong = Noise(noise.law, 3 * noise.scale)
    opened = sum(pooled_evidence([(draw(wrong, 60, random), groups, noise)] * 2) >= math.log(10) for _ in range(50))
    assert opened > 40


@every_noise
def test_many_sources_open_the_gate(noise):
    counts = draw(noise, 60, SeededRandom(2))
    counts[5] += int(30 * noise.scale) + 10
    assert pooled_evidence([(counts, np.zeros(60), noise)] * 2) > math.log(10)


def test_e_value_of_no_bins_is_one():
    assert log_evidence(np.empty(0, dtype=int), NOISES[0]) == 0.0


EXACT = tuple(Noise("laplace", scale) for scale in (0.5, 0.3, 0.1))


@pytest.fixture(scope="module")
def around():
    return surroundings(np.random.default_rng(0).standard_normal((250, 3)), [5], n_bands=3)


def counted(around, codes, noise=EXACT):
    """Return a release without noise."""
    cells = around.cells
    profile = np.bincount(codes % cells.n_rings, minlength=cells.n_rings)
    above = cells.coarse()
    coarse = np.bincount(above[codes], minlength=int(above.max()) + 1)
    part, parent = partition(coarse, cells, 1.0)
    return Released(
        profile, coarse, np.bincount(part[codes], minlength=len(parent)), part, parent, cells.n_bands, noise
    )


def test_pool_weights_follow_the_counted_distances(around):
    sizes, n_rings = around.shares.sizes, around.cells.n_rings
    far = np.flatnonzero((np.arange(len(sizes)) % n_rings == n_rings - 2) & (sizes > 0))
    codes = np.random.default_rng(1).choice(far, 4000)
    weighted = (sizes * pool_weights(counted(around, codes), sizes)).reshape(-1, n_rings).sum(axis=0)
    assert weighted.argmax() == n_rings - 2
    assert weighted.max() / weighted.sum() > 0.99


def test_pool_weights_are_equal_without_sources(around):
    sizes, n_rings = around.shares.sizes, around.cells.n_rings
    released = counted(around, np.empty(0, int))
    weights = pool_weights(released, sizes).reshape(-1, n_rings)
    assert np.ptp(weights[:, sizes.reshape(-1, n_rings).sum(axis=0) > 0]) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("true", [1.0, 4.0, 15.0])
def test_clumping_is_estimated_from_uneven_counts(true):
    """Counts are drawn from Pólya's urn, with noise added."""
    random = np.random.default_rng(int(true))
    sizes = random.uniform(0.5, 2.0, (60, 8))
    shares = sizes / sizes.sum(axis=1, keepdims=True)
    urns = np.array([random.dirichlet(true * share) for share in shares])
    counts = np.array([random.multinomial(300, urn) for urn in urns]).ravel()
    counts = counts + np.rint(random.laplace(0, 2.0, counts.shape)).astype(np.int64)
    parent = np.repeat(np.arange(60), 8)
    noise = tuple(Noise("laplace", 2.0) for _ in range(3))
    released = Released(np.zeros(1, int), np.zeros(60, int), counts, np.arange(480), parent, 1, noise)
    assert clumping(released, sizes.ravel()) / 1.4 == pytest.approx(true, rel=0.35)


def test_clumping_is_the_usual_one_where_noise_exceeds_the_counts():
    random = np.random.default_rng(2)
    noise = tuple(Noise("laplace", 200.0) for _ in range(3))
    parent = np.repeat(np.arange(20), 2)
    estimates = []
    for _ in range(20):
        counts = np.rint(random.laplace(0, 200.0, 40)).astype(np.int64) + 30
        released = Released(np.zeros(1, int), np.zeros(20, int), counts, np.arange(40), parent, 1, noise)
        estimates.append(clumping(released, np.ones(40)))
    assert 4.0 < np.median(estimates) < 32.0


def test_reliance_is_the_rise_of_cost_when_a_part_is_emptied(around):
    """Compared with the cost when that part is emptied, for several parts."""
    random = np.random.default_rng(3)
    occupied = np.flatnonzero(around.shares.sizes > 3)[::5]
    model = SourceModel.of(counted(around, random.choice(occupied, 500)), around)
    away = random.uniform(0.0, 2 * float(model.radii[-1]), model.cost.integral.shape[0])
    targets = np.arange(len(away))
    doubtful = model.doubtful
    assert 0 < doubtful.sum() < len(doubtful)
    assert not model.reliance(away)[~doubtful].any()
    # All parts are doubtful from here on.
    model = replace(model, posterior=replace(model.posterior, evidence=np.zeros(len(doubtful))))
    relied = model.reliance(away)
    base = model.cost(targets, away[:, None]).mean()
    for part in np.argsort(relied)[[-1, -5, -20, 0]]:
        emptied = model.empty(np.arange(len(relied)) == part)
        assert emptied.cost(targets, away[:, None]).mean() - base == pytest.approx(relied[part], rel=1e-6, abs=1e-9)
    assert relied.max() > 0


def test_no_doubtful_part_leaves_a_cluster_without_a_centre():
    """Two clusters of targets; the few sources counted in the second may be noise."""
    random = np.random.default_rng(4)
    T = np.vstack([random.normal(0, 0.1, (100, 2)), random.normal(5, 0.1, (100, 2))])
    around = surroundings(T, [3], n_bands=3)
    noise = tuple(Noise("laplace", 4.0) for _ in range(3))
    first, second = (np.repeat(around.cells.codes(rows), 40) for rows in (T[:100], T[100:]))
    for kept, relied in ((len(second), True), (16, False)):
        released = counted(around, np.concatenate([first, second[:kept]]), noise)
        # Whatever the prior, all parts with a positive count are taken to hold sources here.
        model = SourceModel.of(released, around)
        sure = np.zeros_like(model.posterior.probability)
        sure[np.arange(len(sure)), np.where(released.counts > 0, 5, 0)] = 1.0
        model = replace(model, posterior=replace(model.posterior, probability=sure))
        preliminary = _solve(T, [1], model.cost)[1]
        centres, trusted = _less_reliant(T, preliminary, model, 0.01)
        assert (trusted is model) == relied
        # If no reliance at all is allowed, there is no such choice.
        assert relied or _less_reliant(T, preliminary, model, -1.0) is None
    assert T[centres[0]][0] > 2.5


@pytest.mark.parametrize(("shape", "within", "gain"), [("far out", 0.1, 0.1), ("in clumps", 0.3, 0.03)])
def test_expected_distances_are_closer_to_the_true_ones(shape, within, gain, monkeypatch):
    """Closer than with an unweighted pool and a fixed clumping."""
    random = np.random.default_rng(7)
    T = random.standard_normal((400, 5))
    around = surroundings(T, [8], n_bands=2)
    reach = float(around.cells.edges[-1])
    if shape == "far out":
        away = random.standard_normal((3000, 5))
        away *= 0.9 * reach / np.linalg.norm(away, axis=1, keepdims=True)
        S = T[random.integers(400, size=3000)] + away
    else:
        S = T[random.integers(15, size=3000)] + 0.02 * random.standard_normal((3000, 5))
    codes = around.cells.codes(S)
    released = counted(around, codes[codes >= 0])
    true = float(np.minimum(nearest(T, S)[1], reach).mean())

    def expected_over_true():
        cost = SourceModel.of(released, around).cost
        return float(cost(np.arange(400), np.full((400, 1), reach)).mean()) / true

    estimated = expected_over_true()
    monkeypatch.setattr(inference, "pool_weights", lambda released, sizes: np.ones(len(sizes)))
    monkeypatch.setattr(inference, "clumping", lambda released, sizes: 8.0)
    assert abs(estimated - 1) < within
    assert expected_over_true() < estimated - gain
