"""The comparison with what a user already has: verdicts that can fail, stored results, and a small run."""

import json
import math
import sys

import numpy as np
import pytest

from benchmarks.pages import transfer_page
from benchmarks.running import command
from benchmarks.transfer import alternatives, alternatives_fits, common, store_landed
from benchmarks.transfer.alternatives_fits import CONTENDERS, DP_EBM, EPSILONS, TASKS, cells, ratio_interval

FIT = {"task": "wind", "kind": "regression", "size": 0, "n": 2000, "epsilon": 1.0, "seed": 0}
FIT |= dict.fromkeys(CONTENDERS, 0.5) | {"ours": 0.4}


def part(rows):
    setting = {"delta": 1e-6, "adjacency": "zero-out"}
    result = {"quick": True, "seeds": 1, "setting": setting, "versions": {"dpadapt": "0"}, "skipped": ["a: not there"]}
    return result | {"landed": {"commit": "0123456789abcdef", "date": "today"}, "cells": rows, "minutes": 0.1}


def grid(**changes):
    """Return the cells of one task; `changes` are those of the last cell."""
    fits = [FIT | {"size": size, "n": size or 2000, "epsilon": e} for size in (100, 1000, 0) for e in EPSILONS]
    stored = {("wind", fit["size"], fit["epsilon"]): {"fits": [0.4]} for fit in fits}
    return cells([*fits[:-1], fits[-1] | changes], stored)


def verdict(rows, word):
    [judged] = [row for row in alternatives.verdicts(part(rows)) if word in row["claim"]]
    return judged


@pytest.mark.parametrize(
    ("word", "changes"),
    [
        ("estimator's public model", {"ours": 0.51}),
        ("public boosting", {"public boosting": 0.39}),
        ("single fits", {"ours": 0.52}),
        ("rises", {"ours": 0.41}),
        ("landed", {"ours": 0.405}),
    ],
)
def test_a_verdict_fails_for_one_bad_cell(word, changes):
    good, bad = (
        [row for row in alternatives.verdicts(part(rows)) if word in row["claim"]] for rows in (grid(), grid(**changes))
    )
    assert {row["verdict"] for row in good} == {"holds"}
    assert "missed" in {row["verdict"] for row in bad}


def test_average_verdict_fails_where_ours_is_no_better_than_the_best_public_model():
    assert verdict(grid(), "geometric mean")["verdict"] == "holds"
    worse = [row | {"ours": 0.5} for row in grid()]
    assert verdict(worse, "geometric mean") | {"claim": ""} == {"claim": "", "measured": "1.000 x", "verdict": "missed"}


def test_verdict_fits_the_number_that_is_shown():
    # 1.0104 is shown as 1.010, which the claim allows.
    row = verdict(grid(ours=0.4, **{"public boosting": 0.4 / 1.0104}), "public boosting")
    assert row["measured"].startswith("0 of 4 cells above; worst 1.010 x (wind, 2,000 rows, epsilon 3)")
    assert row["verdict"] == "holds"


def test_an_error_that_is_not_a_number_is_behind():
    assert verdict(grid(ours=math.nan), "every cell")["verdict"] == "missed"


def test_cells_hold_means_intervals_and_the_worst_fit():
    stored = {("wind", 0, 1.0): {"fits": [0.4, 0.6, 9.0]}}
    [cell] = cells([FIT, FIT | {"seed": 1, "ours": 0.52, "fine-tuning": 0.1}], stored)
    assert cell["ours"] == pytest.approx(0.46)
    assert cell["landed"] == pytest.approx(0.5)  # of the two seeds that were measured
    assert (cell["worst fit"], cell["fits above"], cell["seeds"]) == (1.04, 1, 2)
    assert cell["regret"] == pytest.approx(0.46 / 0.3)
    low, high = cell["interval"]
    assert low < 0.92 < high
    assert "landed" not in cells([FIT], {})[0]


def test_regret_leaves_out_what_no_user_could_have_had():
    [cell] = cells([FIT | {"not private": 0.1, "best public": 0.1, DP_EBM: 0.1}], {})
    assert cell["regret"] == 1.0


def test_interval_of_a_ratio_covers_it_95_times_in_100():
    random = np.random.default_rng(0)
    covered = 0
    for _ in range(1000):
        other = random.uniform(0.9, 1.1, 8)
        low, high = ratio_interval(0.8 * other + 0.02 * random.standard_normal(8), other)
        covered += low <= 0.8 <= high
    # Four standard deviations around 950: a false alarm in 16,000 seeds.
    assert 922 <= covered <= 978
    assert ratio_interval([1.0], [1.0]) is None


