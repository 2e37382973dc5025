"""The scale that reaches the draw: every mechanism, on every kind of bound, by plan and adjacency, written out by hand.

The numbers follow from the definitions, not from the code: noise multiplier times sensitivity for added noise; for a
choice at epsilon, the largest change of a score over epsilon, times 2 unless a record moves all scores in one
direction. On a Poisson sample under replace-one the two records count apart, so that the sensitivity is twice the
bound of one, however close the two statistics are.
"""

import math

import numpy as np
import pytest

from dpadapt import Adjacency, Ledger, PrivacyError
from dpadapt.mechanisms import (
    Bounded,
    DiscreteGaussian,
    DiscreteLaplace,
    ExponentialMechanism,
    Gaussian,
    Laplace,
    PermuteAndFlip,
    RandomizedResponse,
    clipped_gram,
    clipped_sum,
    histogram,
    responses,
    votes,
)
from dpadapt.mechanisms.bounded import clipped_outer_sum
from dpadapt.mechanisms.mechanism import Mechanism, NoiseMechanism, NonPrivate, Repeated, Sampled
from dpadapt.papers.reweigh.parity import RandomParity, equations, pack
from dpadapt.rows import Rows

ROWS = np.array([[3.0, 4.0], [0.3, 0.4], [-1.0, 0.0]])


def float32_sum():
    rows = Rows(ROWS.astype(np.float32), np.zeros(3))
    return clipped_outer_sum(rows, lambda block: np.ones(len(block.X), np.float32), 3.0)


STATISTICS = {
    # l2: 3.
    "clipped sum": lambda: clipped_sum(ROWS, 3.0),
    # l2: 4; sqrt 2 times that if a row is replaced.
    "second moments": lambda: clipped_gram(ROWS, 2.0),
    # 1 in every norm; if a row is replaced, 2 in l1, sqrt 2 in l2 and 1 in linf. One direction.
    "histogram": lambda: histogram([0, 2, 2], 3),
    # Four candidates: 4 in l1, 2 in l2, 1 in linf, also if a row is replaced. One direction.
    "votes": lambda: votes([[1, 0, 1, 1], [0, 0, 1, 0]]),
    # 3 in l1 alone, which bounds the other norms.
    "l1 alone": lambda: Bounded(np.array([1.0, 2.0]), l1=3.0),
    # 0.5 in linf; 5 in l1, which is not needed for a choice. Scores may move in both directions.
    "scores": lambda: Bounded(np.array([1.0, 2.0, 0.0]), l1=5.0, linf=0.5),
    # As above, with a bound under replace-one that is tighter than twice 0.5.
    "scores, replaced": lambda: Bounded(np.array([1.0, 2.0]), l1=5.0, linf=0.5, replaced={"linf": 0.75}),
    # 3 in l2, only while the number of rows is fixed.
    "float32 sum": float32_sum,
    # One entry of at most 2 per record, only while the number of rows is fixed; replacing it moves it no further.
    "one entry per record": lambda: Bounded(
        np.array([0.0, 2.0]), l1=2.0, replaced={"l1": 2.0, "l2": 2.0, "linf": 2.0}, fixed_rows=True
    ),
    "answers": lambda: responses([0, 1, 2], 3),
    "equations": lambda: equations(pack(np.eye(3, dtype=np.int8)), np.array([True, False, True])),
}
ROOT2 = math.sqrt(2)
NO = None  # refused

