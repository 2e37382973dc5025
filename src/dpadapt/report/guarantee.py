"""The guarantee in words: what epsilon and delta mean for one person."""

import math

from dpadapt.accounting.receipt import Receipt
from dpadapt.mechanisms.adjacency import Adjacency

_QUESTION = {
    Adjacency.ZERO_OUT: "whether that row was used or left blank",
    Adjacency.ADD_REMOVE: "whether that row was in the data or not",
    Adjacency.REPLACE_ONE: "which of two given rows was in its place",
}
_ROWS = {
    Adjacency.ZERO_OUT: "The number of rows counts as public.",
    Adjacency.ADD_REMOVE: "The number of rows is protected too.",
    Adjacency.REPLACE_ONE: "The number of rows counts as public.",
}


def best_guess(epsilon: float, delta: float) -> float:
    """Return how often an attacker who tosses a fair coin otherwise can be right, at most.

    An (epsilon, delta)-private output has total variation at most (e^epsilon - 1 + 2 delta) / (e^epsilon + 1) between
    neighbours, and the best guess between two equally likely worlds is right with probability (1 + that) / 2.

    Examples
    --------
    >>> round(best_guess(1.0, 0.0), 3)
    0.731
    """
    return 1.0 if epsilon > 700 else min(1.0, (1.0 + delta * math.exp(-epsilon)) / (1.0 + math.exp(-epsilon)))


def words(receipt: Receipt) -> list[str]:
    """Return the guarantee as sentences for somebody who does not know what epsilon is.

    Examples
    --------
    >>> from dpadapt.accounting import Ledger
    >>> print(words(Ledger(epsilon=1.0, delta=1e-6).receipt())[0][:34])
    Suppose somebody knows every other
    """
    if receipt.seeded:
        return [
            "There is no guarantee: the noise came from a seed, so whoever knows the seed can subtract it. Fit again "
            "without --seed before this model leaves your hands."
        ]
    if math.isinf(receipt.epsilon):
        return ["There is no guarantee: something was released without noise."]
    most = percent(best_guess(receipt.epsilon, receipt.delta))
    return [
        f"Suppose somebody knows every other private row, sees this model and all of this page, and has to guess "
        f"{_QUESTION[receipt.adjacency]}. A coin is right half of the time; they are right at most {most} of the "
        f"time, whatever they know and however much they compute.",
        f"What is protected is one row. Where one person has several rows, say k of them, epsilon for that person is "
        f"about k times as large. {_ROWS[receipt.adjacency]}",
        "What the rows have in common is meant to be learned: a model may say something true about you because it is "
        "true about people like you, whether or not your row was used. Public rows are not protected at all.",
    ]


def percent(share: float) -> str:
    """Return e.g. 73.2%, rounded up, with as many nines as it takes to differ from 100%.

    Examples
    --------
    >>> percent(best_guess(1.0, 1e-6)), percent(best_guess(10.0, 1e-6))
    ('73.2%', '99.996%')
    """
    if share >= 1.0:
        return "100%"
    digits = max(1, math.ceil(-math.log10(1.0 - share)) - 2)
    return f"{min(math.ceil(share * 10 ** (digits + 2)), 10 ** (digits + 2)) / 10**digits:.{digits}f}%"
