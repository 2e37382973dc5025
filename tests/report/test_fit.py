"""The report of a fit: the verdict and the sentences agree with the numbers, and the page stands alone."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from dpadapt import (
    Ledger,
    PrivateLinearRegression,
    PrivateLogisticRegression,
    Public,
    advise,
    forecast,
)
from dpadapt.learning.fit_summary import FitSummary, People
from dpadapt.methods import PREDICTORS
from dpadapt.report.fit import (
    coefficient_charts,
    errors_on_public,
    fit_in_words,
    fit_page,
    forecasts_of_fit,
    groups_in_words,
    public_model_of,
    verdict_on_fit,
)
from tests.pages import NASTY, check_page
from tests.report.rows import CASES, TASKS, X, X_public, y, y_public

# The verdict.


def fitted(gain, *, adopted=0.5, entries=(1,), seeded=False, public=True, **facts):
    """Return what a fit at epsilon 1 tells about itself."""
    receipt = SimpleNamespace(entries=entries, seeded=seeded, epsilon=1.0)
    model = object() if public else None
    return FitSummary(receipt, 1.0, adopted=adopted, gain=gain, public_model=model, **facts)


def points(*opens_at):
    return [SimpleNamespace(epsilon=10.0**k, opens_at=value) for k, value in enumerate(opens_at)]


@pytest.mark.parametrize(
    ("summary", "forecasts", "kind", "title"),
    [
        (fitted((0.24, 0.17, 0.3)), (), "go", "Use this model"),
        (fitted((0.02, -0.05, 0.09)), (), "more", "gain is uncertain"),
        (fitted((0.0, 0.0, 0.0), adopted=0.0), points(0.05, 0.01), "stay", "Use the public model"),
        (fitted((0.0, 0.0, 0.0), adopted=0.0), points(0.5, 0.1), "more", "would tell more"),
        (fitted((0.0, 0.0, 0.0), adopted=0.0, entries=()), points(np.inf, 0.1), "more", "are needed"),
        (fitted(None, adopted=None), (), "open", "Measure this model"),
        (fitted(None, public=False), (), "open", "Measure this model"),
        (fitted(None), (), "more", "gain is uncertain"),
        (fitted((-0.16, -0.5, 0.18)), (), "more", "Measure this model"),
        (fitted((0.24, 0.17, 0.3), seeded=True), (), "more", "Do not use"),
    ],
)
def test_verdicts(summary, forecasts, kind, title):
    verdict = verdict_on_fit(summary, forecasts, 600)
    assert verdict["kind"] == kind
    assert title in verdict["title"]


@pytest.mark.parametrize(
    ("facts", "title"),
    [
        ({}, "Use the public model; compare how labels are written"),
        ({"public": False}, "Do not use this model; compare how labels are written"),
        ({"people": People({"labels": 200}, "source", None)}, "Do not use this model yet; compare how labels are"),
    ],
)
def test_a_model_is_not_recommended_if_no_label_could_be_read(facts, title):
    verdict = verdict_on_fit(fitted((0.24, 0.17, 0.3), readable_labels=(0.03, 0.0, 0.13), **facts), (), None)
    assert verdict["title"].startswith(title)
    assert "could be read (0% to 13%): not more than noise explains" in verdict["words"]


def test_the_words_have_the_numbers_and_what_would_pay():
    words = verdict_on_fit(fitted((0.24, 0.17, 0.3)), (), 600)["words"]
    assert "The 600 private rows lower the public model's mean squared error by about 24% (17% to 30%" in words
    assert "(50% to 100% with" in verdict_on_fit(fitted((0.77, 0.5, 1.04)), (), 600)["words"]
    words = verdict_on_fit(fitted((-0.16, -0.5, 0.18)), (), None)["words"]
    assert "can't be told yet: about 16% more (50% more to 18% less with 90% confidence)" in words
    assert "-" not in words.replace("log-loss", "")
    words = verdict_on_fit(fitted((0.0, 0.0, 0.0), adopted=0.0), points(0.5, 0.1), None)["words"]
    assert words.startswith("The private rows")
    assert "10 times the epsilon" in words
    assert "10%" in words


# What each part of the data contributed.


@pytest.fixture(scope="module")
def sentences_on_fit():
    """Return a function that fits and returns the sentences as one text; each fit is made once."""
    made = {}

    def text(task, target, epsilon, *, public=True, labels=True):
        key = (task, target, epsilon, public, labels)
        if key not in made:
            estimator, labels_public, same, shifted = CASES[task]
            declared = Public(X_public, labels_public if labels else None) if public else None
            model = type(estimator)(epsilon=epsilon, random_state=2)
            if task == "classification":
                model.set_params(classes=[False, True])
            model.fit(X, {"same": same, "shifted": shifted}[target], public=declared)
            comparison = errors_on_public(model.summary(), declared) if public and labels else None
            made[key] = " ".join(
                fit_in_words(model.summary(), model, declared, comparison, forecasts_of_fit(model, declared, len(X)))
            )
        return made[key]

    return text


@TASKS
def test_a_budget_that_buys_nothing_brings_nothing(sentences_on_fit, task):
    text = sentences_on_fit(task, "same", 1e-5)
    assert "The private rows brought nothing" in text
    assert "Nothing was spent" in text


def test_methods_that_keep_no_public_model_are_compared_with_a_fit_on_public_rows():
    public = Public(X_public, y_public)
    model = PrivateLinearRegression(epsilon=1.0, random_state=0).fit(X, y, public=public)
    alone = public_model_of(model.summary(), model, public)
    assert alone.privacy_.entries == ()
    # Public rows alone explain public labels; the two rows that stand in for private ones explain nothing.
    assert np.mean((alone.predict(X_public) - y_public) ** 2) < 0.2 * np.var(y_public)
    change = float(np.sqrt(np.mean((model.predict(X_public) - alone.predict(X_public)) ** 2)))
    text = " ".join(fit_in_words(model.summary(), model, public, errors_on_public(model.summary(), public), ()))
    assert f"the private correction changes the predictions by {change:.3g}" in text
    assert "the linear model of the public rows has a mean squared error of 0." in text
    # As if nothing of the correction had been left: a method without a gate is not said to have one.
    model.coef_, model.intercept_ = alone.coef_, alone.intercept_
    text = " ".join(fit_in_words(model.summary(), model, public, None, ()))
    assert "no correction exceeded its noise, and the model is the public one" in text
    assert "gate" not in text


def test_a_fit_that_keeps_its_public_model_states_that_models_errors(fit):
    for task in CASES:
        method = next(method for method in PREDICTORS if method.name == "transfer" and method.task == task)
        model, X, y = fit(method)
        assert errors_on_public(model.summary(), Public(X, y)) == model.public_errors_
        assert public_model_of(model.summary(), model, Public(X, y)).privacy_ is model.privacy_


@pytest.mark.parametrize(("task", "name"), [("regression", "mean squared error"), ("classification", "log-loss")])
def test_advice_forecast_verdict_and_report_name_the_same_error(task, name):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 3))
    label = X[:, 0] + 0.1 * rng.standard_normal(300)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame["y"] = label if task == "regression" else np.where(label > 0, "yes", "no")
    advice = advise(frame, 5000, label="y", epsilons=(1.0,), random_state=0)
    assert f"the {name}" in " ".join(advice.words)
    assert advice.table()[0].startswith(f"{name} / public model's")
    assert " error" not in " ".join(advice.words).replace("mean squared error", "").replace("sampling error", "")
    public = Public(X, frame["y"].to_numpy())
    plain = PrivateLinearRegression() if task == "regression" else PrivateLogisticRegression()
    assert errors_on_public(plain.fit(X, frame["y"].to_numpy()).summary(), public)["measure"] == name
    assert name in str(forecast(CASES[task][0], public, 5000))
    gained = fitted((0.2, 0.1, 0.3), adopted=1.0, classes=["no", "yes"] if task == "classification" else ())
    assert f"public model's {name} by about" in verdict_on_fit(gained, (), 5000)["words"]


def test_an_error_that_people_tested_is_stated_and_not_called_unknown():
    for tested, known in (((0.125, 0.01), True), (None, False)):
        people = People({"test": 1000}, "corrected", tested)
        summary = fitted(None, adopted=None, public=False, people=people)
        text = " ".join(fit_in_words(summary, None, None, None, ()))
        verdict = verdict_on_fit(summary, (), None)["words"]
        assert ("is about 0.125, with a standard deviation of at most 0.010" in text) == known
        assert ("unknown" in text) != known
        assert ("0.125" in verdict) == known
        assert ("nothing here says how good it is" in verdict) != known


# Coefficients, classes and groups.


def summary_with(**facts):
    return FitSummary(Ledger(1.0, 1e-6).receipt(), 1.0, **facts)


def test_coefficients_keep_their_noise():
    summary = summary_with(coefficients=np.array([-1.0, 4.0]), coefficient_noise=np.array([0.0, 1.0]))
    (chart,) = coefficient_charts(summary, ["bmi", "age"], "cost", np.array([1.0, 0.5]))
    assert (chart.names, chart.values, chart.spreads) == (["age", "bmi"], [2.0, -1.0], [0.5, 0.0])
    assert chart.x_label == "change of cost"
    assert "standard deviation of the privacy noise" in chart.note
    (plain,) = coefficient_charts(summary_with(coefficients=np.array([-1.0, 4.0])), ["bmi", "age"], "cost", None)
    assert (plain.values, plain.spreads, plain.note) == ([4.0, -1.0], [None, None], "")


def test_only_columns_that_public_rows_lack_are_said_to_lean_on_the_overall_level():
    names = [str(k) for k in range(30)]
    assert groups_in_words(summary_with(own_effect=np.full(3, np.nan)), names[:3]) == []
    leaning, own = groups_in_words(summary_with(own_effect=np.array([np.nan, 0.2, 0.7]), adopted=0.5), names[:3])[1:]
    assert leaning == "1: leans on the overall level: 20% of its own effect was kept."
    assert own == "At least 70% of its own effect was kept of each of these: 2."
    lacking = groups_in_words(summary_with(own_effect=np.full(30, 0.1), adopted=0.5), names)
    assert lacking[-1].startswith("18 more such columns")
    # The model is the public one.
    assert groups_in_words(summary_with(own_effect=np.full(30, 0.1), adopted=0.0), names) == []


def test_groups_with_few_public_rows_are_named_with_their_number_and_the_noise():
    rows = np.zeros((100, 4))
    rows[:, 0] = np.linspace(-1, 1, 100)
    rows[:7, 1], rows[:60, 2], rows[:20, 3] = 1.0, 1.0, 1.0
    names = ["age", "plan = gold", "plan = free", "plan = paid"]
    (plain,) = groups_in_words(summary_with(), names, rows)
    assert "plan = gold (7), plan = paid (20)." in plain
    assert not any(name in plain for name in ("age", "plan = free"))
    known = summary_with(coefficient_noise=np.array([0.1, 1.5, 0.2, 0.7]))
    assert "plan = gold (7, noise 1.5), plan = paid (20, noise 0.7)." in groups_in_words(known, names, rows)[0]
    # Beside a group that public rows lack; and nothing where all groups have many rows.
    assert len(groups_in_words(summary_with(own_effect=np.array([np.nan, np.nan, 0.2, np.nan])), names, rows)) == 3
    assert groups_in_words(summary_with(), names, np.tile(rows, (20, 1))) == []


# The page.


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("method", PREDICTORS, ids=lambda method: method.name)
def test_every_method_has_a_page_that_stands_alone(summary_of, method, n_classes):
    if method.name == "hybrid" and n_classes > 2:
        pytest.skip("two classes only")
    summary = summary_of(method, n_classes, name=NASTY, delta=0.5)
    json.dumps({name: part for name, part in summary.items() if name != "charts"}, allow_nan=False)
    page = fit_page(summary)
    check_page(page)
    assert "<script>" not in page
    assert "svg" in page
    # People stand beside the hybrid classifier, not public rows on which it could be compared.
    comparison = summary["comparison"]
    assert (
        comparison is None
        if method.beside == "agents"
        else comparison["rows"][-1]["error"] < comparison["rows"][0]["error"]
    )
    assert all(isinstance(value, str) for value in summary["parameters"].values())
    # Warnings, and the verdict first.
    assert "1/n" in page
    assert "no privacy guarantee" in page
    assert page.index('class="verdict') < page.index("<h2>")
    assert page.index(summary["verdict"]["title"]) < page.index("epsilon</dt>")


def test_numbers_of_each_class_are_on_the_page_with_what_they_do_not_show(summary_of):
    method = next(method for method in PREDICTORS if method.name == "transfer" and method.task == "classification")
    summary = summary_of(method, decision_threshold={"miss": 3, "false alarm": 1})
    section = fit_page(summary).partition("<h3>By class</h3>")[2].partition("</section>")[0]
    assert section.count("<tr><td>") == 2
    assert "another population" in section
    assert "does not show\nwhether the private rows helped" in section
    assert "a = 1 is predicted from a probability of 0.25 on" in section
    assert sum(int(row[1]) for row in summary["by_class"]["rows"]) == 60


def test_groups_and_errors_on_public_rows_have_sections_of_their_own(summary_of):
    groups = ["Public rows say nothing.", f"{NASTY}: leans on the overall level (10% of its own effect was kept)."]
    page = fit_page(summary_of(PREDICTORS[0]) | {"groups": groups})
    check_page(page)
    section = page.partition("<h2>Groups that public rows lack, or have few of</h2>")[2].partition("</section>")[0]
    assert "leans on the overall level (10%" in section
    # The errors on public rows say nothing about the private population: none of them is the result.
    section = page.partition("<h2>For reference: errors on public rows</h2>")[2].partition("</section>")[0]
    assert "strong" not in section
    assert "not whether the private rows helped" in section
    assert "this model" not in section
