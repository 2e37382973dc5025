"""`python -m benchmarks advice`: advised fits are made and compared, and verdicts follow the figures."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.advice import run as module
from benchmarks.advice.run import Case, Piece, in_range, measure
from dpadapt import Schema


def people(n, seed, level=0.0):
    draw = np.random.default_rng(seed)
    X = draw.uniform(-1, 1, (n, 2))
    y = X[:, 0] + level + 0.3 * draw.standard_normal(n)
    return pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y})


@pytest.fixture
def row(monkeypatch):
    """Private labels lie higher than public ones, which no column of the public rows shows."""
    public = people(240, 0)
    drawn = Case(
        "d",
        "y",
        public,
        Schema.infer(public, dataset="d"),
        lambda seed: (people(900, 10 + seed, 0.5), people(400, 20 + seed, 0.5)),
    )
    monkeypatch.setattr(module, "case", lambda name: drawn)
    return measure(Piece("d", 2))


def test_a_gain_that_public_rows_do_not_show_is_realised_and_not_foreseen(row):
    assert row["n"] == 900
    assert np.shape(row["foreseen"]) == (3, 2)
    assert np.shape(row["realised"]) == (2, 2)
    assert np.mean(row["realised"]) < 0.6 < row["expected"][0]
    assert (row["right verdict"], in_range(row)) == ("use it", False)
