"""Sentences on what public and private rows contributed agree with the numbers they describe."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from dpadapt import (
    PrivateLinearRegression,
    PrivateTransferClassifier,
    PrivateTransferRegressor,
    Public,
    advise,
    forecast,
)
from dpadapt.methods import PREDICTORS
from dpadapt.report.before_spending import forecast_of_fit
from dpadapt.report.contributions import (
    _public_model,
    clearly_less,
    contributions,
    errors_on_public,
    fit_in_words,
    groups_in_words,
    help_in_words,
    public_only,
    worth_in_rows,
)
from dpadapt.report.verdict import verdict_on_fit

random = np.random.default_rng(3)
X = random.uniform(-1, 1, (4000, 3))
X_public = random.uniform(-1, 1, (300, 3))
y_public = X_public @ [1.0, 0.5, -1.0] + 0.3 * random.standard_normal(300)
y = X @ [1.0, 0.5, -1.0] + 0.3 * random.standard_normal(4000)
moved = X @ [1.0, -2.0, -1.0] + 0.3 * random.standard_normal(4000)

CASES = {
    "regression": (PrivateTransferRegressor(random_state=0), y_public, y, moved),
    "classification": (PrivateTransferClassifier(random_state=0), y_public > 0, y > 0, moved > 0),
}
TASKS = pytest.mark.parametrize("task", CASES)


def sentences_on_fit(task, target, epsilon, *, public=True, labels=True):
    estimator, labels_public, _, _ = CASES[task]
    declared = Public(X_public, labels_public if labels else None) if public else None
    model = type(estimator)(epsilon=epsilon, random_state=2)
    if task == "classification":
        model.set_params(classes=[False, True])
    model.fit(X, target, public=declared)
    comparison = errors_on_public(X_public, labels_public, task=task) if public and labels else None
    return " ".join(fit_in_words(model, declared, comparison, forecast_of_fit(model, declared, len(X))))


@TASKS
def test_a_shut_gate_and_an_open_one_have_different_sentences(task):
    _, _, same, shifted = CASES[task]
    assert "the gate stayed shut" in sentences_on_fit(task, same, 0.01)
    opened = sentences_on_fit(task, shifted, 3.0)
    assert "the private correction changes" in opened
    assert "the gate stayed shut" not in opened


@TASKS
def test_a_budget_that_buys_nothing_brings_nothing(task):
    text = sentences_on_fit(task, CASES[task][2], 1e-5)
    assert "The private rows brought nothing" in text
    assert "Nothing was spent" in text


def test_methods_that_keep_no_public_model_are_compared_with_a_fit_on_public_rows():
    model = PrivateLinearRegression(epsilon=1.0, random_state=0).fit(X, y, public=Public(X_public, y_public))
    public = Public(X_public, y_public)
    text = " ".join(fit_in_words(model, public, None, None))
    alone = _public_model(model, public)
    assert alone.privacy_.entries == ()
    # Public rows alone explain public labels; the two rows that stand in for private ones explain nothing.
    assert np.mean((alone.predict(X_public) - y_public) ** 2) < 0.2 * np.var(y_public)
    change = float(np.sqrt(np.mean((model.predict(X_public) - alone.predict(X_public)) ** 2)))
    assert f"the private correction changes the predictions by {change:.3g}" in text


@TASKS
def test_without_a_public_model_all_comes_from_private_rows(task):
    assert "There were no public rows" in sentences_on_fit(task, CASES[task][2], 1.0, public=False)
    assert "no labels" in sentences_on_fit(task, CASES[task][2], 1.0, labels=False)


@pytest.mark.parametrize(
    ("means", "expected"),
    [
        ((0.62, 0.91, 0.45, 0.36), "private rows gave 65% of their possible gain. The public rows removed 84% of the"),
        ((0.62, 0.91, 0.62, 0.36), "The private rows made no clear difference. The public rows removed 53%"),
        ((0.62, 0.91, 0.70, 0.36), "clearly worse than the public rows alone. The public rows removed 38%"),
        ((0.36, 0.91, 0.36, 0.36), "the private rows are not clearly better than the public rows alone"),
        ((0.62, 0.40, 0.45, 0.36), "The public rows made the model clearly worse than the private rows alone"),
        ((0.62, 0.45, 0.45, 0.36), "The public rows made no clear difference"),
        ((0.62, 0.36, 0.36, 0.36), "Privacy has no clear cost, even without the public rows"),
        ((0.62, 0.91, 0.30, 0.36), "private rows gave all of their possible gain. The public rows removed all of the"),
    ],
)
def test_contributions_follow_from_the_four_errors(spread_over, means, expected):
    parts = [{"values": spread_over(mean), "mean": mean} for mean in means]
    assert expected in contributions(*parts)


@pytest.fixture
def panels_of(demo, case):
    return lambda *errors: demo(case(*errors))["cases"][0]["panels"]


def test_public_rows_are_counted_in_private_ones(panels_of):
    # Halfway between 0.9 at 100 rows and 0.7 at 1,000, on the logarithmic axis: sqrt(100 * 1,000) = 316.
    sentence = worth_in_rows(panels_of([0.9, 0.7], [0.8, 0.6])[1], 1)
    assert "100 private rows with the public ones do as well as about 320 private rows alone" in sentence
    sentence = worth_in_rows(panels_of([0.9, 0.7], [0.65, 0.6])[1], 1)
    assert "better than all 1,000 private rows alone" in sentence


def test_a_gain_of_the_public_rows_alone_is_not_counted_in_private_rows(panels_of):
    assert worth_in_rows(panels_of([1.2, 0.6], [0.9, 0.6])[1], 1) is None


@pytest.fixture
def help_of(panels_of):
    def said(*errors):
        panel = panels_of(*errors)[0]
        return " ".join(help_in_words(panel["levels"], panel["curves"]))

    return said


def test_help_is_stated_with_its_size(help_of):
    text = help_of([1.4, 0.7], [0.85, 0.6])
    assert "clearly helped at every ε, most at ε = 0.1: the error falls from 1.400 to 0.850, 61% of the way" in text
    assert "public rows alone (0.900), its error is lower at every ε; the difference is clear at every ε." in text


def test_harm_is_stated_too(help_of):
    text = help_of([0.7, 0.6], [1.2, 0.8])
    assert "did not clearly help at any ε" in text
    assert "clearly raised the error at every ε" in text
    assert "its error is lower at ε = 1, higher at ε = 0.1; the difference is clear at every ε." in text


def test_no_difference_is_no_help(help_of):
    assert "did not clearly help" in help_of([0.7, 0.6], [0.7, 0.6])


def two_methods(public, errors, epsilons):
    """Return levels and curves of a rehearsal; `errors` has one row per split."""
    levels = [{"key": "public only", "values": public, "mean": float(np.mean(public))}]
    points = [
        {"x": x, "values": list(column), "mean": float(np.mean(column))}
        for x, column in zip(epsilons, np.transpose(errors), strict=True)
    ]
    keys = [("together", True), ("private only", False)]
    return levels, [{"key": key, "method": "m", "public": public, "points": points} for key, public in keys]


def test_the_sentence_names_every_epsilon_at_which_the_table_shows_a_higher_error():
    # Higher at both epsilons; by more than two standard errors at the second alone.
    text = " ".join(help_in_words(*two_methods([0.8, 0.8, 0.8], [[0.7, 0.83], [0.9, 0.83], [0.9, 0.83]], (1.0, 3.0))))
    assert "its error is higher at every ε; the difference is clear at ε = 3." in text
    text = " ".join(help_in_words(*two_methods([0.8, 0.8, 0.8], [[0.7], [0.9], [0.9]], (1.0,))))
    assert "its error is higher at every ε; the difference is clear at no ε." in text


def test_errors_that_print_alike_are_called_the_same():
    text = " ".join(help_in_words(*two_methods([0.8], [[0.8002, 0.7]], (1.0, 3.0))))
    assert "its error is lower at ε = 3, the same at ε = 1; the difference is clear at ε = 3." in text
    assert "With one split there is no standard error" in text


def test_clear_means_two_standard_errors_of_paired_differences():
    rising = np.linspace(0, 5, 8)
    assert clearly_less(rising, rising + 0.01)
    assert not clearly_less(rising, rising + 0.0005)
    assert not clearly_less(rising, rising[::-1])
    # A standard error of 0.5 / sqrt(8) = 0.19 around a difference of 0.3.
    assert not clearly_less(np.zeros(8), 0.3 + np.tile([-0.5, 0.5], 4))
    assert clearly_less(np.zeros(8), 0.5 + np.tile([-0.5, 0.5], 4))


rng = np.random.default_rng(0)


def test_errors_are_those_of_no_model_and_of_a_linear_one():
    X = rng.uniform(-1, 1, (200, 2))
    y = 3 * X[:, 0] + 0.1 * rng.standard_normal(200)
    comparison = errors_on_public(X, y, task="regression")
    constant, public = (row["beside"] for row in comparison["rows"])
    assert [row["error"] for row in comparison["rows"]] == pytest.approx([constant**2, public**2])
    assert (comparison["measure"], comparison["measure beside"]) == ("mean squared error", "root mean squared error")
    assert comparison["n_public"] == 200
    # The mean of other folds is a little worse than the mean of all rows.
    assert np.std(y) <= constant < 1.05 * np.std(y)
    assert public == pytest.approx(0.1, rel=0.3)


def test_the_public_model_predicts_rows_it_was_not_fitted_on():
    # Labels are noise: only a model that is scored on its own rows would be better than the mean.
    X, y = rng.standard_normal((40, 30)), rng.standard_normal(40)
    constant, public = (row["beside"] for row in errors_on_public(X, y, task="regression")["rows"])
    assert public > 0.9 * constant
    assert np.sqrt(np.mean((y - public_only(X, y, "regression").predict(X)) ** 2)) < public


def test_comparison_needs_enough_public_rows_and_accepts_one_class(fit):
    _, X, y = fit(PREDICTORS[1])
    assert errors_on_public(X[:10], y[:10], task="classification") is None
    one = errors_on_public(X, np.zeros_like(y), task="classification")
    assert one["rows"][1]["error"] == one["rows"][1]["beside"] == 0.0


def test_errors_of_classes_are_log_loss_and_beside_it_the_share_of_wrong_ones():
    X = rng.uniform(-1, 1, (400, 2))
    y = np.where(rng.random(400) < np.where(X[:, 0] > 0, 0.9, 0.1), "yes", "no")
    comparison = errors_on_public(X, y, task="classification")
    assert (comparison["measure"], comparison["measure beside"]) == ("log-loss", "share of wrong classes")
    constant, public = comparison["rows"]
    assert constant["error"] == pytest.approx(np.log(2), rel=0.02)
    assert public["error"] < 0.7 * constant["error"]
    assert public["beside"] == pytest.approx(0.1, abs=0.06)


@pytest.mark.parametrize(("task", "name"), [("regression", "mean squared error"), ("classification", "log-loss")])
def test_advice_forecast_verdict_and_report_name_the_same_error(task, name):
    X = rng.uniform(-1, 1, (300, 3))
    label = X[:, 0] + 0.1 * rng.standard_normal(300)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame["y"] = label if task == "regression" else np.where(label > 0, "yes", "no")
    advice = advise(frame, 5000, label="y", epsilons=(1.0,), random_state=0)
    assert f"the {name}" in " ".join(advice.sentences)
    assert advice.table()[1].startswith(f"{name} / public model's")
    assert " error" not in " ".join(advice.sentences).replace("mean squared error", "").replace("sampling error", "")
    y = frame["y"].to_numpy()
    assert errors_on_public(X, y, task=task)["measure"] == name
    assert name in str(forecast(CASES[task][0], Public(X, y), 5000))
    gained = SimpleNamespace(
        privacy_=SimpleNamespace(seeded=False, entries=(1,)), adopted_=1.0, estimated_gain_=(0.2, 0.1, 0.3)
    )
    if task == "classification":
        gained.classes_ = ["no", "yes"]
    assert f"public model's {name} by about" in verdict_on_fit(gained, None, 5000)["words"]


def test_a_method_without_a_gate_is_not_said_to_have_one():
    model = PrivateLinearRegression(epsilon=1.0, random_state=0).fit(X, y, public=Public(X_public, y_public))
    # As if nothing of the correction had been left.
    alone = PrivateLinearRegression(epsilon=1e-9, delta=1e-6).fit(X[:2], y[:2], public=Public(X_public, y_public))
    model.coef_, model.intercept_ = alone.coef_, alone.intercept_
    text = " ".join(fit_in_words(model, Public(X_public, y_public), None, None))
    assert "no correction exceeded its noise, and the model is the public one" in text
    assert "gate" not in text


def test_only_columns_that_public_rows_lack_are_said_to_lean_on_the_overall_level(fit):
    method = next(method for method in PREDICTORS if method.name == "transfer")
    model, *_ = fit(method)
    assert groups_in_words(model, ["a", "b", "c"]) == []
    model.own_effect_, model.adopted_ = np.array([np.nan, 0.2, 0.7]), 0.5
    leaning, own = groups_in_words(model, ["a", "b", "c"])[1:]
    assert leaning == "b: leans on the overall level: 20% of its own effect was kept."
    assert own == "At least 70% of its own effect was kept of each of these: c."
    model.own_effect_ = np.full(30, 0.1)
    assert groups_in_words(model, [str(k) for k in range(30)])[-1].startswith("18 more such columns")
    model.adopted_ = 0.0  # the model is the public one
    assert groups_in_words(model, [str(k) for k in range(30)]) == []


def test_groups_with_few_public_rows_are_named_with_their_number_and_the_noise():
    rows = np.zeros((100, 4))
    rows[:, 0] = np.linspace(-1, 1, 100)
    rows[:7, 1], rows[:60, 2], rows[:20, 3] = 1.0, 1.0, 1.0
    names = ["age", "plan = gold", "plan = free", "plan = paid"]
    unseen = np.full(4, np.nan)
    plain = groups_in_words(SimpleNamespace(own_effect_=unseen), names, rows)
    assert len(plain) == 1
    assert "plan = gold (7), plan = paid (20)." in plain[0]
    assert not any(name in plain[0] for name in ("age", "plan = free"))
    known = SimpleNamespace(own_effect_=unseen, coef_noise_=np.array([0.1, 1.5, 0.2, 0.7]))
    assert "plan = gold (7, noise 1.5), plan = paid (20, noise 0.7)." in groups_in_words(known, names, rows)[0]
    # Beside a group that public rows lack; and nothing where all groups have many rows.
    lacking = SimpleNamespace(own_effect_=np.array([np.nan, np.nan, 0.2, np.nan]))
    assert len(groups_in_words(lacking, names, rows)) == 3
    assert groups_in_words(SimpleNamespace(own_effect_=unseen), names, np.tile(rows, (20, 1))) == []


@TASKS
def test_a_gain_that_was_estimated_is_not_called_unknown(task):
    _, _, same, shifted = CASES[task]
    gained = sentences_on_fit(task, shifted, 3.0)
    assert "less than the public model's was estimated from the releases. The error itself is unknown." in gained
    unchanged = sentences_on_fit(task, same, 0.01)
    assert "The error of the model on the private population is unknown." in unchanged
    assert "was estimated" not in unchanged


def test_an_error_that_people_tested_is_stated_and_not_called_unknown():
    receipt = SimpleNamespace(epsilon=1.0, entries=(1,), seeded=False)
    estimates = {"error of source": 0.3, "error of corrected": 0.125, "noise of an error": 0.01}
    model = SimpleNamespace(privacy_=receipt, people_asked_={"test": 1000}, chosen_="corrected", estimates_=estimates)
    text = " ".join(fit_in_words(model, None, None, None))
    assert "is about 0.125, with a standard deviation of at most 0.010" in text
    assert "unknown" not in text
    assert "0.125" in verdict_on_fit(model, None, None)["words"]
    assert "nothing here says how good it is" not in verdict_on_fit(model, None, None)["words"]
    # Nobody tested it.
    model.estimates_ = {}
    assert "is unknown" in " ".join(fit_in_words(model, None, None, None))
    assert "nothing here says how good it is" in verdict_on_fit(model, None, None)["words"]
