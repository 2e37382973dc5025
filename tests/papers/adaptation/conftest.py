"""A ledger that records releases, for the private regressions of paper 1."""

import pytest

from dpadapt import Adjacency, Ledger


class Tape:
    """A ledger that records its releases; they may carry no noise, or be replaced by recorded ones."""

    def __init__(self, *, noiseless=True, replay=None, adjacency=Adjacency.ZERO_OUT):
        self.ledger = Ledger(epsilon=100.0, delta=1e-5, adjacency=adjacency)
        self.values, self.scales = [], []
        draw = self.ledger._draw
        waiting = iter(replay or [])

        def spy(mechanism, bounded, scale, random):
            self.values.append(bounded.value.copy())
            self.scales.append(scale)
            if replay is not None:
                return next(waiting).copy()
            return bounded.value.copy() if noiseless else draw(mechanism, bounded, scale, random)

        self.ledger._draw = spy


@pytest.fixture
def make_tape():
    """Return the class `Tape`."""
    return Tape
