"""Prediction intervals and sets: coverage on made-up data, the release, and what is refused or warned about."""

import math

import numpy as np
import pytest
from sklearn.base import clone

from dpadapt import (
    Adjacency,
    CalibrationWarning,
    Ledger,
    PrivateTransferClassifier,
    PrivateTransferRegressor,
    Public,
    audit,
)
from dpadapt.accounting.cost import gaussian_epsilon
from dpadapt.learning.base import Budget
from dpadapt.mechanisms.prefix_sums import cumulative
from dpadapt.rows import row_shares
from dpadapt.transfer import classification, regression
from dpadapt.transfer.intervals import (
    Calibration,
    coverage_in_words,
    interval_plan,
    residual_bounds,
    set_plan,
)

ADJACENCIES = [{}, {"adjacency": "replace-one"}, {"adjacency": "add-remove", "n_rows": 3000}]


def rows(n, seed, *, level=0.0, deviation=0.5):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, 3))
    return X, X @ [1.0, -1.0, 0.5] + level + deviation * random.standard_normal(n)


PUBLIC = Public(*rows(300, 1))
PRIVATE, NEW = rows(4000, 2, level=0.3), rows(4000, 3, level=0.3)
CUTS = [-1.0, 1.0]


def classes(data):
    return data[0], np.digitize(data[1], CUTS)


PUBLIC_CLASSES = Public(*classes((PUBLIC.X, PUBLIC.y)))


def regressor(**params):
    return PrivateTransferRegressor(**{"epsilon": 2.0, "intervals": True, "random_state": 0} | params)


def classifier(**params):
    return PrivateTransferClassifier(**{"epsilon": 2.0, "intervals": True, "random_state": 0} | params)


def covered(model, coverage):
    """Return the share of new rows that lie inside, and the mean width or size."""
    if hasattr(model, "predict_interval"):
        low, high = model.predict_interval(NEW[0], coverage=coverage).T
        return np.mean((low <= NEW[1]) & (NEW[1] <= high)), np.mean(high - low)
    X, codes = classes(NEW)
    members = model.predict_set(X, coverage=coverage)
    return members[np.arange(len(codes)), codes].mean(), members.sum(axis=1).mean()


@pytest.fixture(scope="module")
def fitted():
    return regressor().fit(*PRIVATE, public=PUBLIC)


@pytest.fixture(scope="module")
def fitted_classifier():
    return classifier().fit(*classes(PRIVATE), public=PUBLIC_CLASSES)


# Coverage. Seeds are fixed; bounds leave about three standard deviations of noise, of the private rows and of new rows.


@pytest.mark.parametrize("params", [*ADJACENCIES, {"prior": "same-population"}], ids=str)
def test_intervals_cover_what_was_asked_for(params):
    model = regressor(**params).fit(*PRIVATE, public=PUBLIC)
    for coverage in (0.5, 0.8, 0.9, 0.95):
        share, width = covered(model, coverage)
        assert coverage - 0.03 < share < coverage + 0.05
        assert width < 1.3 * 2 * 0.5 * {0.5: 0.674, 0.8: 1.282, 0.9: 1.645, 0.95: 1.96}[coverage]


@pytest.mark.parametrize("params", [*ADJACENCIES, {"prior": "same-population"}], ids=str)
def test_sets_cover_what_was_asked_for(params):
    model = classifier(**params).fit(*classes(PRIVATE), public=PUBLIC_CLASSES)
    for coverage in (0.5, 0.8, 0.9, 0.95):
        share, size = covered(model, coverage)
        assert coverage - 0.03 < share < coverage + 0.05
        assert size < 1.7


def test_intervals_follow_private_errors_not_public_ones():
    wide = rows(4000, 4, deviation=1.5)
    model = regressor().fit(*wide, public=PUBLIC)
    half = np.diff(model.predict_interval(wide[0][:1], coverage=0.9))[0, 0] / 2
    assert half == pytest.approx(1.5 * 1.645, rel=0.15)


def test_unlabelled_public_rows_are_enough_for_sets():
    model = classifier(classes=[0, 1, 2]).fit(*classes(PRIVATE), public=Public(PUBLIC.X))
    assert 0.87 < covered(model, 0.9)[0] < 0.95


