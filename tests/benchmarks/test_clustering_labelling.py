"""Which targets to label: a private choice that is charged, and pieces of the benchmark that measure it."""

import numpy as np
import pytest

from benchmarks.clustering import labelling, measure
from dpadapt import Adjacency, Ledger
from dpadapt.clustering import select_for_labelling


def test_the_choice_is_charged_to_the_ledger():
    random = np.random.default_rng(0)
    S, T = random.standard_normal((300, 3)), random.standard_normal((80, 3)) + 1.0
    ledger = Ledger(epsilon=1.0, adjacency=Adjacency.ADD_REMOVE)
    rows = select_for_labelling(S, T, 12, epsilon=0.5, ledger=ledger)
    assert len(set(rows.tolist())) == 12
    assert ledger.spent() == pytest.approx(0.5)


def test_labelling_claims_need_a_difference_beyond_its_spread():
    def row(ours):
        errors = {"ours": ours, "random": [1.0, 1.0], "ClusterT": [1.0, 1.0], "non-private": [0.5, 0.5]}
        return {"task": "one", "k": 5, "errors": errors}

    verdicts = [[c["verdict"] for c in labelling.claims([row(ours)])] for ours in ([0.8, 0.81], [0.5, 1.4])]
    assert verdicts == [["holds", "holds"], ["missed", "missed"]]


def test_a_small_size_runs_through_the_benchmark_of_scale(monkeypatch):
    monkeypatch.setattr(measure, "_JUDGES", 200)
    monkeypatch.setattr(measure, "_KNOWN", 600)
    piece = measure.Piece(1200, 4000, 10, 3.0, 21)
    centres, facts = measure._fit(piece)
    assert len(centres) == 10
    assert facts["cpu"] > 0
    row = {"n": 1200, "m": 4000, "k": 10, "epsilon": 3.0, "gap": 0.1, **facts}
    assert [claim["verdict"] for claim in measure.claims([row])] == ["holds"] * 3
    again = measure._fit(piece)[0]
    assert np.array_equal(centres, again)
