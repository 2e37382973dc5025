"""`TableModel`: fitted on frames and files as they come; private cells leave through releases alone."""

import math
import pickle
import warnings

import numpy as np
import pandas as pd
import pyarrow
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.model_selection import GridSearchCV, cross_val_score

from dpadapt import (
    BudgetExceeded,
    Ledger,
    NoLedgerWarning,
    PrivacyError,
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivateSourceTargetClustering,
    PrivateSubspaceRegressor,
    PrivateTransferClassifier,
    PrivateTransferRegressor,
    Public,
    Schema,
    TableModel,
    audit,
    load,
    save,
)
from dpadapt.audit.replay import differing
from dpadapt.tables import Category, Ignored, Number, check_tables

SECRET = "ZEBRA7731"


def visits(n, seed, *, shift=0.0):
    """Return a messy table: missing cells of all kinds, dates, an identifier, a text, labels in part missing."""
    rng = np.random.default_rng(seed)
    age, plan = rng.uniform(18, 90, n).round(1), rng.choice(["free", "paid", "gold"], n, p=[0.6, 0.3, 0.1])
    day = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 730, n), unit="D")
    cost = 10 * age + 300 * (plan == "paid") + shift + rng.normal(0, 50, n)
    frame = pd.DataFrame(
        {"id": [f"{seed}-{k}" for k in range(n)], "age": age, "plan": plan, "day": day, "cost": cost.round(2)}
    )
    frame["ill"] = np.where(age + rng.normal(0, 20, n) > 60, "yes", "no")
    frame.loc[rng.random(n) < 0.1, "age"] = np.nan
    frame.loc[rng.random(n) < 0.1, "plan"] = None
    frame.loc[rng.random(n) < 0.1, "day"] = pd.NaT
    return frame


PUBLIC, PRIVATE, NEW = visits(300, 1), visits(500, 2, shift=100), visits(40, 3, shift=100)
SCHEMA = Schema.infer(PUBLIC, dataset="visits")


# Linear public models are fitted quickly; the blend with boosting is the matter of tests/transfer.
QUICK = {"epsilon": 1.0, "random_state": 0, "public_model": "linear"}


def regressor(**params):
    estimator = PrivateTransferRegressor(**{**QUICK, **params})
    return TableModel(estimator, SCHEMA, label="cost")


def classifier(**params):
    estimator = PrivateTransferClassifier(**{**QUICK, **params})
    return TableModel(estimator, SCHEMA, label="ill")


def fit_of(model):
    """Return a fit for `audit.record`; a warning is an error."""

    def fit(data, ledger):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return clone(model).fit(data, public=Public(PUBLIC), ledger=ledger)

    return fit


def test_a_model_is_fitted_on_messy_frames_and_predicts():
    ledger = Ledger(epsilon=3.0, delta=1e-6)
    model = regressor().fit(PRIVATE, public=Public(PUBLIC), ledger=ledger)
    error = np.sqrt(np.mean((model.predict(NEW) - NEW["cost"]) ** 2))
    assert error < 0.7 * NEW["cost"].std()
    assert model.privacy_.epsilon <= 1.0
    assert ledger.spent() == pytest.approx(model.privacy_.epsilon, rel=1e-6)
    assert model.model_.target_bounds == SCHEMA.bounds("cost")
    facts = " ".join(model.privacy_.assumptions)
    assert "the schema: column names" in facts
    assert "label" not in facts
    assert model.notes_ == []


def test_a_classifier_has_the_classes_of_the_schema():
    model = classifier().fit(PRIVATE, public=Public(PUBLIC))
    assert model.classes_.tolist() == ["no", "yes"]
    probabilities = model.predict_proba(NEW)
    assert np.allclose(probabilities.sum(axis=1), 1)
    assert np.array_equal(model.predict(NEW), model.classes_[probabilities.argmax(axis=1)])
    assert model.score(NEW) == pytest.approx(np.mean(model.predict(NEW) == NEW["ill"]))
    assert model.decision_function(NEW).shape == (len(NEW),)


