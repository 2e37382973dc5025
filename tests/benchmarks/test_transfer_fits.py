"""Fits of the transfer benchmark: means and intervals, stored results, classes that a model never saw."""

import math

import numpy as np
import pytest

from benchmarks.transfer import fits
from benchmarks.transfer.fits import DP_EBM, OURS, RIVALS, cells, ratio_interval

FIT = {"task": "wind", "kind": "regression", "size": 0, "n": 2000, "epsilon": 1.0, "seed": 0}
FIT |= dict.fromkeys((*OURS, *RIVALS), 0.5) | {"ours": 0.4}
ALONE = {name: value for name, value in FIT.items() if name not in RIVALS}


def test_cells_hold_means_intervals_and_the_ratios_of_single_fits():
    landed = {("wind", 0, 1.0): [0.4, 0.6, 9.0]}
    [cell] = cells([FIT, FIT | {"seed": 1, "ours": 0.52, "fine-tuning": 0.1}], landed)
    assert cell["ours"] == pytest.approx(0.46)
    assert cell["compared"]["landed"] == pytest.approx(0.5)  # of the two seeds that were measured
    assert cell["ratios"] == [0.8, 1.04]
    assert cell["regret"] == pytest.approx(0.46 / 0.3)
    low, high = cell["interval"]
    assert low < 0.92 < high
    assert "landed" not in cells([FIT], {})[0]["compared"]


def test_other_models_are_compared_on_their_own_seeds():
    [cell] = cells([FIT, ALONE | {"seed": 1, "ours": 0.8, "public": 0.7}], {})
    assert (cell["ours"], cell["public"]) == (pytest.approx(0.6), pytest.approx(0.6))
    assert cell["compared"]["ours"] == 0.4
    assert cell["relative"]["ours"] == pytest.approx(0.8)
    assert cell["ratios"] == [0.8, round(8 / 7, 3)]
    # A model with fewer seeds still is compared with the best public model on the same ones.
    pair = [FIT | {DP_EBM: 0.25}, FIT | {"seed": 1, "best public": 0.1}]
    assert cells(pair, {})[0]["relative"][DP_EBM] == 0.5
    assert "compared" not in cells([ALONE], {})[0]


def test_regret_leaves_out_what_no_user_could_have_had():
    [cell] = cells([FIT | {"not private": 0.1, "best public": 0.1, DP_EBM: 0.1}], {})
    assert cell["regret"] == 1.0


def test_interval_of_a_ratio_covers_it_95_times_in_100():
    random = np.random.default_rng(0)
    covered = 0
    for _ in range(1000):
        other = random.uniform(0.9, 1.1, 8)
        low, high = ratio_interval(0.8 * other + 0.02 * random.standard_normal(8), other)
        covered += low <= 0.8 <= high
    # Four standard deviations around 950: a false alarm in 16,000 seeds.
    assert 922 <= covered <= 978
    assert ratio_interval([1.0], [1.0]) is None


def test_a_class_that_a_model_has_never_seen_gets_a_small_probability():
    class OneClass:
        classes_ = np.array([0])

        def predict_proba(self, X):
            return np.ones((len(X), 1))

    X, y = np.zeros((2, 1)), np.array([0, 1])
    accuracy, loss = fits.measured(OneClass(), X, y, np.array([0, 1]), n_rows=98)
    assert accuracy == 50.0
    assert loss == pytest.approx(-(math.log(100 / 101) + math.log(1 / 101)) / 2)
