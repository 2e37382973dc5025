"""Warnings before a fit: which calls get them, and what they say."""

import math
import warnings

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import estimator_checks_generator as estimator_checks

from dpadapt import (
    AssumedBoundsWarning,
    Ledger,
    NoLedgerWarning,
    PrivateLinearRegression,
    PrivateProbe,
    PrivateTransferClassifier,
    PrivateTransferRegressor,
    Public,
    rehearse,
)
from dpadapt.accounting.ledger import NOT_ADDED_UP
from dpadapt.audit import leaks
from dpadapt.papers.adaptation import CnvxAdap

X = np.random.default_rng(0).uniform(-1, 1, (60, 2))
y = X[:, 0]
BOUNDED = {"target_bounds": (-1.0, 1.0), "epsilon": 0.5}
LABELLED = Public(X[:30] + 0.01, y[:30])


def warned(call):
    """Return the warnings of a call as pairs of category and text."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [(each.category, str(each.message)) for each in caught]


def test_a_fit_without_a_ledger_warns_with_the_line_to_write():
    model = PrivateTransferRegressor(**BOUNDED)
    [(category, text)] = warned(lambda: model.fit(X, y, public=LABELLED))
    assert category is NoLedgerWarning
    assert 'ledger=Ledger.open("private.ledger", epsilon=1.5, delta=1e-06)' in text
    assert NOT_ADDED_UP in model.privacy_.warnings
    assert warned(lambda: model.fit(X, y, public=LABELLED, ledger=Ledger(2.0, 1e-6))) == []
    assert NOT_ADDED_UP not in model.privacy_.warnings


def test_the_line_to_write_opens_a_ledger_that_takes_the_fit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = PrivateLinearRegression(adjacency="add-remove", n_rows=60, **BOUNDED)
    [(_, text), _] = warned(lambda: model.fit(X, y, persons=np.arange(60)))
    line = text.partition("ledger=")[2].partition("), with")[0]
    model.fit(X, y, persons=np.arange(60), ledger=eval(line, {"Ledger": Ledger}))
    assert (tmp_path / "private.ledger").exists()


def test_a_warning_is_shown_once_per_line_of_a_search_over_parameters():
    search = GridSearchCV(PrivateLinearRegression(**BOUNDED), {"epsilon": [0.3, 1.0]}, cv=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        search.fit(X, y, public=LABELLED)
    assert [(each.category, each.filename) for each in caught] == [(NoLedgerWarning, __file__)]


def test_warnings_turned_into_errors_stop_each_fit_before_it_spends():
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("error", NoLedgerWarning)
            model = PrivateLinearRegression(**BOUNDED)
            with pytest.raises(NoLedgerWarning):
                model.fit(X, y, public=LABELLED)
            assert not hasattr(model, "privacy_")


def test_fits_on_public_rows_and_inner_fits_do_not_warn():
    classifier = PrivateTransferClassifier(classes=[False, True])
    public = Public(np.vstack([X, X]), np.tile(y > 0, 2))
    calls = {
        "rehearsal": lambda: rehearse(classifier, public, 30, epsilons=[1.0], repeats=1),
        "forecast": lambda: classifier.forecast(public, 30),
        "replay": lambda: leaks(PrivateLinearRegression, (X, y), (X, y**2)),
        "inner": lambda: PrivateTransferRegressor(**BOUNDED).fit(X, y, public=Public(X + 1), ledger=Ledger(9.0, 1e-6)),
        "probe": lambda: PrivateProbe(classes=[False, True]).fit(X, y > 0, ledger=Ledger(9.0, 1e-6)),
    }
    assert {name: warned(call) for name, call in calls.items()} == {name: [] for name in calls}
    # An estimator that fits another one warns once.
    outer = PrivateProbe(classes=[False, True])
    assert [category for category, _ in warned(lambda: outer.fit(X, y > 0))] == [NoLedgerWarning]


def test_a_fit_that_protects_nothing_is_not_asked_for_a_ledger():
    # There is no budget that a ledger could keep.
    assert warned(lambda: CnvxAdap(math.inf, n_steps=5).fit(X, y, public=Public(X + 1, y))) == []


def test_scikit_learns_checks_do_not_warn():
    [check] = [each for _, each in estimator_checks(PrivateLinearRegression()) if "check_fit2d_1feature" in str(each)]
    assert warned(lambda: check(PrivateLinearRegression())) == []


@pytest.mark.parametrize(
    ("model", "public", "words"),
    [
        (PrivateLinearRegression(), None, ["target lies between -1 and 1", "features lie in about [-1, 1]"]),
        (PrivateTransferRegressor(), Public(X + 1), ["target lies between -1 and 1"]),
        (PrivateTransferRegressor(target_bounds=(0, 1)), None, ["features lie in about [-1, 1]"]),
        (PrivateTransferRegressor(), LABELLED, []),
        (PrivateTransferRegressor(target_bounds=(0, 1)), Public(X + 1), []),
    ],
    ids=["nothing", "no labels", "no rows", "labels", "declared"],
)
def test_assumed_bounds_are_warned_about_and_stand_on_the_receipt(model, public, words):
    texts = [
        text for category, text in warned(lambda: model.fit(X, y, public=public)) if category is AssumedBoundsWarning
    ]
    assert len(texts) == bool(words)
    assert [part for part in ("target lies", "features lie") if part in "".join(texts)] == [
        part for part in ("target lies", "features lie") if part in "".join(words)
    ]
    assumed = "\n".join(model.privacy_.assumptions)
    assert ("the bounds of the target: -1 to 1, the default" in assumed) == ("target lies" in "".join(words))
    assert ("the range of the features: about -1 to 1" in assumed) == ("features lie" in "".join(words))


def test_warnings_do_not_depend_on_private_rows():
    first = warned(lambda: PrivateLinearRegression().fit(X, y))
    assert first == warned(lambda: PrivateLinearRegression().fit(1e6 * X, 50 + 1e6 * y))