def test_a_regressor_has_no_classes():
    model = regressor()
    assert is_regressor(model)
    assert not is_classifier(model)
    assert is_classifier(classifier())
    assert not hasattr(model, "predict_proba")
    assert not hasattr(model, "coef_")
    assert not hasattr(model, "classes_")


@pytest.mark.parametrize(
    "kind", ["file", "path", "gzip", "parquet", "arrow", "polars", "reversed", "extra", "labels apart"]
)
def test_every_form_of_a_table_gives_the_same_model(tmp_path, kind):
    expected = regressor().fit(PRIVATE, public=Public(PUBLIC)).predict(NEW)
    tables = {"PRIVATE": PRIVATE, "PUBLIC": PUBLIC, "NEW": NEW}
    y = None
    for name, frame in tables.items():
        if kind in ("file", "path"):
            tables[name] = tmp_path / f"{name}.csv"
            frame.to_csv(tables[name], index=False)
            tables[name] = str(tables[name]) if kind == "file" else tables[name]
        elif kind == "gzip":
            tables[name] = tmp_path / f"{name}.csv.gz"
            frame.to_csv(tables[name], index=False, sep=";")
        elif kind == "parquet":
            tables[name] = tmp_path / f"{name}.parquet"
            frame.to_parquet(tables[name])
        elif kind == "arrow":
            tables[name] = pyarrow.Table.from_pandas(frame)
        elif kind == "polars":
            tables[name] = pytest.importorskip("polars").from_pandas(frame)
        elif kind == "reversed":
            tables[name] = frame.iloc[:, ::-1]
        elif kind == "extra":
            tables[name] = frame.assign(shoe=SECRET)
        else:
            y = PRIVATE["cost"].tolist()
            tables["PRIVATE"] = PRIVATE.drop(columns="cost")
    model = regressor().fit(tables["PRIVATE"], y, public=Public(tables["PUBLIC"]))
    assert np.array_equal(model.predict(tables["NEW"]), expected)
    assert len(model.notes_) == 2 * (kind == "extra")
    assert SECRET not in "".join(model.notes_)
    assert "shoe" not in "".join(model.notes_)


def test_public_rows_without_a_label_are_left_out_and_public_tables_may_have_none():
    gaps = PUBLIC.assign(cost=PUBLIC["cost"].where(np.arange(len(PUBLIC)) % 3 > 0))
    left = PUBLIC[np.arange(len(PUBLIC)) % 3 > 0]
    models = [regressor().fit(PRIVATE, public=Public(public)) for public in (gaps, left)]
    assert np.array_equal(models[0].predict(NEW), models[1].predict(NEW))
    marked = Public(gaps.drop(columns="cost"), gaps["cost"], unseen=np.arange(len(gaps)) % 2 == 0)
    rows = regressor().encode_public(marked)
    assert len(rows.X) == len(rows.y) == len(rows.declared.unseen) == len(left)
    regressor().fit(PRIVATE, public=Public(PUBLIC.drop(columns="cost")))
    regressor().fit(PRIVATE)


def test_what_the_estimator_was_told_is_kept():
    model = regressor(target_bounds=(0, 2000)).fit(PRIVATE, public=Public(PUBLIC))
    assert model.model_.target_bounds == (0, 2000)


def test_feature_names_and_fitted_attributes_are_those_of_the_encoded_rows():
    model = TableModel(PrivateLinearRegression(random_state=0), SCHEMA, label="cost").fit(PRIVATE)
    names = model.get_feature_names_out()
    assert len(names) == len(model.coef_) == model.n_features_in_
    assert {"age", "age (missing)", "plan = gold", "plan (other)", "day: month = 12", "ill = yes"} < set(names)


