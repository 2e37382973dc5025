"""Appendix B of paper 3: private parity at the sizes of Corollary B.3, and at what is enough."""

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.accounting.ledger import Ledger
from dpadapt.hybrid.learner_parity import ParityLearner, most_frequent
from dpadapt.hybrid.planning import parity_rows
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded_parity import equations
from dpadapt.mechanisms.parity import NOTHING, pack

EPSILON, BETA = 0.5, 1e-3
# Ours: batches and records in each, so that each batch keeps about four times as many records as there are bits.
BATCHES, KEPT = 12, 4.0
_CHUNK = 100_000


def parity_row(n_features: int, share: float, paper: bool, *, seeds: int) -> dict[str, Any]:
    """Learn a random parity of bits that are set with probability `share`, with the paper's constants or ours."""
    # The divergence of even bits from these; the corollary is for polynomial ones.
    divergence = (1 / (4 * share * (1 - share))) ** n_features - 1
    learner, n = ParityLearner(BATCHES), 0
    if paper:
        batches, each = parity_rows(n_features, BETA, EPSILON, max(1.0, divergence))
        learner, n = ParityLearner(batches, keep=EPSILON / 4), batches * each
    mechanism = learner.mechanism(EPSILON, n_features)
    if not paper:
        keep = mechanism.scale(equations(np.zeros((1, 1), dtype=np.uint64), np.zeros(1, bool)), Adjacency.REPLACE_ONE)
        n = int(BATCHES * KEPT * n_features / keep)
    runs = []
    for seed in range(seeds):
        random = np.random.default_rng([seed, n_features])
        secret = random.random(n_features) < 0.5
        words, labels = draw(n, secret, share, random)
        ledger = Ledger(EPSILON, adjacency=Adjacency.REPLACE_ONE, random_state=seed)
        start = time.process_time()
        answers = ledger.release(mechanism, equations(words, labels), label="parity")
        found = most_frequent(answers)
        given = (answers != NOTHING).all(axis=1)
        runs.append(
            {
                "seconds": time.process_time() - start,
                "right": float(found is not None and bool((found == secret).all())),
                "answers": float(given.sum()),
                "wrong": float(((answers[given] == 1) != secret).any(axis=1).sum()),
            }
        )
    row: dict[str, Any] = {"n": n, "batches": learner.n_batches, "divergence": divergence, "features": n_features}
    return row | {"paper": paper} | {name: [run[name] for run in runs] for name in runs[0]}


def draw(
    n: int, secret: NDArray[np.bool_], share: float, random: np.random.Generator
) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Draw packed records of bits and their labels, the parity of the secret ones."""
    words, labels = [], []
    for start in range(0, n, _CHUNK):
        size = min(_CHUNK, n - start)
        # Bytes are enough: shares are multiples of 1/256 up to rounding.
        bits = random.integers(0, 256, (size, len(secret)), dtype=np.uint8) < round(256 * share)
        labels.append(np.count_nonzero(bits[:, secret], axis=1) % 2 == 1)
        words.append(pack(bits))
    return np.concatenate(words), np.concatenate(labels)
