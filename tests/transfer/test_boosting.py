"""Boosted trees as plain arrays: the same predictions as scikit-learn, each row by itself."""

import math
from dataclasses import replace

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from dpadapt.learning.losses import softmax
from dpadapt.transfer import boosting
from dpadapt.transfer.boosting import LEAST_CLASS_PROBABILITY, BoostedModel, Trees, centred_logs, fit_boosting

random = np.random.default_rng(3)
X = random.standard_normal((300, 4))
NEW = 3.0 * random.standard_normal((200, 4))
y = X[:, 0] + np.abs(X[:, 1]) + 0.3 * random.standard_normal(300)
THREE = np.digitize(y, [0.3, 1.2])


def _labels(n_classes):
    return {1: y, 2: (y > 0.7).astype(np.int64), 3: THREE}[n_classes]


@pytest.fixture(scope="module")
def models():
    return {n_classes: fit_boosting(X, _labels(n_classes), n_classes) for n_classes in (1, 2, 3)}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sums_equal_the_predictions_of_scikit_learn_bit_for_bit(dtype):
    model = HistGradientBoostingRegressor(max_iter=40, early_stopping=False, random_state=0).fit(X, y)
    rows = NEW.astype(dtype)
    assert np.array_equal(Trees.of(model).sums(rows)[:, 0], model.predict(rows))


def test_cells_at_a_threshold_and_extreme_cells_follow_scikit_learn():
    model = HistGradientBoostingRegressor(max_iter=20, early_stopping=False, random_state=0).fit(X, y)
    trees = Trees.of(model)
    inner = np.flatnonzero(trees.left >= 0)[:50]
    rows = NEW[:50].copy()
    rows[np.arange(50), trees.feature[inner]] = trees.threshold[inner]
    rows = np.concatenate([rows, np.full((1, 4), 1e300), np.full((1, 4), -1e300)])
    assert np.array_equal(trees.sums(rows)[:, 0], model.predict(rows))


def _walked(trees, row):
    """Return the sums of one row, by a walk through each tree."""
    sums = trees.baseline.copy()
    for place, node in enumerate(trees.roots):
        while trees.left[node] >= 0:
            below = row[trees.feature[node]] <= trees.threshold[node]
            node = (trees.left if below else trees.right)[node]
        sums[place % len(sums)] += trees.value[node]
    return sums


@pytest.mark.parametrize("n_classes", [1, 2, 3])
def test_sums_are_those_of_a_walk_through_each_tree_for_any_cells(n_classes, models, monkeypatch):
    trees = models[n_classes].trees
    draw = np.random.default_rng(n_classes)
    rows = np.concatenate([NEW, draw.choice([np.nan, np.inf, -np.inf, 0.0, 1e308, 0.3], (60, 4))])
    inner = np.flatnonzero(trees.left >= 0)
    some = draw.choice(inner, 100)
    rows[np.arange(100), trees.feature[some]] = trees.threshold[some]
    expected = np.array([_walked(trees, row) for row in rows])
    assert np.array_equal(trees.sums(rows), expected)
    # Neither does it matter how many rows are scored at once.
    monkeypatch.setattr(boosting, "_SCORED_ROWS", 7)
    assert np.array_equal(trees.sums(rows), expected)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_scores_are_the_centred_log_probabilities_of_scikit_learn(n_classes, models):
    labels = _labels(n_classes)
    model = HistGradientBoostingClassifier(early_stopping=False, random_state=0).fit(X, labels)
    sums = Trees.of(model).sums(NEW)
    raw = model.decision_function(NEW)
    assert np.array_equal(sums[:, 0] if n_classes == 2 else sums, raw)
    expected = np.maximum(model.predict_proba(NEW), LEAST_CLASS_PROBABILITY / n_classes)
    scores = models[n_classes].scores(NEW)
    assert np.allclose(scores, np.log(expected) - np.log(expected).mean(axis=1, keepdims=True), atol=1e-10)
    assert np.array_equal(np.argmax(scores, axis=1), model.predict(NEW))


