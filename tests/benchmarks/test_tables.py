"""The benchmark of raw tables: what stands for an encoding by hand uses public rows alone."""

import pandas as pd

from benchmarks.tables.by_hand import ByHand


def test_an_encoding_by_hand_uses_public_rows_alone():
    by_hand = ByHand({"x": (0, 10)}, {"k": ("a",)}, {"c": 1}, dates=("d",))
    public = pd.DataFrame(
        {"x": [1, None, 3], "k": "a", "c": ["u", "u", "v"], "d": ["2020-01-01", "2020-01-02", "2020-01-03"]}
    )
    encode = by_hand.encoder(public)
    rows = encode(pd.DataFrame({"x": [None, 99], "k": ["b", None], "c": ["v", "u"], "d": ["2020-01-02", "2030-01-01"]}))
    assert rows.shape == (2, 2 + 3 + 3 + 12 + 7 + 1)
    assert rows[0, :2].tolist() == [-0.6, 1.0]
    assert rows[1, 0] == 1.0
    assert rows[:, -1].tolist() == [0.0, 1.0]
