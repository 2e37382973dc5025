"""Results as dictionaries: the guarantee in words, the facts of a receipt, coefficients, means and spreads."""

import json

import numpy as np
import pytest
from sklearn.tree import DecisionTreeRegressor

from dpadapt.accounting.ledger import Ledger
from dpadapt.mechanisms import Adjacency, Gaussian, NonPrivate, clipped_sum
from dpadapt.methods import PREDICTORS
from dpadapt.report.summarise import (
    best_guess,
    coefficients_of,
    guarantee_in_words,
    percent,
    receipt_facts,
    with_spread,
)


def receipt_of(mechanism, *, epsilon=1.0, delta=1e-6, **options):
    ledger = Ledger(epsilon, delta, **options)
    ledger.release(mechanism, clipped_sum([[1.0]], 1.0), label="sum")
    return ledger.receipt()


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_words_name_the_chance_of_a_guess(adjacency):
    receipt = receipt_of(Gaussian(30.0), adjacency=adjacency)
    assert percent(best_guess(receipt.epsilon, receipt.delta)) in guarantee_in_words(receipt)[0]


@pytest.mark.parametrize(
    "receipt",
    [receipt_of(NonPrivate(), epsilon=float("inf"), delta=0.0), receipt_of(Gaussian(30.0), random_state=0)],
    ids=["no noise", "seeded"],
)
def test_a_missing_guarantee_is_stated_first(receipt):
    assert guarantee_in_words(receipt)[0].startswith("There is no guarantee")


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 5.0, 20.0, 800.0])
def test_percent_never_understates(epsilon):
    share = best_guess(epsilon, 1e-6)
    shown = percent(share)
    assert float(shown.removesuffix("%")) / 100 >= share - 1e-15
    assert shown != "100%" or share == 1.0


def test_best_guess_is_that_of_randomized_response():
    # Randomized response attains it: right with probability e^eps / (1 + e^eps).
    assert best_guess(np.log(3), 0.0) == pytest.approx(0.75)
    assert best_guess(0.0, 0.1) == pytest.approx(0.55)


def test_the_facts_of_a_receipt_are_its_data_and_what_is_shown_beside_it():
    receipt = receipt_of(Gaussian(30.0), random_state=0)
    facts, data = receipt_facts(receipt), receipt.to_dict()
    json.dumps(facts, allow_nan=False)
    assert {name: facts[name] for name in data.keys() - {"entries", "warnings"}} == {
        name: data[name] for name in data.keys() - {"entries", "warnings"}
    }
    (entry,) = facts["entries"]
    assert entry == data["entries"][0] | {"mechanism": "Gaussian(noise_multiplier=30)"}
    assert facts["warnings"] == ["The noise came from a seed: this fit has no privacy guarantee.", *receipt.warnings]
    bounds = facts["verification"]
    assert bounds["lower"] <= receipt.epsilon * (1 + 1e-6) <= bounds["upper"] * (1 + 1e-6)


def test_coefficients_are_sorted_by_size_and_left_out_ones_counted(summary_of):
    (linear,) = [method for method in PREDICTORS if method.name == "linear"]
    parts = summary_of(linear)["coefficients"]
    (part,) = parts["parts"]
    sizes = [abs(row["value"]) for row in part["rows"]]
    assert sizes == sorted(sizes, reverse=True)
    assert parts["left_out"] == parts["classes_left_out"] == 0


@pytest.mark.parametrize(
    ("public_model", "words"),
    [
        (None, "what the correction adds to"),
        ("linear", "change of"),
        (DecisionTreeRegressor(max_depth=2), "what the correction adds to"),
    ],
    ids=["blend", "linear", "given"],
)
def test_coefficients_beside_a_public_model_that_is_not_linear_are_called_those_of_the_correction(
    fit, public_model, words
):
    (transfer,) = [method for method in PREDICTORS if (method.name, method.task) == ("transfer", "regression")]
    model, *_ = fit(transfer, public_model=public_model)
    model.coef_ = np.array([0.0, 2.0, -1.0])
    (part,) = coefficients_of(model, ["b", "c", "d"], "a", np.array([1.0, 0.5, 3.0]))["parts"]
    assert part["unit"] == f"{words} a"
    # Per standard deviation, the largest first.
    assert [(row["name"], row["value"]) for row in part["rows"]] == [("d", -3.0), ("c", 1.0), ("b", 0.0)]


def test_without_a_correction_there_are_no_coefficients_to_show(fit):
    (transfer,) = [method for method in PREDICTORS if (method.name, method.task) == ("transfer", "regression")]
    model, *_ = fit(transfer)
    model.coef_ = np.zeros(3)
    assert coefficients_of(model, ["b", "c", "d"], "a", None)["parts"] == []


def test_parameters_are_texts(summary_of):
    parameters = summary_of(PREDICTORS[0])["parameters"]
    assert all(isinstance(value, str) for value in parameters.values())
    assert parameters["random_state"] == "0"


def test_spreads_are_standard_deviations_over_the_seeds():
    panel = {"levels": [{"values": [1.0, 3.0]}], "curves": [{"points": [{"x": 1.0, "values": [2.0]}]}]}
    shown = with_spread(panel)
    assert shown["levels"][0]["mean"] == 2.0
    assert shown["levels"][0]["spread"] == pytest.approx(2**0.5)
    assert shown["curves"][0]["points"][0] == {"x": 1.0, "values": [2.0], "mean": 2.0, "spread": 0.0}


def test_only_the_cases_of_the_demo_get_sentences(demo, case):
    summary = demo(case([1.4, 0.7], [0.85, 0.6]))
    assert summary["cases"][0]["words"]
    assert "words" not in summary["papers"][0]
    assert "mean" in summary["papers"][0]["panels"][0]["levels"][0]