def test_models_survive_cloning_pickling_and_saving(tmp_path):
    model = classifier().fit(PRIVATE, public=Public(PUBLIC))
    assert not hasattr(clone(model), "model_")
    assert clone(model).get_params()["schema"] == SCHEMA
    assert differing(pickle.loads(pickle.dumps(model)), model) == []
    save(model, tmp_path / "model")
    saved = load(tmp_path / "model")
    assert isinstance(saved.model, TableModel)
    assert saved.extra["label"] == "ill"
    assert saved.model.schema == SCHEMA
    assert saved.model.privacy_ == model.privacy_
    assert np.array_equal(saved.model.predict_proba(NEW), model.predict_proba(NEW))
    again = clone(saved.model).fit(PRIVATE, public=Public(PUBLIC))
    assert np.array_equal(again.predict_proba(NEW), model.predict_proba(NEW))
    with pytest.raises(ValueError, match="Call fit first"):
        save(classifier(), tmp_path / "other")


def test_cross_validation_charges_every_fit():
    ledger = Ledger(epsilon=50.0, delta=1e-6)
    params = {"ledger": ledger, "public": Public(PUBLIC)}
    scores = cross_val_score(regressor(), PRIVATE, PRIVATE["cost"], cv=3, params=params)
    assert len(scores) == 3
    assert len({entry.label.split(":")[0] for entry in ledger.entries}) == 1
    linear = TableModel(PrivateLogisticRegression(random_state=0), SCHEMA, label="ill")
    search = GridSearchCV(linear, {"estimator__epsilon": [0.5, 1.0]}, cv=2)
    spent = ledger.spent()
    search.fit(PRIVATE, PRIVATE["ill"], ledger=ledger)
    assert ledger.spent() > spent
    assert search.predict(NEW).shape == (len(NEW),)


@pytest.mark.parametrize("model", [regressor(), classifier()], ids=["regressor", "classifier"])
def test_private_cells_leave_only_through_releases(model):
    """Other rows, with other and unusable cells, leave the path of releases and the model as they are."""
    mess = [
        SECRET,
        f"'\n{SECRET}",
        SECRET.encode(),
        {SECRET: 1},
        10**400,
        math.inf,
        None,
        pd.NA,
        pd.Timestamp("1977-03-01"),
    ]
    other = visits(500, 9, shift=-3000).astype(object)
    for column, name in enumerate(("age", "plan", "day", "id")):
        for row in range(len(other)):
            if (row + column) % 3 == 0:
                other.loc[row, name] = None
                other.at[row, name] = mess[(row + column) % len(mess)]

    fit = fit_of(model)
    tape = audit.record(fit, PRIVATE)
    assert len(tape.releases) > 0
    for poison in (math.nan, 1e300):
        played = audit.replay(fit, other, tape, samples=1, poison=poison)
        assert differing(tape.result, played.result) == []


# Rows that count nothing.


@pytest.mark.parametrize("model", [regressor(), classifier()], ids=["regressor", "classifier"])
def test_a_private_row_without_a_label_counts_nothing_and_is_not_noticed(model):
    """How many labels are missing shows neither in the path of releases nor in the model, given the releases."""

    fit = fit_of(model)
    tape = audit.record(fit, PRIVATE)
    gone = PRIVATE.astype(object)
    gone.loc[100:, model.label] = None
    none = gone.assign(**{model.label: None})
    for data in (gone, none):
        played = audit.replay(fit, data, tape)
        assert differing(tape.result, played.result) == []
    # What the rows without a label hold changes no exact value.
    other = gone.copy()
    other.loc[100:, ["age", "plan"]] = [99.0, "gold"]
    first, second = (audit.replay(fit, data, tape).releases for data in (gone, other))
    assert all(np.allclose(a.value, b.value, atol=1e-9) for a, b in zip(first, second, strict=True))
    assert any("or missing" in fact for fact in tape.result.privacy_.assumptions)


