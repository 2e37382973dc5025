"""Plots: the values of the results, in the user's axes, and nothing imported before something is drawn."""

import subprocess
import sys
import warnings

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from dpadapt import (
    Ledger,
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivateTransferClassifier,
    PrivateTransferRegressor,
    Public,
    Schema,
    TableModel,
    rehearse,
)
from dpadapt.mechanisms import Gaussian
from dpadapt.plots import plot_coefficients, plot_forecast, plot_ledger, plot_rehearsal
from dpadapt.report.before_spending import summarise_forecast

mpl.use("Agg")
RNG = np.random.default_rng(0)
X_PUBLIC = RNG.uniform(-1, 1, (200, 3))
PUBLIC = Public(X_PUBLIC, X_PUBLIC @ [1.0, 0.5, -1.0] + 0.1 * RNG.standard_normal(200))
X = RNG.uniform(-1, 1, (3000, 3))


@pytest.fixture
def ax():
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    yield axes
    figure.canvas.draw()
    pyplot.close("all")


def curve(ax, name):
    """Return the points of a curve, by its name in the legend."""
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert name in names
    (line,) = [line for line in ax.lines if line.get_label() == name]
    return [list(map(float, values)) for values in line.get_data()]


def test_a_forecast_is_drawn_as_the_report_has_it(ax):
    epsilons = [0.3, 1.0, 3.0]
    assert plot_forecast(PrivateTransferRegressor(), PUBLIC, 3000, epsilons=epsilons, ax=ax) is ax
    xs, ys = curve(ax, "this fit")
    points = summarise_forecast(PrivateTransferRegressor(), PUBLIC, 3000, epsilons)["points"]
    assert xs == epsilons
    assert ys == [sorted(point["error_ratios"][1:])[3] for point in points]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["0.3", "1", "3"]
    assert ax.get_xscale() == "log"
    assert curve(ax, "the public model")[1] == [1.0, 1.0]
    assert "from the smallest to the largest shift" in [text.get_text() for text in ax.get_legend().get_texts()]


def test_a_forecast_of_classes_is_drawn_and_one_without_any_release_is_refused(ax):
    public = Public(PUBLIC.X, PUBLIC.y > 0)
    plot_forecast(PrivateTransferClassifier(), public, 3000, epsilons=[1.0, 3.0], ax=ax)
    assert len(curve(ax, "noise in a logit (standard deviation)")[0]) == 2
    with pytest.raises(ValueError, match="epsilons: at none of them would anything be released"):
        plot_forecast(PrivateTransferClassifier(), public, 20, epsilons=[0.001], ax=ax)
    with pytest.raises(TypeError, match="estimator must have a forecast"):
        plot_forecast(PrivateLinearRegression(), PUBLIC, 20, ax=ax)


def test_rehearsals_are_drawn_with_their_names_and_their_spread(ax):
    options = {"epsilons": (0.3, 3.0), "repeats": 3, "random_state": 0}
    one = rehearse(PrivateLinearRegression(), PUBLIC, 200, **options)
    two = rehearse(PrivateTransferRegressor(), PUBLIC, 200, **options)
    plot_rehearsal({"linear": one, "transfer": two}, ax=ax)
    for name, rehearsal in (("linear", one), ("transfer", two)):
        assert curve(ax, name) == [[0.3, 3.0], pytest.approx(rehearsal.errors.mean(axis=0).tolist())]
    assert curve(ax, "public only")[1][0] == pytest.approx(one.public_only.mean())
    low, high = ax.collections[0].get_paths()[0].get_extents().intervaly
    spread = one.errors.std(axis=0, ddof=1)
    assert low == pytest.approx((one.errors.mean(axis=0) - spread).min())
    assert high == pytest.approx((one.errors.mean(axis=0) + spread).max())
    assert ax.get_ylabel() == one.metric


def test_rehearsals_that_can_not_share_axes_are_refused(ax):
    one = rehearse(PrivateLinearRegression(), PUBLIC, 200, epsilons=(1.0,), repeats=1, random_state=0)
    other = rehearse(PrivateLinearRegression(), PUBLIC, 200, epsilons=(2.0,), repeats=1, random_state=0)
    with pytest.raises(ValueError, match="the same epsilons and error"):
        plot_rehearsal({"a": one, "b": other}, ax=ax)
    for wrong in ({}, {"a": 1}, {"a": one, "b": "c"}):
        with pytest.raises(TypeError, match="rehearsal must be a Rehearsal"):
            plot_rehearsal(wrong, ax=ax)
    plot_rehearsal(one, ax=ax)
    assert len(curve(ax, "rehearsed fit")[0]) == 1


