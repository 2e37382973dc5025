"""The benchmark of wide bounds: verdicts follow the figures, and a small run goes from end to end."""

import numpy as np

from benchmarks.bounds import run as bounds


def test_widened_bounds_contain_the_exact_ones():
    assert bounds.widened((0.0, 2.0), centred=True) == (-9.0, 11.0)
    assert bounds.widened((0.0, 2.0), centred=False) == (0.0, 20.0)


def test_a_small_run_measures_what_it_says(monkeypatch, capsys):
    random = np.random.default_rng(0)
    X = random.uniform(-1, 1, (3000, 2))
    tiny = bounds.Sample("uniform", X, X @ [0.6, -0.3], (-1.0, 1.0))
    monkeypatch.setattr(bounds, "samples", lambda: [tiny])
    monkeypatch.setattr(bounds, "MAIN", (2000, 2.0))
    results = bounds.run(quick=True)
    assert all(row["features before"] > row["features"] for row in results["rows"])
    assert [row["solver"] for row in results["rows"]] == ["descent", "statistics", "logistic"]
    bounds.show(results)
    assert "holds" in capsys.readouterr().out
