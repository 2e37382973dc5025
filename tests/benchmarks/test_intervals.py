"""`python -m benchmarks intervals`: every cell is measured, and verdicts follow the figures that are shown."""

import numpy as np
import pytest

from benchmarks.intervals import run as module
from benchmarks.intervals.run import Piece, measure
from benchmarks.transfer.sets import Domains, Task


@pytest.fixture
def rows(monkeypatch):
    """A regression and a classification with wide private errors, measured once each."""
    draw = np.random.default_rng(0)
    X, X_public = draw.standard_normal((1800, 3)), draw.standard_normal((200, 3))
    y = X[:, 0] + draw.standard_normal(1800)
    numbers = Domains(X_public, X_public[:, 0] + 0.3 * draw.standard_normal(200), X, y)
    named = Domains(X_public, (numbers.y_public > 0).astype(int), X, (y > 0).astype(int))
    tasks = (Task("numbers", "regression", lambda: numbers), Task("named", "classification", lambda: named))
    monkeypatch.setattr(module, "TASKS", tasks)
    monkeypatch.setattr(module, "EPSILONS", (1.0, 3.0))
    return [row for task in tasks for row in measure(Piece(task, 0))]


def test_every_cell_is_measured(rows):
    assert len(rows) == 2 * 2 * 2
    for row in rows:
        assert 0.8 < row["coverage"] <= 1.0
        assert row["exact coverage"] == pytest.approx(0.9, abs=0.05)
    # Limits from public rows cover too little: private errors are larger.
    assert max(row["public coverage"] for row in rows if row["kind"] == "regression") < 0.6
