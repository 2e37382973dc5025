"""Forecasts of both transfer estimators and rehearsals: from public data alone, in numbers and in words."""

import numpy as np
import pytest

from dpadapt import (
    PrivateLinearRegression,
    PrivateTransferClassifier,
    PrivateTransferRegressor,
    Public,
    forecast,
    rehearse,
)
from dpadapt.representation import PrivateSubspaceRegressor
from dpadapt.transfer.preview import (
    forecast_classification,
    forecast_of_errors,
    forecast_regression,
)

random = np.random.default_rng(5)
X = random.uniform(-1, 1, (400, 4))
public = Public(X, X @ [1.0, -1.0, 0.5, 0.0] + 0.3 * random.standard_normal(400))
labelled = Public(X, X[:, 0] > 0)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
def test_an_estimator_forecasts_with_its_own_budget(adjacency):
    budget = {"epsilon": 0.4, "delta": 1e-4, "adjacency": adjacency}
    answer = forecast(PrivateTransferRegressor(**budget), public, 300)
    assert answer == forecast_regression(public, 300, 0.4, 1e-4, adjacency=adjacency)
    assert answer != forecast(PrivateTransferRegressor(), public, 300)
    answer = forecast(PrivateTransferClassifier(**budget), labelled, 300)
    assert answer == forecast_classification(labelled, 300, 0.4, 1e-4, adjacency=adjacency)
    assert answer != forecast(PrivateTransferClassifier(**budget, prior="same-population"), labelled, 300)


def test_classes_of_the_estimator_are_used_where_public_rows_have_no_labels():
    answer = forecast(PrivateTransferClassifier(classes=[0, 1, 2]), Public(X), 3000)
    assert (answer.gate, answer.needed_gain) == ("none", 0.0)
    with pytest.raises(ValueError, match="classes must be given"):
        forecast(PrivateTransferClassifier(), Public(X), 3000)


class_random = np.random.default_rng(6)
X_class = class_random.uniform(-1, 1, (400, 5))
class_public = Public(X_class, (X_class[:, 0] > 0).astype(int))


def test_gate_is_shut_at_a_tiny_budget_and_open_at_a_large_one():
    nothing = forecast_classification(class_public, 20, 0.01)
    assert (nothing.worthwhile, nothing.gate, nothing.n_directions) == (False, "shut", 0)
    assert forecast_classification(class_public, 100_000, 4.0).gate == "open"
    assert forecast_classification(class_public, 100, 0.5).gate in ("shut", "undecided")


def test_forecast_noise_in_a_score_is_the_measured_one():
    # Without a gate, the same rows again and again: what varies is noise. 20 fits, so within 40% at 4 standard errors.
    rows, labels = class_random.uniform(-1, 1, (1000, 5)), class_random.integers(0, 2, 1000)
    unlabelled = Public(X_class)
    fits = [
        PrivateTransferClassifier(classes=[0, 1], random_state=seed).fit(rows, labels, public=unlabelled)
        for seed in range(20)
    ]
    margins = np.std([model.decision_function(rows) for model in fits], axis=0)
    # A margin of two classes is the difference of two scores that are each other's negative.
    measured = float(np.sqrt(np.mean(margins**2))) / 2
    assert measured == pytest.approx(forecast_classification(unlabelled, 1000, classes=[0, 1]).blur, rel=0.4)


def _labelled(d, n, seed=0):
    random = np.random.default_rng(seed)
    mix = np.linalg.qr(random.standard_normal((d, d)))[0] * np.arange(1, d + 1) ** -0.25
    coef = random.standard_normal(d)
    coef /= np.linalg.norm(mix.T @ coef)
    rows = random.standard_normal((n, d)) @ mix.T
    return Public(rows, rows @ coef + 0.4 * random.standard_normal(n))


def test_forecast_is_not_worthwhile_when_the_budget_is_too_small():
    rows = _labelled(10, 300)
    hopeless = forecast_regression(rows, 20, 0.1)
    assert not hopeless.worthwhile
    assert "nothing spent" in str(hopeless)
    good = forecast_regression(rows, 10_000, 4.0)
    assert good.opens_at < 0.2
    assert good.error_ratios[-1] < 0.6
    assert good.error_ratios[0] <= 1.01
    with pytest.raises(ValueError, match="labels"):
        forecast_regression(Public(rows.X), 100)


