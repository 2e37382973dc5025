"""Private parity: exact probabilities have the claimed epsilon for every adjacency; keeping more records would not."""

import itertools
import math

import numpy as np
import pytest

from dpadapt import Adjacency, Ledger
from dpadapt.errors import BudgetExceeded, PrivacyError
from dpadapt.mechanisms import Gaussian, clipped_sum
from dpadapt.papers.reweigh import parity as module
from dpadapt.papers.reweigh.parity import NOTHING, RandomParity, equations, pack, solve

VECTORS = np.array(list(itertools.product([0, 1], repeat=2)), dtype=np.int8)
# A record of two bits and its label; (0, 0) labelled 0 is the null record.
RECORDS = [(vector, label) for vector in VECTORS for label in (0, 1)]
NULL = RECORDS[0]


def solutions(records):
    """Return which of the four vectors solve all equations."""
    return [k for k, s in enumerate(VECTORS) if all((vector @ s) % 2 == label for vector, label in records)]


def distribution(records, keep):
    """Return the probability of each of the four answers and, last, of no answer."""
    probability = np.zeros(5)
    for kept in itertools.product([False, True], repeat=len(records)):
        mass = math.prod(keep if k else 1 - keep for k in kept) / 2
        solving = solutions([record for record, k in zip(records, kept, strict=True) if k])
        for k in solving:
            probability[k] += mass / len(solving)
        if not solving:
            probability[4] += mass
    probability[4] += 0.5
    return probability


def neighbours(adjacency):
    for first in itertools.combinations_with_replacement(RECORDS, 2):
        for record in RECORDS:
            if adjacency is Adjacency.REPLACE_ONE:
                for other in RECORDS:
                    yield [*first, record], [*first, other]
            elif adjacency is Adjacency.ADD_REMOVE:
                yield [*first, record], list(first)
            else:
                yield [*first, record], [*first, NULL]


def largest_privacy_loss(adjacency, keep):
    ratio = 0.0
    for D, D_neighbour in neighbours(adjacency):
        p, q = distribution(D, keep), distribution(D_neighbour, keep)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = max(ratio, np.nanmax(p / q), np.nanmax(q / p))
    return math.log(ratio)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_exact_probabilities_have_the_claimed_epsilon(adjacency):
    epsilon = 0.5
    bounded = equations(pack(VECTORS), np.zeros(4, dtype=bool))
    keep = RandomParity(epsilon, 2).scale(bounded, adjacency)
    assert largest_privacy_loss(adjacency, keep) <= epsilon * (1 + 1e-9)
    # The bound is tight: a larger share kept would exceed epsilon.
    assert largest_privacy_loss(adjacency, min(1.0, 1.5 * keep)) > epsilon
    assert keep > epsilon / 4  # the paper keeps fewer


class Script:
    """Random numbers that were decided beforehand, for `RandomParity._apply`; it stands for `Random` and its generator.

    Parameters
    ----------
    kept : tuple of bool
        Which records are kept.
    batches : tuple of int
        The batch of each record.
    silent : tuple of bool
        Which batches give no answer.
    free : tuple of tuple of int
        The free bits of each batch.
    """

    def __init__(self, kept, batches, silent, free):
        self.kept, self.batches = np.flatnonzero(kept), np.array(batches, dtype=np.int64)
        self.silent, self.free = iter(silent), iter(free)

    @property
    def generator(self):
        return self

    def poisson_sample(self, n, rate):
        return self.kept

    def integers(self, low, high, size, dtype=np.int64):
        return self.batches[self.kept] if dtype is np.int64 else np.array(next(self.free), dtype=dtype)

    def random(self):
        return 0.0 if next(self.silent) else 0.99


