"""Public models of any kind as an offset: out-of-fold scores, exact fall-back, corrections, and refusals for free."""

import re
import threading
import traceback

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import HistGradientBoostingRegressor, StackingRegressor, VotingRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from dpadapt import Adjacency, Ledger, PrivateTransferClassifier, PrivateTransferRegressor, Public, save
from dpadapt.transfer.public_models import make_offset

SECRET = 31415.9
NOTHING = {"epsilon": 1e-6, "delta": 1e-12}


def rows(n, seed, *, level=0.0):
    """Return rows whose target is far from linear, and a target of three classes."""
    random = np.random.default_rng(seed)
    X = random.uniform(-1, 1, (n, 3))
    sign = np.sign(X[:, 0] * X[:, 1])
    y = sign + level + 0.1 * random.standard_normal(n)
    codes = np.where(sign < 0, 0, np.where(X[:, 2] + level > 0.3, 2, 1))
    return X, y, np.where(random.random(n) < 0.1, random.integers(0, 3, n), codes)


X_PUBLIC, Y_PUBLIC, CODES_PUBLIC = rows(600, 1)
X, Y, CODES = rows(3000, 2, level=1.0)
X_NEW, Y_NEW, CODES_NEW = rows(2000, 3, level=1.0)
# Targets that a linear model can't follow, and a shift that a correction of the level removes; other shares of classes.
PUBLIC = Public(X_PUBLIC, Y_PUBLIC)
PUBLIC_CLASSES = Public(X_PUBLIC, CODES_PUBLIC)


def tree(**params):
    return DecisionTreeRegressor(min_samples_leaf=10, random_state=0, **params)


def classifier_tree(**params):
    return DecisionTreeClassifier(min_samples_leaf=10, random_state=0, **params)


def regressor(model, **params):
    return PrivateTransferRegressor(public_model=model, **params)


def error(model):
    return float(np.mean((model.predict(X_NEW) - Y_NEW) ** 2))


def log_loss(model):
    p = model.predict_proba(X_NEW)
    return float(-np.mean(np.log(p[np.arange(len(X_NEW)), CODES_NEW])))


# Scores on public rows


def test_an_unfitted_model_scores_every_public_row_by_a_copy_that_has_not_seen_it():
    labels = np.random.default_rng(0).standard_normal(600)
    offset = make_offset(DecisionTreeRegressor(random_state=0), PUBLIC, X_PUBLIC, labels)
    # A full tree repeats the labels of the rows that it was fitted to; of other rows it knows nothing.
    np.testing.assert_allclose(offset.model.predict(X_PUBLIC), labels)
    assert np.corrcoef(offset.public_scores, labels)[0, 1] < 0.15
    assert offset.rows.all()


def test_scores_of_a_fitted_model_count_only_on_rows_that_are_marked_as_unseen():
    full = DecisionTreeRegressor(random_state=0).fit(X_PUBLIC[:300], Y_PUBLIC[:300])
    unseen = np.arange(600) >= 300
    offset = make_offset(full, Public(X_PUBLIC, Y_PUBLIC, unseen=unseen), X_PUBLIC, Y_PUBLIC)
    assert offset.model is not full  # its own copy
    assert np.array_equal(offset.rows, unseen)
    assert np.array_equal(offset.public_scores, full.predict(X_PUBLIC[300:]))
    # Without a mark its errors come from copies; its own, on rows that it has seen, would be 0.
    unmarked = make_offset(full, PUBLIC, X_PUBLIC, Y_PUBLIC)
    assert np.array_equal(unmarked.model.predict(X_NEW), full.predict(X_NEW))
    assert (
        np.mean((unmarked.public_scores[:300] - Y_PUBLIC[:300]) ** 2)
        > 1e-3
        > np.mean((full.predict(X_PUBLIC[:300]) - Y_PUBLIC[:300]) ** 2)
    )


