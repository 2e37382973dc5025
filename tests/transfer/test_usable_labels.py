"""Rows without a readable label are no evidence."""

import itertools

import numpy as np
import pandas as pd
import pytest

from dpadapt import PrivateTransferClassifier, PrivateTransferRegressor, Public
from dpadapt.inputs.persons import person_shares
from dpadapt.learning.base import Budget
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.rows import Part, row_shares
from dpadapt.tables import Schema, TableModel
from dpadapt.transfer.base import UsableLabels, _readable, count_plan

ESTIMATORS = {"classification": PrivateTransferClassifier, "regression": PrivateTransferRegressor}


def _rows(task, n, seed, level=0.0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 4))
    y = 2 * X[:, 0] - X[:, 1] + level + rng.normal(size=n)
    return X, (y > 0).astype(int) if task == "classification" else y


@pytest.mark.parametrize("prior", ["shifted", "same-population"])
@pytest.mark.parametrize("task", ESTIMATORS)
def test_unreadable_labels_change_nothing(task, prior):
    # A fit takes noise for labels with probability 0.006: two or more of 12 have a probability of 0.003.
    public = Public(*_rows(task, 200, 0))
    adopted, gains = [], []
    for seed, (epsilon, n) in enumerate(itertools.product((0.3, 1.0, 3.0), (300, 300, 2000, 2000))):
        X, y = _rows(task, n, 1 + seed)
        model = ESTIMATORS[task](epsilon, prior=prior, random_state=seed)
        model.fit(X, y, public=public, persons=row_shares(np.zeros(n, dtype=bool)))
        adopted.append(model.adopted_)
        gains.append((model.estimated_gain_ or (0.0, 0.0, 0.0))[1])
    assert sum(share > 0.05 for share in adopted) <= 1
    assert sum(low > 0 for low in gains) <= 1


def _count_of_60_fits(task, *, level, hide_labels):
    """Return how many of 60 fits adopt more than 0.05, and how many intervals of the gain lie above 0."""
    adopted, above = 0, 0
    public = Public(*_rows(task, 300, 0))
    for seed, (epsilon, n, _) in enumerate(itertools.product((0.3, 1.0, 3.0), (60, 300, 1000, 5000), range(5))):
        X, y = _rows(task, n, 100 + seed, level)
        model = ESTIMATORS[task](epsilon, random_state=1000 + seed)
        model.fit(X, y, public=public, persons=row_shares(np.full(n, not hide_labels)))
        adopted += model.adopted_ > 0.05
        above += (model.estimated_gain_ or (0.0, 0.0, 0.0))[1] > 0
    return adopted, above


@pytest.mark.thorough
@pytest.mark.parametrize("level", [0.0, 1.0], ids=["same population", "shifted"])
@pytest.mark.parametrize("task", ESTIMATORS)
def test_at_most_1_of_60_fits_adopts_anything_without_readable_labels(task, level):
    # A fit takes noise for labels with probability 0.006: two or more of 60 do with a probability of 0.05, and their
    # gates stay shut in most. At most 5% of the intervals may lie above 0.
    adopted, above = _count_of_60_fits(task, level=level, hide_labels=True)
    assert adopted <= 1
    assert above <= 3
    # The same fits adopt what readable labels show.
    adopted, above = _count_of_60_fits(task, level=1.0, hide_labels=False)
    assert adopted > 30
    assert above > 20


@pytest.mark.parametrize("task", ESTIMATORS)
def test_the_released_share_is_that_of_the_rows_with_a_label(task):
    public, (X, y) = Public(*_rows(task, 200, 0)), _rows(task, 2000, 1, level=1.0)
    for share in (0.4, 1.0):
        model = ESTIMATORS[task](3.0, random_state=2)
        model.fit(X, y, public=public, persons=row_shares(np.arange(2000) < share * 2000))
        estimate, low, high = model.usable_share_
        assert low < share <= high
        assert estimate == pytest.approx(share, abs=0.1)
        assert model.adopted_ > 0.05


def test_a_table_with_labels_written_otherwise_gives_the_public_model():
    frames = []
    for n, seed in ((300, 0), (1000, 1)):
        X, y = _rows("classification", n, seed)
        frames.append(pd.DataFrame(X, columns=list("abcd")).assign(label=np.where(y == 1, "good", "bad")))
    public, private = frames
    private["label"] = private["label"].map({"good": "passed", "bad": "failed"})
    numbers = {name: {"type": "number", "low": -1, "high": 1} for name in "abcd"}
    schema = Schema.from_dict({"columns": {**numbers, "label": {"type": "category", "values": ["bad", "good"]}}})
    fitted = TableModel(PrivateTransferClassifier(1.0, random_state=3), schema, label="label").fit(
        private, public=Public(public)
    )
    model = fitted.model_
    assert (model.adopted_, model.estimated_gain_) == (0.0, (0.0, 0.0, 0.0))
    assert model.usable_share_[1] == 0.0
    assert any("readable" in note for note in model.privacy_.warnings)


def test_one_row_or_person_moves_the_count_by_at_most_its_bound():
    rng = np.random.default_rng(0)
    cells = (0.0, 1e6, 1e200, np.nan, np.inf)
    labels = (0.0, -1e300, np.nan, np.inf)
    ids = np.array([0, 0, 0, 1, 2])
    for shares, changed in ((None, [0]), (row_shares(np.ones(5, dtype=bool)), [0]), (person_shares(ids, 5), [0, 1, 2])):
        X, y = rng.normal(size=(5, 2)), rng.normal(size=5)
        counts = []
        for cell, label in itertools.product(cells, labels):
            X_other, y_other = X.copy(), y.copy()
            X_other[changed], y_other[changed] = cell, label
            statistic = _readable(Part(X_other, y_other, shares))
            counts.append(float(statistic.value[0]))
            assert statistic.sensitivity("l2", Adjacency.ZERO_OUT) == 1.0
            assert statistic.sensitivity("l2", Adjacency.REPLACE_ONE) == 1.0
        assert 0.99 < max(counts) - min(counts) <= 1.0
    assert _readable(Part(X, y, row_shares(np.zeros(5, dtype=bool)))).value[0] == 0.0


def test_the_noise_of_the_share_is_the_noise_of_its_release():
    plan = count_plan(Budget(0.3, 400.0, 1.0))
    assert plan.budget.mu**2 + plan.multiplier**-2 == pytest.approx(0.09)
    usable = UsableLabels(0.2, plan.multiplier / 400.0)
    assert usable.none == (2.5 * plan.multiplier >= 0.2 * 400.0)


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
