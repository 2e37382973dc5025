"""The demo: every method of the table on bundled data, quick enough, honest."""

import json
import time

import pytest

from dpadapt.cli._side_by_side import CASES, EPSILONS, side_by_side
from dpadapt.methods import METHODS


def test_the_demo_compares_every_method_with_its_baselines(run, tmp_path):
    start = time.monotonic()
    outcome = run("demo", "--quick", "--out", tmp_path / "demo")
    assert outcome.code == 0, outcome.err
    assert time.monotonic() - start < 60
    results = json.loads((tmp_path / "demo" / "results.json").read_text())
    assert len(results["cases"]) == len(CASES)
    for case in results["cases"]:
        assert {level["key"] for level in case["references"]} == {"no model", "public only", "not private"}
        curves = {(curve["method"], curve["public"]) for curve in case["curves"]}
        assert curves == {(m.name, shared) for m in METHODS if m.task == case["task"] for shared in (False, True)}
        for curve in case["curves"]:
            assert [point["epsilon"] for point in curve["points"]] == list(EPSILONS)
            # A generous budget comes close to the model without privacy.
            floor = next(level["mean"] for level in case["references"] if level["key"] == "not private")
            assert curve["points"][-1]["mean"] < floor + 0.06
        assert case["words"]
    page = (tmp_path / "demo" / "report.html").read_text()
    assert page.count("<svg") == len(CASES)
    assert all(case.title in outcome.out for case in CASES)


def test_the_demo_is_reproducible():
    first, second = (side_by_side(CASES[:1], epsilons=[1.0], seeds=1, done=lambda name: None) for _ in range(2))
    assert first == second


def test_the_demo_refuses_a_folder_it_cannot_write_before_it_starts(run, tmp_path):
    (tmp_path / "file").write_text("x")
    outcome = run("demo", "--out", tmp_path / "file")
    assert outcome.code == 2
    assert "--out" in outcome.err


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_declared_ranges_are_wider_than_nothing(case):
    assert all(low < high for low, high in case.ranges.values())
