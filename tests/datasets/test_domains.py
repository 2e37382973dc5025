"""Data sets with provenance, and their split into a source and a target."""

import numpy as np
import pandas as pd
import pytest

from dpadapt.datasets.domains import Dataset, Source, split_rows

SOURCE = Source("toy", "rows", "3 rows", "partial", "3 of 9 rows.", "made up", "CC0")
FRAME = pd.DataFrame({"x": [1, 2, 3], "word": ["a", "b", "a"]})


def dataset(data):
    return Dataset(data, SOURCE, SOURCE.status, SOURCE.note)


@pytest.mark.parametrize(
    ("data", "kind", "others"),
    [
        (FRAME, "frame", ("arrays", "text")),
        ({"x": np.ones(2)}, "arrays", ("frame", "text")),
        ("a b", "text", ("frame",)),
    ],
    ids=["table", "arrays", "text"],
)
def test_a_wrong_kind_of_data_is_refused_with_the_right_property(data, kind, others):
    assert getattr(dataset(data), kind) is data
    for other in others:
        with pytest.raises(TypeError, match=rf"Use its `\.{kind}`"):
            getattr(dataset(data), other)


def test_provenance_names_status_note_origin_and_licence():
    assert dataset(FRAME).provenance == "toy (rows), partial: 3 of 9 rows. Origin: made up. Licence: CC0."
    assert repr(dataset(FRAME)) == "Dataset(toy, part 'rows', partial)"


def test_split_rows_follows_the_masks_and_starts_new_indices():
    first = FRAME["word"] == "a"
    domains = split_rows(
        dataset(FRAME), FRAME[["x"]], y=FRAME["x"] * 10, source=first, target=~first, description="a -> b"
    )
    assert domains.source.X["x"].tolist() == [1.0, 3.0]
    assert domains.source.X["x"].dtype == np.float64
    assert domains.source.y.index.tolist() == [0, 1]
    assert domains.target.y.tolist() == [20]
    assert domains.description == "toy: a -> b"
    assert domains.provenance == dataset(FRAME).provenance


def test_a_domain_without_rows_is_named():
    every = FRAME["x"] > 0
    with pytest.raises(ValueError, match=r"The target has no rows in 'toy' \(partial\)"):
        split_rows(dataset(FRAME), FRAME[["x"]], y=FRAME["x"], source=every, target=~every, description="all")


def test_columns_that_are_no_numbers_may_stay():
    first = FRAME["x"] < 2
    domains = split_rows(
        dataset(FRAME), FRAME[["word"]], y=FRAME["x"], source=first, target=~first, description="", numbers=False
    )
    assert domains.target.X["word"].tolist() == ["b", "a"]
