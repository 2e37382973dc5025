"""A fit leaves nothing of the private rows anywhere but in its releases: not on the terminal, in logs or files."""

import copy
import gc
import logging
import weakref

import numpy as np
import pytest
from cases import CASES

# One fit of each estimator.
FIRST = list({case.cls: case for case in reversed(CASES) if not case.recipe.slow}.values())


@pytest.mark.parametrize("case", FIRST, ids=str)
def test_a_fit_leaves_nothing_behind(case, tmp_path, monkeypatch, capfd, caplog):
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.DEBUG)
    # Each owns its memory, so that a view of it keeps it alive.
    data = tuple(part.copy() for part in case.data())
    kept, before = [weakref.ref(part) for part in data], copy.deepcopy(data)
    stream = repr(np.random.get_state())  # noqa: NPY002
    model = case.fit(data)
    assert capfd.readouterr() == ("", "")
    assert [record.message for record in caplog.records] == []
    assert list(tmp_path.iterdir()) == []
    assert repr(np.random.get_state()) == stream  # noqa: NPY002
    assert all(np.array_equal(part, was) for part, was in zip(data, before, strict=True))
    # Neither the model nor anything else holds the private arrays, or a view of one, when the caller has let go.
    del data
    gc.collect()
    assert [reference() for reference in kept] == [None] * len(kept)
    assert model.privacy_ is not None


def test_every_estimator_is_tried_once():
    assert {case.cls for case in FIRST} == {case.cls for case in CASES}
