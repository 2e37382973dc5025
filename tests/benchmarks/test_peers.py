"""`python -m benchmarks peers`: every model gets the same rows, and who wins follows from the figures shown."""

import json

import numpy as np
import pytest

from benchmarks.peers import run as module
from benchmarks.peers.run import (
    MODELS,
    OPACUS,
    OURS,
    measure,
    outcomes,
)


def made_up(ours=0.5, rival=1.0, spread=0.01):
    """Return results of five seeds in which every rival has the same error."""
    draw = np.random.default_rng(0)
    rows = []
    for task, kind in (("randhie by plan", "regression"), ("fair by age", "classification")):
        for epsilon in module.EPSILONS:
            for seed in range(5):
                errors = {name: rival + spread * draw.standard_normal() for name in MODELS if name != OPACUS}
                errors |= {f"{OPACUS}, rate 1": rival + 1.0, f"{OPACUS}, rate 0.1": rival}
                errors[OURS] = ours
                shown = {name: value if kind == "regression" else [70.0, value] for name, value in errors.items()}
                cell = {"task": task, "kind": kind, "n": 100, "epsilon": epsilon, "seed": seed}
                rows.append(cell | shown)
    versions = {"measured on": "2026-01-02", "dpadapt": "0"}
    return {"quick": True, "versions": versions, "seconds": 1.0, "rows": rows}


@pytest.mark.parametrize(("ours", "word"), [(0.5, "wins"), (1.0, "ties"), (2.0, "loses")])
def test_who_wins_follows_the_figures(ours, word):
    said = outcomes(made_up(ours))["fine-tuning"]
    assert {name: len(places) for name, places in said.items()}[word] == 6


@pytest.mark.slow
def test_a_small_run_measures_every_model_and_can_be_stored(monkeypatch):
    monkeypatch.delenv("DPADAPT_PEERS", raising=False)
    monkeypatch.setattr(module, "EPSILONS", (1.0,))
    found = measure("fair by age x 1")
    (row,) = found["rows"]
    assert {OURS, "public linear", "public boosting", "fine-tuning", "private only", module.LIMIT} < set(row)
    assert json.loads(json.dumps(found)) == found
