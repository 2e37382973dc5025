"""The benchmark of the clustering paper measures what it says."""

import math

import numpy as np
import pytest

from benchmarks.clustering import appendix, claims, measure, reasons, scale, show
from benchmarks.clustering.sets import named, synthetic_2
from benchmarks.pages import clustering_page
from dpadapt import Public
from dpadapt.papers.source_target import proxies


def row(**values):
    """Return a set where a cost of 1 is non-private and one of 2 ClusterT's."""
    measured = {"epsilon 3": {"ours": [[1.0, 1.1]], "NNA": [[1.9, 1.9]], **values}}
    return {
        "set": "synthetic 1",
        "family": "synthetic",
        "main": True,
        "real": False,
        "development": True,
        "seed": 11,
        "non-private": [1.0, 1.0],
        "ClusterT": [2.0, 2.0],
        "public prior": [1.8, 1.8],
        "values": measured,
    }


def results(*rows, **parts):
    empty = {"no harm": [], "theorems": [], "certificates": [], "ablation": [], "scale": []}
    empty |= {"ks": [10, 20], "seed": 11, "quick": False}
    solver = {"n": 20_000, "k": 70, "ratio": 0.98, "worst": 0.99, "ours": 1.0, "AkM": 0.2}
    return {"cells": list(rows), "solver": solver, **empty, **parts}


def verdict(judged, words):
    return next(claim["verdict"] for claim in judged if words in claim["claim"])


def test_targets_are_met_or_missed_by_the_numbers():
    good = list(claims.our_claims(results(*[row()] * 15)))
    assert {claim["verdict"] for claim in good} == {"holds"}
    bad = list(claims.our_claims(results(*[row(ours=[[1.0, 2.1], [2.0, 2.0]])] * 15)))
    assert verdict(bad, "mean gap of 15 set-draws") == "missed"
    assert verdict(bad, "at single k and run") == "missed"
    assert verdict(bad, "worst cost") == "missed"
    differ = {"empty": 0, "far away": 1, "one source": 0}
    harm = {"set": "a", "worst": dict.fromkeys(differ, 1.0), "differ": differ, "answers": 3}
    judged = list(claims.our_claims(results(row(), **{"no harm": [harm]})))
    assert [verdict(judged, f"sources {name}") for name in differ] == ["holds", "missed", "holds"]
    slow = results(row())
    slow["solver"]["ours"] = 2.0
    assert verdict(claims.our_claims(slow), "solver") == "missed"


def test_a_bound_on_a_synthetic_set_holds_about_as_often_as_it_says():
    certificates = measure.certificates(measure.Problem(named("synthetic 1"), 4, (5, 9)), 2)
    assert len(certificates["ratios"]) == 4
    assert np.mean(np.array(certificates["ratios"]) >= 1) >= 0.75


def test_zcdp_asks_for_the_papers_noise():
    budget = measure.budget_of("rho 3")
    model = measure.PROXIES["NAS"](random_state=0, **budget)
    S, T = synthetic_2(0)
    event = model.fit(S[:300], public=Public(T[:200])).privacy_.entries[0].event
    assert event.noise_multiplier == pytest.approx(1 / math.sqrt(6), rel=1e-6)
    assert measure.budget_of("epsilon 0.3") == {"epsilon": 0.3}


