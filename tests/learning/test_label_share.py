"""The share of readable labels: when noise may explain it, its interval, and what it leaves of a number of rows."""

import numpy as np
import pytest

from dpadapt.learning.budget import Budget
from dpadapt.learning.label_share import UsableLabels


def test_a_share_within_its_noise_counts_as_none():
    assert UsableLabels(0.25, 0.1).none
    assert not UsableLabels(0.26, 0.1).none
    assert UsableLabels(0.2, 0.1).interval()[1] == 0.0
    assert UsableLabels(0.26, 0.1).interval()[1] > 0.0


def test_the_interval_covers_9_of_10_shares_and_stays_within_0_and_1():
    shares = 0.5 + 0.1 * np.random.default_rng(0).standard_normal(4000)
    covered = [low <= 0.5 <= high for _, low, high in (UsableLabels(share, 0.1).interval() for share in shares)]
    # Three standard deviations: the seed fails once in 370.
    assert np.mean(covered) == pytest.approx(0.9, abs=0.0143)
    assert UsableLabels(1.1, 0.1).interval()[::2] == (1.0, 1.0)
    assert UsableLabels(-0.1, 0.1).interval()[:2] == (0.0, 0.0)


def test_the_budget_has_the_rows_with_a_label_and_never_more():
    budget = Budget(0.3, 400.0, 1.0)
    assert UsableLabels(1.3, 0.1).budget(budget).n_rows == 400.0
    assert UsableLabels(0.5, 0.1).budget(budget).n_rows == 200.0
