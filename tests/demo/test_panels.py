"""Panels of the demo on other kinds of help: help beside the private rows lowers the error."""

import pytest

from dpadapt.demo import panels
from dpadapt.demo.side_by_side import CASES

pytestmark = pytest.mark.thorough

EPSILONS = [0.5, 5.0]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(panels, "_PANEL_SEEDS", 1)
    monkeypatch.setattr(panels, "_N_PEOPLE", 50_000)
    monkeypatch.setattr(panels, "_N_TARGETS", 300)


def measured(case):
    """Return the errors of each level and each curve of the only panel, after checks of its shape."""
    (panel,) = case["panels"]
    assert panel["x"] == EPSILONS
    for curve in panel["curves"]:
        assert [point["x"] for point in curve["points"]] == EPSILONS
        assert all(len(point["values"]) == 1 for point in curve["points"])
    levels = {level["key"]: level["values"][0] for level in panel["levels"]}
    return levels, {curve["key"]: [point["values"][0] for point in curve["points"]] for curve in panel["curves"]}


def test_public_features_help_where_no_public_row_has_a_private_class():
    levels, curves = measured(panels.digits_panel(EPSILONS))
    assert levels["public only"] == 1.0
    assert levels["not private"] <= curves["probe"][-1] < curves["private only"][-1]


def test_people_and_curator_together_are_better_than_no_model():
    affairs = next(case for case in CASES if case.name == "affairs by age")
    levels, curves = measured(panels.people_panel(EPSILONS, affairs.ranges))
    assert set(curves) == {"curator", "local", "hybrid"}
    assert curves["hybrid"][-1] < levels["no model"]


def test_private_rows_as_centres_lower_the_distance():
    levels, curves = measured(panels.centres_panel(EPSILONS))
    assert levels["not private"] <= curves["clustering"][-1] <= levels["public only"]
    assert set(curves) == {"clustering", "nna"}
