"""The benchmark of raw tables: verdicts follow the figures, and a small run goes from end to end on made-up tables."""

import numpy as np
import pandas as pd

from benchmarks.tables import run as tables
from benchmarks.tables.by_hand import ByHand


def test_verdicts_follow_the_figures():
    wide = {"columns": 10_000, "schema": 1.0, "check": 2.9}
    verdicts = [claim["verdict"] for claim in tables.claims([{"ratio": 0.99}, {"ratio": 1.009}], wide)]
    assert verdicts == ["holds", "holds"]
    verdicts = [claim["verdict"] for claim in tables.claims([{"ratio": 1.02}], {**wide, "check": 3.1})]
    assert verdicts == ["missed", "missed"]
    assert tables.claims([], wide)[0]["verdict"] == "missed"


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


def test_a_small_run_goes_from_end_to_end(monkeypatch, capsys, tmp_path):
    rng = np.random.default_rng(0)
    for part, n in (("public", 300), ("private", 400), ("test", 50)):
        x = rng.uniform(0, 10, n)
        frame = pd.DataFrame({"x": x, "k": rng.choice(["a", "b", None], n), "y": x + rng.normal(0, 0.5, n)})
        frame.to_csv(tmp_path / f"made-{part}.csv", index=False)
    task = tables.Task("made", "y", ByHand({"x": (0, 10)}, {"k": ("a", "b")}, {}, bounds=(-5.0, 15.0)))
    monkeypatch.setattr(tables, "TASKS", (task,))
    monkeypatch.setattr(tables, "folder", lambda: tmp_path)
    monkeypatch.setattr(tables, "checking", lambda n: {"columns": n, "schema": 1.0, "check": 1.0})
    monkeypatch.setattr(tables, "reading", lambda n: {"rows": n, "plain": 2.0, "gzip": 3.0})
    results = tables.run(quick=True)
    assert 0.7 < results["rows"][0]["ratio"] < 1.4
    tables.show(results)
    assert "| made |" in capsys.readouterr().out
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n{tables.START}\n{tables.END}\n")
    tables.write_markdown(results, page)
    assert "| made |" in page.read_text()
    assert tables.folder() == tmp_path
