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


def test_the_gap_is_between_without_privacy_and_without_sources():
    assert claims.gaps(row(), "epsilon 3", "ours") == pytest.approx([0.05])
    assert claims.gaps(row(), "epsilon 3", "NNA") == pytest.approx([0.9])
    assert claims.prior_gap(row()) == pytest.approx(0.8)
    # The ratio of sums over k weighs each k by what sources are worth there; the mean over k does not.
    uneven = row() | {"ClusterT": [2.0, 1.2]}
    assert claims.gaps(uneven, "epsilon 3", "ours") == pytest.approx([0.1 / 1.2])
    assert claims.gaps_by_k(uneven, "epsilon 3", "ours") == pytest.approx([0.25])
    # Where sources are worth nothing, the solver's noise is no gap.
    worthless = row() | {"ClusterT": [1.0, 1.00001]}
    assert claims.gaps(worthless, "epsilon 3", "ours") == pytest.approx([0.0])
    assert claims.gaps_by_k(worthless, "epsilon 3", "ours") == pytest.approx([0.0])


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


def test_a_target_inside_the_interval_is_undecided():
    # Gaps 0.05 and 0.1, target 0.07.
    mixed = [row(), row(ours=[[1.1, 1.1]])] * 8
    judged = list(claims.our_claims(results(*mixed)))
    assert claims.interval([0.05, 0.1] * 8) == (0.075, 0.013)
    assert verdict(judged, "mean gap of 16 set-draws") == "undecided"


def test_a_quick_run_refutes_but_does_not_confirm_what_is_said_of_every_set():
    judged = list(claims.our_claims(results(row()) | {"quick": True}))
    for words in ("mean gap of 1 set-draws", "at single k and run", "worst cost"):
        assert verdict(judged, words) == "few sets"
    bad = list(claims.our_claims(results(row(ours=[[1.0, 2.1], [2.0, 2.0]])) | {"quick": True}))
    for words in ("at single k and run", "worst cost"):
        assert verdict(bad, words) == "missed"
    rivals = list(claims.paper_claims(results(row(NAS=[[1.1, 1.1]])) | {"quick": True}))
    assert verdict(rivals, "NAS improves on ClusterT on every set") == "few sets"
    assert verdict(rivals, "NNA is close to non-private") == "missed"


def test_bounds_are_judged_by_how_near_they_are_and_how_often_they_hold():
    near = {"set": "a", "real": True, "ks": [20], "ratios": [1.2] * 99 + [0.9]}
    far = {"set": "b", "real": True, "ks": [20], "ratios": [1.7] * 80 + [0.9] * 20}
    good = list(claims.our_claims(results(row(), certificates=[near])))
    assert verdict(good, "median at most") == verdict(good, "holds in 95%") == "holds"
    bad = list(claims.our_claims(results(row(), certificates=[near, far])))
    assert verdict(bad, "median at most") == verdict(bad, "holds in 95%") == "missed"


def test_a_bound_on_a_synthetic_set_holds_about_as_often_as_it_says():
    certificates = measure.certificates(measure.Problem(named("synthetic 1"), 4, (5, 9)), 2)
    assert len(certificates["ratios"]) == 4
    assert np.mean(np.array(certificates["ratios"]) >= 1) >= 0.75


def test_synthetic_sets_and_real_pairs_are_judged_by_what_the_paper_says_of_each():
    rivals = {name: [[2.1, 2.1]] for name in ("NAS", "private k-means", "private generator")}
    other = {"real": True, "set": "Adult men → women", "family": "Adult"}
    judged = list(claims.paper_claims(results(*[row(**rivals)] * 2, *[row(**rivals) | other] * 15)))
    synthetic = [claim for claim in judged if "2 draws of the synthetic sets" in claim["claim"]]
    real = [claim for claim in judged if "15 real pairs that the paper does not have" in claim["claim"]]
    assert len(synthetic) + len(real) == len(judged)
    # The paper: on synthetic sets both algorithms improve and are close to non-private.
    assert verdict(synthetic, "NNA improves on ClusterT on every set") == "holds"
    assert verdict(synthetic, "NAS improves on ClusterT on every set") == "missed"
    assert verdict(synthetic, "NNA is close to non-private") == "missed"
    assert verdict(synthetic, "NAS is close to non-private") == "missed"
    # A baseline may be worse than ClusterT there; on real pairs it is like ClusterT.
    assert verdict(synthetic, "private k-means is no better") == "holds"
    assert verdict(real, "private k-means is like ClusterT") == "missed"
    # On real pairs, NAS at epsilon 3 is the paper's one exception.
    assert verdict(real, "NNA improves on ClusterT on every set") == "holds"
    assert verdict(real, "NAS improves on ClusterT on no set") == "holds"
    assert {claim["paper"] for claim in synthetic} == {"yes"}
    assert {claim["paper"] for claim in real} == {"not shown"}
    # A gap that is shown as 1.00 is no improvement.
    near = row(NAS=[[1.999, 1.997]]) | other
    assert verdict(claims.rival_claims([near], "epsilon 3", real=True, quick=False), "NAS improves") == "holds"
    # The paper's own pairs are judged by the other benchmark; what was not measured is not judged.
    own = row(**rivals) | {"real": True, "set": "MNIST 6 → 9"}
    assert list(claims.paper_claims(results(own))) == []
    assert list(claims.rival_claims([own], "rho 3", real=True, quick=False)) == []


