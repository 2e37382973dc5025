"""Private parity learning: each record is a linear equation over the field of two, and a random solution is released.

S. P. Kasiviswanathan, H. K. Lee, K. Nissim, S. Raskhodnikova, A. Smith. What Can We Learn Privately? FOCS 2008, section
4: each record of a batch is kept with probability p. With probability 1/2, or if the kept equations contradict each
other, nothing is returned; otherwise one of their solutions, each with equal probability.

`equations` makes the statistic, `RandomParity` is the mechanism, `solve` is Gaussian elimination on packed bits.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpadapt import checks
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import Bounded, Norm
from dpadapt.mechanisms.events import Event, PureEvent
from dpadapt.mechanisms.mechanism import Mechanism
from dpadapt.mechanisms.randomness import Random

Words = NDArray[np.uint64]

# Every entry of the answer of a batch that returned no solution.
NOTHING = -1


def equations(words: Words, labels: NDArray[np.bool_]) -> Bounded:
    """Return one equation per record: the sum of its bits times the solution, modulo 2, must equal its label.

    Parameters
    ----------
    words : ndarray of uint64, shape (n_records, n_words)
        The records' bits, made by `pack`.
    labels : ndarray of bool, shape (n_records,)
        A record of zeros labelled False is null: every solution satisfies it.
    """
    if words.dtype != np.uint64 or words.ndim != 2:
        raise TypeError("words must be rows of 64-bit words; make them with `pack`.")
    right = np.asarray(labels, dtype=bool).astype(np.uint64)
    if right.shape != (len(words),):
        raise ValueError(f"labels must have one entry per record, got shape {right.shape}.")
    # Claim: the number of rows that one record determines <= 1. The value has no norm bound: `RandomParity.scale`
    # bounds what one equation can do to the answer.
    return Bounded(np.column_stack([words, right]))


@dataclass(frozen=True)
class RandomParity(Mechanism):
    """Solve for a parity in each of several batches of records: (epsilon, 0)-private for all batches together.

    Each record is put into one batch at random, so it affects the answer of one batch only. The release has one row of
    bits per batch, or a row of `NOTHING`.

    Parameters
    ----------
    epsilon : float
        Cost of all batches together. Positive.
    n_features : int
        Number of bits of a record, without its label.
    n_batches : int, default=1
    keep : float, optional
        Probability with which a record is kept, if smaller than `epsilon` allows; the paper uses epsilon / 4.
    """

    epsilon: float
    n_features: int
    n_batches: int = 1
    keep: float | None = None
    norm: ClassVar[Norm] = "linf"

    def __post_init__(self) -> None:
        # Checked, and numbers of Python's own: NumPy's small types overflow or underflow in products.
        object.__setattr__(self, "epsilon", checks.positive(self.epsilon, "epsilon"))
        object.__setattr__(self, "n_features", checks.count(self.n_features, "n_features"))
        object.__setattr__(self, "n_batches", checks.count(self.n_batches, "n_batches"))
        if self.keep is not None:
            object.__setattr__(self, "keep", checks.unit(self.keep, "keep"))

    def event(self) -> Event:
        """Return what the answers of all batches cost together."""
        return PureEvent(float(self.epsilon))

    def scale(self, bounded: Bounded, adjacency: Adjacency, *, sampled: bool = False) -> float:
        """Return the probability with which a record is kept."""
        if bounded.value.dtype != np.uint64 or bounded.value.ndim != 2:
            raise TypeError("RandomParity needs equations; make them with `equations`.")
        # Claim: epsilon <= -log(1 - p), replaced: log((1 + p) / (1 - p)), for all batches together. Let p be the
        # probability of keeping the record, a the probability of an answer without it, b that with it kept. One more
        # equation leaves the set of solutions as it is, halves it or empties it. So 0 <= b <= 2 a for a solution, and a
        # <= b <= 1 <= 2 a for no answer, which has probability 1/2 at least. The answer's probability (1 - p) a + p b
        # then lies in [1 - p, 1 + p] times a. The other batches have the same distribution for both neighbours, so all
        # answers together cost what this one costs (Kasiviswanathan et al. 2008, section 4).
        replaces = adjacency is Adjacency.REPLACE_ONE
        allowed = math.tanh(self.epsilon / 2) if replaces else -math.expm1(-self.epsilon)
        return allowed if self.keep is None else min(allowed, self.keep)

    def _apply(self, bounded: Bounded, *, scale: float, random: Random) -> NDArray[np.int8]:
        generator = random.generator
        kept = random.poisson_sample(len(bounded.value), scale)
        batch = generator.integers(0, self.n_batches, len(kept))
        answers = np.full((self.n_batches, self.n_features), NOTHING, dtype=np.int8)
        for index in range(self.n_batches):
            # Both are drawn in any case, independently of the records.
            no_answer = generator.random() < 0.5
            free = generator.integers(0, 2, self.n_features, dtype=np.int8)
            if no_answer:
                continue
            solution = solve(bounded.value[kept[batch == index]], free)
            if solution is not None:
                answers[index] = solution
        return answers


def solve(rows: Words, free: NDArray[np.int8]) -> NDArray[np.int8] | None:
    """Return the solution of the equations that agrees with `free` in undetermined bits, or None if there is none.

    Parameters
    ----------
    rows : ndarray of uint64
        One equation each: bit j % 64 of word j // 64 says whether variable j occurs; the last word is the right side.
    free : ndarray of int8
        One bit for each variable.

    Examples
    --------
    >>> solve(np.array([[0b011, 1], [0b010, 1]], dtype=np.uint64), np.array([1, 1, 0], dtype=np.int8))
    array([0, 1, 0], dtype=int8)
    """
    rows = rows.copy()
    pivots: list[int] = []
    for column in range(len(free)):
        rank = len(pivots)
        word, bit = column // 64, np.uint64(column % 64)
        # 1 where the variable occurs. Earlier pivot rows are reduced as well.
        occurs = (rows[:, word] >> bit) & np.uint64(1)
        below = np.flatnonzero(occurs[rank:])
        if not len(below):
            continue
        chosen = rank + int(below[0])
        if chosen != rank:
            rows[[rank, chosen]] = rows[[chosen, rank]]
            occurs[[rank, chosen]] = occurs[[chosen, rank]]
        occurs[rank] = 0
        # Add the pivot row where the variable occurs, 0 elsewhere: this needs no copy of the rows.
        for w in range(word, rows.shape[1]):
            rows[:, w] ^= occurs * rows[rank, w]
        pivots.append(column)
    rank = len(pivots)
    if rows[rank:, -1].any():
        return None
    solution = free.copy()
    determined = np.array(pivots, dtype=np.int64)
    solution[determined] = 0
    # Each determined variable is the right side of its equation plus the free variables that occur there.
    packed = pack(solution[None, :])[0]
    occurring = np.bitwise_xor.reduce(rows[:rank, :-1] & packed, axis=1)
    solution[determined] = (_odd(occurring) ^ (rows[:rank, -1] & np.uint64(1))).astype(np.int8)
    return solution


def pack(bits: NDArray[np.int8] | NDArray[np.bool_]) -> Words:
    """Return rows of bits as rows of 64-bit words: bit j of a row is bit j % 64 of word j // 64."""
    n_words = -(-bits.shape[1] // 64)
    packed = np.packbits(bits.astype(bool), axis=1, bitorder="little")
    padded = np.zeros((len(bits), 8 * n_words), dtype=np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded.view(np.dtype("<u8")).astype(np.uint64, copy=False)


def _odd(words: Words) -> Words:
    """Return 1 where a word has an odd number of ones."""
    folded = words.copy()
    for shift in (32, 16, 8, 4, 2, 1):
        folded ^= folded >> np.uint64(shift)
    return folded & np.uint64(1)
