"""The pieces of paper 3's own experiments: small ones run, claims judge what they say."""

import json
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.hybrid import reweigh, reweigh_claims, run, transfer
from benchmarks.hybrid.populations import POPULATIONS, population, rotating
from benchmarks.hybrid.reweigh import parity_row
from benchmarks.hybrid.transfer import PEOPLE, TARGETS, WAYS, Piece, claims, figures, measure, pieces, tables

NAMES = [known.name for known in POPULATIONS]


def row(name, *, people=PEOPLE, seed=0, harm=0.0, chosen="source", **values):
    errors = dict.fromkeys(WAYS, 0.3) | values
    if people != PEOPLE:
        errors = {way: errors[way] for way in ("local-only", "ours")}
    known = {"asked": {"test": 5}, "columns": 10, "chosen": chosen, "harm": harm}
    return {"set": name, "people": people, "seed": seed, "values": errors, **known}


def results(**changes):
    rows = [row(name, seed=seed, ours=0.1) for name in NAMES for seed in range(2)]
    rows += [row(name, people=people, ours=0.1) for name in NAMES for people in (50_000, 1_000_000)]
    versions = {"python": "3", "dpadapt": "0"}
    known = {"quick": True, "data": "made populations", "versions": versions, "processes": 1, "minutes": 1.0}
    return {**known, "transfer": rows, "paper": [], **changes}


def test_the_concept_turns_between_the_two_populations():
    drawn = rotating(10, 5000)(0)
    assert drawn.X.shape == (5000, 10)
    assert drawn.X[:, 0].mean() == pytest.approx(-0.75, abs=0.1)
    assert drawn.X_people[:, 0].mean() == pytest.approx(0.75, abs=0.1)
    best = np.linalg.lstsq(drawn.X, 2.0 * drawn.y - 1, rcond=None)[0]
    assert np.mean((drawn.X @ best > 0) == drawn.y) > 0.65
    assert np.mean((drawn.X_test @ best > 0) == drawn.y_test) < 0.6
    assert not np.array_equal(drawn.X, rotating(10, 5000)(1).X)
    assert np.array_equal(drawn.X, rotating(10, 5000)(0).X)


def test_every_target_is_a_population():
    assert set(TARGETS) <= set(NAMES)
    assert len(set(NAMES)) == len(NAMES)


def test_without_files_only_made_populations_are_measured(monkeypatch):
    monkeypatch.delenv("DPADAPT_DATA", raising=False)
    assert {piece.name for piece in pieces(quick=False)} == {"rot10", "rot50"}
    assert {piece.people for piece in pieces(quick=True)} == {PEOPLE}


def test_one_piece_has_every_way(monkeypatch):
    small = rotating(3, 3000)
    known = population("rot10")
    monkeypatch.setattr(transfer, "population", lambda name: type(known)(name, "", 3000, small, real=False))
    measured = measure(Piece("rot10", 40_000, 0, WAYS))
    assert set(measured["values"]) == set(WAYS)
    assert all(0 <= value <= 1 for value in measured["values"].values())
    assert measured["values"]["ours"] < measured["values"]["S-only"]
    assert sum(measured["asked"].values()) <= 40_000
    json.dumps(measured)


def test_a_missed_target_and_harm_are_said():
    verdicts = [claim["verdict"] for claim in claims(results()["transfer"])]
    assert set(verdicts) == {"holds"}
    worse = [row(name, ours=0.4, harm=0.01) for name in NAMES]
    verdicts = {claim["claim"].split(",")[0]: claim["verdict"] for claim in claims(worse)}
    assert verdicts["rot10"] == "missed"
    harm = next(claim for claim in claims(worse) if "own S-only" in claim["claim"])
    assert harm["verdict"] == "missed"
    assert "+0.0100" in harm["measured"]
    assert sum(claim["verdict"] == "missed" for claim in claims(worse) if "no bias" in claim["claim"]) == 2


def test_a_run_without_a_curators_model_can_not_harm_it():
    rows = [row("rot10", harm=None), row("rot10", harm=0.001, seed=1)]
    harm = next(claim for claim in claims(rows) if "own S-only" in claim["claim"])
    assert "of 1 runs" in harm["measured"]


def test_tables_have_every_way_in_every_row():
    first, second = tables(results()["transfer"])
    assert first["columns"][2:-2] == list(WAYS)
    assert [line[0] for line in first["rows"]] == NAMES
    assert all(len(line) == len(table["columns"]) for table in (first, second) for line in table["rows"])
    (figure,) = figures(results()["transfer"])
    assert [len(panel["lines"]) for panel in figure["panels"]] == [2] * len(figure["panels"])


def test_results_become_a_page_and_a_part_of_a_page(tmp_path, capsys):
    measured = json.loads(json.dumps(results()))
    run.write_report(measured, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    (figure,) = figures(measured["transfer"])
    assert page.count("<svg") == math.ceil(len(figure["panels"]) / 3)
    assert "flights, evening" in page
    path = tmp_path / "page.md"
    path.write_text(f"# Before\n\n{run.START}\nstale\n{run.END}\n\nafter\n")
    run.write_markdown(measured, path)
    text = path.read_text()
    assert "stale" not in text
    assert "after" in text
    assert "| rot50 |" in text
    run.show(measured)
    assert "rot10" in capsys.readouterr().out


def test_pieces_are_small_picklable_and_fewer_when_quick():
    quick, full = (reweigh.pieces(quick=flag) for flag in (True, False))
    assert {piece.key for piece in quick} == {piece.key for piece in full}
    assert sum(piece.seeds for piece in quick) < sum(piece.seeds for piece in full) / 3
    assert all(len(pickle.dumps(piece)) < 1000 for piece in full)
    assert pickle.loads(pickle.dumps(full[0])) == full[0]


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


def test_what_needs_no_data_is_judged_without_any():
    verdicts = {claim["claim"]: claim["verdict"] for claim in reweigh_claims.claims([])}
    assert len(verdicts) == 3
    assert set(verdicts.values()) == {"holds"}
    assert all(len(row) == 3 for row in reweigh_claims.tables([])[0]["rows"])


@pytest.mark.parametrize("share", [0.5, 0.2])
def test_parity_is_found_with_enough_records(share):
    row = parity_row(24, share, False, seeds=2)
    assert row["right"] == [1.0, 1.0]
    assert row["wrong"] == [0.0, 0.0]
    table = reweigh_claims.tables([{"part": "Appendix B", "name": "bits", **row}])[0]
    assert table["rows"][0][-2] == "2 of 2"