def test_a_coreset_harms_only_beyond_the_interval_of_its_runs():
    def variant(with_, without):
        costs = {name: [[1.5, 1.5]] * 3 for name in measure.VARIANTS}
        values = costs | {"NAS, t 150": [[c, c] for c in with_], "NAS, no coreset": [[c, c] for c in without]}
        return row() | {"values": {"epsilon 3": values, "rho 3": costs}}

    worse = variant([1.8, 1.81, 1.79], [1.5, 1.5, 1.5])
    better = variant([1.5, 1.5, 1.5], [1.8, 1.81, 1.79])
    unclear = variant([1.2, 1.9, 1.7], [1.5, 1.2, 1.5])
    never, some = "Figure 7, epsilon 3: a coreset never harms NAS", "Figure 7, epsilon 3: a coreset improves NAS"
    for rows, harm, gain in (
        ([worse, better], "missed", "holds"),
        ([unclear], "undecided", "missed"),
        ([better, unclear], "undecided", "holds"),
        ([variant([1.5] * 3, [1.5] * 3)], "holds", "missed"),
    ):
        judged = list(claims.variant_claims(rows, real=False))
        assert verdict(judged, never) == harm
        assert verdict(judged, some) == gain
        assert not any("not sensitive to t" in claim["claim"] for claim in judged)
    assert verdict(claims.variant_claims([worse], real=True), "Figures 4, 5, epsilon 3") == "missed"
    assert claims.rise(worse, "epsilon 3", "NAS, t 150", "NAS, no coreset")[0] == pytest.approx(0.3)
    # One run has no interval, so it is never clear.
    assert claims.rise(variant([1.8], [1.5]), "epsilon 3", "NAS, t 150", "NAS, no coreset")[1] == math.inf


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


def undecided(with_, without, **facts):
    values = {"NNA, coreset": [[c, c] for c in with_], "NNA, no coreset": [[c, c] for c in without]}
    facts = {"set": "a", "real": True, "budget": "epsilon 3", "method": "NNA", **facts}
    return row() | facts | {"names": list(values), "values": {facts["budget"]: values}}


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


def test_more_runs_decide_whether_a_coreset_harms():
    harm = undecided([1.8, 1.81, 1.79], [1.5, 1.5, 1.5])
    safe = undecided([1.5, 1.51, 1.5], [1.5, 1.5, 1.5])
    unclear = undecided([1.2, 1.9, 1.7], [1.5, 1.2, 1.5])
    for rows, expected in (([harm, unclear], "missed"), ([safe], "holds"), ([safe, unclear], "undecided")):
        assert verdict(reasons.verdicts(empty_reasons(coresets=rows)), "never harms NNA") == expected
    text = reasons.markdown(empty_reasons(coresets=[harm]))
    assert "| a | epsilon 3 | NNA | 0.80 | 0.50 | +0.30 ± 0.02 | 3 |" in text


def test_reasons_are_judged_by_gaps():
    methods = {method for pairs in (reasons._CLOSE, reasons._NO_BETTER) for _, method in pairs}
    near, far = ({method: [[cost, cost]] for method in methods} for cost in (1.2, 2.0))

    def of(values):
        every = dict.fromkeys(("epsilon 3", "rho 3", "no noise"), values)
        return row() | {"m": 500, "coreset": 90, "cover": 20, "values": every}

    for rows, close, no_better in (([of(near)] * 3, "holds", "missed"), ([of(far)] * 3, "missed", "holds")):
        judged = list(reasons.verdicts(empty_reasons(sources=rows)))
        assert {row["verdict"] for row in judged if "is close to" in row["claim"]} == {close}
        assert {row["verdict"] for row in judged if "is no better" in row["claim"]} == {no_better}
    mixed = list(reasons.verdicts(empty_reasons(sources=[of(near), of(far)])))
    assert {row["verdict"] for row in mixed} == {"missed"}
    few = list(reasons.verdicts(empty_reasons(sources=[of(near)], quick=True)))
    assert verdict(few, "NNA is close to non-private") == "few sets"


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