def test_probabilities_become_centred_logarithms_and_none_is_zero():
    offset = make_offset(DecisionTreeClassifier(), PUBLIC_CLASSES, X_PUBLIC, CODES_PUBLIC, np.arange(4))
    assert offset.public_scores.shape == (600, 4)
    np.testing.assert_allclose(offset.public_scores.mean(axis=1), 0.0, atol=1e-12)
    # A full tree gives probabilities 0 and 1, and the last class has no public row.
    assert np.ptp(offset.public_scores) <= np.log(4 / 1e-3) + 1e-9


# What a fit makes of it


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_classifier_without_budget_is_exactly_the_public_model(n_classes):
    codes, codes_public = np.minimum(CODES, n_classes - 1), np.minimum(CODES_PUBLIC, n_classes - 1)
    model = LogisticRegression().fit(X_PUBLIC, codes_public)
    public = Public(X_PUBLIC, codes_public)
    fitted = PrivateTransferClassifier(public_model=model, **NOTHING).fit(X, codes, public=public)
    np.testing.assert_allclose(fitted.predict_proba(X_NEW), model.predict_proba(X_NEW), atol=1e-9)


def test_private_rows_correct_a_model_that_is_not_linear():
    ours = PrivateTransferRegressor(epsilon=1.0, public_model=tree(), random_state=0).fit(X, Y, public=PUBLIC)
    linear = PrivateTransferRegressor(epsilon=1.0, public_model="linear", random_state=0).fit(X, Y, public=PUBLIC)
    assert ours.adopted_ > 0.5
    assert error(ours) < 0.3 * error(ours.public_only())
    assert error(ours) < 0.5 * error(linear)


def test_a_wrong_slope_of_the_public_model_is_corrected():
    public = Public(X_PUBLIC, 3.0 * Y_PUBLIC)
    ours = PrivateTransferRegressor(epsilon=3.0, public_model=tree(), random_state=0).fit(X, Y, public=public)
    # Two thirds less than its weight of 1, by the plane and by the directions together.
    slope = np.polyfit(ours.public_only().predict(X_NEW), ours.predict(X_NEW), 1)[0]
    assert slope == pytest.approx(1 / 3, abs=0.1)
    assert error(ours) < 0.1 * error(ours.public_only())


def test_the_receipt_says_what_is_assumed_of_the_model():
    for ours, y, public in (
        (regressor(tree()), Y, PUBLIC),
        (PrivateTransferClassifier(public_model=classifier_tree()), CODES, PUBLIC_CLASSES),
    ):
        receipt = ours.fit(X, y, public=public).privacy_
        assert any("public_model was made without the private rows" in line for line in receipt.assumptions)
        assert receipt.verify()


def test_forecasts_use_the_model():
    linear = PrivateTransferRegressor().forecast(PUBLIC, 3000)
    ours = regressor(tree()).forecast(PUBLIC, 3000)
    assert ours.worthwhile
    assert ours.error_ratios != linear.error_ratios
    assert PrivateTransferClassifier(public_model=classifier_tree()).forecast(PUBLIC_CLASSES, 3000).worthwhile


fits = []


class Counting(LinearRegression):
    def fit(self, X, y):
        fits.append(len(X))
        return super().fit(X, y)


def test_copies_are_fitted_once_for_each_public_and_again_if_something_changes():
    fits.clear()
    model = Counting()
    public = Public(X_PUBLIC.copy(), Y_PUBLIC)
    for seed in range(3):
        regressor(model, random_state=seed).fit(X, Y, public=public)
    assert fits == [450] * 4 + [600]
    model.set_params(fit_intercept=False)
    regressor(model).fit(X, Y, public=public)
    assert len(fits) == 10
    public.X[0, 0] += 1.0
    regressor(model).fit(X, Y, public=public)
    assert len(fits) == 15


