"""The transfer benchmark: verdicts that can fail, tables that say so, and a small run from end to end."""

import json
import math
import sys

import pytest

from benchmarks.pages import transfer_page
from benchmarks.running import command
from benchmarks.transfer import alternatives_fits, classification, regression, run, tables
from benchmarks.transfer.common import no_harm, over_seeds, worst_rise
from benchmarks.transfer.rivals import bad_public_claims, best_ungated
from dpadapt.errors import DataUnavailable

FINE = {"task": "a", "n": 50, "epsilon": 0.1, "public": 0.5, "ours": 0.5, "spread": 0.0}
PAIR = {"task": "b", "n": 50, "epsilon": 0.1, "public": [90.0, 0.5], "ours": [90.0, 0.5], "spread": 0.0}


def by_claim(rows, word):
    return next(row for row in rows if word in row["claim"])


@pytest.mark.parametrize("ours", [0.51, 5.0, math.nan, math.inf])
def test_no_harm_finds_a_regression_cell_that_is_worse(ours):
    bad = FINE | {"ours": ours}
    _, cells = no_harm([FINE, bad])
    assert cells == [bad]


@pytest.mark.parametrize("ours", [[89.6, 0.4], [95.0, 0.51]], ids=["accuracy", "log-loss"])
def test_no_harm_finds_a_classification_cell_that_is_worse_either_way(ours):
    bad = PAIR | {"ours": ours}
    assert no_harm([PAIR, bad])[1] == [bad]


def test_no_harm_allows_what_the_claim_allows():
    rows = [FINE, FINE | {"ours": 0.5049}]
    worst, cells = no_harm(rows)
    assert worst == pytest.approx(1.0098)
    assert cells == []
    assert no_harm([PAIR | {"ours": [89.8, 0.504]}])[1] == []


def test_rise_compares_a_cell_with_smaller_ones_of_its_own_set_only():
    more = FINE | {"epsilon": 1.0, "n": 100, "ours": 0.55}
    assert worst_rise([FINE, more]) == pytest.approx(1.1)
    # Fewer rows with more budget: neither is the smaller cell.
    assert worst_rise([FINE | {"n": 300}, FINE | {"epsilon": 1.0, "ours": 0.55}]) == 1.0
    assert worst_rise([FINE, more | {"task": "other"}]) == 1.0


def test_means_over_seeds_are_means():
    rows = [FINE | {"seed": 0, "ours": 0.4}, FINE | {"seed": 1, "ours": 0.6, "public": 0.7}, FINE | {"n": 100}]
    first, second = over_seeds(rows)
    assert (first["ours"], first["public"]) == (pytest.approx(0.5), pytest.approx(0.6))
    assert first["spread"] == pytest.approx(0.1)
    assert first["worst_seed"] == pytest.approx(0.6 / 0.7)
    assert (first["seeds"], second["seeds"], second["n"]) == (2, 1, 100)
    assert over_seeds([PAIR, PAIR | {"ours": [80.0, 1.5]}])[0]["ours"] == [85.0, 1.0]


def test_a_bad_public_model_must_be_left_and_a_good_one_is_not_asked_about():
    row = {"task": "a", "n": 1000, "no model": 1.0, "public": 3.0, "ours": 0.5, "plain": 0.9, "alone": 0.45}
    assert best_ungated(row) == 0.45
    assert [claim["verdict"] for claim in bad_public_claims([row])] == ["holds"]
    assert [claim["verdict"] for claim in bad_public_claims([row | {"ours": 0.53}])] == ["missed"]
    assert list(bad_public_claims([row | {"public": 0.9}, row | {"n": 10_000}])) == []


