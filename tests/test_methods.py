import pytest

from dpadapt.methods import DEFAULT, METHODS, find


def test_name_and_task_identify_a_method():
    assert len({(method.name, method.task) for method in METHODS}) == len(METHODS)
    assert len({method.path for method in METHODS}) == len(METHODS)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: f"{method.name}-{method.task}")
def test_every_method_is_found_and_makes_its_estimator(method):
    assert find(method.name, method.task) is method
    assert type(method.estimator(epsilon=2.0)).__name__ == method.path.rpartition(".")[2]


@pytest.mark.parametrize("task", DEFAULT)
def test_every_task_has_a_default(task):
    assert find(None, task).name == DEFAULT[task]
    with pytest.raises(ValueError, match="method must be one of"):
        find("magic", task)