def test_one_set_is_measured_shown_and_drawn(monkeypatch, tmp_path):
    dataset = named("synthetic 2")
    monkeypatch.setattr("benchmarks.clustering.sets.MOST_TARGETS", 150)
    monkeypatch.setattr("benchmarks.clustering.sets.N_POINTS", 400)
    ks = (3, 12)
    problem = measure.Problem(dataset, 11, ks)
    facts = {"set": "synthetic 2", "family": "synthetic", "main": True, "real": False, "development": True, "seed": 11}
    cell = facts | measure.cells(problem, {"epsilon 3": 2, "rho 3": 1}, {"epsilon 3": 1})
    assert all(best <= alone * 1.05 for best, alone in zip(cell["non-private"], cell["ClusterT"], strict=True))
    assert set(cell["values"]["epsilon 3"]) == {"ours", *measure.PROXIES}
    assert set(cell["values"]["rho 3"]) == {"ours"}
    whole = results(
        cell,
        theorems=[facts | measure.theorems(problem)],
        picture=measure.picture(dataset, 11, 5, "epsilon 3"),
        certificates=[{"set": "a", "real": True, "ks": [20], "ratios": [1.2, 1.3]}],
        ablation=[facts | measure.ablation(problem, 1)],
        scale=[{"n": 10, "m": 99, "k": 2, "epsilon": 1.0, "gap": 1.3, "cpu": 1.0, "gigabytes": 1.0}] * 2,
        **{"no harm": [facts | measure.no_harm(problem, 1)]},
    )
    whole |= {"quick": True, "minutes": 1.0, "cpu_minutes": 1.0, "processes": 1, "data": "d", "skipped": []}
    whole |= {"versions": {"dpadapt": "0"}, "ks": list(ks), "runs": {"ours": [{}, {}], "rivals": [{}, {}]}}
    page = clustering_page(show.summarise(whole))
    assert page.count("<svg") >= 2
    assert "http" not in page.replace("http-equiv", "")
    show.write_markdown(whole, tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "| synthetic 2 |" in text
    assert "| no gate | " in text
    assert "n = 10, m = 99, d = 8, k = 2, ε = 1, 2 seeds: at most 120 s of CPU time |  | 1 s | holds" in text
    assert "(gap below 1) |  | gap 1.30 ± 0.00 | missed" in text
    show.show(whole)


def test_a_small_size_runs_through_the_benchmark_of_scale(monkeypatch, tmp_path):
    monkeypatch.setattr(scale, "_EVALUATED", 200)
    monkeypatch.setattr(scale, "_NON_PRIVATE", 600)
    piece = scale.ScalePiece(1200, 4000, 10, 3.0, 21)
    centres, alone, facts = scale._fit(piece)
    assert len(centres) == len(alone) == 10
    assert facts["cpu"] > 0
    row = {"n": 1200, "m": 4000, "k": 10, "epsilon": 3.0, "gap": 0.1, **facts}
    assert [claim["verdict"] for claim in scale.verdicts([row, row])] == ["holds"] * 3
    again = scale._fit(piece)[0]
    assert np.array_equal(centres, again)
    costs = scale._costs(piece, centres, alone)
    assert max(costs["non-private"], costs["ours"]) < costs["ClusterT"]
    page = tmp_path / "page.md"
    page.write_text(f"{scale.START}\n{scale.END}\n", encoding="utf-8")
    scale.write_markdown({"quick": True, "versions": {"dpadapt": "0"}, "scale": [row]}, page)
    assert "| 1,200 | 4,000 | " in page.read_text(encoding="utf-8")


def small_problem(monkeypatch, ks):
    monkeypatch.setattr("benchmarks.clustering.sets.MOST_TARGETS", 150)
    monkeypatch.setattr("benchmarks.clustering.sets.N_POINTS", 400)
    return measure.Problem(named("synthetic 2"), 11, ks)


def test_centres_of_a_weighted_coreset_are_those_of_repeated_targets(monkeypatch):
    problem = small_problem(monkeypatch, (1,))
    rows, weights = np.array([3, 40, 41, 90, 120]), np.array([1.0, 5.0, 2.0, 1.0, 3.0])
    free = np.full(150, np.inf)
    chosen = appendix.on_coreset(problem, free, rows, weights)[0]
    # By brute force: the row with the least sum of distances to all rows, each repeated as often as its weight says.
    repeated = np.repeat(rows, weights.astype(int))
    sums = [np.linalg.norm(problem.T[repeated] - problem.T[row], axis=1).sum() for row in rows]
    assert chosen.tolist() == [rows[int(np.argmin(sums))]]
    # A row without weight does not count.
    light = np.append(weights[:-1], 0.0)
    sums = [
        np.linalg.norm(problem.T[np.repeat(rows, light.astype(int))] - problem.T[row], axis=1).sum() for row in rows
    ]
    assert appendix.on_coreset(problem, free, rows, light)[0].tolist() == [rows[int(np.argmin(sums))]]
    # A free centre that serves everything but row 90 makes that row the centre.
    free[rows[[0, 1, 2, 4]]] = 0.0
    assert appendix.on_coreset(problem, free, rows, weights)[0].tolist() == [90]


def test_the_appendix_is_measured_judged_and_written(monkeypatch, tmp_path):
    problem = small_problem(monkeypatch, (3, 12))
    solved = []
    solver = appendix.accelerated_k_medoids
    monkeypatch.setattr(appendix, "accelerated_k_medoids", lambda *a, **o: (solved.append(a[1]), solver(*a, **o))[1])
    row = {"set": "synthetic 2", "real": True, "n": 150, "cpu": 1.0, **appendix.with_coresets(problem, 2)}
    row["seconds"] = appendix.run_times(problem, 1)
    row["variants"] = measure.variants(problem, 1)
    concentrated = {name: measure.cost_runs(problem, measure.PROXIES[name], "rho 3", 1) for name in appendix.ONLY_ZCDP}
    row["compared"] = appendix.compared(row, concentrated)
    # What other parts have measured is what would be measured.
    assert row["compared"]["values"] == {
        "epsilon 3": {
            name: measure.cost_runs(problem, make, "epsilon 3", 2 if name.startswith("private") else 1)
            for name, make in measure.PROXIES.items()
            if name != "NNA, tight"
        },
        "rho 3": {name: measure.cost_runs(problem, make, "rho 3", 1) for name, make in measure.PROXIES.items()},
    }
    assert row["compared"]["ClusterT"] == problem.ends["ClusterT"]
    # The paper's solver for the paper's five methods, at each k.
    assert sorted(solved) == [3] * 5 + [12] * 5
    assert all(len(seconds) == 2 for seconds in row["seconds"].values())
    even = row | {"seconds": dict.fromkeys(appendix.TIMED, (1.0,))}
    uneven = row | {"seconds": dict.fromkeys(appendix.TIMED, (1.0,)) | {"NAS": (2.1,)}}
    assert verdict(appendix.verdicts([even]), "C.7") == "holds"
    assert verdict(appendix.verdicts([even], quick=True), "C.7") == "few sets"
    assert verdict(appendix.verdicts([even, uneven]), "C.7") == "missed"
    costs = {reading: [[1.0, 1.0]] for reading in ("all targets", *appendix.READINGS)}
    same = even | {"costs": dict.fromkeys(appendix.BASELINES, costs)}
    dearer = same | {"costs": dict.fromkeys(appendix.BASELINES, costs | {"coreset": [[1.03, 1.0]]})}
    assert verdict(appendix.verdicts([same]), "a coreset changes ClusterT") == "holds"
    assert verdict(appendix.verdicts([same, dearer]), "a coreset changes ClusterT") == "missed"
    assert verdict(appendix.verdicts([same, dearer]), "a weighted coreset changes ClusterT") == "holds"
    whole = {
        "quick": True,
        "versions": {"dpadapt": "0"},
        "runs": {"real": 2},
        "timed": 1,
        "rows": [row],
        "skipped": [],
        "minutes": 1.0,
    }
    appendix.write_markdown(whole, tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert text.startswith(appendix.START)
    assert "| synthetic 2 | 150 | " in text
    assert "C.2, C.5: all methods with 3-zCDP" in text
    assert "| set | NNA | NAS | private k-means | private generator |" in text
    assert "1 real pairs, Figures 3, 57 to 80, epsilon 3: NAS improves on ClusterT on no set" in text
    assert "1 real pairs, Figures 81 to 104, rho 3: NAS improves on ClusterT on every set" in text
    assert "Runs of each method: 2 on a real set, where the paper has 30" in text


def test_the_noise_of_a_proxy_is_what_nas_adds():
    T = synthetic_2(0)[1][:200]
    ball = proxies.Ball.of(T)
    for budget in ("epsilon 3", "rho 3"):
        # Without a source, every average is the target itself.
        model = proxies.NAS(1, coreset_distance=None, random_state=0, **measure.budget_of(budget))
        added = ball.scaled(model.fit(np.empty((0, 2)), public=Public(T)).proxies_) - ball.scaled(T)
        length = math.sqrt((added**2).sum(axis=1).mean())
        # 400 draws: the deviation of the estimate is at most 6%; twice the noise is rejected.
        expected = reasons.proxy_noise(200, 2, 150, budget)
        assert length == pytest.approx(expected, rel=0.2)
        assert length != pytest.approx(2 * expected, rel=0.2)


def empty_reasons(**parts):
    empty = {part: [] for part in reasons.PARTS}
    return {
        "quick": False,
        "versions": {"dpadapt": "0"},
        "skipped": [],
        "minutes": 1.0,
        "cpu_minutes": 1.0,
        **empty,
        **parts,
    }


def test_reasons_are_measured_and_written(monkeypatch, tmp_path):
    monkeypatch.setattr("benchmarks.clustering.sets.MOST_TARGETS", 150)
    monkeypatch.setattr(reasons, "SIZES", (300, 600))
    monkeypatch.setattr(reasons, "KS", (3, 12))
    monkeypatch.setattr("benchmarks.clustering.sets.N_POINTS", 400)
    parts = {
        part: reasons.measure(reasons.ReasonPiece(part, "synthetic 2", 2))
        for part in ("sources", "pairs", "few", "coresets", "times")
    }
    assert [one["m"] for one in parts["sources"]] == [300, 600]
    # The same targets with every number of sources; more sources lower the cost.
    assert all(np.less(parts["sources"][1]["ClusterT"], parts["sources"][0]["ClusterT"]))
    assert parts["sources"][0]["coreset"] == parts["sources"][1]["coreset"]
    assert parts["pairs"][0]["delta_t"]["75"] < parts["pairs"][0]["delta_t"]["300"]
    assert [one["m"] for one in parts["few"]] == [157, 295, 400]
    stages = {one["method"]: one for one in parts["times"]}
    assert stages["ClusterT"]["sums of neighbours"] == stages["NNA"]["sums of neighbours"] == 0
    assert stages["NAS"]["all"] >= stages["NAS"]["solver"] + stages["NAS"]["sums of neighbours"] - 1e-3
    page = tmp_path / "page.md"
    reasons.write_markdown(empty_reasons(**parts), page)
    text = page.read_text(encoding="utf-8")
    assert text.startswith(reasons.START)
    assert "| synthetic 2 | 600 | " in text
    assert "NAS: distance and noise by t" in text
