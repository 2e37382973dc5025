"""Random sources: unpredictable and never shared by default, reproducible from a seed; samples are Poisson samples."""

import os
import pickle

import numpy as np
import pytest
from scipy.stats import binom, chisquare, kstest

from dpadapt.mechanisms.randomness import NormalsAhead, SecureRandom, SeededRandom, random_source


def sources():
    return [SecureRandom(), SeededRandom(0)]


DRAWS = {
    "continuous": lambda random: random.generator.random(4),
    "discrete Laplace": lambda random: random.discrete_laplace(1e6, 4),
    "discrete Gaussian": lambda random: random.discrete_gaussian(1e6, 4),
}
# Each kind of draw by itself: the kinds come from different generators, and one that repeats must not hide behind
# another that does not.
each_draw = pytest.mark.parametrize("draw", DRAWS)


def fingerprint(random, draw):
    """Return the bytes of some draws: equal for equal sources, and for others by chance only."""
    return DRAWS[draw](random).tobytes()


@each_draw
def test_secure_sources_never_repeat(draw):
    shared = SecureRandom()
    prints = {fingerprint(SecureRandom(), draw) for _ in range(5)} | {fingerprint(shared, draw) for _ in range(5)}
    assert len(prints) == 10


@each_draw
def test_a_fork_does_not_share_noise(draw):
    random = SecureRandom()
    fingerprint(random, draw)  # the stream has its key before the fork
    prints = set()
    for _ in range(3):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(write, fingerprint(random, draw))
            os._exit(0)
        prints.add(os.read(read, 1000))
        assert os.waitpid(child, 0)[1] == 0
        os.close(read)
        os.close(write)
    assert len(prints | {fingerprint(random, draw)}) == 4


@each_draw
def test_pickling_a_secure_source_leaves_its_key_out(draw):
    random = SecureRandom()
    random.generator.random()
    assert fingerprint(pickle.loads(pickle.dumps(random)), draw) != fingerprint(random, draw)


@each_draw
def test_seeded_sources_repeat_and_differ_by_seed(draw):
    assert fingerprint(SeededRandom(3), draw) == fingerprint(SeededRandom(3), draw)
    assert fingerprint(SeededRandom(3), draw) != fingerprint(SeededRandom(4), draw)


def test_samples_of_a_seed_repeat():
    assert np.array_equal(SeededRandom(3).poisson_sample(99, 0.3), SeededRandom(3).poisson_sample(99, 0.3))


def test_normals_drawn_ahead_are_those_of_the_source_each_used_once(monkeypatch):
    monkeypatch.setattr("dpadapt.mechanisms.randomness._NUMBERS_AHEAD", 10)
    ahead, source = NormalsAhead(SeededRandom(3), 7), SeededRandom(3)
    # Three at a time: ten numbers in parts of three. Each is changed by whoever gets it.
    for _ in range(7):
        drawn = ahead.normal(2.0, (3,))
        assert drawn.tolist() == source.normal(2.0, (3,)).tolist()
        drawn[:] = 99.0
    assert ahead.seeded
    assert not NormalsAhead(SecureRandom(), 1).seeded


def test_normals_are_drawn_ahead_for_no_more_than_the_releases_that_come():
    shapes = []

    class Watched(SeededRandom):
        def normal(self, scale, shape):
            shapes.append((scale, shape))
            return super().normal(scale, shape)

    ahead = NormalsAhead(Watched(0), 5)
    for _ in range(5):
        ahead.normal(1.0, (2, 2))
    assert shapes == [(1.0, (5, 2, 2))]
    # Other noise, and noise beyond the number announced, is drawn anew.
    first, second = ahead.normal(3.0, (2,)), ahead.normal(3.0, (2,))
    assert shapes[1:] == [(3.0, (1, 2)), (3.0, (1, 2))]
    assert not np.array_equal(first, second)


