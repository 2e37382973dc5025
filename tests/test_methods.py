"""The table of methods."""

import pytest

from dpadapt.methods import METHODS, PREDICTORS, find, for_task


def test_rows_are_unique():
    assert len({(method.name, method.task) for method in METHODS}) == len(METHODS)
    assert len({method.path for method in METHODS}) == len(METHODS)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: f"{method.name}-{method.task}")
def test_every_row_makes_an_estimator_and_is_found_by_name(method):
    assert f"{type(method.estimator()).__module__}.{type(method.estimator()).__qualname__}" == method.path
    assert find(method.name, method.task) is method


@pytest.mark.parametrize(
    ("task", "name"), [("regression", "transfer"), ("classification", "transfer"), ("clustering", "clustering")]
)
def test_the_first_method_of_a_task_is_its_default(task, name):
    assert find(None, task).name == for_task(task)[0].name == name


def test_unknown_names_are_refused_with_the_choices():
    with pytest.raises(ValueError, match=r"one of transfer, .* for regression, got 'magic'"):
        find("magic", "regression")


def test_only_clustering_predicts_nothing():
    assert {method.task for method in set(METHODS) - set(PREDICTORS)} == {"clustering"}
