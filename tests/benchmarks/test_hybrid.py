"""The pieces of the experiments of paper 3: small ones run."""

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.hybrid import reweigh, reweigh_claims, transfer
from benchmarks.hybrid.populations import population, rotating, two_samples
from benchmarks.hybrid.transfer import PEOPLE, WAYS, Piece, losses, measure


def row(name, *, people=PEOPLE, seed=0, chosen="source", ablation="", **values):
    errors = {**dict.fromkeys([*WAYS, "T-oracle", "STR"], 0.3), "auto": 0.1, **values}
    if people != PEOPLE:
        errors = {way: errors[way] for way in WAYS}
    if ablation:
        errors = {"auto": errors["auto"]}
    known = {"asked": {"test": 5}, "columns": 10, "chosen": chosen, "ablation": ablation}
    return {"set": name, "people": people, "seed": seed, "values": errors, **known}


def test_one_piece_has_every_way(monkeypatch):
    small, about = rotating(3, 3000), population("rot10")
    monkeypatch.setattr(transfer, "population", lambda name: type(about)(name, "", 3000, small, "made"))
    monkeypatch.setattr(transfer, "PEOPLE", 40_000)
    measured = measure(Piece("rot10", 40_000, 0))
    assert set(measured["values"]) == {*WAYS, "T-oracle", "STR"}
    assert all(0 <= value <= 1 for value in measured["values"].values())
    assert measured["values"]["auto"] < measured["values"]["S-only"]
    assert sum(measured["asked"].values()) <= 40_000
    json.dumps(measured)
    without = measure(Piece("rot10", 40_000, 0, "no weights"))
    assert set(without["values"]) == {"auto"}
    assert "base" in measured["asked"]
    assert "base" not in without["asked"]
    assert measure(Piece("rot10", 40_000, 0))["values"] == measured["values"]  # an ablation leaves nothing behind


def test_the_loss_is_that_against_the_better_mode():
    rows = [row("rot10", auto=0.3, **{"S-only": 0.2, "local-only": 0.4}), row("rot10", seed=1, auto=0.1)]
    # Paired with S-only, whose mean is lower: +0.1 and -0.2.
    mean, half = losses(rows, PEOPLE)["rot10"]
    assert mean == pytest.approx(0.2 - 0.25)
    assert half == pytest.approx(12.706 * 0.3 / 2, abs=1e-3)


def test_two_samples_share_no_person_with_the_test_rows():
    random = np.random.default_rng(0)
    X, X_people = random.standard_normal((100, 3)), random.standard_normal((60, 3))
    X[:, 2] = X_people[:, 2] = 1.0
    drawn = two_samples(lambda: (X, X[:, 0], X_people, X_people[:, 0]), 80)(0)
    assert (drawn.X.shape, drawn.X_people.shape, drawn.X_test.shape) == ((80, 2), (30, 2), (30, 2))
    assert not {tuple(line) for line in drawn.X_people} & {tuple(line) for line in drawn.X_test}
    assert np.allclose(np.diff(drawn.bounds, axis=1)[:, 0] / 4, np.vstack([X, X_people])[:, :2].std(axis=0))


def test_an_easy_piece_is_measured_and_judged():
    easy = next(piece for piece in reweigh.pieces(quick=True) if "n = 1,000, add-remove" in piece.key)
    row = reweigh.measure(replace(easy, seeds=2))
    assert max(row["error"]) <= row["target"] == 0.16
    assert row["rounds"] == [1.0, 1.0]
    assert all(epsilon <= 0.5 for epsilon in row["epsilon"])
    judged_claims = {claim["claim"]: claim for claim in reweigh_claims.claims([row])}
    judged = next(claim for what, claim in judged_claims.items() if "1,000 records, add-remove" in what)
    assert judged["verdict"] == "holds"
    worse = next(iter(reweigh_claims.claims([row | {"error": [0.3, 0.1]}])))
    assert worse["verdict"] == "missed"
    titles = [table["title"] for table in reweigh_claims.tables([row])]
    assert titles[0].startswith("Appendix D, easy")
    assert titles[-1].startswith("Sizes")
