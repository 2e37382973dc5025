"""Maps, hypotheses and losses that mix rows, keep state, write or fail are refused before anything is charged."""

import traceback

import numpy as np
import pytest

from dpadapt import Ledger
from dpadapt.hybrid.agents import SimulatedAgents
from dpadapt.hybrid.questions import LinearHypothesis, Squares
from dpadapt.learning.losses import LogisticLoss, SoftmaxLoss
from dpadapt.papers.reweigh.learners import DescentLearner, OnlineLearner
from dpadapt.papers.reweigh.learners_discrete import FiniteLearner
from dpadapt.papers.reweigh.reweigh import SubsampleTestReweigh

SECRET = 31415.9


def data(n=200):
    X = np.random.default_rng(0).uniform(-1, 1, (n, 3))
    return X, (X[:, 0] > 0.2).astype(int)


class Counting:
    """Adds to each row the number of rows that it has seen before."""

    def __init__(self):
        self.seen = 0

    def __call__(self, X):
        self.seen += len(X)
        return X + self.seen


class RunningMean:
    """Subtracts the mean of all rows of earlier calls."""

    def __init__(self):
        self.sum, self.n = 0.0, 0

    def __call__(self, X):
        mean = self.sum / max(self.n, 1)
        self.sum, self.n = self.sum + X.sum(axis=0), self.n + len(X)
        return X - mean


class FittedOnLargeBatches:
    """Learns a mean from large batches and subtracts it from the rows of small ones."""

    def __init__(self):
        self.mean = 0.0

    def __call__(self, X):
        if len(X) <= 250:
            return X - self.mean
        self.mean = X.mean(axis=0)
        return X


def overwrite(X):
    X *= 2.0
    return X


def large_batches_only(X):
    return X - X.mean(axis=0) if len(X) > 250 else X


MIXERS = {
    "centring": lambda X: X - X.mean(axis=0),
    "hardly centring": lambda X: X - 1e-5 * X.mean(axis=0),
    "normalising": lambda X: X / (1e-9 + X.std(axis=0)),
    "median": lambda X: X - np.median(X, axis=0),
    "largest": lambda X: X / np.abs(X).max(),
    "sorting": lambda X: np.sort(X, axis=0),
    "ranks": lambda X: np.argsort(np.argsort(X, axis=0), axis=0).astype(float),
    "cumulative": lambda X: np.cumsum(X, axis=0),
    "shifting": lambda X: np.roll(X, 1, axis=0),
    "previous": lambda X: X + np.vstack([np.zeros_like(X[:1]), X[:-1]]),
    "reversing": lambda X: X[::-1],
    "clipping at a quantile": lambda X: np.minimum(X, np.quantile(X, 0.9, axis=0)),
    "number of rows": lambda X: X / len(X),
    "index": lambda X: X + np.arange(len(X))[:, None],
    "state": Counting(),
    "running mean": RunningMean(),
    "fitted": FittedOnLargeBatches(),
    "random": lambda X: X + np.random.default_rng().standard_normal(X.shape),
    "random for all": lambda X: X * np.random.default_rng().standard_normal(),
    "large batches only": large_batches_only,
}
WRONG = {
    "fewer rows": (lambda X: X[1:], "one row of numbers"),
    "more rows": (lambda X: np.vstack([X, X]), "one row of numbers"),
    "one axis": (lambda X: X[:, 0], "one row of numbers"),
    "three axes": (lambda X: X[:, :, None], "one row of numbers"),
    "no columns": (lambda X: X[:, :0], "one row of numbers"),
    "text": (lambda X: X.astype(str), "one row of numbers"),
    "nothing": (lambda X: None, "one row of numbers"),
    "columns by content": (lambda X: X[:, X[0] > 0], "mixes rows|equally many|one row of numbers"),
    "overwriting": (overwrite, "changes its argument"),
    "failing": (lambda X: X @ np.ones((9, 2)), "fails on made-up rows of 3 numbers: ValueError"),
}


def refused(learner, message):
    """Fit with people and a ledger; the fit must be refused, and nothing be spent or asked."""
    X, y = data()
    ledger, agents = Ledger(5.0, 1e-5), SimulatedAgents(X, y, 3.0, n_people=60_000, random_state=0)
    with pytest.raises(ValueError, match=message) as refusal:
        SubsampleTestReweigh(learner, delta=1e-5, classes=[0, 1], random_state=0).fit(
            X, y, agents=agents, ledger=ledger
        )
    assert ledger.entries == []
    assert agents.asked == 0
    return refusal.value


