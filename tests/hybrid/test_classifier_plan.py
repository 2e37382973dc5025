"""The plan of a hybrid fit follows from public numbers, spends the budget and asks no more people than there are."""

import numpy as np
import pytest

from dpadapt.hybrid.agents import SimulatedAgents
from dpadapt.hybrid.classifier_plan import make_plan
from dpadapt.hybrid.mapped_questions import public_map
from dpadapt.learning.base import Budget

FACTS = {"tolerance": 0.01, "classes": (0, 1), "exact_rows": True}


def plan_for(mode="auto", n_people=200_000, epsilon=1.0, n_rows=20_000, columns=10, mu=0.268, factor=1.0):
    where = public_map(columns, None, None)
    agents = SimulatedAgents(np.zeros((1, columns)), None, epsilon, n_people=n_people)
    return make_plan(mode, where, Budget(mu, n_rows, factor), agents, **FACTS)


def test_the_mode_follows_from_public_numbers():
    assert plan_for().mode == "hybrid"
    assert plan_for().reason == ""
    assert plan_for(n_people=10_000).mode == "curator"
    assert plan_for(n_people=60_000, epsilon=0.5).mode == "curator"
    assert "71,2" in plan_for(n_people=60_000, epsilon=0.5).reason  # thousands of people at this epsilon
    assert plan_for(n_people=2_000_000, columns=3).mode == "hybrid"
    for mode in ("auto", "hybrid"):
        plan = plan_for(mode, n_rows=20)
        assert (plan.mode, plan.releases) == ("local", {})
        assert "budget is too small" in plan.reason
    where = public_map(3, None, None)
    assert make_plan("auto", where, Budget(0.268, 1000, 1.0), None, **FACTS).mode == "curator"


@pytest.mark.parametrize("n_people", [20_000, 200_000, 5_000_000])
@pytest.mark.parametrize("n_rows", [20, 1000, 20_000])
@pytest.mark.parametrize("columns", [2, 50])
def test_auto_never_uses_people_without_planning_a_test(n_people, n_rows, columns):
    plan = plan_for(n_people=n_people, n_rows=n_rows, columns=columns)
    assert plan.people["test"] >= min(0.2 * n_people, 180_000)
    assert sum(plan.people.values()) == n_people


def test_the_test_asks_as_many_as_its_tolerance_needs():
    plan = plan_for(n_people=50_000_000)
    # Four candidates; the standard deviation of the difference of two estimated errors is half the tolerance.
    spread = 2.164 / 2 * np.sqrt(2 * 4 / plan.people["test"])
    assert spread == pytest.approx(0.005, rel=1e-3)
    assert plan_for(n_people=200_000).people["test"] == 49_500  # a quarter of those who are not asked for a label


def test_the_first_people_make_the_share_of_readable_labels_as_precise_as_planned():
    assert plan_for(n_people=200_000).people["labels"] == 2000
    assert plan_for("hybrid", n_people=5000).people["labels"] == 118  # 2.164 / 2 / sqrt(118) is 0.1
    assert plan_for("hybrid", n_people=1000).people["labels"] == 100


def test_replace_one_neighbours_double_the_noise_of_sums_and_not_of_second_moments():
    zero_out, replace_one = plan_for(), plan_for(factor=2.0)
    assert replace_one.means_noise == pytest.approx(2 * zero_out.means_noise)
    assert replace_one.moments_noise == pytest.approx(2**0.5 * zero_out.moments_noise)


@pytest.mark.parametrize("mode", ["hybrid", "local", "curator"])
@pytest.mark.parametrize("n_rows", [1000, 20_000])
def test_a_plan_spends_the_budget_and_asks_no_more_than_there_are(mode, n_rows):
    plan = plan_for(mode, n_rows=n_rows)
    spent = sum(repeated.steps / repeated.mechanism.noise_multiplier**2 for repeated in plan.releases.values())
    assert spent == pytest.approx(0.0 if mode == "local" else 0.268**2)
    assert sum(plan.people.values()) == (0 if mode == "curator" else 200_000)
    assert min(plan.people.values(), default=1) > 0
