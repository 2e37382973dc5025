"""`python -m benchmarks intervals`: every cell is measured, and verdicts follow the figures that are shown."""

import numpy as np
import pytest

from benchmarks.intervals import run as module
from benchmarks.intervals.run import Piece, cells, claims, measure, tables, write_markdown
from benchmarks.transfer.sets import Domains, Task


@pytest.fixture
def rows(monkeypatch):
    """A regression and a classification with wide private errors, measured once each."""
    draw = np.random.default_rng(0)
    X, X_public = draw.standard_normal((1800, 3)), draw.standard_normal((200, 3))
    y = X[:, 0] + draw.standard_normal(1800)
    numbers = Domains(X_public, X_public[:, 0] + 0.3 * draw.standard_normal(200), X, y)
    named = Domains(X_public, (numbers.y_public > 0).astype(int), X, (y > 0).astype(int))
    tasks = (Task("numbers", "regression", lambda: numbers), Task("named", "classification", lambda: named))
    monkeypatch.setattr(module, "TASKS", tasks)
    monkeypatch.setattr(module, "EPSILONS", (1.0, 3.0))
    return [row for task in tasks for row in measure(Piece(task, 0))]


def test_every_cell_is_measured(rows):
    assert len(rows) == 2 * 2 * 2
    for row in rows:
        assert 0.8 < row["coverage"] <= 1.0
        assert row["exact coverage"] == pytest.approx(0.9, abs=0.05)
    # Limits from public rows cover too little: private errors are larger.
    assert max(row["public coverage"] for row in rows if row["kind"] == "regression") < 0.6


def test_verdicts_follow_the_figures(rows, tmp_path):
    results = {"quick": True, "versions": {"dpadapt": "0"}, "rows": rows}

    def verdicts(**changes):
        return [row["verdict"] for row in claims(results | {"rows": [row | changes for row in rows]})]

    good = {"coverage": 0.91, "ratio": 1.04, "error": 1.0, "plain error": 1.0}
    assert verdicts(**good) == ["holds"] * 10
    assert verdicts(**good | {"coverage": 0.94}) == (["missed"] + ["holds"] * 4) * 2
    assert verdicts(**good | {"coverage": 0.88}) == (["missed"] * 2 + ["holds"] * 3) * 2
    assert verdicts(**good | {"ratio": 1.06}) == (["holds"] * 2 + ["missed", "holds", "holds"]) * 2
    assert verdicts(**good | {"ratio": None})[2:4] == ["missed"] * 2
    assert verdicts(**good | {"error": 1.02}) == (["holds"] * 4 + ["missed"]) * 2
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n{module.START}\n{module.END}\n")
    write_markdown(results, page)
    assert "| numbers | intervals | all |" in page.read_text()
    assert [len(table["rows"]) for table in tables(results)] == [4, 4, 4]
    assert {cell["task"] for cell in cells(rows)} == {"numbers", "named"}
