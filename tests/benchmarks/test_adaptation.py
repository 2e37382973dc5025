"""The loop and the costs of the adaptation benchmark are those of the paper; its further parts run."""

import math

import numpy as np
import pytest

from benchmarks.adaptation import claims, limits, privacy_and_speed
from benchmarks.adaptation.privacy_and_speed import verbatim
from benchmarks.adaptation.sets import PaperSet, split
from benchmarks.rivals.adaptation import KernelMeanMatchingClassifier
from dpadapt.data import Public
from dpadapt.papers.adaptation.cnvx import CnvxAdap


def verdicts(claims_made):
    return [row["verdict"] for row in claims_made]


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


def limits_results():
    seven = [
        {"set": "Adult", "seed": s, "accuracy": 91.0 + 0.1 * s, "setting": [0.1, 10.0, 0.01, 0.01]} for s in range(5)
    ]
    return {
        "quick": True, "versions": {"dpadapt": "0"}, "minutes": 0.1, "skipped": [], "seven": seven,
        "penalties": [{"set": "Gas", "algorithm": 1, "n_steps": 9, "change": 0.02}],
        "unlabelled": [], "maps": [], "kernel": [],
    }  # fmt: skip


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