@pytest.mark.parametrize("learner", [DescentLearner, OnlineLearner])
@pytest.mark.parametrize("name", MIXERS)
def test_maps_that_mix_rows_are_refused_and_nothing_is_spent(name, learner):
    refused(learner(MIXERS[name], n_steps=5), "row_map mixes rows")


@pytest.mark.parametrize("name", WRONG)
def test_maps_that_give_no_table_write_or_fail_are_refused_and_nothing_is_spent(name):
    wrong, message = WRONG[name]
    refused(DescentLearner(wrong, n_steps=5), message)


def test_a_map_that_fails_on_private_rows_alone_shows_nothing_of_them():
    X, y = data()
    X[7, 1] = SECRET

    def picky(rows):
        if (rows == SECRET).any():
            raise KeyError(f"no entry for {rows[rows == SECRET]}")
        return rows

    ledger = Ledger(5.0, 1e-5)
    with pytest.raises(ValueError, match=r"row_map fails on private rows \(KeyError\)") as refusal:
        SubsampleTestReweigh(DescentLearner(picky, n_steps=5), delta=1e-5, classes=[0, 1]).fit(X, y, ledger=ledger)
    assert ledger.entries == []
    assert "31415" not in "".join(traceback.format_exception(refusal.value))
    assert refusal.value.__context__ is None


GOOD = {
    "squares": Squares(0.5),
    "matrix": lambda X: np.tanh(X @ np.linspace(-1, 1, 3 * 70).reshape(3, 70)),
    "lengths": lambda X: X / np.linalg.norm(X, axis=1, keepdims=True),
    "not finite": lambda X: np.log(X),
    "whole numbers": lambda X: (X > 0).astype(np.int64),
    "single": lambda X: X.astype(np.float32) @ np.ones((3, 2), dtype=np.float32),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", GOOD)
def test_maps_that_treat_each_row_by_itself_are_accepted(name, dtype):
    X, y = data()
    learner = DescentLearner(GOOD[name], n_steps=3)
    model = SubsampleTestReweigh(learner, classes=[0, 1], random_state=0).fit(X.astype(dtype), y)
    assert model.privacy_.epsilon > 0


def test_features_in_single_precision_are_not_refused_after_the_charge_under_add_remove():
    X, y = data()
    learner = DescentLearner(GOOD["single"], n_steps=3)
    model = SubsampleTestReweigh(learner, classes=[0, 1], adjacency="add-remove", n_rows=200, random_state=0)
    assert model.fit(X, y).privacy_.epsilon > 0


class Labels:
    """A hypothesis by any function from rows to one number each."""

    def __init__(self, function):
        self.function = function

    def predict(self, X):
        return (self.function(X) > 0).astype(int)


BAD_HYPOTHESES = {
    "centring": (Labels(lambda X: X[:, 0] - X[:, 0].mean()), "mixes rows"),
    "ranks": (Labels(lambda X: np.argsort(np.argsort(X[:, 0])) - len(X) / 2), "mixes rows"),
    "cumulative": (Labels(lambda X: np.cumsum(X[:, 0])), "mixes rows"),
    "columns": (LinearHypothesis([1.0, 2.0]), "fails on made-up rows of 3 numbers"),
    "number": (Labels(lambda X: X[:, 0].sum()), "one result for each row"),
    "failing": (Labels(lambda X: X[:, 5]), "fails on made-up rows of 3 numbers: IndexError"),
}


@pytest.mark.parametrize("name", BAD_HYPOTHESES)
def test_hypotheses_that_mix_rows_or_fail_are_refused_and_nothing_is_spent(name):
    bad, message = BAD_HYPOTHESES[name]
    refused(FiniteLearner([LinearHypothesis([1.0, 0.0, 0.0]), bad]), message)


class Centred(LogisticLoss):
    """Makes the derivatives add up to zero."""

    def weights(self, scores, y):
        derivatives = super().weights(scores, y)
        return derivatives - derivatives.mean()


@pytest.mark.parametrize(
    ("loss", "message"), [(Centred(), "loss mixes rows"), (SoftmaxLoss(), "loss fails"), (None, "loss fails")]
)
def test_losses_that_mix_rows_or_fail_are_refused_and_nothing_is_spent(loss, message):
    refused(DescentLearner(loss=loss, n_steps=5), message)
    refused(OnlineLearner(loss=loss, n_steps=5), message)