def test_a_person_counts_alike_whatever_the_number_of_rows():
    """Half of the persons have many rows, with large errors. A new row of a random person is covered."""
    random = np.random.default_rng(5)
    X, y = rows(12_000, 6)
    ids = np.concatenate([np.arange(2000), 2000 + np.arange(10_000) % 2000])
    y[2000:] += 2.0 * random.standard_normal(10_000)
    model = regressor(epsilon=4.0).fit(X, y, public=PUBLIC, persons=ids)
    low, high = model.predict_interval(X, coverage=0.8).T
    inside = (low <= y) & (y <= high)
    assert 0.5 * inside[:2000].mean() + 0.5 * inside[2000:].mean() == pytest.approx(0.8, abs=0.04)
    assert inside.mean() < 0.72
    assert model.calibration_.n_rows == pytest.approx(4000, rel=0.06)
    # What coverage means is no warning; reports say it.
    assert not any("coverage" in text for text in model.privacy_.warnings)
    assert "A person counts alike" in coverage_in_words("person")


def test_rows_without_a_label_do_not_count():
    present = np.arange(4000) % 2 == 0
    X, y = PRIVATE[0], np.where(present, PRIVATE[1], 1e6)
    model = regressor(epsilon=4.0).fit(X, y, public=PUBLIC, persons=row_shares(present))
    assert model.calibration_.n_rows == pytest.approx(2000, rel=0.08)
    assert 0.87 < covered(model, 0.9)[0] < 0.95


def test_rows_count_by_their_weights():
    """Half of the rows have large errors and a fifth of the weight of the others."""
    X, y = rows(6000, 8)
    y[3000:] += 3.0 * np.random.default_rng(9).standard_normal(3000)
    weights = np.repeat([1.0, 0.2], 3000)
    model = regressor(epsilon=4.0, max_weight=1.0).fit(X, y, public=PUBLIC, sample_weight=weights)
    low, high = model.predict_interval(X, coverage=0.8).T
    inside = (low <= y) & (y <= high)
    assert np.average(inside, weights=weights) == pytest.approx(0.8, abs=0.04)
    assert inside.mean() < 0.7
    assert model.calibration_.n_rows == pytest.approx(3600, rel=0.06)


# The release.


def test_the_whole_plan_is_one_charge_with_a_label_of_its_own(fitted, fitted_classifier):
    for model in (fitted, fitted_classifier):
        assert [entry.label for entry in model.privacy_.entries].count("calibration") == 1
        assert model.privacy_.charges == 1
        assert model.privacy_.epsilon == pytest.approx(2.0, rel=1e-6)
        assert not any("coverage" in text for text in model.privacy_.warnings)


@pytest.mark.parametrize(
    ("make", "signal", "share"),
    [(interval_plan, 100.0, 0.1), (interval_plan, 1000.0, 0.0529), (interval_plan, 1e5, 0.02), (set_plan, 100.0, 0.05)],
)
def test_the_calibration_gets_its_share_and_the_model_the_rest(make, signal, share):
    plan = make(Budget(mu=0.5, n_rows=signal / 0.5, factor=1.0))
    assert plan.multiplier**-2 == pytest.approx(share * 0.25)
    assert plan.budget.mu**2 == pytest.approx((1 - share) * 0.25)
    doubled = make(Budget(mu=0.5, n_rows=2 * signal / 0.5, factor=2.0))
    assert doubled.multiplier == pytest.approx(plan.multiplier)


@pytest.mark.parametrize("make", [regressor, classifier])
def test_a_forecast_has_the_budget_that_the_calibration_leaves(make):
    public = PUBLIC if make is regressor else PUBLIC_CLASSES
    budget = Budget.of(0.3, 1e-6, 500, "zero-out")
    rest = (interval_plan if make is regressor else set_plan)(budget).budget.mu
    with_intervals = make(epsilon=0.3).forecast(public, 500)
    assert with_intervals != make(epsilon=0.3, intervals=False).forecast(public, 500)
    alone = make(epsilon=gaussian_epsilon(rest, 1e-6), intervals=False).forecast(public, 500)
    assert alone.words == with_intervals.words
    # The table names the epsilon of the whole fit.
    assert [row[1:] for row in alone.rows] == [row[1:] for row in with_intervals.rows]
    assert [row[0] for row in with_intervals.rows] == ["ε = 0.3"]
    assert alone.n_directions == with_intervals.n_directions


