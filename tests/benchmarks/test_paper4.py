"""The benchmark of the public-representations paper measures what it says."""

import json

import numpy as np
import pytest

from dpadapt.benchmarks import paper4
from dpadapt.benchmarks import paper4_subspace as subspace
from dpadapt.datasets.shared_subspace import shared_subspace
from dpadapt.representation import PublicSubspace, subspace_distance


@pytest.fixture(scope="module")
def rows():
    """Made-up rows of every cell of a quick run: one value per method."""
    values = {
        "angle": {"em": 0.2, "pairs": 0.3, "moments": 0.9, "seconds": 0.01},
        "true": dict.fromkeys([subspace.OLS, subspace.OLS_TRUE, subspace.AMB_TRUE, subspace.OURS_TRUE], 0.1)
        | {subspace.DPSGD: 0.5, subspace.DPSGD_TRUE: 0.12},
        "transfer": dict.fromkeys([subspace.ALGORITHM_1, subspace.MOMENTS, subspace.HARD], 0.3) | {subspace.SOFT: 0.1},
    }
    found = []
    for part, n_public, n_private, draws in subspace.pieces(quick=True):
        measured = {name: [value] * draws for name, value in values[part].items()}
        if n_public == 500 and subspace.MOMENTS in measured:
            measured[subspace.MOMENTS] = [0.4] * draws
        found.append({"part": part, "public": n_public, "private": n_private, "values": measured})
    return found


def verdict(rows, words):
    return next(row["verdict"] for row in subspace.claims(rows) if words in row["claim"])


def changed(rows, part, name, value):
    return [row | {"values": row["values"] | ({name: [value]} if row["part"] == part else {})} for row in rows]


@pytest.mark.parametrize(
    ("words", "part", "name", "bad"),
    [
        ("from scratch", "true", subspace.DPSGD, 0.1),
        ("0.16", "transfer", subspace.SOFT, 0.17),
        ("1.25 times", "true", subspace.OURS_TRUE, 0.13),
        ("at 5,000 public rows: 0.22", "angle", "em", 0.23),
        ("under 0.2 CPU seconds", "angle", "seconds", 0.3),
        ("than ours within the subspace", "transfer", subspace.SOFT, 0.32),
        ("than DP-SGD on all features", "transfer", subspace.SOFT, 0.55),
    ],
)
def test_claims_hold_or_are_missed_by_their_figures(rows, words, part, name, bad):
    assert verdict(rows, words) == "holds"
    assert verdict(changed(rows, part, name, bad), words) == "missed"


def test_the_papers_claim_of_being_close_is_judged(rows):
    assert verdict(rows, "close to the true subspace's") == "missed"
    near = changed(rows, "transfer", subspace.MOMENTS, 0.14)
    assert verdict(near, "close to the true subspace's") == "holds"


def test_tables_and_figures_are_complete(rows):
    for table in subspace.tables(rows):
        assert table["rows"]
        assert all(len(line) == len(table["columns"]) for line in table["rows"])
    assert len(subspace.figures(rows)[0]["panels"]) == 3
    assert all(
        line["points"] for figure in subspace.figures(rows) for panel in figure["panels"] for line in panel["lines"]
    )


def test_a_piece_measures_every_method_in_every_draw():
    row = subspace.measure(("transfer", 500, 200, 2))
    assert set(row["values"]) == {subspace.ALGORITHM_1, subspace.MOMENTS, subspace.HARD, subspace.SOFT}
    assert all(len(values) == 2 and np.isfinite(values).all() for values in row["values"].values())
    again = subspace.measure(("angle", 500, 0, 1))["values"]
    drawn = shared_subspace(500, 1, seed=0)
    learned = PublicSubspace(5, method="pairs", whiten=False, fit_intercept=False).fit(drawn.public)
    assert again["pairs"] == [subspace_distance(learned.components_.T, drawn.basis)]


def test_results_go_to_json_to_a_page_and_into_the_documentation(rows, tmp_path, capsys):
    results = {
        "quick": True,
        "rows": {name: rows if name == "subspace" else [] for name in paper4.PARTS},
        "skipped": ["probe: no data"],
        "minutes": 1.0,
        "processes": 1,
        "versions": {"numpy": "2"},
    }
    results = json.loads(json.dumps(results))
    paper4.write_report(results, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg") >= 2
    assert "Left out, probe: no data" in page
    paper4.write_markdown(results, tmp_path / "page.md")
    paper4.write_markdown(results, tmp_path / "page.md")
    assert (tmp_path / "page.md").read_text().count(paper4.START) == 1
    paper4.show(results)
    assert "paper 4" in capsys.readouterr().out