def test_estimators_that_count_every_row_refuse_missing_labels():
    estimator = PrivateSubspaceRegressor(random_state=0)
    gone = PRIVATE.assign(cost=PRIVATE["cost"].where(PRIVATE.index > 3))
    with pytest.raises(ValueError, match="can't leave a row out unnoticed"):
        TableModel(estimator, SCHEMA, label="cost").fit(gone)
    with pytest.raises(ValueError, match="PrivateSubspaceRegressor protects rows, not persons"):
        TableModel(estimator, SCHEMA, label="cost", person="id").fit(PRIVATE)


# Persons.


def persons_table():
    """Return private rows of which a person has one to four, some without an id."""
    draw = np.random.default_rng(4)
    ids = np.repeat([f"patient {k}" for k in range(300)], draw.integers(1, 5, 300))
    return visits(len(ids), 5, shift=100).assign(id=np.where(draw.random(len(ids)) < 0.02, "", ids))


@pytest.mark.parametrize("make", [regressor, classifier])
def test_all_rows_of_a_person_are_protected_together(make):
    model, data = make().set_params(person="id"), persons_table()
    ledger = Ledger(epsilon=3.0, delta=1e-6, unit="person")
    model.fit(data, public=Public(PUBLIC), ledger=ledger)
    assert model.privacy_.unit == "person"
    assert "one person (all rows with one id)" in str(model.privacy_)
    encoded = model.encode_private(data)
    by_hand = clone(model.configured()).fit(
        encoded.X, encoded.y, persons=data["id"], public=model.encode_public(PUBLIC).declared
    )
    assert np.array_equal(by_hand.predict(model.encode(NEW)), model.predict(NEW))
    # The id is needed for a fit alone.
    assert len(model.predict(NEW.drop(columns="id"))) == len(NEW)
    with pytest.raises(PrivacyError, match="persons"):
        make().fit(data, public=Public(PUBLIC), ledger=ledger)


def test_a_clustering_counts_the_rows_of_a_person_as_one_and_needs_no_label():
    schema, data = SCHEMA.ignoring("id"), persons_table()
    model = TableModel(PrivateSourceTargetClustering(3, random_state=0), schema, person="id")
    model.fit(data, public=Public(PUBLIC))
    assert model.privacy_.unit == "person"
    by_hand = clone(model.estimator).fit(
        model.encode(data), persons=data["id"], public=model.encode_public(PUBLIC).declared
    )
    assert np.array_equal(by_hand.centers_, model.centers_)
    assert by_hand.cost_estimate_ == model.cost_estimate_
    assert model.encode_private(data).shares.n_units == data["id"].replace("", None).nunique()
    assert model.encode_public(PUBLIC).shares is None


def test_persons_leave_only_through_releases():
    model = regressor().set_params(person="id")
    fit = fit_of(model)
    data = persons_table()
    tape = audit.record(fit, data, unit="person")
    # Other rows in another order, more or fewer of each person; as many persons.
    other = visits(2 * len(data), 9, shift=-500).assign(id=np.tile(data["id"].to_numpy(), 2)[::-1])
    # A person all of whose labels are missing is blanked out, and still counts as a person.
    blank = data.assign(cost=data["cost"].where(data["id"] != "patient 7"))
    for neighbour in (other, blank):
        played = audit.replay(fit, neighbour, tape, unit="person", poison=math.nan)
        assert differing(tape.result, played.result) == []


def test_a_wrong_person_column_is_refused():
    with pytest.raises(ValueError, match=r'set type = "ignore" for the column .age'):
        regressor().set_params(person="age").fit(PRIVATE, public=Public(PUBLIC))
    with pytest.raises(ValueError, match="there is no column 'patient'"):
        regressor().set_params(person="patient").fit(PRIVATE, public=Public(PUBLIC))


# Sample weights.


