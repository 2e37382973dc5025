"""`evaluate`: metrics of private rows leave through one release, whose bound, path and interval are checked here."""

import copy
import dataclasses
import importlib
import inspect
import math
import pkgutil
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.tree import DecisionTreeClassifier

import dpadapt
from dpadapt import (
    Adjacency,
    Evaluation,
    Ledger,
    NoLedgerWarning,
    PrivacyError,
    PrivateTransferClassifier,
    PrivateTransferRegressor,
    Public,
    Schema,
    TableModel,
    audit,
    evaluate,
)
from dpadapt.accounting.ledger import NOT_ADDED_UP
from dpadapt.evaluation import (
    EVALUATION_METRICS,
    _error_bound,
    _log_odds,
    _measure,
    _number_of_bins,
    _score_edges,
    _usable_share,
)
from dpadapt.learning import row_by_row
from dpadapt.mechanisms.events import GaussianEvent, LaplaceEvent
from dpadapt.transfer import public_models

SECRET = "ZEBRA7731"


def drawn(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    score = X @ [1.0, 0.5, -0.5]
    return X, (rng.random(n) < 1 / (1 + np.exp(-score))).astype(int), score + rng.standard_normal(n)


X_FIT, CLASS_FIT, NUMBER_FIT = drawn(2000, 0)
CLASSIFIER = LogisticRegression().fit(X_FIT, CLASS_FIT)
REGRESSOR = LinearRegression().fit(X_FIT, NUMBER_FIT)
X, CLASS, NUMBER = drawn(400, 1)
# Without noise to speak of.
EXACT = {"epsilon": 1e9, "random_state": 0}


def subject(metric):
    """Return the model that has a metric, the labels of its rows, and what bounds its errors."""
    return (REGRESSOR, NUMBER, {"error_bound": 4.0}) if metric == "squared-error" else (CLASSIFIER, CLASS, {})


def of(metric, rows=slice(None), **options):
    """Evaluate the model that has the metric, without noise unless `options` say otherwise."""
    model, labels, bound = subject(metric)
    return evaluate(model, X[rows], labels[rows], metric=metric, **{**EXACT, **bound, **options})


def test_without_noise_the_metrics_are_those_of_the_rows():
    chances = CLASSIFIER.predict_proba(X)
    losses = -np.log(chances[np.arange(len(X)), CLASS])
    assert of("accuracy").value == pytest.approx(CLASSIFIER.score(X, CLASS), abs=1e-6)
    assert of("log-loss").value == pytest.approx(np.minimum(losses, -math.log(0.01)).mean(), abs=1e-6)
    errors = np.minimum((REGRESSOR.predict(X) - NUMBER) ** 2, 16.0)
    assert of("squared-error").value == pytest.approx(errors.mean(), abs=1e-6)
    assert of("auc").value == pytest.approx(roc_auc_score(CLASS, chances[:, 1]), abs=0.002)
    assert of("auc", public=Public(X_FIT)).value == pytest.approx(roc_auc_score(CLASS, chances[:, 1]), abs=0.002)


def test_losses_are_clipped_at_the_bound_which_is_on_the_receipt():
    low = of("squared-error", error_bound=1.0)
    assert low.value == pytest.approx(np.minimum((REGRESSOR.predict(X) - NUMBER) ** 2, 1.0).mean(), abs=1e-6)
    assert any("largest absolute error of a row that counts: 1 (declared)" in fact for fact in low.receipt.assumptions)
    loss = of("log-loss", error_bound=0.5)
    assert loss.value < 0.5
    assert any("largest log-loss of a row that counts: 0.5" in fact for fact in loss.receipt.assumptions)
    public = of("squared-error", error_bound=None, public=Public(X_FIT, NUMBER_FIT))
    wanted = 4 * math.sqrt(np.mean((REGRESSOR.predict(X_FIT) - NUMBER_FIT) ** 2))
    assert any(f"counts: {wanted:.4g} (4 root mean squared errors" in fact for fact in public.receipt.assumptions)


@pytest.mark.parametrize("metric", EVALUATION_METRICS)
@pytest.mark.parametrize(("delta", "event"), [(0.0, LaplaceEvent), (1e-6, GaussianEvent)])
def test_an_evaluation_is_one_release_that_costs_its_epsilon(metric, delta, event):
    ledger = Ledger(epsilon=1.0, delta=1e-6)
    result = of(metric, epsilon=0.2, delta=delta, ledger=ledger, random_state=None)
    [entry] = ledger.entries
    assert isinstance(entry.event, event)
    assert entry.label == f"evaluation: {metric}"
    assert result.receipt.epsilon == pytest.approx(0.2, rel=1e-6)
    assert result.receipt.delta == delta
    assert result.receipt.warnings == ()
    result.receipt.verify()
    assert result.low <= result.value <= result.high
    assert str(result).startswith(f"{metric} = ")
    assert "95% interval" in str(result)


# The bound: no neighbour moves what is released further than the noise allows for.


def recorded(metric, rows, labels, adjacency, persons=None):
    """Return the release of an evaluation on these rows."""
    model, _, bound = subject(metric)
    unit = "row" if persons is None else "person"

    def run(data, ledger):
        return evaluate(model, *data, metric=metric, epsilon=1.0, ledger=ledger, persons=persons, **bound)

    tape = audit.record(run, (rows, labels), adjacency=adjacency, unit=unit)
    [release] = tape.releases
    return release


EXTREME = [(0.0, 0), (50.0, 0), (-50.0, 1), (math.nan, 1), (1e300, 0), (0.3, None), (0.2, 7), (-1e-9, 1)]


@pytest.mark.parametrize("metric", EVALUATION_METRICS)
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_no_row_moves_the_release_further_than_its_noise_allows(metric, adjacency):
    labels = (NUMBER if metric == "squared-error" else CLASS)[:6].astype(object)
    seen = 0.0
    for cell, label in EXTREME:
        first_rows, first_labels = X[:6].copy(), labels.copy()
        first_rows[2], first_labels[2] = cell, label
        first = recorded(metric, first_rows, first_labels, adjacency)
        for other_cell, other_label in EXTREME if adjacency is Adjacency.REPLACE_ONE else [(math.nan, 0)]:
            rows, changed = first_rows.copy(), first_labels.copy()
            rows[2], changed[2] = other_cell, other_label
            if adjacency is Adjacency.ADD_REMOVE:
                rows, changed = np.delete(first_rows, 2, axis=0), np.delete(first_labels, 2)
            second = recorded(metric, rows, changed, adjacency)
            # At epsilon 1, the scale of Laplace noise is the l1 sensitivity, and a little for rounding.
            assert second.scale == first.scale
            distance = np.abs(first.value - second.value).sum()
            assert distance <= first.scale * (1 + 1e-9)
            seen = max(seen, distance / first.scale)
    assert seen > 0.99  # the bound is reached


@pytest.mark.parametrize("metric", EVALUATION_METRICS)
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_no_person_moves_the_release_further_than_its_noise_allows(metric, adjacency):
    labels = (NUMBER if metric == "squared-error" else CLASS)[:9].astype(object)
    ids = np.array([0, 1, 1, 1, 1, 2, 2, 3, 4])
    hers = ids == 1
    first_rows, first_labels = X[:9].copy(), labels.copy()
    first_rows[hers], first_labels[hers] = 50.0, 0
    first = recorded(metric, first_rows, first_labels, adjacency, ids)
    rows, changed, names = first_rows.copy(), first_labels.copy(), ids
    if adjacency is Adjacency.ZERO_OUT:
        rows[hers] = math.nan
    elif adjacency is Adjacency.REPLACE_ONE:
        rows[hers], changed[hers] = -50.0, 0  # another prediction for other rows
    else:
        rows, changed, names = rows[~hers], changed[~hers], ids[~hers]
    second = recorded(metric, rows, changed, adjacency, names)
    assert np.abs(first.value - second.value).sum() <= first.scale * (1 + 1e-9)
    # The same rows as persons of their own move it further: the shares are what bounds it.
    alone = recorded(metric, first_rows, first_labels, adjacency, np.arange(9))
    nobody = recorded(metric, np.where(hers[:, None], math.nan, first_rows), first_labels, adjacency, np.arange(9))
    assert np.abs(alone.value - nobody.value).sum() > 3


def test_a_person_counts_as_one_row():
    ids = np.concatenate([np.zeros(200), np.arange(1, 201)])
    labels = CLASSIFIER.predict(X)
    labels[:200] = 1 - labels[:200]  # one person, with 200 rows that are all wrong
    result = evaluate(CLASSIFIER, X, labels, persons=ids, **EXACT)
    assert result.value == pytest.approx(200 / 201, abs=1e-6)
    assert result.receipt.unit == "person"
    assert evaluate(CLASSIFIER, X, labels, **EXACT).value == pytest.approx(0.5, abs=1e-6)


def test_a_ledger_of_the_other_unit_is_refused():
    with pytest.raises(PrivacyError, match=r"protects persons.*persons="):
        of("accuracy", ledger=Ledger(9.0, unit="person"))
    with pytest.raises(PrivacyError, match="protects rows"):
        of("accuracy", ledger=Ledger(9.0), persons=np.arange(400))


# Replay: what is shown depends on the release alone.


@pytest.mark.parametrize("metric", EVALUATION_METRICS)
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_everything_that_is_shown_follows_from_the_release(metric, adjacency):
    model, labels, bound = subject(metric)

    def run(data, ledger):
        return evaluate(model, *data, metric=metric, epsilon=1.0, ledger=ledger, **bound)

    tape = audit.record(run, (X, labels), adjacency=adjacency)
    others = 1e3 * X[::-1] + 5, np.where(np.arange(400) % 3 > 0, labels[::-1], np.nan)
    if adjacency is Adjacency.ADD_REMOVE:
        others = others[0][:250], others[1][:250]
    replayed = audit.replay(run, others, tape, adjacency=adjacency, poison=math.nan)
    assert repr(replayed.result) == repr(tape.result)


# Rows that count nothing.


@pytest.mark.parametrize("metric", EVALUATION_METRICS)
def test_rows_without_a_label_or_a_finite_cell_count_nothing(metric):
    model, labels, bound = subject(metric)
    rows, labels = X.copy(), labels.astype(object)
    rows[:50, 0], labels[50:100], labels[100] = math.nan, None, math.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        partly = evaluate(model, rows, labels, metric=metric, ledger=Ledger(2e9), **EXACT, **bound)
    assert partly.value == pytest.approx(of(metric, slice(101, None)).value, abs=1e-6)


@pytest.mark.parametrize("metric", EVALUATION_METRICS)
def test_no_row_at_all_leaves_everything_possible(metric):
    result = of(metric, slice(0, 0), epsilon=1.0, ledger=Ledger(9.0))
    assert 0 <= result.low <= result.value <= result.high
    assert result.low == 0
    assert result.high == pytest.approx({"squared-error": 16.0, "log-loss": -math.log(0.01)}.get(metric, 1.0))


class Positive(ClassifierMixin, BaseEstimator):
    """A classifier of another library, which does not say which classes there are."""

    def predict(self, X):
        return X[:, 0] > 0


def test_a_classifier_that_names_no_classes_has_an_accuracy():
    every, none = (evaluate(Positive(), X[:n], CLASS[:n], ledger=Ledger(2e9), **EXACT) for n in (400, 0))
    assert every.value == pytest.approx(np.mean((X[:, 0] > 0) == CLASS), abs=1e-6)
    assert (none.low, none.high) == (0.0, 1.0)


def test_an_unknown_class_counts_as_wrong():
    labels = CLASS.copy()
    labels[:100] = 9
    assert evaluate(CLASSIFIER, X, labels, **EXACT).value == pytest.approx(
        np.mean(CLASSIFIER.predict(X) == labels), abs=1e-6
    )


@pytest.mark.parametrize("odd", [math.nan, None, 2, "text", 2**80])
@pytest.mark.parametrize("kind", [bool, int, float, str])
def test_one_label_of_another_kind_in_a_list_moves_no_other_row(kind, odd):
    model = LogisticRegression().fit(X_FIT, CLASS_FIT)
    model.classes_ = np.array([kind(label) for label in model.classes_])

    def run(labels, ledger):
        return evaluate(model, X[:20], labels, epsilon=1.0, ledger=ledger)

    labels = [kind(label) for label in CLASS[:20]]
    tape = audit.record(run, labels)
    neighbour = audit.replay(run, [odd, *labels[1:]], tape)
    change = neighbour.releases[0].value - tape.releases[0].value
    # Replacing a row is zeroing it and putting another in its place.
    assert np.abs(change).sum() <= 2 + 1e-9


def test_scores_of_public_rows_lie_on_no_edge_of_a_bin():
    # With few different rows, as categories give, every private score is that of some public row.
    rng = np.random.default_rng(0)
    pool = rng.integers(0, 2, (12, 40)).astype(float)
    X_public = pool[rng.integers(0, 12, 400)]
    y_public = (X_public @ rng.normal(size=40) + rng.logistic(size=400) > 0).astype(int)
    model = LogisticRegression().fit(X_public, y_public)
    scores = _log_odds(model.predict_proba(X_public))
    edges, _ = _score_edges(model, (X_public, y_public), 12)
    assert len(edges) > 5
    assert np.abs(scores[:, None] - edges).min() > 1e-10


# Intervals.


@pytest.mark.thorough
@pytest.mark.parametrize("metric", EVALUATION_METRICS)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_intervals_cover_the_metric_of_the_population(metric, delta):
    """Of 150 intervals at 95%, fewer than 133 cover with probability below 1e-3 (binomial)."""
    big, classes, numbers = drawn(200_000, 5)
    truth = {
        "accuracy": lambda: CLASSIFIER.score(big, classes),
        "log-loss": lambda: evaluate(CLASSIFIER, big, classes, metric="log-loss", **EXACT).value,
        "squared-error": lambda: np.minimum((REGRESSOR.predict(big) - numbers) ** 2, 16.0).mean(),
        "auc": lambda: roc_auc_score(classes, CLASSIFIER.predict_proba(big)[:, 1]),
    }[metric]()
    model, _, bound = subject(metric)
    covered, narrow = 0, 0
    for seed in range(150):
        rows, class_of, number = drawn(600, 1000 + seed)
        labels = number if metric == "squared-error" else class_of
        spend = {"epsilon": 0.5, "delta": delta, "random_state": seed, "ledger": Ledger(9.0, 1e-3)}
        result = evaluate(model, rows, labels, metric=metric, **spend, **bound)
        covered += result.low <= truth <= result.high
        half = (result.high - result.low) / 8
        narrow += result.value - half <= truth <= result.value + half
    assert covered >= 133
    assert narrow < 133  # intervals of a quarter of the width are found out


def test_more_budget_gives_narrower_intervals():
    for metric in EVALUATION_METRICS:
        wide, narrow = (of(metric, epsilon=epsilon, random_state=1) for epsilon in (0.3, 30.0))
        assert wide.high - wide.low > narrow.high - narrow.low


def test_bins_of_scores_grow_with_rows_and_budget_where_these_are_public():
    assert _number_of_bins(0.0) == _number_of_bins(100.0) == 12
    assert 12 < _number_of_bins(1000.0) < _number_of_bins(10_000.0) <= 64

    def bins(adjacency):
        return len(recorded("auc", X, CLASS, adjacency).value)

    # At epsilon 1 and 400 rows; under add-remove nothing may depend on the number of rows.
    assert bins(Adjacency.ZERO_OUT) == 2 * _number_of_bins(400.0) > bins(Adjacency.ADD_REMOVE) == 25


@pytest.mark.parametrize(
    ("counts", "spread", "limits"),
    [
        # Too few rows for the noise: anything is possible.
        ([1.0, 3.0], 100.0, (0.75, 0.0, 1.0)),
        ([3.0, -1.0], 100.0, (0.0, 0.0, 1.0)),
        ([-1.0, 3.0], 100.0, (1.0, 0.0, 1.0)),
        # Enough rows. The counts minus 1 would have a negative variance.
        ([1000.0, -4.0], 1.0, (0.0, 0.0, 0.003)),
        ([-4.0, 1000.0], 1.0, (1.0, 0.997, 1.0)),
    ],
)
def test_noise_takes_no_value_or_interval_out_of_the_range_of_the_metric(counts, spread, limits):
    accuracy = _measure("accuracy", CLASSIFIER, None, None, n_bins=12)
    result = accuracy.interval(np.array(counts), spread, 1.96)
    assert result == pytest.approx(limits, abs=3e-3)
    assert 0 <= result[1] <= result[0] <= result[2] <= 1


def test_noise_takes_no_share_of_usable_rows_below_0_or_above_1():
    # 10 rows, and noise of standard deviation 10.
    assert _usable_share(np.array([50.0]), None, 10, 10.0, 1.96) == (1.0, 1.0)
    assert _usable_share(np.array([-30.0]), None, 10, 10.0, 1.96) == (0.0, 1.0)


def test_certain_predictions_have_finite_log_odds_in_float64():
    odds = _log_odds(np.array([[0.0, 1.0], [1.0, 0.0]], dtype=np.float32))
    assert odds.tolist() == [1000.0, -1000.0]
    assert odds.dtype == np.float64


def test_public_labels_may_be_numbers_as_text():
    bounds = [_error_bound(REGRESSOR, (X_FIT, labels), None) for labels in (NUMBER_FIT, NUMBER_FIT.astype(str))]
    assert bounds[0] == bounds[1]


# Tables.


def visits(n, seed):
    rng = np.random.default_rng(seed)
    age = rng.uniform(18, 90, n).round(1)
    frame = pd.DataFrame({"id": np.arange(n) // 2, "age": age, "cost": 10 * age + rng.normal(0, 50, n)})
    frame["ill"] = np.where(age + rng.normal(0, 20, n) > 60, "yes", "no")
    return frame


PUBLIC, PRIVATE, TEST = visits(300, 1), visits(500, 2), visits(800, 3)
SCHEMA = Schema.infer(PUBLIC, dataset="visits")


@pytest.fixture(scope="module")
def of_tables():
    models = {
        "ill": TableModel(PrivateTransferClassifier(epsilon=1.0, random_state=0), SCHEMA, label="ill"),
        "cost": TableModel(PrivateTransferRegressor(epsilon=1.0, random_state=0), SCHEMA, label="cost"),
    }
    return {name: model.fit(PRIVATE, public=Public(PUBLIC)) for name, model in models.items()}


@pytest.mark.parametrize("metric", EVALUATION_METRICS)
def test_tables_are_evaluated_with_missing_labels_and_persons(of_tables, metric):
    label = "cost" if metric == "squared-error" else "ill"
    model, holed = of_tables[label], TEST.assign(**{label: TEST[label].where(TEST.index % 5 > 0)})
    whole = evaluate(model, TEST[TEST.index % 5 > 0], metric=metric, **EXACT)
    partly = evaluate(model, holed, metric=metric, **EXACT)
    tolerance = 0.01 * whole.value if metric == "auc" else 1e-6 * max(1.0, whole.value)  # bins grow with rows
    assert partly.value == pytest.approx(whole.value, abs=tolerance)
    ledger = Ledger(3.0, 1e-6, unit="person")
    personal = evaluate(model, TEST, metric=metric, epsilon=0.5, persons="id", ledger=ledger)
    assert personal.receipt.unit == "person"
    assert isinstance(personal, Evaluation)


def test_the_column_of_ids_comes_from_the_holder_and_never_from_the_model(of_tables, monkeypatch):
    """Whoever made the model could name a column that is another one in every row."""
    model, rows = copy.copy(of_tables["cost"]), TEST.assign(visit=np.arange(len(TEST)))
    model.person = "visit"
    ledger = Ledger(9.0, 1e-6, unit="person")
    with monkeypatch.context() as patch:
        patch.setattr(TableModel, "encode_for_evaluation", lambda *_args, **_options: pytest.fail("a row was read"))
        with pytest.raises(PrivacyError, match=r"protects persons.*persons="):
            evaluate(model, rows, epsilon=1.0, ledger=ledger)
    assert ledger.entries == []
    tape = audit.record(
        lambda data, ledger: evaluate(model, data, epsilon=1.0, persons="id", ledger=ledger), rows, unit="person"
    )
    assert tape.releases[0].value.sum() == pytest.approx(rows["id"].nunique())
    receipt = evaluate(model, rows, epsilon=1.0, persons="id", ledger=ledger).receipt
    assert "the ids of persons: the column 'id'" in receipt.assumptions
    alone = evaluate(model, rows, epsilon=1.0, ledger=Ledger(9.0)).receipt
    assert alone.unit == "row"
    assert any("fitted for persons" in warning for warning in alone.warnings)


def test_the_squared_error_of_a_table_is_bounded_by_the_schema_or_by_public_rows(of_tables):
    low, high = SCHEMA.bounds("cost")
    by_schema, by_public = (
        evaluate(of_tables["cost"], TEST, public=known, **EXACT) for known in (None, Public(PUBLIC))
    )
    assert any(f"{(high - low) / 4:.4g} (a quarter of the range" in fact for fact in by_schema.receipt.assumptions)
    assert any("root mean squared errors on public rows" in fact for fact in by_public.receipt.assumptions)
    assert by_schema.value == pytest.approx(np.mean((of_tables["cost"].predict(TEST) - TEST["cost"]) ** 2), rel=0.01)


def test_a_model_of_tables_needs_a_label_and_the_name_of_the_column_of_ids(of_tables):
    ledger, without = Ledger(9.0, 1e-6, unit="person"), copy.copy(of_tables["ill"])
    without.label = None
    with pytest.raises(TypeError, match="persons must name the column of the ids"):
        evaluate(of_tables["ill"], TEST, epsilon=1.0, persons=TEST["id"], ledger=ledger)
    with pytest.raises(ValueError, match="has no label to evaluate"):
        evaluate(without, TEST, epsilon=1.0, persons="id", ledger=ledger)
    assert ledger.entries == []


# Refusals and warnings.


def test_without_a_ledger_it_warns_with_the_line_to_write():
    with pytest.warns(NoLedgerWarning, match=r"evaluate\(\.\.\., ledger=Ledger\.open") as caught:
        result = of("accuracy", epsilon=0.5)
    assert [each.filename for each in caught] == [__file__]
    assert NOT_ADDED_UP in result.receipt.warnings


class Mixing(ClassifierMixin, BaseEstimator):
    """Predicts by comparing a row with the others."""

    classes_ = np.array([0, 1])

    def predict(self, X):
        return (X[:, 0] > np.median(X[:, 0])).astype(int)


class Neither(BaseEstimator):
    """Neither a classifier nor a regressor."""

    def predict(self, X):
        return X[:, 0]


class Undecided(Mixing):
    """Predicts a probability for one class more than it has."""

    def predict_proba(self, X):
        return np.full((len(X), 3), 1 / 3)


@pytest.mark.parametrize(
    ("model", "data", "options", "words"),
    [
        (CLASSIFIER, (X, CLASS), {"metric": "f1"}, "metric must be one of"),
        (CLASSIFIER, (X, CLASS), {"metric": "squared-error"}, "'squared-error' is for models that predict a number"),
        (REGRESSOR, (X, NUMBER), {"metric": "auc"}, "is for models that predict a class"),
        (REGRESSOR, (X, NUMBER), {}, "error_bound must be given"),
        (REGRESSOR, (X, NUMBER), {"error_bound": -1.0}, "error_bound"),
        (CLASSIFIER, (X, CLASS), {"error_bound": 1.0}, "has no errors to bound"),
        (Mixing(), (X, CLASS), {"metric": "log-loss"}, "predict_proba"),
        (Mixing(), (X, CLASS), {}, "mixes rows"),
        (CLASSIFIER, (X, CLASS), {"epsilon": 0.0}, "epsilon"),
        (CLASSIFIER, (X, CLASS), {"delta": 1.5}, "delta"),
        (CLASSIFIER, (X, CLASS[:-1]), {}, "one label for each"),
        (CLASSIFIER, (X[:, 0], CLASS), {}, "rows of equally many cells"),
        (CLASSIFIER, (X, CLASS), {"persons": [1, 2]}, "persons"),
        (CLASSIFIER, (X[:, :2], CLASS), {}, "fails on made-up rows"),
        (object(), (X, CLASS), {}, "model that predicts"),
        (Neither(), (X, NUMBER), {}, "metric must be given"),
        (Undecided(), (X, CLASS), {"metric": "log-loss"}, "one probability for each of its classes"),
        (CLASSIFIER, (np.ma.masked_array(X, X > 2), CLASS), {}, "rows of equally many cells"),
        (CLASSIFIER, (X, np.ma.masked_array(CLASS, CLASS > 0)), {}, "one label for each"),
        (CLASSIFIER, (X, CLASS[:, None]), {}, "one label for each"),
        (CLASSIFIER, (X, "1" * len(X)), {}, "one label for each"),
    ],
)
def test_bad_input_is_refused_with_one_line_that_shows_no_value_before_anything_is_charged(model, data, options, words):
    ledger = Ledger(9.0, 1e-6, unit="person" if "persons" in options else "row")
    with pytest.raises((ValueError, TypeError), match=words) as failure:
        evaluate(model, *data, **{"epsilon": 1.0, "ledger": ledger, **options})
    assert ledger.entries == []
    assert SECRET not in str(failure.value)
    assert failure.value.__context__ is None


def test_columns_in_another_order_are_refused():
    names = ["a", "b", "c"]
    model = LogisticRegression().fit(pd.DataFrame(X_FIT, columns=names), CLASS_FIT)
    frame = pd.DataFrame(X, columns=names)
    assert evaluate(model, frame, CLASS, **EXACT).value == pytest.approx(model.score(frame, CLASS), abs=1e-6)
    with pytest.raises(ValueError, match="in the same order"):
        evaluate(model, frame[["b", "a", "c"]], CLASS, **EXACT)


def test_three_classes_have_a_log_loss_and_no_area():
    labels = CLASS_FIT + (NUMBER_FIT > 1)
    model = LogisticRegression().fit(X_FIT, labels)
    assert evaluate(model, X_FIT, labels, metric="log-loss", **EXACT).value > 0
    with pytest.raises(ValueError, match="'auc' is for two classes, the model has 3"):
        evaluate(model, X_FIT, labels, metric="auc", **EXACT)


class InFloat32(LinearRegression):
    def predict(self, X):
        return super().predict(X).astype(np.float32)


def test_predictions_in_float32_are_refused_where_the_number_of_rows_is_private():
    model, spend = InFloat32().fit(X_FIT, NUMBER_FIT), {"error_bound": 4.0, "epsilon": 1.0}
    evaluate(model, X, NUMBER, ledger=Ledger(9.0), **spend)
    for terms in ({"adjacency": Adjacency.ADD_REMOVE}, {"unit": "person"}):
        ledger, persons = Ledger(9.0, **terms), np.arange(400) if "unit" in terms else None
        with pytest.raises(ValueError, match="float32"):
            evaluate(model, X, NUMBER, ledger=ledger, persons=persons, **spend)
        assert ledger.entries == []


# Cells and labels of every kind, and models that misbehave on private rows.


def test_one_number_among_spans_of_time_moves_the_histogram_by_one():
    spans = [pd.Timedelta(days=day) for day in range(200)]
    mixed = [*spans[:-1], 3.5]
    for holder in (list, lambda labels: pd.Series(labels), lambda labels: np.array(labels, dtype=object)):
        first, second = (
            recorded("squared-error", X[:200], holder(labels), Adjacency.ZERO_OUT) for labels in (spans, mixed)
        )
        assert np.abs(first.value - second.value).sum() == pytest.approx(1.0)


def test_an_extreme_cell_makes_no_tree_fail():
    model = DecisionTreeClassifier(max_depth=3).fit(X_FIT, CLASS_FIT)
    rows = X.copy()
    rows[0] = 1e308
    expected = (model.predict(np.minimum(rows, 1e30)) == CLASS).mean()
    assert evaluate(model, rows, CLASS, **EXACT).value == pytest.approx(expected, abs=1e-6)


def test_evaluate_and_fit_clip_cells_alike():
    assert row_by_row.clipped_cells(np.array([1e308]))[0] == public_models._LARGEST_CELL


class Keeping(ClassifierMixin, BaseEstimator):
    """Keeps the rows that it has seen, warns about them, and fails on some."""

    classes_ = np.array([0, 1])

    def __init__(self):
        self.rows = []

    def predict(self, X):
        self.rows.append(np.array(X))
        warnings.warn(f"{SECRET} {X[0]}", UserWarning, stacklevel=1)
        if (X[:, 0] > 2).any():
            raise ValueError(f"{SECRET} {X}")
        return np.ones(len(X), dtype=int)


def test_a_model_keeps_no_row_warns_of_none_and_fails_for_its_own_rows_alone():
    model = Keeping()
    failing = X[:, 0] > 2
    assert 0 < failing.sum() < 40
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = evaluate(model, X, CLASS, ledger=Ledger(2e9), **EXACT)
    assert model.rows == []
    # Rows on which the model fails count as wrong.
    assert result.value == pytest.approx(np.mean((CLASS == 1) & ~failing), abs=1e-6)
    assert result.usable == pytest.approx(1.0, abs=1e-6)


class InLists(BaseEstimator):
    """Answers by a list of what `answer` returns for each row, or by an array of `dtype`; `odd` for rows above 100."""

    def __init__(self, kind, odd, *, dtype=None, frame=False):
        self.kind, self.odd, self.dtype, self.frame = kind, odd, dtype, frame

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.estimator_type = "regressor" if self.kind == "squared-error" else "classifier"
        return tags

    @property
    def classes_(self):
        return np.array(LISTED.get(self.kind, [0, 1]))

    def _answer(self, row):
        if row[0] > 100:
            return self.odd
        if self.kind == "squared-error":
            return max(0, float(row[0]))  # a whole number for the null row
        if self.kind in LISTED:
            return LISTED[self.kind][int(row[0] > 0)]
        return [1, 0] if row[0] <= 0 else [0.25, 0.75]

    def predict(self, X):
        answers = [self._answer(row) for row in X]
        answers = [part for each in answers for part in (each.parts if isinstance(each, Several) else [each])]
        return pd.Series(answers) if self.frame else np.array(answers, dtype=self.dtype)

    predict_proba = predict


@dataclasses.dataclass
class Several:
    """Answers for one row."""

    parts: list


# Class ids that no float64 holds, and texts.
LISTED = {"small": [0, 1], "large": [7, 2**60 + 1], "text": ["a", "b"]}
ODD_ANSWERS = {
    "labels": [
        "unknown",
        math.nan,
        1.0,
        2.5,
        True,
        None,
        b"\xff",
        2**63,
        2**70,
        [1, 1],
        pd.NaT,
        pd.NA,
        1j,
        pd.Timestamp("2024-05-31"),
        Several([]),
        Several([1, 1]),
    ],
    "numbers": ["unknown", "1.5", math.nan, 1, True, None, 2**70, [1.0, 1.0], pd.NaT, 1j, Several([]), Several([1, 1])],
    "chances": [None, [1, 0], [0.2, 0.3, 0.5], ["a", "b"], [None, 1], [math.nan, 1.0], 0.5, Several([]), [True, False]],
}


@pytest.mark.parametrize(
    ("metric", "kind", "answers", "more"),
    [
        ("accuracy", "small", "labels", {}),
        ("accuracy", "large", "labels", {}),
        ("accuracy", "text", "labels", {}),
        ("accuracy", "large", "labels", {"dtype": object}),
        ("accuracy", "small", "labels", {"frame": True}),
        ("squared-error", "squared-error", "numbers", {}),
        ("squared-error", "squared-error", "numbers", {"frame": True}),
        ("log-loss", "chances", "chances", {}),
        ("auc", "chances", "chances", {}),
    ],
)
def test_a_row_that_a_model_cannot_predict_moves_its_own_count_alone(metric, kind, answers, more):
    """A model answers by another type, by no result or by several: the rows beside it are predicted as without it."""
    n, odd_row = 9, np.array([1000.0, 0.0])
    plain = np.random.default_rng(0).uniform(-1, 1, (n, 2))
    known = np.array(LISTED.get(kind, [0, 1]), dtype=object)
    labels = np.maximum(plain[:, 0], 0) if metric == "squared-error" else known[(plain[:, 0] > 0).astype(int)]
    bound = {"error_bound": 4.0} if metric == "squared-error" else {}

    def release(model, rows, labels, adjacency):
        run = lambda data, ledger: evaluate(model, *data, metric=metric, epsilon=1.0, ledger=ledger, **bound)  # noqa: E731
        [single] = audit.record(run, (rows, labels), adjacency=adjacency).releases
        return single

    for odd in ODD_ANSWERS[answers]:
        model = InLists(kind, odd, **more)
        # One such row among plain ones, some, and nothing but such rows.
        for others in ([], [2, 6, 7], range(n)):
            base = plain.copy()
            base[list(others)] = odd_row
            first = release(model, base, labels, Adjacency.REPLACE_ONE)
            for place in range(n):
                rows = base.copy()
                rows[place] = plain[place] if place in others else odd_row
                second = release(model, rows, labels, Adjacency.REPLACE_ONE)
                assert np.abs(first.value - second.value).sum() <= 2, (odd, others, place)
            for place in (0, 3, 6):
                fewer = np.delete(base, place, axis=0), np.delete(labels, place)
                whole, less = (release(model, *data, Adjacency.ADD_REMOVE) for data in ((base, labels), fewer))
                assert np.abs(whole.value - less.value).sum() <= 1, (odd, others, place)


def test_a_row_that_a_model_leaves_out_counts_as_wrong():
    rows = np.concatenate([X[:, :2], [[1000.0, 0.0]]])
    labels = np.concatenate([(rows[:-1, 0] > 0).astype(int), [1]])
    for odd in (Several([]), "unknown", None):
        result = evaluate(InLists("small", odd), rows, labels, ledger=Ledger(2e9), **EXACT)
        assert result.value == pytest.approx(400 / 401, abs=1e-6)
        assert result.usable == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("metric", EVALUATION_METRICS)
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_unreadable_labels_are_no_evidence_and_their_share_is_released(metric, adjacency):
    model, labels, bound = subject(metric)

    def result(unreadable, epsilon):
        given = labels.astype(object)
        given[:unreadable] = "?" if metric == "squared-error" else None
        ledger = Ledger(2e9, adjacency=adjacency)
        return evaluate(model, X, given, metric=metric, epsilon=epsilon, random_state=0, ledger=ledger, **bound)

    for unreadable in (0, 100, 399):
        assert result(unreadable, 1e6).usable == pytest.approx(1 - unreadable / 400, abs=1e-3)
    whole, half, nothing = (result(unreadable, 5.0) for unreadable in (0, 200, 400))
    assert half.high - half.low > whole.high - whole.low
    assert nothing.low == 0
    assert nothing.high == pytest.approx({"squared-error": 16.0, "log-loss": -math.log(0.01)}.get(metric, 1.0))
    assert abs(half.usable - 0.5) <= 2 * half.usable_margin < 0.5
    assert "usable rows: " in str(half)


# Messages and holders.


def test_names_of_private_columns_are_in_no_message():
    private = pd.DataFrame({SECRET: [1.0, 2.0], "b": [1.0, 2.0]})
    public = Public(pd.DataFrame({"a": [1.0, 2.0], "b": [1.0, 2.0]}), [0.0, 1.0])
    named = LinearRegression().fit(public.X, public.y)
    attempts = [
        lambda: PrivateTransferRegressor().fit(private, [0.0, 1.0], public=public),
        lambda: PrivateTransferClassifier().fit(private, [0, 1], public=public),
        lambda: PrivateTransferRegressor().fit(private, [0.0, SECRET], public=None),
        lambda: evaluate(named, private, [0.0, 1.0], epsilon=1.0, error_bound=1.0),
        lambda: TableModel(PrivateTransferRegressor(), SCHEMA, label="cost").fit(private, public=Public(PUBLIC)),
    ]
    for attempt in attempts:
        with warnings.catch_warnings(record=True) as heard, pytest.raises((ValueError, TypeError)) as failure:
            attempt()
        error = failure.value
        while error is not None:
            assert SECRET not in str(error)
            error = error.__cause__ or error.__context__
        assert all(SECRET not in str(warning.message) for warning in heard)


# Types of fields that hold private rows.
PRIVATE_TYPES = re.compile(r"\b(Part|EncodedRows|DataFrame|_Rows|Rows|Blocks|Shares)\b")
# Of modules that are being rewritten.
SHOWN_ELSEWHERE = {
    "dpadapt.transfer.classification_fit._Private",
    "dpadapt.transfer.regression_fit.ScoredRows",
    "dpadapt.transfer.regression_fit._PlaneRows",
}


def holders():
    for module in pkgutil.walk_packages(dpadapt.__path__, "dpadapt."):
        try:
            members = vars(importlib.import_module(module.name)).values()
        except ImportError:  # an extra that is not installed
            continue
        for member in members:
            if inspect.isclass(member) and member.__module__ == module.name and dataclasses.is_dataclass(member):
                yield member


def test_no_holder_of_private_rows_shows_them():
    shown = {
        f"{holder.__module__}.{holder.__qualname__}"
        for holder in holders()
        if hasattr(holder.__repr__, "__wrapped__")  # made by dataclass
        and any(
            field.repr and PRIVATE_TYPES.search(str(field.type)) and "Callable" not in str(field.type)
            for field in dataclasses.fields(holder)
        )
    }
    assert shown - SHOWN_ELSEWHERE == set()
