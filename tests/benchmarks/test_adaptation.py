"""The adaptation benchmark: verdicts that can fail, tables that say so, and a small run from end to end."""

import json
import math
import sys
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.adaptation import claims, limits, nonprivate, privacy_and_speed, run, show, steps
from benchmarks.adaptation.privacy_and_speed import verbatim
from benchmarks.adaptation.sets import PaperSet, split
from benchmarks.rivals.adaptation import KernelMeanMatchingClassifier
from benchmarks.running import command
from dpadapt.data import Public
from dpadapt.papers.adaptation.cnvx import CnvxAdap


def cell(name="a", n=300, epsilon=0.5, *, ours=0.4, paper=0.6, exact=0.5, public=0.45, **values):
    values = {"ours": ours, "paper": paper, "exact": exact, "public": public, **values}
    given = {key: value if isinstance(value, list) else [value, value] for key, value in values.items()}
    return {"set": name, "n": n, "epsilon": epsilon, "values": given, "settings": {"exact": "alpha 0.1"}}


def verdicts(claims_made):
    return [row["verdict"] for row in claims_made]


@pytest.mark.parametrize("ours", [0.6, 0.61, math.nan, math.inf])
def test_one_cell_that_is_not_better_is_a_miss_and_is_named(ours):
    cells = [cell(epsilon=0.5), cell(epsilon=10.0, ours=ours)]
    first, second, _ = claims.figure_claims(cells)
    assert first["verdict"] == second["verdict"] == "missed"
    assert first["measured"].startswith("1 of 2 cells")
    assert "300 rows, epsilon 10" in first["measured"]
    assert verdicts(claims.figure_claims([cells[0], cell(epsilon=10.0)])) == ["holds", "holds", "holds"]


def reviews(ours=0.5, paper=0.6, dm=0.7):
    values = {"DM": dm, "public": 0.5, "ours 4": ours, "ours 10": ours, "paper 4": paper, "paper 10": paper}
    return {"source": "kitchen", "target": "books", "values": {name: [value] for name, value in values.items()}}


def test_costs_agree_with_the_formulas_of_two_accountants(monkeypatch):
    monkeypatch.setattr(privacy_and_speed, "CLAIMED", (1.0, 10.0, 15.0))
    rows = privacy_and_speed.privacy_rows(grid=1e-3)
    assert [round(row["algorithm"], 3) for row in rows] == [0.454, 10.54, 19.395]
    assert [round(row["method"], 3) for row in rows] == [0.616, 8.648, 14.070]
    assert rows[2]["delta"] == pytest.approx(0.0882, abs=1e-4)
    valid = {"algorithm": 8.9, "method": 19.7}
    judged = verdicts(claims.privacy_claims(rows, valid))
    assert judged == ["holds", "holds", "missed", "holds", "missed", "holds", "missed", "holds"]
    wrong = [row | {"algorithm, pld": row["algorithm"] * 1.01} for row in rows]
    assert list(claims.privacy_claims(wrong, valid))[-1]["verdict"] == "missed"


def test_verbatim_loop_is_the_algorithm_of_the_estimator():
    random = np.random.default_rng(0)
    X_source, X = (part / np.linalg.norm(part, axis=1)[:, None] for part in random.standard_normal((2, 60, 3)))
    y_source, y = X_source @ [0.5, 0.1, 0.0], X @ [0.5, 0.0, 0.2]
    coef, weights = verbatim(X_source, y_source, X, y, alpha=0.5, radius=2.0, epsilon=1e9, n_steps=400)
    # Without noise, the estimator on the same rows; it adds a constant feature and scales, so only predictions compare.
    model = CnvxAdap(math.inf, 0.01, alpha=0.5, radius=4.0, n_steps=400, target_bounds=(-1, 1))
    model.fit(X, y, public=Public(X_source, y_source))
    assert np.corrcoef(model.predict(X), X @ coef)[0, 1] > 0.98
    noisy, _ = verbatim(X_source, y_source, X, y, alpha=0.5, radius=2.0, epsilon=0.01, n_steps=400)
    assert np.linalg.norm(noisy - coef) > 0.1
    # The inverse weights hardly leave where they start.
    assert np.abs(weights / 120 - 1).max() < 0.1


def results(*, figures=(), trivial=False):
    """Return results as `run` gives them."""
    table = {name: [88.0, 88.0] for name in nonprivate.CLASSIFICATION_METHODS}
    adult = {"set": "Adult", "values": table | {"majority": [88.6 if trivial else 50.0]}}
    wind = {"set": "Wind", "values": {name: [1.0, 1.1] for name in nonprivate.REGRESSION_METHODS}}
    row = {"claimed": 1.0, "algorithm": 0.5, "delta": 0.001, "method": 0.6}
    row |= {f"{name}, pld": row[name] for name in ("algorithm", "delta", "method")}
    return {
        "quick": True, "data": "made up", "seeds": 2, "n_steps": 10, "skipped": ["accuracy, Adult: not there"],
        "versions": {"dpadapt": "0"}, "processes": 1, "minutes": 0.1,
        "figure 1": list(figures), "figure 3": [cell("Gas", epsilon=15.0, **{"private DM": 0.5})],
        "accuracy": [cell("Adult", 6847, 1.0, ours=92.0, exact=91.0, paper=90.0, public=88.0)],
        "sentiment": [reviews()], "regression": [wind], "classification": [adult],
        "privacy": {"rows": [row | {"claimed": e} for e in (1.0, 10.0, 15.0)], "valid": {"algorithm": 9, "method": 20}},
        "speed": [{"claim": "c | d", "measured": "1", "verdict": "holds"}],
    }  # fmt: skip