def with_weights(frame, seed):
    """Return the table with a column of weights, in part missing or bad."""
    draw = np.random.default_rng(seed)
    weights = draw.uniform(0, 12, len(frame)).round(1).astype(str)
    return frame.assign(stands_for=np.where(draw.random(len(frame)) < 0.1, draw.choice(["", "?", "-3"]), weights))


@pytest.mark.parametrize("make", [regressor, classifier])
def test_a_column_holds_the_weights_of_private_rows(make):
    model, data = make(max_weight=10.0, mean_weight=5.5).set_params(weight="stands_for"), with_weights(PRIVATE, 4)
    model.fit(data, public=Public(PUBLIC))
    assert any("largest sample weight, 10, and their mean, 5.5" in fact for fact in model.privacy_.assumptions)
    encoded = model.encode_private(data)
    by_hand = clone(model.configured()).fit(
        encoded.X,
        encoded.y,
        persons=encoded.shares,
        sample_weight=pd.to_numeric(data["stands_for"], errors="coerce"),
        public=model.encode_public(PUBLIC).declared,
    )
    assert np.array_equal(by_hand.predict(model.encode(NEW)), model.predict(NEW))
    assert not any("stands_for" in name for name in model.get_feature_names_out())
    # Weights are needed for a fit alone.
    assert len(model.predict(NEW)) == len(NEW)


def test_a_weight_in_the_schema_is_ignored_on_request():
    data = with_weights(PRIVATE, 4)
    schema = Schema.infer(with_weights(PUBLIC, 5), dataset="visits")
    model = regressor(max_weight=10.0).set_params(weight="stands_for", schema=schema)
    with pytest.raises(ValueError, match=r"schema.ignoring\('stands_for'\)"):
        model.fit(data, public=Public(PUBLIC))
    model.set_params(schema=schema.ignoring("stands_for")).fit(data, public=Public(PUBLIC))
    assert len(model.predict(NEW)) == len(NEW)


def test_weights_with_decimal_commas_are_numbers():
    comma = PRIVATE.assign(age=PRIVATE["age"].astype(str).str.replace(".", ","), w="2,5")
    columns = tuple(Number("age", 18, 90, decimal=",") if c.name == "age" else c for c in SCHEMA.columns)
    model = regressor(max_weight=10.0).set_params(weight="w", schema=Schema("visits", columns))
    assert (model.encode_private(comma).weights == 2.5).all()


def test_weights_leave_only_through_releases():
    model = regressor(max_weight=10.0).set_params(weight="stands_for", person="id")
    fit = fit_of(model)
    data = with_weights(persons_table(), 4)
    tape = audit.record(fit, data, unit="person")
    other = visits(len(data), 9, shift=-500).assign(id=data["id"], stands_for=data["stands_for"].to_numpy()[::-1])
    for neighbour in (other, data.assign(stands_for="?"), data.assign(stands_for=1e300)):
        played = audit.replay(fit, neighbour, tape, unit="person", poison=math.nan)
        assert differing(tape.result, played.result) == []


def test_a_wrong_weight_column_is_refused():
    for change, words in (
        ({"weight": "cost"}, "is a feature or the label"),
        ({"weight": "age"}, "is a feature or the label"),
        ({"weight": "nothing"}, "there is no column 'nothing'"),
        ({"weight": "w", "estimator": PrivateTransferRegressor()}, "max_weight must be given"),
        ({"weight": "w", "estimator": PrivateSubspaceRegressor()}, "takes no sample weights"),
    ):
        with pytest.raises(ValueError, match=words):
            regressor(max_weight=3.0).set_params(**change).fit(PRIVATE.assign(w=1.0), public=Public(PUBLIC))