def test_coefficients_are_drawn_by_size_with_the_noise_that_is_known(ax):
    model = PrivateTransferRegressor(public_model="linear", random_state=0).fit(X, X @ [1.5, 0.5, -1.0], public=PUBLIC)
    assert np.any(model.coef_noise_ > 0)
    plot_coefficients(model, names=["a", "b", "c"], public=PUBLIC, ax=ax)
    scaled = model.coef_ * PUBLIC.X.std(axis=0)
    order = np.argsort(-np.abs(scaled))
    assert [bar.get_width() for bar in ax.patches] == pytest.approx(scaled[order].tolist())
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["abc"[k] for k in order]
    (whiskers,) = [part for part in ax.collections if "LineCollection" in type(part).__name__]
    noise = (model.coef_noise_ * PUBLIC.X.std(axis=0))[order]
    spans = [np.ptp(segment[:, 0]) for segment in whiskers.get_segments()]
    assert spans == pytest.approx((2 * noise[noise > 0]).tolist())
    assert "one standard deviation of the privacy noise, without sampling" in ax.get_xlabel()
    # The largest at the top.
    assert ax.yaxis_inverted()


def test_coefficients_of_one_class_are_drawn_if_there_are_several(ax):
    y = np.digitize(X[:, 0], [-0.3, 0.3])
    model = PrivateLogisticRegression(classes=[0, 1, 2], random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="target must be the class whose coefficients are drawn, one of 0, 1, 2"):
        plot_coefficients(model, ax=ax)
    plot_coefficients(model, target=2, ax=ax)
    assert sorted(bar.get_width() for bar in ax.patches) == pytest.approx(sorted(model.coef_[2].tolist()))
    assert "privacy noise" not in ax.get_xlabel()  # this estimator does not know it
    assert {tick.get_text() for tick in ax.get_yticklabels()} == {"x0", "x1", "x2"}


def test_coefficients_of_a_table_model_have_the_names_of_its_columns(ax):
    frame = pd.DataFrame(X, columns=["age", "bmi", "height"]).assign(cost=X[:, 0])
    schema = Schema.infer(frame.head(50), dataset="patients")
    model = TableModel(PrivateLinearRegression(random_state=0), schema, label="cost").fit(frame)
    plot_coefficients(model, ax=ax)
    assert {tick.get_text() for tick in ax.get_yticklabels()} <= set(model.get_feature_names_out())
    assert ax.get_xlabel() == "change of cost"


def test_bad_arguments_of_coefficients_are_refused(ax):
    model = PrivateLinearRegression(random_state=0).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="names must have one entry per coefficient: 3, got 2"):
        plot_coefficients(model, names=["a", "b"], ax=ax)
    with pytest.raises(ValueError, match="public must have one entry per coefficient: 3, got 2"):
        plot_coefficients(model, public=Public(PUBLIC.X[:, :2]), ax=ax)
    with pytest.raises(TypeError, match="model must be fitted and have coefficients"):
        plot_coefficients(PrivateLinearRegression(), ax=ax)
    model.coef_ = np.zeros(3)
    with pytest.raises(ValueError, match="all coefficients of the model are 0"):
        plot_coefficients(model, ax=ax)


def test_the_curve_of_a_ledger_ends_at_what_is_spent(ax, tmp_path):
    ledger = Ledger.open(tmp_path / "a.ledger", epsilon=3.0, delta=1e-6)
    for noise in (30.0, 20.0, 40.0):
        ledger.start(Gaussian(noise), label="a sum")
    plot_ledger(ledger, ax=ax)
    xs, ys = curve(ax, "spent")
    assert xs == [0, 1, 2, 3]
    assert ys[-1] == pytest.approx(ledger.spent())
    assert curve(ax, "cap")[1] == [3.0, 3.0]
    assert ax.get_xscale() == "linear"
    with pytest.raises(TypeError, match=r"ledger must be a dpadapt\.Ledger"):
        plot_ledger("a.ledger", ax=ax)


def test_without_axes_a_figure_is_made():
    from matplotlib import pyplot

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = plot_ledger(Ledger(1.0, 1e-6))
        drawn.figure.canvas.draw()
    pyplot.close("all")


def test_matplotlib_is_imported_when_something_is_drawn_and_its_lack_is_said_in_one_line():
    script = (
        "import sys, dpadapt.plots\n"
        "assert 'matplotlib' not in sys.modules\n"
        "sys.modules['matplotlib'] = None\n"
        "dpadapt.plots.plot_ledger(dpadapt.Ledger(1.0, 1e-6))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last == "ModuleNotFoundError: plots need matplotlib, which is not installed: pip install 'dpadapt[plot]'."