def test_tables_maps_and_markdown_show_landed_and_mark_cells_that_are_behind(tmp_path):
    results = part(grid(**{"best public": 0.3}))
    [summary, every_cell] = alternatives.tables(results)
    assert ["regression", "all", "1", "landed", "0.800", "0.800", "0.800", "1.333"] in [
        row["cells"] for row in summary["rows"]
    ]
    assert every_cell["header"][6:8] == ["ours", "landed"]
    [heat] = alternatives.heat_maps(results)
    assert [cell["harm"] for cell in heat["rows"][0]["cells"]] == [False] * 11 + [True]
    page = tmp_path / "page.md"
    page.write_text(f"before\n{alternatives.START}\nstale\n{alternatives.END}\nafter\n")
    alternatives.write_markdown(results, page)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "stale" not in text
    assert "| wind | .5000 | .800 .800 .800 .800 | .800 .800 .800 .800 | .800 .800 .800 **1.333** | 0.0% |" in text
    assert "commit 0123456789ab" in text
    assert "Left out, a: not there" in text


def test_page_has_a_map_per_kind():
    maps = alternatives.heat_maps(part(grid(ours=0.51)))
    summary = {"version": "0", "facts": ["f"], "claims": [], "tables": [], "maps": [], "curves": []}
    page = transfer_page(summary | {"alternatives": maps})
    assert page.count("<svg") == 1
    assert page.count('class="heat harm"') == 1


def test_stored_results_have_one_line_per_cell_and_are_read_back(tmp_path, monkeypatch):
    row = {"task": "wind", "size": 0, "n": 2000, "epsilon": 1.0, "public": 0.512345678, "ours": 0.4, "fits": [0.4]}
    file = tmp_path / "landed.json"
    store_landed.write({"commit": "c", "seeds": 1, "rows": [row, row]}, file)
    assert file.read_text().count('"task"') == sum('"task"' in line for line in file.read_text().splitlines()) == 2
    monkeypatch.setattr(alternatives_fits, "LANDED", file)
    assert alternatives_fits.landed()["rows"][1] == row | {"public": 0.51235}
    file.unlink()
    assert alternatives_fits.landed() == {"rows": []}


def test_stored_results_of_this_repository_name_their_sources_and_cover_every_task():
    stored = alternatives_fits.landed()
    assert len(stored["commit"]) == 40
    assert (stored["seeds"], stored["delta"], stored["adjacency"]) == (8, 1e-6, "zero-out")
    assert {row["task"] for row in stored["rows"]} == {task.name for task in TASKS}
    assert all(len(row["fits"]) == 8 for row in stored["rows"])


def test_changed_sources_are_not_stored_under_a_commit(monkeypatch):
    monkeypatch.setattr(store_landed, "_git", lambda *words: " M src/x.py" if words[0] == "status" else "abc")
    with pytest.raises(SystemExit, match="not committed"):
        store_landed.committed()


def test_without_real_data_only_bundled_tasks_are_planned(monkeypatch):
    monkeypatch.delenv("DPADAPT_DATA", raising=False)
    planned = alternatives_fits.pieces(quick=False, contenders=CONTENDERS)
    assert [piece.name for piece in planned] == ["randhie by plan", "fair by age"]
    missing = alternatives_fits.measure(alternatives_fits.Piece("wachurn_fiber", 1, CONTENDERS))
    assert missing["skipped"].startswith("wachurn_fiber: Data set 'fresh'")


def test_a_class_that_a_model_has_never_seen_gets_a_small_probability():
    class OneClass:
        classes_ = np.array([0])

        def predict_proba(self, X):
            return np.ones((len(X), 1))

    X, y = np.zeros((2, 1)), np.array([0, 1])
    accuracy, loss = alternatives_fits.measured(OneClass(), X, y, np.array([0, 1]), n_rows=98)
    assert accuracy == 50.0
    assert loss == pytest.approx(-(math.log(100 / 101) + math.log(1 / 101)) / 2)


def test_command_measures_prints_and_writes_without_real_data(tmp_path, capsys, monkeypatch):
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    monkeypatch.delenv("DPADAPT_DATA", raising=False)
    monkeypatch.setattr(alternatives_fits, "TASKS", [task for task in TASKS if task.name == "fair by age"])
    monkeypatch.setattr(common, "SIZES", (100, 0))
    monkeypatch.setattr(alternatives_fits, "SEEDS", (1, 1))
    monkeypatch.setattr(alternatives_fits, "has_dp_ebm", lambda: False)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0}, raising=False)
    out, page = tmp_path / "r.json", tmp_path / "r.md"
    writers = {"markdown": ("", alternatives.write_markdown)}
    monkeypatch.setattr(sys, "argv", ["x", "--quick", f"--out={out}", f"--markdown={page}"])
    command("x", "About.", alternatives_fits.run, alternatives.show, writers=writers)
    results = json.loads(out.read_text())
    assert [(row["size"], row["epsilon"]) for row in results["cells"]] == [(s, e) for s in (100, 0) for e in EPSILONS]
    assert all(set(CONTENDERS) | {"landed"} <= row.keys() for row in results["cells"])
    last = results["cells"][-1]
    # The public models don't change with private rows; ours gains from all of them.
    assert last["public linear"] == results["cells"][0]["public linear"]
    assert last["ours"][1] < 0.98 * last["public"][1]
    assert last["not private"][1] < last["best public"][1]
    for text in (capsys.readouterr().out, page.read_text()):
        assert "fair by age" in text
        assert "DP-EBM: the package interpret is not installed." in text.replace("\n", " ")
