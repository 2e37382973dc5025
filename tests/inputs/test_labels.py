"""Label sets and codes: where classes come from, and refusals that show no label."""

import math

import numpy as np
import pytest

from dpadapt import (
    Ledger,
    PrivateLogisticRegression,
)
from dpadapt.inputs.labels import label_codes, label_set

X = np.random.default_rng(0).uniform(-1, 1, (60, 2))
y = X[:, 0]


def test_the_receipt_says_where_the_classes_come_from():
    y, y_public = np.array([0, 1]), np.array([0, 1, 2])
    assert "declared" in label_set([3, 4], y_public, y)[1]
    assert list(label_set(None, y_public, y)[0]) == [0, 1, 2]
    assert "taken from y" in label_set(None, None, y)[1]
    with pytest.raises(ValueError, match="at least two classes"):
        label_set(None, None, np.zeros(3))


def test_unknown_labels_are_refused_and_not_shown():
    assert list(label_codes(["b", "a"], np.array(["a", "b"]), "y")) == [1, 0]
    with pytest.raises(ValueError, match="not among the classes") as failure:
        label_codes([0, 77], np.array([0, 1]), "y")
    assert "77" not in str(failure.value)


def test_labels_that_can_not_be_sorted_are_not_shown():
    mixed = (X[:, 0] > 0).astype(object)
    mixed[3] = "secret-7731"
    for classes, words in ((None, "must hold labels of one kind"), ([0, 1], "not among")):
        ledger = Ledger(epsilon=9.0, delta=1e-5)
        with pytest.raises(ValueError, match=words) as failure:
            PrivateLogisticRegression(classes=classes).fit(X, mixed, ledger=ledger)
        assert "7731" not in str(failure.value)
        assert (failure.value.__context__, ledger.entries) == (None, [])


@pytest.mark.parametrize(
    "declared", [[[0, 1], [1, 2]], np.array([0, "a"], object), [0.0, math.nan], [0.0, math.inf], [1j, 2], {1: 2}, 3]
)
def test_declared_classes_must_be_a_list_of_labels(declared):
    with pytest.raises(ValueError, match=r"classes must hold labels of one kind|at least two classes"):
        label_set(declared, None, y)
