"""The base of every private estimator: shared docstrings, ledger, receipt and randomness."""

from abc import ABC

import numpy as np
import pytest

from dpadapt import (
    Ledger,
    PrivacyError,
    PrivateLinearRegression,
    PrivateLogisticRegression,
)
from dpadapt.learning.base import bounds_assumption

X = np.random.default_rng(0).uniform(-1, 1, (60, 2))
y = X[:, 0]


def test_shared_parameters_are_written_into_docstrings():
    assert "{epsilon}" not in PrivateLinearRegression.__doc__
    assert "The most that this fit may spend" in PrivateLinearRegression.__doc__
    assert "Ledger of the private data set" in PrivateLinearRegression.fit.__doc__


def test_classes_are_shown_by_the_path_that_people_import():
    assert repr(PrivateLinearRegression) == "<class 'dpadapt.PrivateLinearRegression'>"


def test_the_receipt_says_what_is_assumed_of_cells_labels_and_bounds():
    plain = PrivateLinearRegression(random_state=0).fit(X, y).privacy_.assumptions
    assert "the bounds of the target: -1 to 1, the default" in plain
    assert "that all private cells are finite numbers" in plain
    given = PrivateLinearRegression(target_bounds=(0, 5), random_state=0).fit(X, y).privacy_.assumptions
    assert bounds_assumption((0, 5)) == "the bounds of the target: 0 to 5"
    assert bounds_assumption((0, 5)) in given
    labels = PrivateLogisticRegression(classes=[0, 1], random_state=0).fit(X, y > 0).privacy_.assumptions
    assert "that all private cells are finite numbers and all private labels among the classes" in labels


def test_the_ledger_must_be_a_ledger_of_the_same_adjacency():
    with pytest.raises(TypeError, match=r"must be a dpadapt\.Ledger"):
        PrivateLinearRegression().fit(X, y, ledger={})
    with pytest.raises(PrivacyError, match="counts neighbours by zero-out"):
        PrivateLinearRegression(adjacency="replace-one").fit(X, y, ledger=Ledger(epsilon=1.0, delta=1e-6))


def test_marks_of_other_projects_in_a_docstring_are_left_alone_and_abstract_subclasses_are_possible():
    class Other(PrivateLinearRegression, ABC):
        """Something.

        {not a parameter of ours}
        {epsilon}
        """

    assert "{not a parameter of ours}" in Other.__doc__
    assert "{epsilon}" not in Other.__doc__


@pytest.mark.parametrize("ledger", [None, "in memory", "child"])
def test_without_a_random_state_the_noise_is_secure(ledger):
    given = {"in memory": Ledger(9.0, 1e-5), "child": Ledger(9.0, 1e-5).child(8.0, 1e-5, label="all")}.get(ledger)
    random = np.random.default_rng(2)
    X = random.uniform(-1, 1, (200, 2))
    models = [PrivateLinearRegression(epsilon=2.0, delta=1e-5).fit(X, X[:, 0], ledger=given) for _ in range(2)]
    assert not any(model.privacy_.seeded for model in models)
    assert not np.array_equal(models[0].coef_, models[1].coef_)
    seeded = PrivateLinearRegression(epsilon=2.0, delta=1e-5, random_state=0).fit(X, X[:, 0], ledger=given)
    assert seeded.privacy_.seeded
