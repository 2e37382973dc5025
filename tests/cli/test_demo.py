"""`dpadapt demo`: every method of the table on bundled data, next to its baselines."""

import json

import pytest
from outcomes import accepted, refused

from dpadapt.demo import CASES, EPSILONS
from dpadapt.methods import PREDICTORS, find

pytestmark = pytest.mark.thorough


def test_the_demo_compares_every_method_with_its_baselines(run, tmp_path):
    outcome = accepted(run("demo", "--quick", "--out", tmp_path / "demo"))
    results = json.loads((tmp_path / "demo" / "results.json").read_text())
    assert len(results["cases"]) == len(CASES)
    for case in results["cases"]:
        by_epsilon, by_rows = case["panels"]
        assert {level["key"] for level in by_epsilon["levels"]} == {"no model", "public only", "not private"}
        with_public = {curve["method"] for curve in by_epsilon["curves"] if curve["public"]}
        assert with_public == {method.name for method in PREDICTORS if method.task == case["task"] and not method.paper}
        floor = next(level["mean"] for level in by_epsilon["levels"] if level["key"] == "not private")
        for curve in by_epsilon["curves"]:
            assert [point["x"] for point in curve["points"]] == list(EPSILONS)
            # A generous budget comes close to the model without privacy.
            assert curve["points"][-1]["mean"] < floor + 0.06
        assert by_rows["x"] == sorted(by_rows["x"])
        assert by_rows["x"][-1] == case["rows"]["private"]
        assert "not private" in {curve["key"] for curve in by_rows["curves"]}
        assert case["words"]
    page = (tmp_path / "demo" / "report.html").read_text()
    for case in results["papers"]:
        shown = [curve["method"] for panel in case["panels"] for curve in panel["curves"]]
        assert shown[0] == find(None, case["task"]).name
        beside = [method for method in PREDICTORS if method.beside == "public" and not method.tasks]
        papers = {method.name for method in beside if method.task == case["task"] and method.paper}
        # The one models the public population, the other takes minutes.
        assert set(shown[1:]) == papers - {"reverse-adaptation", "private-best-da"}
    names = [case["name"] for case in results["others"]]
    assert names == ["digits", "people", "centres"]
    for case in results["others"]:
        (panel,) = case["panels"]
        best = min(level["mean"] for level in panel["levels"])
        ours = {curve["key"]: [point["mean"] for point in curve["points"]] for curve in panel["curves"]}
        # What stands beside the private rows helps: the last curve of people, else the first.
        helped = list(ours)[-1 if case["name"] == "people" else 0]
        assert 0.9 * best <= ours[helped][-1] < max(level["mean"] for level in panel["levels"])
    assert page.count("<svg") == 2 * len(CASES) + len(names)
    assert all(case.title in outcome.out for case in CASES)


def test_the_demo_refuses_a_folder_it_cannot_write_before_it_starts(run, tmp_path):
    (tmp_path / "file").write_text("x")
    refused(run("demo", "--out", tmp_path / "file"), "--out")
