"""Sets of the transfer benchmark: those that are hard on purpose are hard in the way that their names say."""

import numpy as np
import pytest

from benchmarks.transfer import claims
from benchmarks.transfer.sets import Domains, loaded, task_named


def test_boosting_stages_have_not_seen_the_public_rows_of_their_task():
    domains, _ = loaded(task_named("randhie, splines and stages"))
    assert len(domains.y_public) == 5499  # the other half
    last, first = domains.X_public[:, -1], domains.X_public[:, -10]
    assert np.corrcoef(last, domains.y_public)[0, 1] > 0.15
    assert np.corrcoef(last, first)[0, 1] > 0.8


def test_half_a_percent_of_public_values_is_corrupted_and_nothing_else():
    random = np.random.default_rng(0)
    X, y = random.uniform(1, 2, (20_000, 3)), random.uniform(1, 2, 20_000)
    task = task_named("wind")
    labels = claims.with_bad_labels(task, Domains(X, y, X, y))
    assert (labels.X_public == X).all()
    assert (labels.y == y).all()
    bad = labels.y_public != y
    assert (labels.y_public[bad] == 1000 * y[bad]).all()
    cells = claims.with_bad_cells(task, Domains(X, y, X, y))
    # Six standard deviations of a binomial count around half a percent.
    assert bad.mean() == pytest.approx(0.005, abs=0.003)
    assert (cells.X_public != X).mean() == pytest.approx(0.005, abs=0.003)
    assert (cells.X == X).all()
    classes = random.integers(0, 3, 20_000)
    drawn = claims.with_bad_labels(task_named("fair by age"), Domains(X, classes, X, classes)).y_public
    assert set(drawn) == {0, 1, 2}
    assert 0 < (drawn != classes).mean() < 0.008


def test_calibration_error_is_zero_for_honest_probabilities_only():
    p = np.array([[0.75, 0.25]] * 4)
    assert claims._calibration_error(p, np.array([0, 0, 0, 1])) == pytest.approx(0)
    assert claims._calibration_error(p, np.array([1, 1, 1, 1])) == pytest.approx(0.75)