def test_extreme_private_rows_do_not_make_a_model_fail():
    """A tree computes in float32, where such cells are infinite: its error would tell of the row."""
    private = X.copy()
    private[3] = [1e300, -1e300, 1e-310]
    model = regressor(tree(), random_state=0).fit(private, Y, public=PUBLIC)
    assert np.isfinite(model.predict(private)).all()


# Refusals, before anything is charged


class Function(RegressorMixin, BaseEstimator):
    """A model by any function of rows."""

    def __init__(self, function=None):
        self.function = function

    def fit(self, X, y):
        self.fitted_ = True
        return self

    def predict(self, X):
        return self.function(X)


def refusal(estimator, *, y=Y, public=PUBLIC, features=X):
    ledger = Ledger(5.0, 1e-5)
    with pytest.raises((ValueError, TypeError)) as refused:
        estimator.fit(features, y, public=public, ledger=ledger)
    assert ledger.entries == []
    return refused.value


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda X: X[:, 0] - X[:, 0].mean(), "mixes rows"),
        (lambda X: np.cumsum(X[:, 0]), "mixes rows"),
        (lambda X: X[:, 0] + np.random.default_rng().standard_normal(len(X)), "mixes rows"),
        (lambda X: X, "one prediction for each row"),
        (lambda X: X[1:, 0], "one prediction for each row"),
        (lambda X: 1.0, "one prediction for each row"),
        (lambda X: np.full(len(X), np.nan), "finite numbers; for some public rows"),
        (lambda X: X @ np.ones(7), "fails on public rows: ValueError"),
        (lambda X: ["text"] * len(X), "fails on public rows: ValueError"),
    ],
)
def test_models_that_mix_rows_or_give_no_numbers_are_refused_before_the_charge(function, message):
    assert message in str(refusal(regressor(Function(function))))


def test_a_model_that_fails_on_private_rows_alone_shows_nothing_of_them():
    private = X.copy()
    private[7, 1] = SECRET

    def picky(rows):
        if (rows == SECRET).any():
            raise KeyError(f"no entry for {rows[rows == SECRET]}")
        return rows[:, 0]

    refused = refusal(regressor(Function(picky)), features=private)
    assert "public_model fails on private rows (KeyError)" in str(refused)
    assert "31415" not in "".join(traceback.format_exception(refused))
    assert refused.__context__ is None


def test_a_prediction_that_is_not_finite_for_a_private_row_alone_is_refused():
    private = X.copy()
    private[7, 1] = SECRET
    model = Function(lambda rows: np.where(rows[:, 1] == SECRET, np.inf, rows[:, 0]))
    refused = refusal(regressor(model), features=private)
    assert "finite numbers; for some private rows" in str(refused)
    assert "31415" not in str(refused)


@pytest.mark.parametrize(
    ("estimator", "public", "message"),
    [
        (regressor(tree()), None, "needs labelled public data"),
        (regressor(tree()), Public(X_PUBLIC), "needs labelled public data"),
        (regressor(tree(), prior="same-population"), PUBLIC, "needs prior='shifted'"),
        (regressor(tree()), Public(X_PUBLIC[:15], Y_PUBLIC[:15]), "at least 20 public rows"),
        (regressor(DecisionTreeRegressor), PUBLIC, "the class DecisionTreeRegressor"),
        (regressor(object()), PUBLIC, "must be a model with predict, .* got object"),
        (regressor("boosting"), PUBLIC, "must be 'linear', a model with predict, or left out, got 'boosting'"),
        (regressor(StandardScaler()), PUBLIC, "fails on public rows: AttributeError"),
        (
            regressor(FrozenEstimator(tree().fit(X_PUBLIC, Y_PUBLIC))),
            PUBLIC,
            r"mark public rows that it has not seen: Public\(X, y, unseen=",
        ),
        (
            regressor(tree().fit(X_PUBLIC[:, :2], Y_PUBLIC)),
            Public(X_PUBLIC, Y_PUBLIC, unseen=True),
            "fails on public rows: ValueError",
        ),
        (
            regressor(tree().fit(X_PUBLIC, Y_PUBLIC)),
            Public(X_PUBLIC, Y_PUBLIC, unseen=np.arange(600) < 5),
            "unseen of public must mark at least 20 rows, got 5",
        ),
        (regressor(tree()), Public(X_PUBLIC, Y_PUBLIC, unseen=True), "is not fitted. scikit-learn's clone forgets"),
        (
            PrivateTransferRegressor(
                public_model=VotingRegressor([("a", FrozenEstimator(tree().fit(X_PUBLIC, Y_PUBLIC)))])
            ),
            PUBLIC,
            "has a part that is",
        ),
    ],
)
def test_models_that_can_not_be_used_are_refused_before_the_charge(estimator, public, message):
    assert re.search(message, str(refusal(estimator, public=public)))


