"""The pieces of paper 3's own experiments: small ones run, claims judge what they say."""

import pickle
from dataclasses import replace

import pytest

from dpadapt.benchmarks import paper3_str, paper3_str_claims
from dpadapt.benchmarks.paper3_str_parity import parity_row


def test_pieces_are_small_picklable_and_fewer_when_quick():
    quick, full = (paper3_str.pieces(quick=flag) for flag in (True, False))
    assert {piece.key for piece in quick} == {piece.key for piece in full}
    assert sum(piece.seeds for piece in quick) < sum(piece.seeds for piece in full) / 3
    assert all(len(pickle.dumps(piece)) < 1000 for piece in full)
    assert pickle.loads(pickle.dumps(full[0])) == full[0]


def test_an_easy_piece_is_measured_and_judged():
    easy = next(piece for piece in paper3_str.pieces(quick=True) if "n = 1,000, add-remove" in piece.key)
    row = paper3_str.measure(replace(easy, seeds=2))
    assert max(row["error"]) <= row["target"] == 0.16
    assert row["rounds"] == [1.0, 1.0]
    assert all(epsilon <= 0.5 for epsilon in row["epsilon"])
    found = {claim["claim"]: claim for claim in paper3_str_claims.claims([row])}
    judged = next(claim for what, claim in found.items() if "1,000 records, add-remove" in what)
    assert judged["verdict"] == "holds"
    worse = next(iter(paper3_str_claims.claims([row | {"error": [0.3, 0.1]}])))
    assert worse["verdict"] == "missed"
    titles = [table["title"] for table in paper3_str_claims.tables([row])]
    assert titles[0].startswith("Appendix D, easy")
    assert titles[-1].startswith("Sizes")


def test_what_needs_no_data_is_judged_without_any():
    found = {claim["claim"]: claim["verdict"] for claim in paper3_str_claims.claims([])}
    assert len(found) == 3
    assert set(found.values()) == {"holds"}
    assert all(len(row) == 3 for row in paper3_str_claims.tables([])[0]["rows"])


@pytest.mark.parametrize("share", [0.5, 0.2])
def test_parity_is_found_with_enough_records(share):
    row = parity_row(24, share, False, seeds=2)
    assert row["right"] == [1.0, 1.0]
    assert row["wrong"] == [0.0, 0.0]
    table = paper3_str_claims.tables([{"part": "Appendix B", "name": "bits", **row}])[0]
    assert table["rows"][0][-2] == "2 of 2"