def test_a_change_of_scale_or_shape_drops_what_was_drawn_ahead():
    ahead = NormalsAhead(SeededRandom(0), 100)
    narrow = [ahead.normal(1.0, (1000,)) for _ in range(3)]
    wide = ahead.normal(50.0, (1000,))
    assert np.std(wide) == pytest.approx(50.0, rel=0.1)
    assert ahead.normal(1.0, (3, 2)).shape == (3, 2)
    assert len({tuple(part) for part in (*narrow, wide)}) == 4
    assert ahead.discrete_laplace(5.0, 4).shape == ahead.discrete_gaussian(5.0, 4).shape == (4,)
    assert len(ahead.poisson_sample(10, 1.0)) == 10
    assert ahead.generator is not None


def test_random_state_chooses_the_source():
    assert isinstance(random_source(None), SecureRandom)
    assert random_source(np.int64(3)).seeded
    for bad in (True, -1, 1.5, "seed", np.random.RandomState(0)):
        with pytest.raises(ValueError, match="random_state must be None"):
            random_source(bad)


def test_numpys_global_generator_is_never_touched():
    before = repr(np.random.get_state())  # noqa: NPY002
    for random in sources():
        for draw in DRAWS:
            fingerprint(random, draw)
        random.poisson_sample(100, 0.5)
    assert repr(np.random.get_state()) == before  # noqa: NPY002


@pytest.mark.parametrize("rate", [0.003, 0.2, 0.7, 0.85, 0.99])
def test_poisson_samples_have_binomial_sizes_and_equal_probabilities(rate):
    # Seeded; chi-squared tests with a false-alarm rate of 1e-3 each.
    random, n, draws = SeededRandom(5), 40, 4000
    taken, sizes = np.zeros(n), np.zeros(n + 1)
    for _ in range(draws):
        sample = random.poisson_sample(n, rate)
        taken[sample] += 1
        sizes[len(sample)] += 1
        assert np.all(np.diff(sample) > 0)
    included = np.array([taken.sum(), n * draws - taken.sum()])
    assert chisquare(included, n * draws * np.array([rate, 1 - rate])).pvalue > 1e-3
    assert chisquare(included, n * draws * np.array([rate * 0.9, 1 - rate * 0.9])).pvalue < 1e-3  # the test can fail
    assert chisquare(taken).pvalue > 1e-3
    expected = binom(n, rate).pmf(np.arange(n + 1)) * draws
    common = expected > 5
    seen = np.append(sizes[common], sizes[~common].sum())
    assert chisquare(seen, np.append(expected[common], expected[~common].sum())).pvalue > 1e-3


def test_records_take_part_independently():
    random, n = SeededRandom(6), 30
    inside = np.zeros((4000, n))
    for row in inside:
        row[random.poisson_sample(n, 0.3)] = 1
    pairs = np.corrcoef(inside.T)[np.triu_indices(n, 1)] * np.sqrt(len(inside))
    assert kstest(pairs, "norm").pvalue > 1e-3


def test_poisson_samples_at_rate_one_of_no_rows_and_at_tiny_rates():
    for random in sources():
        assert random.poisson_sample(7, 1.0).tolist() == list(range(7))
        assert random.poisson_sample(0, 0.5).tolist() == []
        assert random.poisson_sample(1000, 1e-18).tolist() == []  # gaps of 1e18 must not overflow
        assert random.poisson_sample(0, 1.0).tolist() == []


def test_every_bit_of_the_key_is_drawn(monkeypatch):
    """Of 64 keys every bit is 0 in one and 1 in another; a right key fails with probability 256 / 2^64."""
    import randomgen

    keys, original = [], randomgen.AESCounter

    def recorded(key):
        keys.append(key)
        return original(key=key)

    monkeypatch.setattr(randomgen, "AESCounter", recorded)
    for _ in range(64):
        assert SecureRandom().generator is not None
    always, ever = 2**128 - 1, 0
    for key in keys:
        always, ever = always & key, ever | key
    assert (len(keys), always, ever) == (64, 0, 2**128 - 1)