@pytest.mark.parametrize("unseen", [[True], "all", 1, np.ones(600), np.ones((600, 1), dtype=bool)])
def test_marks_of_unseen_rows_are_checked_at_once(unseen):
    with pytest.raises(ValueError, match="unseen must be True or hold True or False for each of the 600 public rows"):
        Public(X_PUBLIC, Y_PUBLIC, unseen=unseen)


class Probabilities(Function):
    """A model for classes, by any function of rows; fitted already."""

    def fit(self, X, y):
        return self

    def __sklearn_is_fitted__(self):
        return True

    def predict_proba(self, X):
        return self.function(X)


def test_a_classifier_that_fails_on_private_rows_alone_is_refused_before_the_charge():
    private = X.copy()
    private[7, 1] = SECRET

    def picky(rows):
        if (rows == SECRET).any():
            raise KeyError(f"no entry for {rows[rows == SECRET]}")
        return np.full((len(rows), 3), 1 / 3)

    public = Public(X_PUBLIC, CODES_PUBLIC, unseen=True)
    estimator = PrivateTransferClassifier(public_model=Probabilities(picky))
    refused = refusal(estimator, y=CODES, public=public, features=private)
    assert "public_model fails on private rows (KeyError)" in str(refused)
    assert "31415" not in "".join(traceback.format_exception(refused))


def chunks_scaled_by_their_largest_value(X):
    """Mixes rows only beside an extreme one."""
    parts = [X[i : i + 64, 0] for i in range(0, len(X), 64)]
    return np.concatenate([part / 255 if np.abs(part).max() > 1 else part for part in parts])


@pytest.mark.parametrize(
    "function", [chunks_scaled_by_their_largest_value, lambda X: X[:, 0] - 1e-9 * X[:, 0].sum()], ids=["chunks", "sum"]
)
def test_mixing_that_needs_an_extreme_row_is_found(function):
    private = X.copy()
    private[0] = 1e12
    assert "mixes rows" in str(refusal(regressor(Function(function)), features=private))


class Remembering(Function):
    """Keeps its last input."""

    def predict(self, X):
        self.last_ = X
        return X[:, 0]


def test_a_model_that_keeps_what_it_saw_keeps_no_private_row():
    private = X.copy()
    private[:, 1] = SECRET
    model = regressor(Remembering()).fit(private, Y, public=Public(X_PUBLIC, Y_PUBLIC))
    assert SECRET not in model.public_base_.models[0].model.last_


def test_what_a_model_prints_about_private_rows_is_not_shown(capsys):
    def talking(rows):
        print(len(rows), rows.max())
        return rows[:, 0]

    capsys.readouterr()
    private = X.copy()
    private[5, 1] = SECRET
    regressor(Function(talking)).fit(private, Y, public=PUBLIC)
    assert "31415" not in capsys.readouterr().out


def test_single_precision_is_refused_under_add_remove_alone():
    model = Function(lambda X: X[:, 0].astype(np.float32))
    regressor(model).fit(X, Y, public=PUBLIC)
    refused = refusal_under_add_remove(model)
    assert "must compute in float64 under add-remove" in str(refused)
    model = Probabilities(lambda X: np.full((len(X), 3), 1 / 3, dtype=np.float32))
    public = Public(X_PUBLIC, CODES_PUBLIC, unseen=True)
    refused = refusal_under_add_remove(model, PrivateTransferClassifier, CODES, public)
    assert "must compute in float64 under add-remove" in str(refused)


