import numpy as np
import pytest

from dpadapt.learning.estimator import label_codes, label_set


def test_where_the_classes_come_from():
    y, y_public = np.array([0, 1]), np.array([0, 1, 2])
    assert "declared" in label_set([3, 4], y_public, y)[1]
    assert list(label_set(None, y_public, y)[0]) == [0, 1, 2]
    assert "read off y" in label_set(None, None, y)[1]
    with pytest.raises(ValueError, match="at least two classes"):
        label_set(None, None, np.zeros(3))


def test_unknown_labels_are_refused_and_not_shown():
    assert list(label_codes(["b", "a"], np.array(["a", "b"]), "y")) == [1, 0]
    with pytest.raises(ValueError, match="not among the classes") as failure:
        label_codes([0, 77], np.array([0, 1]), "y")
    assert "77" not in str(failure.value)
