"""Private parity: a random solution of a random part of the equations that records are, over the field of two.

S. P. Kasiviswanathan, H. K. Lee, K. Nissim, S. Raskhodnikova, A. Smith. What Can We Learn Privately? FOCS 2008, section
4: the records of a batch are kept with probability p each; with probability 1/2, or if they contradict each other,
nothing is returned, else a solution of their equations, drawn evenly from all.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpadapt import checks
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import Bounded, Norm
from dpadapt.mechanisms.mechanism import Event, Mechanism, PureEvent
from dpadapt.mechanisms.randomness import Random

Words = NDArray[np.uint64]

NOTHING = -1


@dataclass(frozen=True)
class RandomParity(Mechanism):
    """Solve for a parity in each of several batches of records: (epsilon, 0)-private for all of them together.

    Each record is put in one batch at random, so a record moves one batch's answer only. Returned is one row of bits
    per batch, or a row of `NOTHING`.

    Parameters
    ----------
    epsilon : float
        Cost of all batches together. Positive.
    n_features : int
        How many bits a record has, its label not counted.
    n_batches : int, default=1
    keep : float, optional
        Probability with which a record is kept, if smaller than what `epsilon` allows; the paper has epsilon / 4.
    """

    epsilon: float
    n_features: int
    n_batches: int = 1
    keep: float | None = None
    norm: ClassVar[Norm] = "linf"

    def __post_init__(self) -> None:
        self.event()  # validates
        checks.count(self.n_features, "n_features")
        checks.count(self.n_batches, "n_batches")
        if self.keep is not None:
            checks.unit(self.keep, "keep")

    def event(self) -> Event:
        """Return what the answers cost together."""
        return PureEvent(float(self.epsilon))

    def scale(self, bounded: Bounded, adjacency: Adjacency, *, sampled: bool = False) -> float:
        """Return the probability with which a record is kept."""
        if bounded.value.dtype != np.uint64 or bounded.value.ndim != 2:
            raise TypeError("RandomParity needs equations; make them with `equations`.")
        # Let a be the probability of an answer without the record, b that with it kept. One more equation leaves,
        # halves or empties the set of solutions: so 0 <= b <= 2 a for a solution, and a <= b <= 1 <= 2 a for no answer,
        # which has probability 1/2 at least. The answer's probability (1 - p) a + p b then lies in [1 - p, 1 + p] times
        # a. The other batches are the same in both worlds, so all answers together cost what this one costs.
        # Adding or zeroing a record: 1 - p = e^-epsilon. Replacing it: (1 + p) / (1 - p) = e^epsilon.
        replaces = adjacency is Adjacency.REPLACE_ONE
        most = math.tanh(self.epsilon / 2) if replaces else -math.expm1(-self.epsilon)
        return most if self.keep is None else min(most, self.keep)

    def _apply(self, bounded: Bounded, *, scale: float, random: Random) -> NDArray[np.int8]:
        generator = random.generator
        kept = random.poisson_sample(len(bounded.value), scale)
        batch = generator.integers(0, self.n_batches, len(kept))
        found = np.full((self.n_batches, self.n_features), NOTHING, dtype=np.int8)
        for index in range(self.n_batches):
            # The coin and the free bits are drawn whatever the records are.
            silent = generator.random() < 0.5
            free = generator.integers(0, 2, self.n_features, dtype=np.int8)
            if silent:
                continue
            solution = solve(bounded.value[kept[batch == index]], free)
            if solution is not None:
                found[index] = solution
        return found


def solve(rows: Words, free: NDArray[np.int8]) -> NDArray[np.int8] | None:
    """Return the solution of the equations whose undetermined bits are those of `free`, or None if there is none.

    Parameters
    ----------
    rows : ndarray of uint64
        One equation each: bit j of word j // 64 says whether variable j takes part; the last word is the right side.
    free : ndarray of int8
        A bit for each variable.

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
        # 1 where the variable takes part; pivot rows above stay reduced too.
        takes = (rows[:, word] >> bit) & np.uint64(1)
        below = np.flatnonzero(takes[rank:])
        if not len(below):
            continue
        chosen = rank + int(below[0])
        if chosen != rank:
            rows[[rank, chosen]] = rows[[chosen, rank]]
            takes[[rank, chosen]] = takes[[chosen, rank]]
        takes[rank] = 0
        # Adding the pivot where the variable takes part, nothing elsewhere: no copy of the rows.
        for w in range(word, rows.shape[1]):
            rows[:, w] ^= takes * rows[rank, w]
        pivots.append(column)
    rank = len(pivots)
    if rows[rank:, -1].any():
        return None
    solution = free.copy()
    determined = np.array(pivots, dtype=np.int64)
    solution[determined] = 0
    # What the free variables leave for each determined one.
    packed = pack(solution[None, :])[0]
    shared = np.bitwise_xor.reduce(rows[:rank, :-1] & packed, axis=1)
    solution[determined] = (_odd(shared) ^ (rows[:rank, -1] & np.uint64(1))).astype(np.int8)
    return solution


def pack(bits: NDArray[np.int8] | NDArray[np.bool_]) -> Words:
    """Return rows of bits as rows of 64-bit words, bit j of a row in word j // 64."""
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


# `Bounded` equations over the field of two: one per record, for `RandomParity`.


def equations(words: Words, labels: NDArray[np.bool_]) -> Bounded:
    """Hold one equation per record: its bits, packed in words, must add up to its label.

    Parameters
    ----------
    words : ndarray of uint64, shape (n_records, n_words)
    labels : ndarray of bool, shape (n_records,)
        A record of zeros labelled False is null: every solution satisfies it.
    """
    if words.dtype != np.uint64 or words.ndim != 2:
        raise TypeError("words must be rows of 64-bit words; make them with `pack`.")
    right = np.asarray(labels, dtype=bool).astype(np.uint64)
    if right.shape != (len(words),):
        raise ValueError(f"labels must have one entry per record, got shape {right.shape}.")
    # One record owns one row; what it can do to the answer is bounded in `RandomParity.scale`.
    return Bounded(np.column_stack([words, right]))
