"""The base of every private estimator: warnings, budget, shared docstrings, ledger, receipt and randomness."""

import math
import warnings
from abc import ABC

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import estimator_checks_generator as estimator_checks

from dpadapt import (
    AssumedBoundsWarning,
    Ledger,
    NoLedgerWarning,
    PrivacyError,
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivateProbe,
    PrivateTransferClassifier,
    PrivateTransferRegressor,
    Public,
    rehearse,
)
from dpadapt.accounting.ledger import NOT_ADDED_UP
from dpadapt.audit import leaks
from dpadapt.learning.base import Budget, bounds_assumption, split_noise
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


def test_a_budget_is_worthwhile_from_enough_rows_on():
    few, many = (Budget.of(1.0, 1e-6, n, "zero-out") for n in (10, 1000))
    assert not few.worthwhile
    assert many.worthwhile
    assert Budget.of(1.0, 1e-6, 1000, "replace-one").noise(1.0) == 2 * many.noise(1.0)
    with pytest.raises(ValueError, match="delta must be positive"):
        Budget.of(1.0, 0.0, 1000, "zero-out")


def test_split_noise_spends_exactly_its_shares():
    multipliers = split_noise(0.5, [0.2, 0.3, 0.5])
    assert math.fsum(1 / multiplier**2 for multiplier in multipliers) == pytest.approx(0.5**2)
    with pytest.raises(ValueError, match="more than 1"):
        split_noise(0.5, [0.6, 0.6])


def test_classes_are_shown_by_the_path_that_people_import():
    assert repr(PrivateLinearRegression) == "<class 'dpadapt.PrivateLinearRegression'>"


def test_the_receipt_says_what_is_assumed_of_cells_labels_and_bounds():
    plain = PrivateLinearRegression(random_state=0).fit(X, y).privacy_.assumptions
    assert "the bounds of the target: -1 to 1, the default" in plain
    assert "that all private cells are finite numbers" in plain
    given = PrivateLinearRegression(target_bounds=(0, 5), random_state=0).fit(X, y).privacy_.assumptions
    assert bounds_assumption((0, 5)) == "the bounds of the target: 0 to 5"
    assert bounds_assumption((0, 5)) in given
    labels = PrivateLogisticRegression(classes=[0, 1], random_state=0).fit(X, y > 0).privacy_.assumptions
    assert "that all private cells are finite numbers and all private labels among the classes" in labels


def test_the_ledger_must_be_a_ledger_of_the_same_adjacency():
    with pytest.raises(TypeError, match=r"must be a dpadapt\.Ledger"):
        PrivateLinearRegression().fit(X, y, ledger={})
    with pytest.raises(PrivacyError, match="counts neighbours by zero-out"):
        PrivateLinearRegression(adjacency="replace-one").fit(X, y, ledger=Ledger(epsilon=1.0, delta=1e-6))


def test_marks_of_other_projects_in_a_docstring_are_left_alone_and_abstract_subclasses_are_possible():
    class Other(PrivateLinearRegression, ABC):
        """Something.

        {not a parameter of ours}
        {epsilon}
        """

    assert "{not a parameter of ours}" in Other.__doc__
    assert "{epsilon}" not in Other.__doc__


@pytest.mark.parametrize("ledger", [None, "in memory", "child"])
def test_without_a_random_state_the_noise_is_secure(ledger):
    given = {"in memory": Ledger(9.0, 1e-5), "child": Ledger(9.0, 1e-5).child(8.0, 1e-5, label="all")}.get(ledger)
    random = np.random.default_rng(2)
    X = random.uniform(-1, 1, (200, 2))
    models = [PrivateLinearRegression(epsilon=2.0, delta=1e-5).fit(X, X[:, 0], ledger=given) for _ in range(2)]
    assert not any(model.privacy_.seeded for model in models)
    assert not np.array_equal(models[0].coef_, models[1].coef_)
    seeded = PrivateLinearRegression(epsilon=2.0, delta=1e-5, random_state=0).fit(X, X[:, 0], ledger=given)
    assert seeded.privacy_.seeded