def test_a_regressor_says_in_words_from_which_shift_on_the_gate_opens():
    good = forecast_regression(_labelled(10, 300), 10_000, 4.0)
    assert f"save at least {good.opens_at:.0%} of the public model's mean squared error" in str(good)
    assert "can't say" in str(good)
    never = forecast_of_errors(1.0, 100, (1.0,) * 7, 3)
    assert never.worthwhile
    assert "stay shut for every shift" in str(never)


# Rehearsals.

rehearsal_random = np.random.default_rng(9)
X_rehearsed = rehearsal_random.uniform(-1, 1, (1500, 4))
signal = X_rehearsed @ [1.0, -1.0, 0.5, 0.0]
shifted = signal + 1.5 * (X_rehearsed[:, 3] > 0)
rehearsed = Public(X_rehearsed, signal + 0.2 * rehearsal_random.standard_normal(1500))


def test_a_large_budget_gives_a_small_rehearsed_error():
    options = {"epsilons": (0.05, 10.0), "split_by": X_rehearsed[:, 0], "random_state": 0}
    rehearsal = rehearse(PrivateLinearRegression(), rehearsed, 300, **options)
    assert rehearsal.errors[:, 1].mean() < 0.2
    assert not rehearsal.fewer_rows
    assert "epsilon = 10 " in str(rehearsal)


def test_private_rows_correct_a_shift_along_a_column():
    moved = Public(X_rehearsed, shifted)
    rehearsal = rehearse(
        PrivateLinearRegression(), moved, 400, epsilons=(5.0,), split_by=X_rehearsed[:, 3], random_state=0
    )
    assert rehearsal.errors[:, 0].mean() < 0.8 * rehearsal.public_only.mean()


def test_rehearsals_repeat_with_a_seed_and_differ_without():
    first, second = (rehearse(PrivateLinearRegression(), rehearsed, 99, repeats=2, random_state=3) for _ in range(2))
    assert np.array_equal(first.errors, second.errors)
    assert not np.array_equal(first.errors, rehearse(PrivateLinearRegression(), rehearsed, 99, repeats=2).errors)


def test_the_split_may_be_along_a_date():
    days = np.datetime64("2020-01-01") + np.arange(1500)
    rehearsal = rehearse(PrivateLinearRegression(), rehearsed, 99, epsilons=[1.0], repeats=1, split_by=days)
    assert rehearsal.errors.shape == (1, 1)


def test_private_rows_can_be_rehearsed_alone():
    options = {"epsilons": [0.3], "repeats": 2, "random_state": 0}
    alone = rehearse(PrivateTransferRegressor(), rehearsed, 99, use_public=False, **options)
    assert alone.errors.mean() > 3 * rehearse(PrivateTransferRegressor(), rehearsed, 99, **options).errors.mean()


def test_one_of_several_tasks_takes_the_role_of_the_private_rows():
    tasks = np.repeat(np.arange(15), 100)
    slopes = rehearsal_random.standard_normal((15, 2))
    # Without noise in the labels: the tiny public residuals must not set the clipping norm.
    y = np.einsum("ij,ij->i", X_rehearsed[:, :2], slopes[tasks])
    several = Public(X_rehearsed, y, tasks=tasks)
    rehearsal = rehearse(PrivateSubspaceRegressor(n_components=2), several, 60, epsilons=(50.0,), random_state=0)
    assert rehearsal.errors.mean() < 0.05 * rehearsal.public_only.mean()
    with pytest.raises(ValueError, match="split_by"):
        rehearse(PrivateSubspaceRegressor(), several, 60, split_by=X_rehearsed[:, 0])
    with pytest.raises(ValueError, match="at least 2 tasks"):
        rehearse(PrivateSubspaceRegressor(), Public(X_rehearsed, y, tasks=np.zeros(1500)), 60)