def results(grid, *, pairs=()):
    """Return results as `run` gives them, with one claim of each sort."""
    rival = {"task": "a", "n": 1000, "epsilon": 1.0, "spread": 0.0, "no model": 1.0, "public": 0.5, "ours": 0.4}
    rival |= {"plain": 0.45, "alone": 0.8, "not private": 0.3}
    one = {"claim": "c | d", "measured": "1", "verdict": "holds"}
    setting = {"delta": 1e-6, "adjacency": "zero-out"}
    nothing = {"quick": True, "seeds": 1, "setting": setting, "versions": {"dpadapt": "0"}, "landed": {}, "cells": []}
    return {
        "quick": True, "data": "made up", "skipped": ["slice: not there"], "versions": {"dpadapt": "0"}, "processes": 1,
        "cells": {"rows": [50, 100], "epsilons": [0.1, 1.0]},
        "regression": {"setting": "s", "seeds": 1, "grid": grid, "rivals": [rival]},
        "classification": {"setting": "s", "seeds": 1, "grid": list(pairs), "rivals": []},
        "gains": [one], "left": [], "speed": [], "minutes": 0.1,
        "alternatives": nothing | {"skipped": [], "minutes": 0.1},
    }  # fmt: skip


GRID = [FINE | {"n": n, "epsilon": e, "ours": 0.4} for n in (50, 100) for e in (0.1, 1.0)]
HARMED = [*GRID[:3], GRID[3] | {"ours": 0.52}]


def test_verdicts_over_all_cells_can_fail_and_name_the_cell():
    fine, bad = tables.verdicts(results(GRID)), tables.verdicts(results(HARMED))
    assert by_claim(fine, "no harm")["verdict"] == by_claim(fine, "monotone")["verdict"] == "holds"
    assert by_claim(bad, "no harm")["verdict"] == by_claim(bad, "monotone")["verdict"] == "missed"
    assert by_claim(bad, "no harm")["measured"] == "1 of 4 cells above; worst 1.040 x (a, 100 rows, epsilon 1)"


def test_page_marks_harm_and_stands_alone():
    pairs = [PAIR | {"n": n, "epsilon": e} for n in (50, 77) for e in (0.1, 1.0)]
    page = transfer_page(tables.summarise(results(HARMED, pairs=pairs)))
    assert page.count('class="heat harm"') == 1
    assert transfer_page(tables.summarise(results(GRID, pairs=pairs))).count('class="heat harm"') == 0
    assert page.count("<svg") == 4  # two heat maps, two curves
    assert 'class="missed"' in page
    assert "slice: not there" in page
    assert "http" not in page.replace("http-equiv", "")


def test_markdown_is_written_between_its_markers_and_again(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{tables.START}\nstale\n{tables.END}\nafter\n")
    tables.write_markdown(results(HARMED), page)
    once = page.read_text()
    assert once.startswith("before\n")
    assert once.endswith("\nafter\n")
    assert "stale" not in once
    assert "| a | .5000 | .800 .800 | .800 **1.040** | 1 |" in once
    assert "c \\| d" in once
    tables.write_markdown(results(HARMED), page)
    assert page.read_text() == once


def test_markdown_loses_no_text_of_a_page_without_both_markers(tmp_path):
    page = tmp_path / "page.md"
    tables.write_markdown(results(GRID), page)
    assert page.read_text().startswith(tables.START)
    page.write_text(f"text\n{tables.START}\nmore text")
    tables.write_markdown(results(GRID), page)
    assert page.read_text().startswith(f"text\n{tables.START}\n\nPrinted by")
    assert page.read_text().endswith(f"{tables.END}\nmore text")


def test_terminal_tables_show_the_cell_with_harm(capsys):
    tables.show(results(HARMED))
    printed = capsys.readouterr().out
    assert "1.040" in printed
    assert "missed" in printed


@pytest.fixture
def tiny(monkeypatch):
    """One bundled set of each kind, two cells, no speed, one process."""
    monkeypatch.delenv("DPADAPT_DATA", raising=False)
    for module, name in ((regression, "coefficients, d=20"), (classification, "fair by age")):
        monkeypatch.setattr(module, "TASKS", tuple(task for task in module.TASKS if task.name == name))
        monkeypatch.setattr(module, "ROWS", (50, 1000))
        monkeypatch.setattr(module, "EPSILONS", (1.0, 4.0))
    monkeypatch.setattr(alternatives_fits, "TASKS", ())
    monkeypatch.setattr(run, "ROWS", (50, 1000))
    monkeypatch.setattr(run, "EPSILONS", (1.0, 4.0))
    monkeypatch.setattr(run, "SEEDS", {"regression": (2, 2), "classification": (1, 1)})
    monkeypatch.setattr(run, "repeated_claims", lambda: iter(()))
    monkeypatch.setattr(regression, "same_population_claims", lambda quick: iter(()))
    monkeypatch.setattr(regression, "speed_claims", lambda: iter(()))
    fast = {"claim": "speed", "measured": "1", "verdict": "holds"}
    monkeypatch.setattr(classification, "speed_claim", lambda quick: fast)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0}, raising=False)


