import numpy as np
import pytest

from dpadapt import Public
from dpadapt.learning.transfer_classification import PrivateTransferClassifier
from dpadapt.learning.transfer_classification_forecast import forecast_classification

random = np.random.default_rng(6)
X = random.uniform(-1, 1, (400, 5))
public = Public(X, (X[:, 0] > 0).astype(int))


def test_more_rows_and_more_budget_mean_less_blur():
    blurs = [forecast_classification(public, n, e).blur for n, e in ((1000, 1.0), (1000, 4.0), (10_000, 4.0))]
    assert blurs == sorted(blurs, reverse=True)
    assert (
        forecast_classification(public, 1000, adjacency="replace-one").blur > forecast_classification(public, 1000).blur
    )


def test_gate_is_shut_where_nothing_can_be_bought_and_open_where_all_can():
    nothing = forecast_classification(public, 20, 0.01)
    assert (nothing.worthwhile, nothing.gate, nothing.n_directions) == (False, "shut", 0)
    assert forecast_classification(public, 100_000, 4.0).gate == "open"
    assert forecast_classification(public, 100, 0.5).gate in ("shut", "undecided")


def test_unlabelled_public_data_needs_the_classes_and_has_no_gate():
    with pytest.raises(ValueError, match="classes must be given"):
        forecast_classification(Public(X), 1000)
    found = forecast_classification(Public(X), 1000, classes=range(3))
    assert found.gate == "none"
    assert found.needed_gain == 0.0


def test_blur_is_what_the_noise_does_to_scores():
    # Without a gate, the same rows again and again: what varies is noise. 20 fits, so within 40% at 4 standard errors.
    rows, labels = random.uniform(-1, 1, (1000, 5)), random.integers(0, 2, 1000)
    unlabelled = Public(X)
    fits = [
        PrivateTransferClassifier(classes=[0, 1], random_state=seed).fit(rows, labels, public=unlabelled)
        for seed in range(20)
    ]
    margins = np.std([model.decision_function(rows) for model in fits], axis=0)
    # A margin of two classes is the difference of two scores that are each other's negative.
    measured = float(np.sqrt(np.mean(margins**2))) / 2
    assert measured == pytest.approx(forecast_classification(unlabelled, 1000, classes=[0, 1]).blur, rel=0.4)
