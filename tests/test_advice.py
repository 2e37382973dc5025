"""Advice from public rows: what is chosen, along which columns public rows are split, and what is said."""

import numpy as np
import pandas as pd
import pytest

from dpadapt import PrivateTransferClassifier, PrivateTransferRegressor, Public, Schema, TableModel, advise
from dpadapt.advice import RANDOM, Candidate, _preferred, _recommended, shift_columns
from dpadapt.methods import find

pytestmark = pytest.mark.thorough

QUICK = {"epsilons": (0.3, 1.0), "random_state": 0}


def visits(n=300, seed=0):
    """Return a table whose cost bends with the age, so that old people differ from young ones."""
    rng = np.random.default_rng(seed)
    age = rng.uniform(20, 90, n)
    frame = pd.DataFrame(
        {
            "age": age,
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(n), "D"),
            "weight": rng.normal(70, 10, n),
            "plan": rng.choice(["free", "paid"], n),
            "patient": np.repeat([f"p{k:04d}" for k in range(n // 3)], 3),
        }
    )
    cost = (age / 10) ** 2 + (frame["plan"] == "paid") + rng.normal(size=n)
    return frame.assign(cost=cost, ill=np.where(cost > np.median(cost), "yes", "no"))


@pytest.fixture(scope="module")
def advice():
    return advise(visits(), 1500, label="cost", **QUICK)


def test_a_gain_is_foreseen_where_public_rows_differ_among_themselves(advice):
    assert advice.verdict == "gain"
    assert advice.task == "regression"
    assert isinstance(advice.model.estimator, PrivateTransferRegressor)
    assert advice.model.estimator.epsilon == advice.epsilon
    along_age = advice.chosen.ratios[advice.splits.index("along age")]
    assert along_age[-1] < 0.7
    assert advice.chosen.ratios[0, -1] > along_age[-1]  # a random split foresees less


def test_the_model_of_an_advice_can_be_fitted(advice):
    table = visits(600, seed=1)
    model = advice.model.fit(table[table["age"] > 50], public=Public(visits()))
    assert model.privacy_.epsilon <= advice.epsilon
    assert len(model.predict(table)) == 600


def test_public_rows_are_split_at_random_and_along_dates_before_numbers(advice):
    assert advice.splits[:2] == (RANDOM, "along day")
    assert set(advice.splits[2:]) == {"along age", "along weight"}


def test_columns_that_sort_rows_alike_are_split_along_once():
    table = visits().assign(squared=lambda frame: frame["age"] ** 2, negative=lambda frame: -frame["age"])
    rows = TableModel(PrivateTransferRegressor(), (schema := Schema.infer(table, dataset="d")), label="cost")
    named = shift_columns(rows.encode_public(Public(table)), schema, "cost")
    assert len({"age", "squared", "negative"} & set(named)) == 1
    assert {"day", "weight"} <= set(named)


def test_a_column_that_the_user_names_comes_first():
    table = visits()
    schema = Schema.infer(table, dataset="d")
    rows = TableModel(PrivateTransferRegressor(), schema, label="cost").encode_public(table)
    assert next(iter(shift_columns(rows, schema, "cost", "weight"))) == "weight"
    assert set(next(iter(shift_columns(rows, schema, "cost", "plan").values()))) == {0.0, 1.0}  # categories, in order
    with pytest.raises(ValueError, match="split_by"):
        shift_columns(rows, schema, "cost", "height")


def test_columns_with_few_values_are_not_split_along():
    table = visits().assign(flag=lambda t: (t["age"] > 50).astype(float))
    schema = Schema.infer(table, dataset="d")
    rows = TableModel(PrivateTransferRegressor(), schema, label="cost").encode_public(table)
    assert "flag" not in shift_columns(rows, schema, "cost")


def test_equal_seeds_give_equal_advice():
    few = {"epsilons": (1.0,), "random_state": 3}
    assert str(advise(visits(120), 300, label="cost", **few)) == str(advise(visits(120), 300, label="cost", **few))


def test_persons_with_several_rows_are_the_unit_and_count_once():
    advice = advise(visits(60), 1500, label="cost", person="patient", **QUICK)
    assert advice.unit == "person"
    assert advice.n_units == 500
    assert advice.model.person == "patient"
    stated = advise(visits(60).drop(columns="patient"), 1500, label="cost", rows_per_person=5, **QUICK)
    assert (stated.unit, stated.n_units) == ("person", 300)
    assert any("Name the column" in sentence for sentence in stated.words)


def test_a_secret_number_of_rows_is_protected():
    advice = advise(visits(60), 1500, label="cost", secret_size=True, **QUICK)
    assert advice.model.estimator.adjacency == "add-remove"
    assert advice.model.estimator.n_rows == 1500


@pytest.mark.parametrize(("n", "delta"), [(50, 1e-6), (100_000, 1e-6), (2_000_000, 1e-8)])
def test_delta_is_far_below_one_in_the_number_of_rows(n, delta):
    table = visits().drop(columns="cost").assign(cost=1.0)[:90]
    assert advise(table, n, label="cost", **QUICK).delta == pytest.approx(delta)


def test_the_type_of_the_label_decides_the_task():
    advice = advise(visits(150), 300, label="ill", epsilons=(1.0,), random_state=0)
    assert advice.task == "classification"
    assert isinstance(advice.model.estimator, PrivateTransferClassifier)
    assert advice.error == "log-loss"


@pytest.mark.parametrize(
    ("table", "why"), [(visits().drop(columns="cost"), "have no label"), (visits(60), "are fewer than")]
)
def test_without_enough_labels_nothing_is_promised(table, why):
    schema = Schema.infer(visits(), dataset="d")
    advice = advise(table, 1500, label="cost", schema=schema, **QUICK)
    assert advice.verdict == "unknown"
    assert why in advice.words[0]
    assert advice.table() == []


def test_the_recommended_epsilon_has_most_of_the_gain():
    def of(ratios):
        return Candidate("way", find(None, "regression"), True, {}, np.array([[1.0] * 4, ratios]))

    epsilons = (0.1, 0.3, 1.0, 3.0)
    assert _recommended(epsilons, of([1.0, 0.9, 0.82, 0.8])) == (1.0, "gain")
    assert _recommended(epsilons, of([1.0, 0.83, 0.82, 0.8])) == (0.3, "gain")
    assert _recommended(epsilons, of([1.0, 1.0, 1.0, 0.99])) == (1.0, "no gain")


@pytest.mark.parametrize(("worst", "preferred"), [(0.99, "other"), (1.0, "other"), (1.007, "default")])
def test_a_way_without_a_gate_that_harms_in_one_split_is_not_preferred(worst, preferred):
    method = find(None, "regression")
    ways = [
        Candidate(name, method, True, {}, np.array(ratios)[:, None])
        for name, ratios in {"default": [1.0, 0.95, 0.97], "other": [worst, 0.8, 0.9]}.items()
    ]
    assert _preferred(ways).name == preferred


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"n_private": 0}, "n_private"),
        ({"epsilons": ()}, "epsilons"),
        ({"epsilons": (1.0, -1.0)}, "epsilons"),
        ({"label": "price"}, "price"),
        ({"person": "nobody"}, "person"),
        ({"rows_per_person": -1.0}, "rows_per_person"),
        ({"label": "ill", "task": "classify"}, "task must be 'regression' or 'classification', got 'classify'"),
    ],
)
def test_bad_facts_are_named(wrong, named):
    options = {"n_private": 100, "label": "cost", **QUICK} | wrong
    with pytest.raises(ValueError, match=named):
        advise(visits(), options.pop("n_private"), **options)


def test_the_column_of_persons_is_no_feature_of_the_advised_model():
    rng = np.random.default_rng(0)
    public = pd.DataFrame({"nr": rng.integers(0, 500, 300), "x": rng.normal(size=300)})
    public["y"] = public["x"] + rng.normal(size=300)
    advice = advise(public, 1000, label="y", person="nr", epsilons=(1.0,), random_state=0)
    advice.model.configured()
    assert list(advice.model.get_feature_names_out()) == ["x"]
