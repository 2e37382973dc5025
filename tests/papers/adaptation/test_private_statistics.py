"""Both `ReverseAdaptation`s: the released moment, and fits that cost nothing."""

import numpy as np
import pytest

from dpadapt import Public
from dpadapt.papers.adaptation.private_statistics import (
    ReverseAdaptation,
    ReverseAdaptationClassifier,
    kept_share,
    public_moment,
)


def test_reverse_uses_the_source_when_labels_are_few_and_the_target_when_the_source_differs():
    random = np.random.default_rng(0)
    X_source = random.uniform(-1, 1, (4000, 5))
    good, bad = X_source @ [1.0, -1.0, 0.5, 0.0, 0.3], X_source @ [-1.0, 1.0, 2.0, 1.0, 0.0]
    noise = random.normal(size=4000)
    X_target = random.uniform(-1, 1, (1030, 5))
    y_target = X_target @ [1.0, -1.0, 0.5, 0.0, 0.3] + random.normal(size=1030)
    few = Public(X_target[:30], y_target[:30])
    test = X_target[30:], X_target[30:] @ [1.0, -1.0, 0.5, 0.0, 0.3]
    alone = ReverseAdaptation(2.0, 1e-6, alpha=0.0).fit(X_source, good, public=few)
    assert alone.privacy_.epsilon == 0.0
    helped = ReverseAdaptation(2.0, 1e-6, random_state=0).fit(X_source, good + noise, public=few)
    assert helped.score(*test) > alone.score(*test) + 0.05
    many = Public(X_target[:500], y_target[:500])
    misled = ReverseAdaptation(2.0, 1e-6, random_state=0).fit(X_source, bad, public=many)
    certain = ReverseAdaptation(2.0, 1e-6, alpha=1.0, random_state=0).fit(X_source, bad, public=many)
    assert misled.score(*test) > 0.9
    assert certain.score(*test) < 0


def test_moment_of_several_targets_is_solved_for_each_of_them():
    random = np.random.default_rng(1)
    Z, E = random.standard_normal((50, 3)), random.standard_normal((50, 2))
    together = public_moment(Z, E).solution()
    apart = [public_moment(Z, e).solution() for e in E.T]
    assert together == pytest.approx(np.stack(apart, axis=1))
    assert together == pytest.approx(np.linalg.lstsq(Z, E, rcond=None)[0], abs=1e-3)
    lengths = np.sum(Z**2, axis=1) + np.sum(E**2, axis=1)
    assert kept_share(Z, E, 1.0) == pytest.approx(np.minimum(lengths, 1.0).sum() / lengths.sum())


def test_probabilities_of_the_reverse_classifier_are_right_near_the_middle():
    random = np.random.default_rng(2)
    X = random.uniform(-1, 1, (100_000, 1))
    y = random.random(100_000) < 1 / (1 + np.exp(-0.4 * X[:, 0]))
    model = ReverseAdaptationClassifier(50.0, 1e-6, alpha=1.0, random_state=0).fit(
        X, y, public=Public(X[:500], y[:500])
    )
    assert model.predict_proba([[0.5]])[0, 1] == pytest.approx(1 / (1 + np.exp(-0.2)), abs=0.01)