def enumerated(records, mechanism, keep):
    """Return the probability of each joint answer of all batches, by running the code on every random number."""
    n, batches, d = len(records), mechanism.n_batches, mechanism.n_features
    bits = np.array([record[0] for record in records], dtype=np.int8).reshape(n, -1)[:, :d]
    bounded = equations(pack(bits), np.array([record[1] for record in records], dtype=bool))
    probability = {}
    free_bits = list(itertools.product(itertools.product([0, 1], repeat=d), repeat=batches))
    for kept in itertools.product([False, True], repeat=n):
        of_kept = math.prod(keep if k else 1 - keep for k in kept)
        for assigned in itertools.product(range(batches), repeat=n):
            for silent in itertools.product([False, True], repeat=batches):
                for free in free_bits:
                    script = Script(kept, assigned, silent, free)
                    answers = mechanism._apply(bounded, scale=keep, random=script)
                    mass = of_kept / (batches**n * 2**batches * len(free_bits))
                    probability[answers.tobytes()] = probability.get(answers.tobytes(), 0.0) + mass
    assert sum(probability.values()) == pytest.approx(1.0)
    return probability


def largest_ratio(first, second):
    """Return the largest ratio of the two distributions' probabilities of an answer, either way."""
    answers = first.keys() | second.keys()
    pairs = [(first.get(answer, 0.0), second.get(answer, 0.0)) for answer in answers]
    return max(math.inf if min(pair) == 0 else max(pair) / min(pair) for pair in pairs)


ONE_BIT = [((0,), 0), ((0,), 1), ((1,), 0), ((1,), 1)]


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_the_codes_own_distribution_over_two_batches_has_the_claimed_epsilon(adjacency):
    """Brute force over all data sets of two one-bit records, their neighbours and all random numbers of the code."""
    epsilon = 0.7
    mechanism = RandomParity(epsilon, 1, n_batches=2)
    bounded = equations(pack(VECTORS), np.zeros(4, dtype=bool))
    keep = mechanism.scale(bounded, adjacency)
    removes, replaces = adjacency is Adjacency.ADD_REMOVE, adjacency is Adjacency.REPLACE_ONE

    def largest_loss(keep):
        at = {records: enumerated(records, mechanism, keep) for n in (1, 2) for records in data_sets(n)}
        worst = 1.0
        for fixed, record in itertools.product(ONE_BIT, repeat=2):
            others = [(fixed,)] if removes else [(fixed, other) for other in (ONE_BIT if replaces else ONE_BIT[:1])]
            worst = max(worst, *(largest_ratio(at[(fixed, record)], at[other]) for other in others))
        return math.log(worst)

    assert largest_loss(keep) <= epsilon * (1 + 1e-9)
    assert largest_loss(min(1.0, 1.5 * keep)) > epsilon  # keeping more records would cost more


def data_sets(n):
    return itertools.product(ONE_BIT, repeat=n)


def test_the_code_has_the_distribution_of_the_proof():
    """Two bits and one batch: the code's own probabilities are those of solving the kept equations at random."""
    for records in ([RECORDS[3], RECORDS[5], RECORDS[6]], [RECORDS[1], RECORDS[2]], [RECORDS[0]] * 2):
        exact = enumerated(records, RandomParity(1.0, 2), 0.3)
        expected = distribution(records, 0.3)
        answers = [np.array([vector], dtype=np.int8).tobytes() for vector in VECTORS]
        answers.append(np.full((1, 2), NOTHING, dtype=np.int8).tobytes())
        assert [exact.get(answer, 0.0) for answer in answers] == pytest.approx(expected)


def test_answers_have_the_exact_distribution():
    records = [RECORDS[3], RECORDS[5], RECORDS[6]]
    bounded = equations(pack(np.array([r[0] for r in records])), np.array([r[1] for r in records]) == 1)
    ledger = Ledger(math.inf, random_state=0)
    mechanism = RandomParity(0.5, 2, keep=0.3)
    answers = [ledger.release(mechanism, bounded, label="parity")[0] for _ in range(6000)]
    codes = np.array([4 if row[0] == NOTHING else int(row @ [2, 1]) for row in answers])
    expected = distribution(records, 0.3)
    # Five frequencies, each within four standard errors: false-alarm rate at most 1 in 3,000.
    error = 4 * np.sqrt(expected * (1 - expected) / len(codes))
    frequencies = np.bincount(codes, minlength=5) / len(codes)
    assert (np.abs(frequencies - expected) <= error).all()
    assert not (np.abs(frequencies - distribution(records, 0.6)) <= error).all()  # the test can fail


