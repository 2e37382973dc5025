"""`python -m benchmarks evaluate`: coverage is that of the metric of the population."""

import numpy as np
import pytest

from benchmarks.evaluate import run as module
from benchmarks.evaluate.run import Piece, fixed, measure, people, truth
from dpadapt.evaluation import EVALUATION_METRICS


@pytest.fixture(autouse=True)
def small_population(monkeypatch):
    monkeypatch.setattr(module, "_POPULATION", 20_000)
    yield
    truth.cache_clear()


@pytest.mark.parametrize("unit", module.UNITS)
@pytest.mark.parametrize("metric", EVALUATION_METRICS)
def test_most_intervals_cover_and_a_wrong_truth_is_noticed(metric, unit, monkeypatch):
    piece = Piece(metric, unit, 800, 1.0, 20)
    row = measure(piece)
    assert row["coverage"] >= 0.8
    assert row["nothing"] == 0
    assert 0.7 < row["width"] / row["needed"] < 2.5
    monkeypatch.setattr(module, "truth", lambda *cell: (row["truth"] + 2 * row["width"],) * 2)
    assert measure(piece)["coverage"] == 0.0


def test_persons_count_alike_in_the_population():
    model, _, _ = fixed("accuracy", "person")
    everyone = people(20_000, "person", np.random.default_rng(5))
    right = model.predict(everyone.X) == everyone.named
    by_person = np.bincount(everyone.ids, right) / np.bincount(everyone.ids)
    assert truth("accuracy", "person")[0] == pytest.approx(by_person.mean(), abs=0.008)
    # Persons with many rows differ, so the mean over rows is another number.
    assert abs(right.mean() - by_person.mean()) > 0.012
