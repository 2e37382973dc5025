"""Private parity: exact probabilities keep the claim, for every adjacency, and a larger share kept would not."""

import itertools
import math

import numpy as np
import pytest

from dpadapt import Adjacency, Ledger
from dpadapt.errors import BudgetExceeded
from dpadapt.mechanisms import Gaussian, clipped_sum
from dpadapt.mechanisms.parity import NOTHING, RandomParity, equations, pack, solve
from dpadapt.papers.reweigh.learners_discrete import ParityLearner, most_frequent
from dpadapt.papers.reweigh.reweigh import SubsampleTestReweigh

VECTORS = np.array(list(itertools.product([0, 1], repeat=2)), dtype=np.int8)
# A record of two bits and its label; (0, 0) labelled 0 is the null record.
RECORDS = [(vector, label) for vector in VECTORS for label in (0, 1)]
NULL = RECORDS[0]


def solutions(records):
    """Return which of the four vectors solve all equations."""
    return [k for k, s in enumerate(VECTORS) if all((vector @ s) % 2 == label for vector, label in records)]


def law(records, keep):
    """Return the probability of each of the four answers and, last, of none."""
    found = np.zeros(5)
    for kept in itertools.product([False, True], repeat=len(records)):
        mass = math.prod(keep if k else 1 - keep for k in kept) / 2
        good = solutions([record for record, k in zip(records, kept, strict=True) if k])
        for k in good:
            found[k] += mass / len(good)
        if not good:
            found[4] += mass
    found[4] += 0.5
    return found


def pairs(adjacency):
    for first in itertools.combinations_with_replacement(RECORDS, 2):
        for record in RECORDS:
            if adjacency is Adjacency.REPLACE_ONE:
                for other in RECORDS:
                    yield [*first, record], [*first, other]
            elif adjacency is Adjacency.ADD_REMOVE:
                yield [*first, record], list(first)
            else:
                yield [*first, record], [*first, NULL]


def worst(adjacency, keep):
    ratio = 0.0
    for D, D_neighbour in pairs(adjacency):
        p, q = law(D, keep), law(D_neighbour, keep)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = max(ratio, np.nanmax(p / q), np.nanmax(q / p))
    return math.log(ratio)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_all_answers_keep_the_claimed_epsilon_exactly(adjacency):
    epsilon = 0.5
    bounded = equations(pack(VECTORS), np.zeros(4, dtype=bool))
    keep = RandomParity(epsilon, 2).scale(bounded, adjacency)
    assert worst(adjacency, keep) <= epsilon * (1 + 1e-9)
    # Tight where the bound is: a larger share would break the claim.
    assert worst(adjacency, min(1.0, 1.5 * keep)) > epsilon
    assert keep > epsilon / 4  # the paper keeps fewer


def test_mechanism_draws_from_that_law():
    records = [RECORDS[3], RECORDS[5], RECORDS[6]]
    bounded = equations(pack(np.array([r[0] for r in records])), np.array([r[1] for r in records]) == 1)
    ledger = Ledger(math.inf, random_state=0)
    mechanism = RandomParity(0.5, 2, keep=0.3)
    drawn = [ledger.release(mechanism, bounded, label="parity")[0] for _ in range(6000)]
    codes = np.array([4 if row[0] == NOTHING else int(row @ [2, 1]) for row in drawn])
    expected = law(records, 0.3)
    # Five frequencies, each within four standard errors: a false alarm in 3,000 at most.
    spread = 4 * np.sqrt(expected * (1 - expected) / len(codes))
    assert (np.abs(np.bincount(codes, minlength=5) / len(codes) - expected) <= spread).all()


@pytest.mark.parametrize("n_features", [3, 64, 65, 130])
def test_solving_finds_a_solution_and_tells_contradictions(n_features):
    rng = np.random.default_rng(n_features)
    for n in (1, n_features // 2, 3 * n_features):
        bits, secret = rng.integers(0, 2, (n, n_features)), rng.integers(0, 2, n_features)
        right = (bits @ secret) % 2
        rows = np.column_stack([pack(bits.astype(bool)), right.astype(np.uint64)])
        found = solve(rows, rng.integers(0, 2, n_features, dtype=np.int8))
        assert ((bits @ found) % 2 == right).all()
        if n > n_features + 40:
            assert (found == secret).all()
        wrong = np.vstack([rows, rows[:1]])
        wrong[-1, -1] ^= np.uint64(1)
        assert solve(wrong, np.zeros(n_features, dtype=np.int8)) is None


def test_undetermined_bits_are_drawn_evenly():
    rows = np.array([[0b011, 1]], dtype=np.uint64)
    found = {tuple(solve(rows, np.array(free, dtype=np.int8))) for free in itertools.product([0, 1], repeat=3)}
    assert found == {(1, 0, 0), (0, 1, 0), (1, 0, 1), (0, 1, 1)}


@pytest.mark.parametrize("share", [0.5, 0.2])
def test_the_learner_finds_a_parity_also_where_bits_are_biased(share):
    rng = np.random.default_rng(3)
    X = (rng.random((6000, 64)) < share).astype(float)
    chosen = rng.permutation(64)[:9]
    y = X[:, chosen].sum(axis=1).astype(int) % 2
    model = SubsampleTestReweigh(ParityLearner(), epsilon=0.5, delta=0.0, random_state=0).fit(X, y)
    assert sorted(np.flatnonzero(model.hypothesis_.chosen)) == sorted(chosen)
    assert model.privacy_.epsilon == pytest.approx(0.5, rel=1e-3)
    assert model.privacy_.delta == 0.0
    assert (model.predict(X) == y).all()


def test_no_answer_at_all_is_a_constant():
    assert most_frequent(np.full((4, 3), NOTHING, dtype=np.int8)) is None
    X = np.zeros((400, 4))
    y = np.arange(400) % 2  # contradictory
    model = SubsampleTestReweigh(ParityLearner(), epsilon=2.0, delta=0.0, random_state=0).fit(X, y)
    assert (model.predict(X) == 0).all()


def test_other_statistics_and_mechanisms_do_not_mix():
    bounded = equations(pack(VECTORS), np.zeros(4, dtype=bool))
    with pytest.raises(TypeError, match="equations"):
        Ledger(1.0).release(RandomParity(0.5, 2), clipped_sum([[1.0]], 1.0), label="no")
    with pytest.raises(Exception, match="no l2 bound"):
        Ledger(1.0, 1e-6).release(Gaussian(9.0), bounded, label="no")
    with pytest.raises(BudgetExceeded):
        Ledger(0.1).release(RandomParity(0.5, 2), bounded, label="no")


def test_words_must_be_words():
    with pytest.raises(TypeError, match="pack"):
        equations(VECTORS, np.zeros(4, dtype=bool))
    with pytest.raises(ValueError, match="one entry per record"):
        equations(pack(VECTORS), np.zeros(3, dtype=bool))