@pytest.mark.parametrize("n_classes", [1, 2, 3])
def test_every_row_is_predicted_by_itself(n_classes, models):
    model = models[n_classes]
    whole = model.scores(NEW)
    order = np.random.default_rng(0).permutation(len(NEW))
    assert np.array_equal(model.scores(NEW[order]), whole[order])
    assert np.array_equal(model.scores(NEW[40:77]), whole[40:77])
    for row in (0, 13, 199):
        assert np.array_equal(model.scores(NEW[row : row + 1]), whole[row : row + 1])
    assert model.scores(NEW[:0]).shape == whole[:0].shape


def test_a_class_that_the_rows_lack_gets_the_least_probability():
    model = fit_boosting(X, 2 * _labels(2), 4)  # codes 0 and 2 of four
    assert model.known.tolist() == [0, 2]
    scores = model.scores(NEW)
    assert scores.shape == (200, 4)
    assert np.array_equal(scores[:, 1], scores[:, 3])
    assert np.all(scores[:, 1] <= scores.min(axis=1))
    most = np.max(scores[:, [0, 2]], axis=1) - scores[:, 1]
    assert np.all(most <= math.log(4 / LEAST_CLASS_PROBABILITY) + 1e-9)
    assert np.all(most >= math.log(0.5 * 4 / LEAST_CLASS_PROBABILITY))
    two = fit_boosting(X, _labels(2), 2).scores(NEW)
    assert np.array_equal(scores[:, 2] > scores[:, 0], two[:, 1] > two[:, 0])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n_classes", [2, 5])
def test_centred_logs_are_bounded_and_have_mean_zero(n_classes, dtype):
    probabilities = softmax(20.0 * np.random.default_rng(0).standard_normal((500, n_classes))).astype(dtype)
    probabilities[0] = np.eye(n_classes)[0]
    logs = centred_logs(probabilities)
    assert logs.dtype == dtype
    assert np.abs(logs.mean(axis=1)).max() < 1e-5
    spread = logs.max(axis=1) - logs.min(axis=1)
    widest = math.log(n_classes / LEAST_CLASS_PROBABILITY)
    assert spread.max() <= widest * (1 + 1e-6)
    assert spread[0] == pytest.approx(widest, rel=1e-6)
    inside = probabilities.min(axis=1) > 0.01
    assert np.allclose(softmax(logs[inside].copy()), probabilities[inside], atol=1e-6)


@pytest.mark.parametrize(
    ("part", "value"),
    [("left", 0), ("right", 10**6), ("feature", 7), ("feature", -1), ("roots", 10**6), ("value", "text")],
)
def test_damaged_trees_are_refused(part, value):
    X = np.random.default_rng(0).standard_normal((200, 3))
    trees = fit_boosting(X, X[:, 0], 1).trees
    trees.require_sound(3)
    broken = np.full(len(getattr(trees, part)), value) if isinstance(value, str) else getattr(trees, part).copy()
    if not isinstance(value, str):
        inner = np.flatnonzero(trees.left >= 0)
        broken[inner[-1] if part != "roots" else 0] = value
    with pytest.raises(ValueError, match="damaged"):
        replace(trees, **{part: broken}).require_sound(3)


def test_trees_with_more_leaves_than_bits_or_a_node_of_two_parents_are_refused():
    draw = np.random.default_rng(0)
    X = draw.standard_normal((3000, 3))
    options = {"max_iter": 2, "early_stopping": False, "min_samples_leaf": 5}
    for most, sound in ((32, True), (33, False)):
        model = HistGradientBoostingRegressor(max_leaf_nodes=most, **options).fit(X, X @ [1.0, 2.0, 3.0])
        trees = Trees.of(model)
        if sound:
            trees.require_sound(3)
            assert np.array_equal(trees.sums(X)[:, 0], model.predict(X))
        else:
            with pytest.raises(ValueError, match="damaged"):
                trees.require_sound(3)
    trees = fit_boosting(X[:200], X[:200, 0], 1).trees
    with pytest.raises(ValueError, match="damaged"):
        replace(trees, threshold=np.full_like(trees.threshold, np.nan)).require_sound(3)
    for shape in ((1, 1), (2,), (2, 1)):
        with pytest.raises(ValueError, match="damaged"):
            BoostedModel(replace(trees, baseline=np.zeros(shape)), None, 1).require_sound(3)
    shared = trees.right.copy()
    shared[0] = trees.left[0]
    with pytest.raises(ValueError, match="damaged"):
        replace(trees, right=shared).require_sound(3)