# statistic, mechanism, and the scales on all rows and on a Poisson sample: zero-out, add-remove, replace-one.
TABLE = [
    ("clipped sum", Gaussian(2.0), (6.0, 6.0, 12.0), (6.0, 6.0, 12.0)),
    ("clipped sum", Laplace(2.0), (NO, NO, NO), (NO, NO, NO)),  # no bound in l1
    ("clipped sum", ExponentialMechanism(0.5), (12.0, 12.0, 24.0), (NO, NO, NO)),
    ("clipped sum", PermuteAndFlip(0.5), (12.0, 12.0, 24.0), (NO, NO, NO)),
    ("clipped sum", NonPrivate(), (0.0, 0.0, 0.0), (NO, NO, NO)),
    ("second moments", Gaussian(2.0), (8.0, 8.0, 8 * ROOT2), (8.0, 8.0, 16.0)),
    ("histogram", Gaussian(2.0), (2.0, 2.0, 2 * ROOT2), (2.0, 2.0, 4.0)),
    ("histogram", DiscreteGaussian(2.0), (2.0, 2.0, 2 * ROOT2), (NO, NO, NO)),
    ("histogram", Laplace(2.0), (2.0, 2.0, 4.0), (2.0, 2.0, 4.0)),
    ("histogram", DiscreteLaplace(2.0), (2.0, 2.0, 4.0), (NO, NO, NO)),
    ("histogram", ExponentialMechanism(0.5), (2.0, 2.0, 4.0), (NO, NO, NO)),
    ("histogram", PermuteAndFlip(0.5), (2.0, 2.0, 4.0), (NO, NO, NO)),
    ("votes", Gaussian(2.0), (4.0, 4.0, 4.0), (4.0, 4.0, 8.0)),
    ("votes", DiscreteGaussian(2.0), (4.0, 4.0, 4.0), (NO, NO, NO)),
    ("votes", Laplace(2.0), (8.0, 8.0, 8.0), (8.0, 8.0, 16.0)),
    ("votes", DiscreteLaplace(2.0), (8.0, 8.0, 8.0), (NO, NO, NO)),
    ("votes", ExponentialMechanism(0.5), (2.0, 2.0, 4.0), (NO, NO, NO)),
    ("votes", PermuteAndFlip(0.5), (2.0, 2.0, 4.0), (NO, NO, NO)),
    ("l1 alone", Gaussian(2.0), (6.0, 6.0, 12.0), (6.0, 6.0, 12.0)),
    ("l1 alone", Laplace(2.0), (6.0, 6.0, 12.0), (6.0, 6.0, 12.0)),
    ("l1 alone", ExponentialMechanism(0.5), (12.0, 12.0, 24.0), (NO, NO, NO)),
    ("l1 alone", DiscreteLaplace(2.0), (NO, NO, NO), (NO, NO, NO)),  # reals
    ("scores", ExponentialMechanism(0.5), (2.0, 2.0, 4.0), (NO, NO, NO)),
    ("scores", PermuteAndFlip(0.5), (2.0, 2.0, 4.0), (NO, NO, NO)),
    ("scores, replaced", ExponentialMechanism(0.5), (2.0, 2.0, 3.0), (NO, NO, NO)),
    ("scores, replaced", PermuteAndFlip(0.5), (2.0, 2.0, 3.0), (NO, NO, NO)),
    ("scores, replaced", Gaussian(2.0), (10.0, 10.0, 20.0), (10.0, 10.0, 20.0)),
    ("float32 sum", Gaussian(2.0), (6.0, NO, 12.0), (6.0, NO, 12.0)),
    ("one entry per record", Gaussian(2.0), (4.0, NO, 4.0), (4.0, NO, 8.0)),
    ("one entry per record", Laplace(2.0), (4.0, NO, 4.0), (4.0, NO, 8.0)),
    ("one entry per record", ExponentialMechanism(0.5), (8.0, NO, 8.0), (NO, NO, NO)),
    # Three answers: another one than the own with probability 2 / (e^epsilon + 2).
    ("answers", RandomizedResponse(math.log(3.0)), (0.4, NO, 0.4), (NO, NO, NO)),
    ("answers", Gaussian(2.0), (NO, NO, NO), (NO, NO, NO)),
    # A record is kept with probability 1 - e^-epsilon, or tanh(epsilon / 2) if it may be replaced.
    ("equations", RandomParity(math.log(2.0), 3), (0.5, 0.5, 1 / 3), (NO, NO, NO)),
    ("equations", RandomParity(math.log(2.0), 3, keep=0.1), (0.1, 0.1, 0.1), (NO, NO, NO)),
    ("equations", Gaussian(2.0), (NO, NO, NO), (NO, NO, NO)),
]
CELLS = [
    pytest.param(statistic, mechanism, adjacency, plan, expected, id=f"{statistic}, {mechanism}, {plan}, {adjacency}")
    for statistic, mechanism, *scales in TABLE
    for plan, row in zip(("all rows", "Poisson sample"), scales, strict=True)
    for adjacency, expected in zip(("zero-out", "add-remove", "replace-one"), row, strict=True)
]


def drawn_scale(statistic, mechanism, adjacency, plan):
    """Return the scale that a ledger, a child of it and a run draw with; it must be the same for all."""
    ledger = Ledger(math.inf, adjacency=Adjacency.of(adjacency), random_state=0)
    scales = []
    ledger._draw = lambda mechanism, bounded, scale, random: scales.append(scale)
    for origin in (ledger, ledger.child(math.inf, 0.0, label="child")):
        if plan == "all rows":
            origin.release(mechanism, statistic(), label="x")
            origin.start(Repeated(mechanism, 2), label="x").release(statistic())
            run = origin.start(Repeated(mechanism, 2), label="x")
        else:
            run = origin.start(Sampled(mechanism, 0.5, 2), label="x")
        for batch in run.batches(3):
            run.release(batch.of(lambda index: statistic()))
    assert len(set(scales)) == 1
    return scales[0]


@pytest.mark.parametrize(("statistic", "mechanism", "adjacency", "plan", "expected"), CELLS)
def test_the_scale_that_is_drawn_is_the_one_written_out(statistic, mechanism, adjacency, plan, expected):
    if expected is NO:
        with pytest.raises((PrivacyError, TypeError)):
            drawn_scale(STATISTICS[statistic], mechanism, adjacency, plan)
        return
    scale = drawn_scale(STATISTICS[statistic], mechanism, adjacency, plan)
    # Laplace noise on a grid is a little wider, never narrower.
    widest = 1 + 1e-5 if isinstance(mechanism, Laplace) else 1 + 1e-12
    assert expected * (1 - 1e-12) <= scale <= expected * widest


def test_every_mechanism_and_every_statistic_is_in_the_table():
    todo, mechanisms = [Mechanism], set()
    while todo:
        cls = todo.pop()
        todo += [child for child in cls.__subclasses__() if child.__module__.startswith("dpadapt.")]
        if "_apply" in vars(cls) and cls is not Mechanism:
            mechanisms.add(cls)
    assert {type(mechanism) for _, mechanism, *_ in TABLE} == mechanisms
    assert {statistic for statistic, *_ in TABLE} == STATISTICS.keys()
    assert NoiseMechanism not in mechanisms  # a base class