@pytest.mark.usefixtures("tiny")
def test_command_measures_prints_and_writes(tmp_path, capsys, monkeypatch):
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    out, report, page = (tmp_path / name for name in ("r.json", "r.html", "r.md"))
    writers = {"report": ("", run.write_report), "markdown": ("", run.write_markdown)}
    monkeypatch.setattr(sys, "argv", ["x", "--quick", f"--out={out}", f"--report={report}", f"--markdown={page}"])
    command("x", "About.", run.run, tables.show, writers=writers)
    results = json.loads(out.read_text())
    cells = [(row["n"], row["epsilon"]) for row in results["regression"]["grid"]]
    assert cells == [(50, 1.0), (50, 4.0), (1000, 1.0), (1000, 4.0)]
    assert [row["seeds"] for row in results["regression"]["grid"]] == [2] * 4
    assert [row["n"] for row in results["regression"]["rivals"]] == [1000, 10_000]
    assert len(results["classification"]["rivals"][0]["not private"]) == 2
    # Known by construction: the coefficients differ, so 1,000 rows at epsilon 4 must have helped much.
    assert results["regression"]["grid"][-1]["ours"] < 0.8 * results["regression"]["grid"][-1]["public"]
    printed = capsys.readouterr().out
    for text in (printed, report.read_text(), page.read_text()):
        assert "fair by age" in text
        assert "no harm" in text
    # Both pages are written again from the stored results, without measuring.
    before = report.read_text(), page.read_text()
    report.unlink()
    monkeypatch.setattr(sys, "argv", ["x", f"--results={out}", f"--report={report}", f"--markdown={page}"])
    command("x", "About.", lambda quick: pytest.fail("measured"), tables.show, writers=writers)
    assert (report.read_text(), page.read_text()) == before
    assert before[0].startswith("<!doctype html>")


def test_a_set_that_is_not_there_is_named_and_left_out(monkeypatch):
    def missing(task, seeds, *, first=0):
        raise DataUnavailable("set DPADAPT_DATA")

    monkeypatch.setattr(regression, "grid", missing)
    name = regression.TASKS[0].name
    measured = run.measure(run.Piece("regression", name, 0, True))
    assert measured == {"skipped": f"{name}: set DPADAPT_DATA"}


def test_without_real_data_only_bundled_sets_are_planned(monkeypatch):
    monkeypatch.delenv("DPADAPT_DATA", raising=False)
    bundled = {task.name for module in run.KINDS.values() for task in module.TASKS if task.bundled}
    planned = run.pieces(quick=False)
    assert {piece.name for piece in planned} == bundled
    monkeypatch.setenv("DPADAPT_DATA", "anywhere")
    assert len(run.pieces(quick=True)) < len(run.pieces(quick=False))
    assert {piece.name for piece in run.pieces(quick=False)} > bundled


def test_another_process_gives_what_this_one_gives(monkeypatch):
    monkeypatch.delenv("DPADAPT_DATA", raising=False)
    # A set that isn't there is measured quickly.
    todo = [run.Piece("regression", "wind", 0, True)]
    [(_, alone)], [(piece, elsewhere)] = run.measured(todo, 1), run.measured(todo, 2)
    assert piece == todo[0]
    assert alone == elsewhere
    assert alone["skipped"].startswith("wind")
