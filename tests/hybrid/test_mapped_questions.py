"""The public map and its questions: bounded, unbiased, with the stated noise, and unchanged when sent."""

import numpy as np
import pytest
from scipy.stats import chi2

from dpadapt.hybrid.agents import SimulatedAgents
from dpadapt.hybrid.mapped_questions import (
    SCORE_NUMBERS,
    LeadQuestion,
    PublicMap,
    ScoreQuestion,
    SquareQuestion,
    VectorQuestion,
    probability,
    public_map,
    scores,
)
from dpadapt.hybrid.questions import question_from

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
QUESTIONS = [
    VectorQuestion(WHERE),
    VectorQuestion(WHERE, COEF, 1),
    ScoreQuestion(WHERE, COEF, tuple(SCORE_NUMBERS), 1.5, 1),
    LeadQuestion(WHERE, COEF, -COEF, 1),
    SquareQuestion(WHERE),
]
every_question = pytest.mark.parametrize(
    "question", QUESTIONS, ids=lambda q: f"{q.kind}-{getattr(q, 'coef', 0) is None}"
)

EXTREME = np.array(
    [np.full(7, 1e6), np.full(7, -1e300), np.zeros(7), np.ones(7), np.full(7, 1e200), [1, 1, 0.6, 0.6, 0.6, 9, 9]]
)


def test_mapped_rows_are_bounded_and_a_category_has_one_indicator():
    mapped = WHERE.transform(np.vstack([rows(200)[0], EXTREME]))
    # With their constant 1; two rows are too long for their square to be finite.
    lengths = np.sqrt(1 + np.sum(mapped**2, axis=1))
    assert np.isnan(lengths).sum() == 2
    assert np.nanmax(lengths) <= WHERE.max_norm * (1 + 1e-12)
    for group in GROUPS:
        assert (np.count_nonzero(np.nan_to_num(mapped[:, group]), axis=1) <= 1).all()


def test_a_typical_row_is_not_scaled_down():
    X, _ = rows(1)
    X[0, :2] = 0.5
    assert np.array_equal(WHERE.transform(X)[0, :2], [1.0, 1.0])


@pytest.mark.parametrize(
    ("bounds", "groups", "words"),
    [
        ((1, -1), None, "low below high"),
        ((0, np.inf), None, "finite"),
        ([(0, 1)] * 2, None, "one pair for each of 7"),
        ("wide", None, "pair"),
        (None, [[1]], "two or more"),
        (None, [[1, 9]], "columns 0 to 6"),
        (None, [[1, 1]], "two or more"),
        (None, [[1, 2], [2, 3]], "overlap"),
    ],
)
def test_bad_bounds_and_groups_are_named(bounds, groups, words):
    with pytest.raises(ValueError, match=words):
        public_map(7, bounds, groups)


@every_question
def test_values_lie_between_minus_one_and_one_whatever_the_row(question):
    X, y = np.vstack([rows(300)[0], EXTREME]), np.append(rows(300)[1], [0, 1, 1, 0, 1, 0])
    for seed in range(10):
        coins = question.coins(len(X), np.random.default_rng(seed))
        values = question.value(X, y, coins)
        assert values.shape == (len(X),)
        assert np.nanmax(np.abs(values)) <= 1 + 1e-12


@every_question
def test_questions_are_unchanged_when_sent(question):
    X, y = rows(50)
    coins = question.coins(50, np.random.default_rng(0))
    again = question_from(question.message())
    assert type(again) is type(question)
    assert np.array_equal(again.value(X, y, coins), question.value(X, y, coins), equal_nan=True)


def test_a_map_is_unchanged_when_sent():
    again = PublicMap.from_message(WHERE.message())
    X, _ = rows(20)
    assert np.array_equal(again.transform(X), WHERE.transform(X))


@pytest.mark.parametrize("coef", [None, COEF], ids=["means", "residuals"])
def test_vector_question_is_unbiased_with_the_stated_noise(coef):
    X, y = rows(4000)
    mapped = np.column_stack([WHERE.transform(X), np.ones(len(X))])
    rho = 1.0 if coef is None else (y - probability(scores(mapped[:, :-1], coef)))[:, None]
    truth = np.mean(rho * mapped, axis=0)
    question, errors = VectorQuestion(WHERE, coef, 1), []
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


def test_score_question_is_unbiased():
    X, y = rows(4000)
    score = scores(WHERE.transform(X), COEF)
    p, q = probability(score), np.clip(score / 1.5, -1, 1)
    truth = {
        "curvature": p * (1 - p),
        "curvature, slope": p * (1 - p) * q,
        "curvature, square": p * (1 - p) * q**2,
        "residual": y - p,
        "residual, slope": (y - p) * q,
        "error": (score > 0) != y,
    }
    question = ScoreQuestion(WHERE, COEF, tuple(SCORE_NUMBERS), 1.5, 1)
    answers = SimulatedAgents(X, y, 1.0, n_people=400_000, random_state=0).ask(question, 400_000)
    for name, value in question.estimate(answers).items():
        assert abs(value - truth[name].mean()) < 4 * question.noise(name, len(answers), answers.scale)
        assert SCORE_NUMBERS[name][2] * 0.02 > question.noise(name, len(answers), answers.scale)


def test_square_question_is_unbiased():
    X, y = rows(4000)
    question = SquareQuestion(WHERE)
    answers = SimulatedAgents(X, y, 1.0, n_people=400_000, random_state=0).ask(question, 400_000)
    truth = np.mean(WHERE.transform(X)[:, :2] ** 2, axis=0)
    assert np.abs(question.estimate(answers) - truth).max() < 4 * question.noise(len(answers), answers.scale)