@pytest.mark.parametrize("make", [regressor, classifier])
@pytest.mark.parametrize("unit", ["row", "person"])
@pytest.mark.parametrize("adjacency", list(Adjacency), ids=lambda one: one.value)
def test_no_record_moves_the_calibration_further_than_its_noise_assumes(make, adjacency, unit):
    """A row, or a person with all rows, is null, is left out or is replaced; all pairs of neighbours are compared."""
    n, is_class = 60, make is classifier
    X, y = PRIVATE[0][:n], PRIVATE[1][:n]
    y = np.digitize(y, CUTS) if is_class else y
    ids = np.arange(n) // (3 if unit == "person" else 1)
    params = {"epsilon": 20.0, "adjacency": adjacency.value}
    params |= {"n_rows": n} if adjacency is Adjacency.ADD_REMOVE else {}

    def fit(data, ledger):
        X, y, ids = data
        public, persons = PUBLIC_CLASSES if is_class else PUBLIC, {"persons": ids} if unit == "person" else {}
        return make(**params).fit(X, y, public=public, ledger=ledger, **persons)

    def changed(own, cell, label):
        label = (2 if label > 0 else 0) if is_class else label
        return np.where(own[:, None], cell, X), np.where(own, label, y), ids

    worst = 0.0
    for record in (0, int(ids.max())):
        own = ids == record
        neighbours = [changed(own, *pair) for pair in ((1e3, 1e6), (-1e3, -1e6), (0.0, 0.0), (1.0, -1e-9))]
        if adjacency is Adjacency.ADD_REMOVE:
            first, *others = [part[~own] for part in (X, y, ids)], *neighbours
        elif adjacency is Adjacency.ZERO_OUT:
            first, *others = changed(own, 1e200, 0.0), *neighbours
        else:
            first, *others = (X, y, ids), *neighbours
        tape = audit.record(fit, first, adjacency=adjacency, unit=unit)
        values = [tape.releases[-1].value]
        values += [
            audit.replay(fit, other, tape, adjacency=adjacency, unit=unit).releases[-1].value for other in others
        ]
        # The calibration comes last. The noise has the scale of its sensitivity times the multiplier.
        bound = tape.releases[-1].scale / tape.releases[-1].event.noise_multiplier
        pairs = [(a, b) for a in values for b in values] if adjacency is Adjacency.REPLACE_ONE else [
            (values[0], b) for b in values
        ]  # fmt: skip
        worst = max(worst, *(float(np.linalg.norm(a - b)) / bound for a, b in pairs))
    assert 0.5 < worst <= 1 + 1e-9


def test_a_null_row_counts_nothing():
    X, y = PRIVATE[0].copy(), PRIVATE[1].copy()
    X[:2000] = 1e200
    model = regressor(epsilon=5.0).fit(X, y, public=PUBLIC)
    assert model.calibration_.n_rows == pytest.approx(2000, rel=0.08)


# Calibrations by hand.


def exact(scores, bounds):
    counts = np.array([np.sum(scores > bound) for bound in bounds], dtype=float)
    return Calibration(bounds, counts, np.zeros(len(bounds)), float(len(scores)), 0.15)


def test_without_noise_the_limit_is_that_of_split_conformal_prediction():
    scores = np.random.default_rng(0).exponential(size=99)
    calibration = exact(scores, np.sort(scores))
    for coverage in (0.1, 0.5, 0.9, 0.97):
        assert calibration.limit(coverage) == np.sort(scores)[math.ceil(100 * coverage) - 1]
    assert calibration.limit(0.995) == math.inf


def test_noise_moves_the_limit_up():
    scores = np.random.default_rng(0).exponential(size=1000)
    bounds = np.linspace(0.01, 8.0, 500)
    quiet = exact(scores, bounds)
    noisy = Calibration(bounds, quiet.above, np.full(500, 60.0), 1000.0, 0.15)
    assert noisy.limit(0.9) > quiet.limit(0.9)
    assert not quiet.imprecise(0.9)
    assert noisy.imprecise(0.9)


# Warnings and refusals.


@pytest.mark.parametrize("n", [2, 5, 40])
@pytest.mark.parametrize("make", [regressor, classifier])
def test_tiny_data_give_wide_intervals_and_a_warning(make, n):
    data, public = (PRIVATE, PUBLIC) if make is regressor else (classes(PRIVATE), PUBLIC_CLASSES)
    model = make(epsilon=1.0).fit(data[0][:n], data[1][:n], public=public)
    with pytest.warns(CalibrationWarning, match="budget (is|was) too small"):
        assert covered(model, 0.9)[0] == 1.0


