"""`python -m benchmarks persons`: every way is measured, and verdicts follow the figures that are shown."""

import numpy as np
import pytest

from benchmarks.persons import run as module
from benchmarks.persons.run import WAYS, Panel, Piece, measure


@pytest.fixture
def small(monkeypatch):
    """A panel of 120 persons with one to five rows, whose public rows lack the level."""
    draw = np.random.default_rng(0)
    ids = np.repeat(np.arange(120), draw.integers(1, 6, 120))
    X, X_public = draw.standard_normal((len(ids), 3)), draw.standard_normal((200, 3))
    panel = Panel(X_public, X_public[:, 0], X, X[:, 0] + 2.0, ids)
    monkeypatch.setattr(module, "PANELS", {"made up": (lambda: panel, True)})
    return list(measure(Piece("made up", 2)))


def test_every_way_is_measured_for_every_epsilon_and_seed(small):
    assert len(small) == 2 * len(module.EPSILONS)
    for row in small:
        assert all(np.isfinite(row[way]) for way in WAYS)
    # At the largest budget persons gain.
    assert all(row["persons"] < row["public"] for row in small if row["epsilon"] == 3.0)
