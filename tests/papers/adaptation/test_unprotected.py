"""The baselines without privacy: they say so, a capped ledger refuses them, and they are what they claim to be."""

import math

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from benchmarks.adaptation.nonprivate import BASELINES, baseline, best_of
from dpadapt import BudgetExceeded, Ledger, PrivacyError, Public
from dpadapt.mechanisms.mechanism import NonPrivateEvent
from dpadapt.papers.adaptation.sbest import SBest, SBestClassifier
from dpadapt.papers.adaptation.unprotected import AlphaMixture, AlphaMixtureClassifier

OPEN = [entry for entry in BASELINES if not entry.private]
every_open = pytest.mark.parametrize("entry", OPEN, ids=lambda entry: f"{entry.name}-{entry.task}")
every_one = pytest.mark.parametrize("entry", BASELINES, ids=lambda entry: f"{entry.name}-{entry.task}")


def samples(task, seed=0, m=120, n=50):
    random = np.random.default_rng(seed)
    X_source, X = random.normal(size=(m, 3)), random.normal(size=(n, 3)) + 0.5
    y_source, y = X_source @ [1.0, 0.3, 0.1], X @ [1.0, 0.0, 0.2]
    y_source, y = y_source + 0.1 * random.normal(size=m), y + 0.1 * random.normal(size=n)
    if task == "classification":
        return X, np.where(y > 0, "yes", "no"), Public(X_source, np.where(y_source > 0, "yes", "no"))
    return X, y, Public(X_source, y_source)


@every_open
def test_receipt_says_that_nothing_is_protected(entry):
    X, y, public = samples(entry.task)
    model = entry.estimator().fit(X, y, public=public)
    assert model.privacy_.epsilon == math.inf
    assert [type(charge.event) for charge in model.privacy_.entries] == [NonPrivateEvent]
    assert any("not private" in text for text in model.privacy_.warnings)
    assert "not private" in type(model).__doc__.lower()
    assert model.score(X, y) > 0.5


@every_open
def test_a_capped_ledger_refuses_and_an_open_one_is_charged(entry):
    X, y, public = samples(entry.task)
    capped, free = Ledger(epsilon=50.0, delta=0.1), Ledger(epsilon=math.inf)
    with pytest.raises(BudgetExceeded, match="cap"):
        entry.estimator().fit(X, y, public=public, ledger=capped)
    assert capped.entries == []
    entry.estimator().fit(X, y, public=public, ledger=free)
    assert free.spent() == math.inf
    with pytest.raises(TypeError, match="ledger"):
        entry.estimator().fit(X, y, public=public, ledger=3.0)


@every_open
def test_without_labelled_public_data_the_model_is_that_of_the_target(entry):
    X, y, public = samples(entry.task)
    alone = entry.estimator().fit(X, y).predict(X)
    assert np.array_equal(alone, entry.estimator().fit(X, y, public=Public(public.X)).predict(X))


# Without public data, which the checks don't have, the other baselines run the same lines.
@parametrize_with_checks([AlphaMixture(), AlphaMixtureClassifier(), SBest(), SBestClassifier()])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@every_one
def test_public_columns_must_be_the_targets(entry):
    X, y, public = samples(entry.task)
    ledger = Ledger(epsilon=math.inf, delta=1e-6)
    with pytest.raises(ValueError, match="columns"):
        entry.estimator().fit(X, y, public=Public(public.X[:, :2], public.y), ledger=ledger)
    with pytest.raises(PrivacyError, match="private X"):
        entry.estimator().fit(X, y, public=Public(X, y), ledger=ledger)
    assert ledger.entries == []


@every_one
@pytest.mark.parametrize("public_too", [True, False])
def test_constant_columns_and_fewer_rows_than_columns_are_handled(entry, public_too):
    random = np.random.default_rng(1)
    X, X_source = random.normal(size=(12, 20)), random.normal(size=(15, 20))
    X[:, 3] = 7.0
    X_source[:, 4] = 7.0
    if public_too:
        X_source[:, 3] = 7.0
    y, y_source = X[:, 0], X_source[:, 0]
    if entry.task == "classification":
        y, y_source = y > 0, y_source > 0
    model = entry.estimator().fit(X, y, public=Public(X_source, y_source))
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.intercept_).all()


@every_open
def test_one_class_or_one_value_in_the_target_is_handled(entry):
    X, y, public = samples(entry.task)
    same = np.full(len(y), y[0])
    model = entry.estimator().fit(X, same, public=public)
    assert len(model.predict(X)) == len(X)
    if entry.task == "classification":
        assert list(model.classes_) == ["no", "yes"]


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_mixture_minimises_the_mixed_error(alpha):
    X, y, public = samples("regression")
    weights = np.concatenate([np.full(120, alpha / 120), np.full(50, (1 - alpha) / 50)])
    rows, labels = np.vstack([public.X, X]), np.concatenate([public.y, y])
    oracle = LinearRegression().fit(rows, labels, sample_weight=weights)
    model = AlphaMixture(alpha, ridge=1e-9).fit(X, y, public=public)
    assert model.coef_ == pytest.approx(oracle.coef_, abs=1e-6)
    assert model.intercept_ == pytest.approx(oracle.intercept_, abs=1e-6)


def test_classifier_mixture_at_the_ends_is_one_sample_alone():
    X, y, public = samples("classification")
    target = AlphaMixtureClassifier(0.0, ridge=1e-6).fit(X, y, public=public)
    oracle = LogisticRegression(C=1e9, max_iter=2000).fit(X, y)
    assert np.mean(target.predict(X) == oracle.predict(X)) > 0.97
    source = AlphaMixtureClassifier(1.0).fit(X, y, public=public)
    assert np.array_equal(source.coef_, AlphaMixtureClassifier(1.0).fit(X, y[::-1], public=public).coef_)


@pytest.mark.parametrize("alpha", [-0.1, 1.1, "half", math.nan])
def test_bad_alpha_is_named(alpha):
    X, y, public = samples("regression")
    with pytest.raises(ValueError, match="alpha"):
        AlphaMixture(alpha).fit(X, y, public=public)


def test_best_of_picks_by_validation_rows():
    X, y, public = samples("regression")
    X_validation, y_validation, _ = samples("regression", seed=5)
    candidates = [AlphaMixture(alpha) for alpha in (1.0, 0.5, 0.0)]
    best = best_of(candidates, X, y, X_validation=X_validation, y_validation=y_validation, public=public)
    scores = [clone(c).fit(X, y, public=public).score(X_validation, y_validation) for c in candidates]
    assert best.alpha == candidates[int(np.argmax(scores))].alpha
    with pytest.raises(ValueError, match="candidates"):
        best_of([], X, y, X_validation=X, y_validation=y)


def test_table_of_baselines_names_each_once():
    assert len({(entry.name, entry.task) for entry in BASELINES}) == len(BASELINES)
    for entry in BASELINES:
        assert entry.private == ("epsilon" in entry.estimator().get_params())
    with pytest.raises(ValueError, match="KMM"):
        baseline("no such thing")


@every_open
def test_numbers_whose_powers_overflow_are_refused_before_anything_is_disclosed(entry):
    X, y, public = samples(entry.task)
    X[3, 1] = 1e200
    ledger = Ledger(math.inf)
    with pytest.raises(ValueError, match=r"X must hold numbers up to 1e\+60"):
        entry.estimator().fit(X, y, public=public, ledger=ledger)
    assert ledger.entries == []