REFUSED = {
    "no label": (lambda f: f.drop(columns="cost"), "column 'cost' of the schema is missing"),
    "a column missing": (lambda f: f.drop(columns="age"), "column 'age' of the schema is missing"),
    "other columns": (lambda f: f.add_prefix(SECRET), "none of the schema's columns"),
    "an array": (lambda f: f.to_numpy(), "X must be a data frame"),
    "no rows": (lambda f: f.iloc[:0], "no rows"),
    "no file": (lambda f: "nothing.csv", "no such file"),
    "not a table": (lambda f: "nothing.xls", "expected a file ending"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_fitted_is_refused_without_showing_a_cell(case):
    change, words = REFUSED[case]
    ledger = Ledger(epsilon=3.0, delta=1e-6)
    with pytest.raises((ValueError, TypeError), match=words) as failure:
        regressor().fit(change(PRIVATE), public=Public(PUBLIC), ledger=ledger)
    assert SECRET not in str(failure.value)
    assert failure.value.__context__ is None
    assert ledger.entries == []


def test_classes_of_mixed_types_are_refused_before_a_private_cell_is_read():
    public = PUBLIC.assign(ill=np.where(np.arange(len(PUBLIC)) % 7 == 0, "1", PUBLIC["ill"]))
    schema = Schema.infer(public)
    ledger = Ledger(epsilon=3.0, delta=1e-6)
    model = TableModel(PrivateTransferClassifier(), schema, label="ill")
    with pytest.raises(ValueError, match="'ill' has classes of mixed types in the schema: '1' and 'no'"):
        model.fit(None, public=Public(public), ledger=ledger)
    assert ledger.entries == []
    assert "mixed types" in str(check_tables(public, schema, label="ill").problems[0].words)


def test_labels_of_another_length_are_refused_without_a_number():
    with pytest.raises(ValueError, match="one label for each row") as failure:
        regressor().fit(PRIVATE.drop(columns="cost"), [1.0, 2.0], public=Public(PUBLIC))
    assert not any(sign.isdigit() for sign in str(failure.value))


def test_the_private_table_is_refused_as_the_public_one(tmp_path):
    PRIVATE.to_csv(tmp_path / "a.csv", index=False)
    PRIVATE.to_csv(tmp_path / "b.csv", index=False)
    for public, private in ((PRIVATE, PRIVATE), (tmp_path / "a.csv", str(tmp_path / "b.csv"))):
        with pytest.raises(PrivacyError, match="private X itself"):
            regressor().fit(private, public=Public(public))
    with pytest.raises(PrivacyError, match="private and can't be declared public"):
        _ = regressor().encode_private(PRIVATE).declared


def test_wrong_parts_of_a_model_are_refused():
    for model, words in (
        (TableModel(PrivateLinearRegression(), SCHEMA), "label must name"),
        (TableModel(PrivateLinearRegression(), {"age": 1}, label="cost"), "schema must be"),
        (TableModel(3, SCHEMA, label="cost"), "estimator must be"),
        (TableModel(PrivateLinearRegression(), SCHEMA, label="plan"), "not number"),
        (TableModel(PrivateLinearRegression(), SCHEMA, label="shoe"), "no column 'shoe'"),
        (TableModel(PrivateLogisticRegression(), SCHEMA, label="cost"), "lists no values"),
    ):
        with pytest.raises((ValueError, TypeError), match=words):
            model.fit(PRIVATE)


def test_columns_that_are_constant_in_public_rows_are_kept():
    schema = Schema(
        "d", (Number("x", 0, 10), Number("level", 0, 1), Category("k", ("a", "b")), Ignored("i"), Number("y", 0, 30))
    )
    rng = np.random.default_rng(0)

    def rows(n, level):
        x = rng.uniform(0, 10, n)
        return pd.DataFrame({"x": x, "level": level, "k": "a", "y": x + 10 * np.asarray(level)})

    estimator = PrivateTransferRegressor(epsilon=5.0, random_state=0)
    model = TableModel(estimator, schema, label="y").fit(
        rows(2000, rng.integers(0, 2, 2000)), public=Public(rows(500, np.zeros(500)))
    )
    new = rows(200, rng.integers(0, 2, 200))
    assert np.sqrt(np.mean((model.predict(new) - new["y"]) ** 2)) < 2.5


@pytest.mark.parametrize(("person", "unit"), [(None, ""), ("id", ', unit="person"')])
def test_a_table_fitted_without_a_ledger_warns_once_with_the_line_to_write(person, unit):
    model = TableModel(PrivateTransferRegressor(epsilon=1.0), SCHEMA, label="cost", person=person)
    with pytest.warns(NoLedgerWarning) as caught:
        model.fit(PRIVATE)  # bounds are those of the schema, so nothing is said about them
    assert [each.filename for each in caught] == [__file__]
    assert f'Ledger.open("private.ledger", epsilon=3, delta=1e-06{unit})' in str(caught[0].message)
    assert any("no ledger was charged" in text for text in model.privacy_.warnings)


def test_a_ledger_says_what_was_predicted_and_its_cap_still_binds(tmp_path):
    ledger = Ledger.open(tmp_path / "visits.ledger", epsilon=1.6, delta=1e-6, dataset="visits")
    model = regressor(random_state=None).fit(PRIVATE, public=Public(PUBLIC), ledger=ledger.allow("anna", 1.2))
    own = [entry.label for entry in model.privacy_.entries]
    assert [entry.label for entry in ledger.entries] == [f"predict cost: PrivateTransferRegressor: {k}" for k in own]
    assert ledger.spent() == pytest.approx(model.privacy_.epsilon)
    assert ledger.allowance("anna").spent() == pytest.approx(model.privacy_.epsilon)
    with pytest.raises(BudgetExceeded, match="the allowance 'anna'"):
        regressor(random_state=None).fit(PRIVATE, public=Public(PUBLIC), ledger=ledger.allowance("anna"))
    with pytest.raises(BudgetExceeded, match=r"this ledger's cap of 1\.6"):
        regressor(epsilon=1.4, random_state=None).fit(PRIVATE, public=Public(PUBLIC), ledger=ledger)
    assert ledger.n_charges == 1
    with pytest.raises(TypeError, match=r"ledger must be a dpadapt\.Ledger"):
        regressor().fit(PRIVATE, public=Public(PUBLIC), ledger="visits.ledger")


def test_intervals_and_sets_of_tables():
    model = regressor(epsilon=3.0, intervals=True).fit(PRIVATE, public=Public(PUBLIC))
    low, high = model.predict_interval(NEW, coverage=0.8).T
    assert np.allclose((low + high) / 2, model.predict(NEW))
    assert not hasattr(model, "predict_set")
    ill = classifier(epsilon=3.0, intervals=True).fit(PRIVATE, public=Public(PUBLIC))
    assert ill.predict_set(NEW, coverage=0.8).shape == (len(NEW), 2)
    assert not hasattr(ill, "predict_interval")


def test_rows_without_a_label_widen_no_interval():
    """They count nothing in the calibration either: half of the labels are missing."""
    some = PRIVATE.copy()
    some.loc[::2, "cost"] = np.nan
    model = regressor(epsilon=8.0, intervals=True).fit(some, public=Public(PUBLIC))
    assert model.calibration_.n_rows == pytest.approx(250, rel=0.3)


def test_only_estimators_that_can_leave_rows_out_read_tables_in_chunks():
    """Others refuse a table in which a label is missing; in chunks they would train on a label that nobody gave."""
    schema = Schema("table", (Number("a", 0.0, 1.0), Number("y", 0.0, 1.0)))
    reading = {
        type(estimator): TableModel(estimator, schema, label="y").reads_chunks
        for estimator in (PrivateTransferRegressor(), PrivateLinearRegression(), PrivateSubspaceRegressor())
    }
    assert reading == {PrivateTransferRegressor: True, PrivateLinearRegression: True, PrivateSubspaceRegressor: False}
