"""The public map and its questions: bounded, unbiased, with the stated noise, and unchanged when sent."""

import numpy as np
import pytest
from scipy.stats import chi2

from dpadapt.hybrid.agents import SimulatedAgents
from dpadapt.hybrid.mapped_questions import (
    ErrorQuestion,
    LabelQuestion,
    ResidualQuestion,
    VectorQuestion,
    probability,
    public_map,
    scores,
)
from dpadapt.hybrid.questions import question_from
from dpadapt.integrations.device import pack, unpack

GROUPS = [[2, 3, 4], [5, 6]]


def rows(n, seed=0):
    random = np.random.default_rng(seed)
    X = np.zeros((n, 7))
    X[:, :2] = random.uniform(-1.5, 1.5, (n, 2))
    X[np.arange(n), random.integers(2, 5, n)] = 1
    X[np.arange(n), random.integers(5, 7, n)] = 1
    return X, (X[:, 0] + X[:, 2] > 0.3).astype(int)


WHERE = public_map(7, (-1, 1), GROUPS)
COEF = np.array([1.0, -0.5, 0.8, 0.0, -0.3, 0.2, 0.1, -0.2])
MODELS = np.array([COEF, -COEF, [0.0] * 7 + [1.0]])
QUESTIONS = [
    VectorQuestion(WHERE),
    VectorQuestion(WHERE, COEF),
    ResidualQuestion(WHERE, COEF),
    ErrorQuestion(WHERE, MODELS),
    LabelQuestion(),
]
every_question = pytest.mark.parametrize(
    "question", QUESTIONS, ids=lambda q: f"{q.kind}-{getattr(q, 'coef', 0) is None}"
)

EXTREME = np.array(
    [np.full(7, 1e6), np.full(7, -1e300), np.zeros(7), np.ones(7), np.full(7, 1e200), [1, 1, 0.6, 0.6, 0.6, 9, 9]]
)


class Unequal:
    """A cell that can't be compared."""

    def __eq__(self, other):
        raise ValueError


def test_mapped_rows_are_bounded_and_a_category_has_one_indicator():
    mapped = WHERE.transform(np.vstack([rows(200)[0], EXTREME]))
    # With their constant 1; two rows are too long for their square to be finite.
    lengths = np.sqrt(1 + np.sum(mapped**2, axis=1))
    assert np.isnan(lengths).sum() == 2
    assert np.nanmax(lengths) <= WHERE.max_norm * (1 + 1e-12)
    for group in GROUPS:
        assert (np.count_nonzero(np.nan_to_num(mapped[:, group]), axis=1) <= 1).all()


@every_question
def test_values_lie_between_minus_one_and_one_whatever_the_row(question):
    X, y = np.vstack([rows(300)[0], EXTREME]), np.append(rows(300)[1], [0, 1, 1, 0, 1, 0])
    for seed in range(10):
        coins = question.coins(len(X), np.random.default_rng(seed))
        values = question.value(X, y, coins)
        assert values.shape == (len(X),)
        assert np.nanmax(np.abs(values)) <= 1 + 1e-12


def test_a_label_that_is_no_class_is_answered_at_random():
    X, _ = rows(8)
    unreadable = np.array([np.nan, None, "1", "yes ", 2, Unequal(), [1], 1], dtype=object)
    for question in QUESTIONS[1:4]:
        values = question.value(X, unreadable, question.coins(8, np.random.default_rng(0)))
        assert np.isfinite(values).tolist() == [False] * 7 + [True]
    assert LabelQuestion().value(X, unreadable, np.zeros(8, int)).tolist() == [-1.0] * 7 + [1.0]
    assert LabelQuestion(("no", "yes")).value(X, np.array(["yes", "no"] * 4), np.zeros(8, int)).tolist() == [1.0] * 8


@every_question
def test_questions_are_unchanged_when_sent(question):
    X, y = rows(50)
    coins = question.coins(50, np.random.default_rng(0))
    again = question_from(unpack(pack(question.message())))
    assert type(again) is type(question)
    assert np.array_equal(again.value(X, y, coins), question.value(X, y, coins), equal_nan=True)


@pytest.mark.parametrize("coef", [None, COEF], ids=["means", "residuals"])
def test_vector_question_is_unbiased_with_the_stated_noise(coef):
    X, y = rows(4000)
    mapped = np.column_stack([WHERE.transform(X), np.ones(len(X))])
    rho = 1.0 if coef is None else (y - probability(scores(mapped[:, :-1], coef)))[:, None]
    truth = np.mean(rho * mapped, axis=0)
    question, errors = VectorQuestion(WHERE, coef), []
    for seed in range(60):
        agents = SimulatedAgents(X, y, 1.0, n_people=20_000, random_state=seed)
        answers = agents.ask(question, 20_000)
        errors.append(question.estimate(answers) - truth)
    noise = question.noise(20_000, answers.scale)
    errors = np.array(errors) / noise
    # False alarms: one in 1,000. The stated noise is a bound, which is reached where values are small.
    assert np.abs(errors.mean(axis=0)).max() * np.sqrt(60) < 4.2
    total = np.sum(errors**2)
    assert total < chi2(errors.size).isf(1e-3)
    assert total > chi2(errors.size).isf(1e-3) * 0.5
    # The test rejects noise stated at two thirds.
    assert total * 1.5**2 > chi2(errors.size).isf(1e-3)


def test_error_question_is_unbiased_with_the_stated_noise():
    X, y = rows(4000)
    truth = [np.mean((scores(WHERE.transform(X), coef) > 0) != y) for coef in MODELS]
    question, errors = ErrorQuestion(WHERE, MODELS), []
    for seed in range(60):
        answers = SimulatedAgents(X, y, 1.0, n_people=10_000, random_state=seed).ask(question, 10_000)
        errors.append((question.estimate(answers) - truth) / question.noise(10_000, answers.scale))
    total = np.sum(np.square(errors))
    # False alarms: one in 1,000. The stated noise is a bound; bits of mean m have the share 1 - m² of it.
    assert total < chi2(180).isf(1e-3)
    assert total > chi2(180).isf(1 - 1e-3) * 0.75
    # The test rejects noise stated at two thirds.
    assert total * 1.5**2 > chi2(180).isf(1e-3)


@every_question
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_no_record_changes_the_probability_of_a_bit_by_more_than_e_to_the_epsilon(question, epsilon):
    """Exact: all pairs of many records with both labels and none, for every coin that can be drawn."""
    X = np.vstack([rows(40)[0], EXTREME])
    X, y = np.repeat(X, 3, axis=0), np.tile([0, 1, np.nan], len(X))
    drawn = np.unique(question.coins(10_000, np.random.default_rng(0)))
    flipped = 1 / (1 + np.exp(epsilon))
    largest = 1.0
    for coin in drawn:
        values = question.value(X, y, np.full(len(X), coin))
        # As a device does: a value that is not finite counts as 0, and no value is beyond 1.
        rounded = (1 + np.clip(np.nan_to_num(values, nan=0.0), -1, 1)) / 2
        up = rounded * (1 - flipped) + (1 - rounded) * flipped
        largest = max(largest, up.max() / up.min(), (1 - up).max() / (1 - up).min())
    assert largest <= np.exp(epsilon) * (1 + 1e-12)
    assert largest > 1.2  # the record does matter
