"""`Public` has no length or index: cross-validation can't split it, and no function can take it for private rows."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from dpadapt import Public
from dpadapt.data import Remembered

X = np.zeros((3, 2))


def test_it_has_no_length_shape_or_index():
    public = Public(X, [0, 1, 1])
    with pytest.raises(TypeError):
        len(public)
    with pytest.raises(TypeError):
        public[0]
    with pytest.raises(TypeError):
        iter(public)
    with pytest.raises(TypeError):
        _num_samples(public)
    assert not hasattr(public, "shape")
    assert not hasattr(public, "__array__")
    with pytest.raises((TypeError, AttributeError)):
        _safe_indexing(public, [0])


def test_its_text_names_the_parts_but_not_their_size():
    assert repr(Public(X)) == "Public(unlabelled)"
    assert repr(Public(X, [0, 1, 1], tasks=[0, 0, 1])) == "Public(labelled, with tasks)"


@pytest.mark.parametrize("table", [X, X.tolist(), pd.DataFrame(X, columns=["a", "b"])])
def test_arrays_lists_and_frames_are_kept_as_they_are(table):
    public = Public(table, pd.Series([0, 1, 1]))
    assert public.X is table
    for clone in (copy.deepcopy(public), pickle.loads(pickle.dumps(public))):
        assert repr(clone) == "Public(labelled)"


def test_parts_must_have_equal_lengths():
    with pytest.raises(ValueError, match="public y must have one entry per public row: 3, got 2"):
        Public(X, [0, 1])
    with pytest.raises(ValueError, match="public tasks must have one entry per public row: 3, got 4"):
        Public(X, tasks=[0, 1, 2, 3])
    with pytest.raises(TypeError, match="public X must be an array, a list or a data frame, got int"):
        Public(3)
    with pytest.raises(TypeError, match="got a Public"):
        Public(Public(X))


def test_rows_of_different_lengths_are_no_table():
    with pytest.raises(ValueError, match="public X must be an array or a table"):
        Public([[1.0], [1.0, 2.0]])


def test_a_preparation_is_made_again_when_the_content_changes():
    memory, made, X = Remembered(), [], np.zeros((2, 2))
    public = Public(X)
    for _ in range(2):
        memory.get(public, [X], lambda: made.append(1))
    X[0, 0] = 1.0
    memory.get(public, [X, None], lambda: made.append(1))
    assert len(made) == 2