@pytest.fixture
def tiny(monkeypatch):
    """One made-up set, one cell, few steps, one process, no speed."""
    monkeypatch.delenv("DPADAPT_DATA", raising=False)
    size = replace(run.QUICK, seeds=1, n_steps=50, rows=(300,), epsilons=(4.0,))
    monkeypatch.setattr(run, "QUICK", size)
    monkeypatch.setattr(run.figures, "BUNDLED", {"Synthetic, d=20": "coefficients, d=20"})
    monkeypatch.setattr(run, "speed_claims", lambda quick: iter(()))
    monkeypatch.setattr(run, "privacy_rows", lambda: results()["privacy"]["rows"])
    monkeypatch.setattr(run, "valid_up_to", lambda: {"algorithm": 8.9, "method": 19.7})
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0}, raising=False)


@pytest.mark.usefixtures("tiny")
def test_command_measures_prints_and_writes(tmp_path, capsys, monkeypatch):
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    out, report, page = (tmp_path / name for name in ("r.json", "r.html", "r.md"))
    writers = {"report": ("", run.write_report), "markdown": ("", show.write_markdown)}
    monkeypatch.setattr(sys, "argv", ["x", "--quick", f"--out={out}", f"--report={report}", f"--markdown={page}"])
    command("x", "About.", run.run, show.show, writers=writers)
    results = json.loads(out.read_text())
    [measured] = results["figure 1"]
    assert set(measured["values"]) == {"public", "ours", "paper", "exact", "default", "not private", "no noise"}
    # Known by construction: the coefficients differ, so the public model can be improved on.
    assert measured["values"]["ours"][0] < measured["values"]["public"][0]
    assert "alpha" in measured["settings"]["paper"]
    printed = capsys.readouterr().out
    for text in (printed, report.read_text(), page.read_text()):
        assert "Synthetic, d=20" in text


def limits_results():
    seven = [
        {"set": "Adult", "seed": s, "accuracy": 91.0 + 0.1 * s, "setting": [0.1, 10.0, 0.01, 0.01]} for s in range(5)
    ]
    return {
        "quick": True, "versions": {"dpadapt": "0"}, "minutes": 0.1, "skipped": [], "seven": seven,
        "penalties": [{"set": "Gas", "algorithm": 1, "n_steps": 9, "change": 0.02}],
        "unlabelled": [], "maps": [], "kernel": [],
    }  # fmt: skip


def part_claims(part, rows):
    return list(limits.claims({key: rows if key == part else [] for key in limits.PARTS}))


def judged(part, rows):
    return verdicts(part_claims(part, rows))


def regression_set(rng, rows=600):
    """Return a set whose domains have the same coefficients."""
    X, X_source = rng.standard_normal((2, rows, 3)) * [1.0, 2.0, 0.5]
    coef = np.array([1.0, -0.5, 2.0])
    y, y_source = (part @ coef + 0.1 * rng.standard_normal(rows) for part in (X, X_source))
    return PaperSet("made up", lambda: (X_source, y_source, X, y), (300, 100, 200, rows), True, "")


def test_section_7_is_measured_from_end_to_end(monkeypatch):
    made = regression_set(np.random.default_rng(0))
    monkeypatch.setattr(limits, "named", lambda name: made)
    monkeypatch.setattr(limits, "MAP_STEPS", 300)
    errors = limits.without_labels("made up", 0)["values"]
    assert set(errors) == {"public", "equal weights", "BestDA 1", "BestDA 10", "DM 1", "DM 10"}
    assert errors["public"] == pytest.approx(1.0, abs=0.1)  # both domains have the same coefficients
    assert errors["BestDA 10"] < 2 * errors["equal weights"]
    row = limits.with_other_columns("made up", 0)
    assert len(row["cells"]) == len(limits.MIXTURES) * len(limits.MAP_EPSILONS)
    for cell in row["cells"]:
        # The distance is at most the length of the turn, and grows with it.
        assert 0 < cell["distance"] <= limits.MIXTURES[-1]
    far = row["cells"][-1]["values"]  # without noise
    assert far["known"] < far["as it is"]
    assert len({cell["values"]["CnvxAdap, unmixed"] for cell in row["cells"][2::3]}) == 1  # no mixture reaches it
    assert limits.markdown(limits_results() | {"maps": [row]}).count("| inf |") == len(limits.MIXTURES)


def test_kernels_are_measured_in_both_directions_and_as_the_estimator_does(monkeypatch):
    rng = np.random.default_rng(0)
    X, X_source = rng.normal([1.0, 0.0], 1.0, (300, 2)), rng.standard_normal((300, 2))
    y, y_source = ((part[:, 0] > 0).astype(int) for part in (X, X_source))
    y_source[:30] = 1 - y_source[:30]
    made = PaperSet("made up", lambda: (X_source, y_source, X, y), (100, 50, 150, 300), True, "")
    monkeypatch.setattr(limits, "named", lambda name: made)
    row = limits.matched_by_kernels("made up", 0)
    part = split(made, 0)
    model = KernelMeanMatchingClassifier().fit(part.X, part.y, public=part.thinned)
    middle = limits.WIDTHS.index(1.0)
    assert row["accuracies"][0][middle] == pytest.approx(100 * model.score(part.X_test, part.y_test))
    assert len(row["accuracies"]) == len(row["rows"]) == len(limits.KERNEL_VARIANTS)
    assert min(min(line) for line in row["rows"]) >= 1
    other = limits.swapped(made)
    assert other.sizes == (100, 50, 150, 300)
    assert sorted(split(other, 0).public.X[:, 0]) == sorted(X[:, 0])
    assert all(accuracy > 80 for accuracy in row["swapped"])


RIVALS = (f"{steps.FEW}", f"{steps.MANY}", f"no noise, {steps.FEW}", f"no noise, {steps.MANY}", "exact")