@pytest.mark.parametrize(("coverage", "signal"), [(0.9, 151.0), (0.8, 75.5)])
def test_the_warning_begins_where_n_times_mu_is_151_at_90_percent(coverage, signal):
    """At a tenth of the budget; at other coverages in proportion to the share that may lie outside."""
    bins = len(residual_bounds(np.ones(3))) + 1
    for factor, expected in ((0.95, True), (1.05, False)):
        n_rows = factor * signal / 0.25
        noise = interval_plan(Budget(0.25, n_rows, 1.0)).multiplier * cumulative(np.zeros(bins))[1]
        assert Calibration(np.ones(bins), np.zeros(bins), noise, n_rows, 0.15).imprecise(coverage) == expected


@pytest.mark.parametrize("public", [None, Public(PUBLIC.X)])
def test_intervals_without_public_labels_are_refused_before_anything_is_spent(public):
    ledger = Ledger(10.0, 1e-6)
    with pytest.raises(ValueError, match="intervals=True needs public rows with labels"):
        regressor().fit(*PRIVATE, public=public, ledger=ledger)
    with pytest.raises(ValueError, match="intervals=True needs public data"):
        classifier(classes=[0, 1, 2]).fit(*classes(PRIVATE), ledger=ledger)
    for make in (regressor, classifier):
        with pytest.raises(ValueError, match="intervals must be True or False"):
            make(intervals="yes").fit(*classes(PRIVATE), public=PUBLIC_CLASSES, ledger=ledger)
    assert ledger.entries == []


# With the rest of the package.


def test_intervals_leave_the_fit_alone_unless_they_are_asked_for():
    default = PrivateTransferRegressor(2.0, random_state=0).fit(*PRIVATE, public=PUBLIC)
    assert "calibration" not in [entry.label for entry in default.privacy_.entries]
    assert clone(regressor()).intervals


def test_a_damaged_calibration_is_refused(fitted):
    arrays = fitted.calibration_.arrays()
    damaged = [
        {name: array for name, array in arrays.items() if name != "noise"},
        arrays | {"more": np.zeros(2)},
        arrays | {"above": arrays["above"][:-1]},
        arrays | {"bounds": np.full_like(arrays["bounds"], np.nan)},
    ]
    for one in damaged:
        with pytest.raises((ValueError, KeyError)):
            Calibration.from_arrays(one)


@pytest.mark.parametrize("prior", ["shifted", "same-population"])
@pytest.mark.parametrize("kind", ["regressor", "classifier"])
@pytest.mark.parametrize("unit", ["row", "person"])
def test_the_score_of_a_private_row_depends_on_that_row_alone(monkeypatch, kind, unit, prior):
    # One row more must not move others to another bin, not even by the last digit.
    scores = []
    module = regression if kind == "regressor" else classification
    release = module.calibrated

    def kept(run, bounds, private_scores, rows, **options):
        scores.append(np.concatenate(list(rows.results(private_scores))))
        return release(run, bounds, private_scores, rows, **options)

    monkeypatch.setattr(module, "calibrated", kept)
    random = np.random.default_rng(5)
    X, coef = random.standard_normal((1203, 23)), random.standard_normal(23) / 5
    y = X @ coef + 0.3 * random.standard_normal(1203)
    public, private = slice(0, 400), slice(400, None)
    labels = y if kind == "regressor" else np.digitize(y, [-0.5, 0.5])
    terms = {"persons": np.arange(803) // 2} if unit == "person" else {}
    model = (regressor if kind == "regressor" else classifier)(prior=prior, adjacency="add-remove", n_rows=800)
    model.fit(X[private] + 0.2, labels[private], public=Public(X[public], labels[public]), **terms)
    for i in [*range(0, 803, 40), *range(795, 803)]:
        row, label = X[400 + i][None] + 0.2, labels[400 + i]
        alone = (
            np.abs(label - model.predict(row))
            if kind == "regressor"
            else -np.log(model.predict_proba(row)[:, list(model.classes_).index(label)])
        )
        assert alone[0] == scores[0][i]