def refusal_under_add_remove(model, kind=PrivateTransferRegressor, y=Y, public=PUBLIC):
    ledger = Ledger(5.0, 1e-5, adjacency=Adjacency.ADD_REMOVE)
    with pytest.raises(ValueError) as refused:
        kind(public_model=model, adjacency="add-remove", n_rows=3000).fit(X, y, public=public, ledger=ledger)
    assert ledger.entries == []
    return refused.value


def test_public_scores_are_float64_whatever_the_model_computes_in():
    model = Function(lambda X: X[:, 0].astype(np.float32)).fit(X_PUBLIC, Y_PUBLIC)
    offset = make_offset(model, Public(X_PUBLIC, Y_PUBLIC, unseen=True), X_PUBLIC, Y_PUBLIC)
    assert offset.public_scores.dtype == np.float64


def test_a_model_that_works_in_place_changes_no_public_data():
    public = Public(X_PUBLIC.copy(), Y_PUBLIC)
    model = make_pipeline(StandardScaler(copy=False), LinearRegression(copy_X=False))
    regressor(model).fit(X, Y, public=public)
    assert np.array_equal(public.X, X_PUBLIC)


class Centring(LinearRegression):
    """Changes the labels that it is given."""

    def fit(self, X, y):
        y -= 1.0
        return super().fit(X, y)


def test_a_model_that_changes_labels_changes_no_public_label():
    labels = Y_PUBLIC.copy()
    make_offset(Centring(), PUBLIC, X_PUBLIC, labels)
    assert np.array_equal(labels, Y_PUBLIC)


class Locked(LinearRegression):
    """Can't be copied once it is fitted."""

    def fit(self, X, y):
        self.lock_ = threading.Lock()
        return super().fit(X, y)


def test_a_model_that_can_not_be_copied_gets_no_private_row():
    refused = refusal(regressor(Locked()))
    assert "must be a model that copy.deepcopy can copy" in str(refused)
    assert refused.__context__ is None


@pytest.mark.parametrize(
    "model",
    [GaussianProcessRegressor(alpha=0.1), StackingRegressor([("tree", tree())], cv=3), Function(lambda X: X[:, :1])],
    ids=["predicts unfitted", "predicts only when fitted", "one column"],
)
def test_models_of_other_kinds_are_accepted(model):
    few = Public(X_PUBLIC[:100], Y_PUBLIC[:100])
    fitted = regressor(model, **NOTHING).fit(X[:200], Y[:200], public=few)
    assert fitted.predict(X_NEW[:5]).shape == (5,)


def test_saving_says_why_it_can_not(tmp_path):
    model = regressor(HistGradientBoostingRegressor(max_iter=5)).fit(X, Y, public=PUBLIC)
    with pytest.raises(TypeError, match="public_model can't be saved as plain data"):
        save(model, tmp_path / "model")
    assert not (tmp_path / "model").exists()


class Logging(RegressorMixin, BaseEstimator):
    """A model that appends the rows that it sees to a list."""

    def fit(self, X, y):
        self.log_ = []
        return self

    def predict(self, X):
        self.log_.append(X.copy())
        return X[:, 0]


def test_a_list_inside_a_model_keeps_no_private_row():
    private = X.copy()
    private[:, 1] = SECRET
    given = Logging().fit(X_PUBLIC, Y_PUBLIC)
    public = Public(X_PUBLIC, Y_PUBLIC, unseen=True)
    model = regressor(given).fit(private, Y, public=public)
    assert given.log_ == []
    assert model.public_base_.models[0].model.log_
    assert all(SECRET not in rows for rows in model.public_base_.models[0].model.log_)
