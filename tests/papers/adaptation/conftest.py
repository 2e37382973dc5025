"""A ledger that records releases, for the private regressions of paper 1."""

import math

import pytest

from dpadapt import Adjacency, Ledger


class Tape:
    """A ledger that records its releases, which may carry no noise."""

    def __init__(self, *, noiseless=True, adjacency=Adjacency.ZERO_OUT):
        self.ledger = Ledger(math.inf, adjacency=adjacency, random_state=1)
        self.values, self.scales, self.noises = [], [], []
        draw = self.ledger._draw

        def spy(mechanism, bounded, scale, random):
            noisy = bounded.value.copy() if noiseless else draw(mechanism, bounded, scale, random)
            self.values.append(bounded.value.copy())
            self.scales.append(scale)
            self.noises.append(noisy - bounded.value)
            return noisy

        self.ledger._draw = spy


@pytest.fixture
def make_tape():
    """Return the class `Tape`."""
    return Tape
