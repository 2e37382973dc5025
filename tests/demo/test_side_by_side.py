"""Measurements of the demo: every method of a task once, reproducible, and panels that agree with each other."""

import numpy as np
import pytest

from dpadapt.demo import side_by_side as module
from dpadapt.demo.side_by_side import CASES, compared, side_by_side
from dpadapt.methods import PREDICTORS, find

pytestmark = pytest.mark.thorough


@pytest.fixture
def without_other_panels(monkeypatch):
    """Leave out the panels of `dpadapt.demo.panels`."""
    for name in ("digits_panel", "people_panel", "centres_panel"):
        monkeypatch.setattr(module, name, lambda *args: None)


@pytest.mark.usefixtures("without_other_panels")
def test_the_panels_agree_where_all_rows_are_used_at_the_middle_epsilon():
    done = []
    (case,) = side_by_side(CASES[2:3], epsilons=[0.3, 1.0], seeds=1, done=done.append)["cases"]
    by_epsilon, by_rows = case["panels"]
    for first, second in zip(by_epsilon["curves"], by_rows["curves"], strict=False):
        assert first["key"] == second["key"]
        assert first["points"][-1]["values"] == second["points"][-1]["values"]
    assert done == [case["name"], f"{case['name']}, papers", "other help"]


@pytest.mark.usefixtures("without_other_panels")
def test_the_demo_is_reproducible():
    first, second = (side_by_side(CASES[:1], epsilons=[1.0], seeds=1, done=lambda name: None) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_private_rows_alone_are_one_curve(task):
    alone = [line for line in compared(task) if not line.shared]
    assert [line.key for line in alone] == ["private only"]
    assert compared(task)[0].method.name == find(None, task).name


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_every_product_method_is_compared_once(task):
    names = [line.method.name for line in compared(task) if line.shared]
    assert sorted(names) == sorted(method.name for method in PREDICTORS if method.task == task and not method.paper)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_declared_ranges_are_not_empty_and_cover_the_rows(case):
    assert all(low < high for low, high in case.ranges.values())
    domains = case.domains()
    for part in (domains.source, domains.target):
        for name in part.X.columns:
            low, high = case.ranges.get(name, (0.0, 1.0))
            assert np.mean((part.X[name] < low) | (part.X[name] > high)) < 0.01
