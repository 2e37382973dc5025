"""The benchmarks of the engine's parts and of its forecasts, on data that ships in packages."""

import json
import sys

import numpy as np
import pytest

from benchmarks.running import command
from benchmarks.transfer import ablation, forecasts, sets
from dpadapt.transfer import base, regression_plan


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """Return what a module's command wrote for one small task of each kind: the results and the page."""
    monkeypatch.delenv("DPADAPT_DATA", raising=False)
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "1")

    def run(module, seeds):
        monkeypatch.setattr(module, "SEEDS", (seeds, seeds))
        few = [task for task in sets.TASKS if task.name in ("randhie by plan", "fair by age")]
        monkeypatch.setattr(module, "TASKS", few)
        monkeypatch.setattr("os.sched_getaffinity", lambda process: {0}, raising=False)
        out, page = tmp_path / "out.json", tmp_path / "page.md"
        page.write_text(f"# Page\n\n{module.START}\n{module.END}\n")
        monkeypatch.setattr(sys, "argv", ["x", "--quick", f"--out={out}", f"--markdown={page}"])
        command("x", "About.", module.run, module.show, writers={"markdown": ("page", module.write_markdown)})
        return json.loads(out.read_text()), page.read_text()

    return run


def test_every_part_is_left_out_once_and_put_back(quick):
    names = [(module, name) for variant in ablation.VARIANTS for module, name, _ in variant.replaced]
    before = [getattr(*name) for name in names]
    results, page = quick(ablation, 1)
    assert all(getattr(*name) is old for name, old in zip(names, before, strict=True))
    errors = {(row["variant"], row["task"], row["size"]): row["error"] for row in results["rows"]}
    assert {key[0] for key in errors} == {variant.name for variant in ablation.VARIANTS}
    # With all rows, every part of the regressor changes something.
    whole = errors[ablation.WHOLE, "randhie by plan", 0]
    for variant in ablation.VARIANTS[1:]:
        assert errors[variant.name, "randhie by plan", 0] != whole
    assert "| the whole engine | 1.000 |" in page
    assert base._LEAST_WEIGHT > 0
    assert regression_plan._DIRECTION_SIGNALS[0] < 1e6


def test_forecasts_stand_beside_what_the_fits_had(quick):
    results, page = quick(forecasts, 1)
    rows = [row for row in results["rows"] if row["kind"] == "regression"]
    assert [row["size"] for row in rows] == [100, 1000, 0]
    for row in rows:
        assert row["shift"] >= 0
        assert 0 < row["expected"] < 1.5
        assert np.isfinite(row["realised"])
    # More rows gain more, in the forecast and in the fits.
    assert rows[-1]["expected"] <= rows[0]["expected"]
    assert rows[-1]["realised"] <= rows[0]["realised"]
    assert "Median size of the difference" in page
    # What fits state of their gain stands beside it, for both kinds.
    assert {row["kind"] for row in results["rows"]} == {"regression", "classification"}
    assert abs(rows[-1]["estimated"] - rows[-1]["gained"]) < 0.3
    assert "had a gain within the 90% interval" in page