def test_a_record_affects_the_answer_of_one_batch():
    # 0 = 1 contradicts itself: its batch never answers, the other two answer with probability 1/2 each.
    bounded = equations(pack(VECTORS[:1]), np.array([True]))
    ledger, mechanism = Ledger(math.inf, random_state=0), RandomParity(50.0, 2, n_batches=3)
    answered = [(ledger.release(mechanism, bounded, label="parity")[:, 0] != NOTHING).sum() for _ in range(400)]
    assert max(answered) == 2
    # 400 answers on average, standard deviation sqrt(200): four of them, false-alarm rate 6e-5.
    assert abs(sum(answered) - 400) <= 4 * math.sqrt(200)


def test_records_are_put_into_batches_independently_of_each_other(monkeypatch):
    sizes = []
    monkeypatch.setattr(module, "solve", lambda rows, free: sizes.append(len(rows)))
    bounded = equations(pack(np.eye(2, dtype=np.int8)), np.ones(2, bool))
    ledger, mechanism = Ledger(math.inf, random_state=0), RandomParity(50.0, 2, n_batches=2)
    for _ in range(100):
        ledger.release(mechanism, bounded, label="parity")
    # All records are kept at this epsilon. Both are in one batch half of the time; taken in turn, they never would be.
    assert set(sizes) == {0, 1, 2}


@pytest.mark.parametrize("n_features", [3, 64, 65, 130])
def test_solve_finds_a_solution_and_detects_contradictions(n_features):
    rng = np.random.default_rng(n_features)
    for n in (1, n_features // 2, 3 * n_features):
        bits, secret = rng.integers(0, 2, (n, n_features)), rng.integers(0, 2, n_features)
        right = (bits @ secret) % 2
        rows = np.column_stack([pack(bits.astype(bool)), right.astype(np.uint64)])
        solution = solve(rows, rng.integers(0, 2, n_features, dtype=np.int8))
        assert ((bits @ solution) % 2 == right).all()
        if n > n_features + 40:
            assert (solution == secret).all()
        wrong = np.vstack([rows, rows[:1]])
        wrong[-1, -1] ^= np.uint64(1)
        assert solve(wrong, np.zeros(n_features, dtype=np.int8)) is None


def test_every_solution_belongs_to_equally_many_free_bits():
    rows = np.array([[0b011, 1]], dtype=np.uint64)
    solutions = [tuple(solve(rows, np.array(free, dtype=np.int8))) for free in itertools.product([0, 1], repeat=3)]
    assert sorted(solutions) == sorted(2 * [(1, 0, 0), (0, 1, 0), (1, 0, 1), (0, 1, 1)])


def test_statistic_and_mechanism_must_belong_together():
    bounded = equations(pack(VECTORS), np.zeros(4, dtype=bool))
    with pytest.raises(TypeError, match="equations"):
        Ledger(1.0).release(RandomParity(0.5, 2), clipped_sum([[1.0]], 1.0), label="no")
    with pytest.raises(PrivacyError, match="no l2 bound"):
        Ledger(1.0, 1e-6).release(Gaussian(9.0), bounded, label="no")
    with pytest.raises(BudgetExceeded):
        Ledger(0.1).release(RandomParity(0.5, 2), bounded, label="no")


def test_equations_are_checked():
    with pytest.raises(TypeError, match="pack"):
        equations(VECTORS, np.zeros(4, dtype=bool))
    with pytest.raises(ValueError, match="one entry per record"):
        equations(pack(VECTORS), np.zeros(3, dtype=bool))
    with pytest.raises(ValueError, match="one entry per record"):
        equations(pack(VECTORS), np.zeros((4, 2), dtype=bool))
    with pytest.raises(ValueError, match="n_batches must be a whole number"):
        RandomParity(0.5, 2, n_batches=0)
    with pytest.raises(ValueError, match="keep must lie in"):
        RandomParity(0.5, 2, keep=1.5)
