"""People answer once each, with one noisy bit, whatever they are asked."""

import copy
import math
import os
import pickle
import threading
import traceback
from collections import Counter

import numpy as np
import pytest
from scipy.stats import binomtest

from dpadapt.accounting.ledger import Ledger
from dpadapt.errors import BudgetExceeded, PrivacyError
from dpadapt.hybrid.agents import Reception, SimulatedAgents, bit_scale, noisy_bits
from dpadapt.hybrid.questions import LinearHypothesis, LossQuestion, Question
from dpadapt.mechanisms import Adjacency, RandomizedResponse
from dpadapt.mechanisms.events import PureEvent


class FirstFeature(Question):
    """The value is the first feature; `seen` collects the features."""

    def __init__(self):
        self.seen = []

    def value(self, X, y, coins):
        self.seen.append(X[:, 0].copy())
        return X[:, 0]


class Signs(Question):
    """The coin says which of three features is asked for."""

    def coins(self, n, random):
        return random.integers(3, size=n)

    def value(self, X, y, coins):
        return X[np.arange(len(X)), coins]


def crowd(value, epsilon=1.0, n=10**6, **settings):
    """People who all have the same value."""
    return SimulatedAgents(np.array([[value]], dtype=float), None, epsilon, n_people=n, **settings)


def share_of_plus(value, epsilon):
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    return (1 + value) / 2 * truth + (1 - value) / 2 * (1 - truth)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("value", [-1.0, -0.4, 0.0, 0.75, 1.0])
def test_bits_have_the_probability_of_rounding_and_randomized_response(value, epsilon):
    # Each of these 15 fails with probability 1e-5 where all is right.
    bits = crowd(value, epsilon, random_state=1).ask(FirstFeature(), 200_000).bits
    plus = int(np.count_nonzero(bits == 1))
    assert set(np.unique(bits)) <= {-1, 1}
    assert binomtest(plus, len(bits), share_of_plus(value, epsilon)).pvalue > 1e-5
    if value:
        assert binomtest(plus, len(bits), share_of_plus(value, 0.75 * epsilon)).pvalue < 1e-5


def test_scaled_bits_are_unbiased_for_the_mean_value():
    values = np.random.default_rng(0).uniform(-1, 1, 4000) ** 3 + 0.1
    agents = SimulatedAgents(values.reshape(-1, 1), None, 1.0, n_people=400_000, random_state=2)
    answers = agents.ask(FirstFeature(), 400_000)
    deviation = answers.scale / math.sqrt(len(answers))
    assert abs(answers.mean() - np.clip(values, -1, 1).mean()) < 4.5 * deviation
    assert abs(answers.mean() / 2 - values.mean()) > 4.5 * deviation
    assert answers.scale == pytest.approx((math.e + 1) / (math.e - 1))


@pytest.mark.parametrize(("value", "as_if"), [(np.nan, 0.0), (np.inf, 0.0), (-np.inf, 0.0), (7.0, 1.0), (-1e300, -1.0)])
def test_values_out_of_range_are_clipped_and_not_finite_values_count_as_zero(value, as_if):
    bits = crowd(value, 3.0, random_state=3).ask(FirstFeature(), 20_000).bits
    assert binomtest(int(np.count_nonzero(bits == 1)), len(bits), share_of_plus(as_if, 3.0)).pvalue > 1e-4


def test_no_warning_reveals_an_extreme_record():
    agents = SimulatedAgents(np.array([[1e308, -1e308]]), [1], 1.0)
    with np.errstate(all="raise"):
        assert len(agents.ask(LossQuestion(LinearHypothesis([9.0, 9.0])), 1)) == 1


def test_coins_come_back_with_the_bits_of_those_who_answered():
    X = np.tile([-0.9, 0.0, 0.9], (10, 1))
    agents = SimulatedAgents(X, None, 2.0, n_people=60_000, response_rate=0.5, random_state=4)
    answers = agents.ask(Signs(), 60_000)
    assert answers.coins.shape == answers.bits.shape
    for coin, value in enumerate((-0.9, 0.0, 0.9)):
        assert abs(answers.scale * answers.bits[answers.coins == coin].mean() - value) < 0.06


def test_nobody_is_ever_asked_twice():
    names = np.arange(1000.0)
    agents, question = SimulatedAgents(names.reshape(-1, 1), None, 1.0), FirstFeature()
    for n in (1, 10, 989):
        agents.ask(question, n)
    seen = np.concatenate(question.seen)
    assert sorted(seen) == names.tolist()
    assert (seen != names).any()  # in random order
    assert (agents.asked, agents.available) == (1000, 0)
    assert [asked.people for asked in agents.record] == [range(0, 1), range(1, 11), range(11, 1000)]


def test_asking_more_than_are_left_asks_nobody():
    agents, question = crowd(0.5, n=100, random_state=0), FirstFeature()
    agents.ask(question, 70)
    with pytest.raises(PrivacyError, match=r"n=31 people were to be asked, but only 30 have not.*Nobody was asked"):
        agents.ask(question, 31)
    assert (agents.asked, len(question.seen), len(agents.record)) == (70, 1, 1)
    assert len(agents.ask(question, 30)) == 30
    with pytest.raises(PrivacyError, match="only 0 have not been asked"):
        agents.ask(question, 1)


def test_people_count_as_asked_before_their_answers_are_drawn(monkeypatch):
    agents = crowd(0.5, n=100, random_state=0)

    def crash(*told, **more):
        assert agents.asked == 40
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RandomizedResponse, "_apply", crash)
        with pytest.raises(KeyboardInterrupt):
            agents.ask(FirstFeature(), 40)
    assert (agents.asked, agents.available) == (40, 60)
    assert len(agents.record[0].bits) == 0
    assert len(agents.ask(FirstFeature(), 60)) == 60


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, pickle.dumps])
def test_agents_cannot_be_copied(make):
    with pytest.raises(PrivacyError, match="would ask the same people again"):
        make(crowd(0.5))


def test_another_process_may_not_ask_the_same_people(monkeypatch):
    agents = crowd(0.5)
    monkeypatch.setattr(os, "getpid", lambda: -2)
    with pytest.raises(PrivacyError, match="each would ask the same people"):
        agents.ask(FirstFeature(), 10)
    assert agents.asked == 0


def test_threads_ask_different_people():
    names = np.arange(4000.0)
    agents, question = SimulatedAgents(names.reshape(-1, 1), None, 1.0), FirstFeature()
    threads = [threading.Thread(target=lambda: [agents.ask(question, 10) for _ in range(50)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(np.concatenate(question.seen)) == names.tolist()


def test_noise_is_secure_by_default_and_repeats_with_a_seed():
    def bits(**settings):
        agents = crowd(0.0, n=256, **settings)
        return agents.ask(FirstFeature(), 256).bits.tolist(), agents.seeded

    assert bits(random_state=7) == bits(random_state=7)
    assert bits(random_state=7)[1]
    assert bits()[0] != bits()[0]
    assert not bits()[1]


def test_an_answer_is_a_release_that_fills_the_persons_ledger():
    ledger, random = Ledger(0.5, adjacency=Adjacency.REPLACE_ONE, random_state=0), np.random.default_rng(0)
    assert noisy_bits([0.3], 0.5, ledger, random) in (-1, 1)
    assert ledger.spent() == pytest.approx(0.5)
    with pytest.raises(BudgetExceeded):
        noisy_bits([0.3], 0.5, ledger, random)
    with pytest.raises(BudgetExceeded):
        noisy_bits([0.3], 0.6, Ledger(0.5, adjacency=Adjacency.REPLACE_ONE), random)


def reception(n=5):
    made = Reception()
    made.open(Signs(), 3)
    made.close(0)
    return made, made.open(Signs(), n)


def told(made, ticket, people, bits):
    made.receive(ticket, np.asarray(people), np.asarray(bits))


def test_the_first_answer_counts_and_duplicates_are_refused():
    made, ticket = reception()
    told(made, ticket, [3, 5, 3, 3], [1, -1, -1, 1])
    told(made, ticket, [5, 6], [1, 1])
    closed = made.close(ticket)
    assert dict(zip(closed.answered + closed.people.start, closed.bits, strict=True)) == {3: 1, 5: -1, 6: 1}
    assert made.refused == Counter(duplicate=3)


def test_answers_of_people_who_were_not_asked_are_refused():
    made, ticket = reception()
    told(made, ticket, [0, 8, -1, 7], [1, 1, 1, -1])
    told(made, 99, [3], [1])
    told(made, -1, [3], [1])
    assert made.refused == Counter(stranger=5)
    assert made.close(ticket).answered.tolist() == [4]


@pytest.mark.parametrize("bit", [0, 2, -7, 0.5, np.nan, np.inf])
def test_malformed_answers_are_refused_and_may_be_given_anew(bit):
    made, ticket = reception()
    told(made, ticket, [4], [bit])
    assert made.refused == Counter(malformed=1)
    told(made, ticket, [4], [-1])
    assert made.close(ticket).bits.tolist() == [-1]


def test_a_question_must_have_one_coin_and_one_value_per_person():
    agents = crowd(0.0, n=10)
    with pytest.raises(TypeError, match="question must be a Question, got function"):
        agents.ask(lambda X: X, 5)

    class Short(Signs):
        def coins(self, n, random):
            return np.zeros(n - 1)

    with pytest.raises(ValueError, match="coins must have a coin"):
        agents.ask(Short(), 5)
    assert agents.asked == 0

    class Pairs(FirstFeature):
        def value(self, X, y, coins):
            return np.zeros((len(X), 2))

    with pytest.raises(ValueError, match="value must return one number per person"):
        agents.ask(Pairs(), 5)


def test_a_question_that_fails_on_a_record_shows_nothing_of_it():
    class Picky(FirstFeature):
        def value(self, X, y, coins):
            raise KeyError(f"no entry for {X[0, 0]}")

    secret = 31415.9
    agents = crowd(secret, n=10)
    with pytest.raises(PrivacyError, match=r"Picky fails on people's records \(KeyError\)") as refusal:
        agents.ask(Picky(), 5)
    assert "31415" not in "".join(traceback.format_exception(refusal.value))
    assert refusal.value.__context__ is None
    assert agents.asked == 5  # they count as asked, whatever happens


def test_each_question_has_a_ledger_that_one_answer_of_each_person_fills(monkeypatch):
    ledgers = []

    class Watched(Ledger):
        def __init__(self, *terms, **more):
            super().__init__(*terms, **more)
            ledgers.append(self)

    monkeypatch.setattr("dpadapt.hybrid.agents.Ledger", Watched)
    agents = crowd(0.5, epsilon=0.7, n=50)
    agents.ask(FirstFeature(), 20)
    agents.ask(FirstFeature(), 30)
    assert len(ledgers) == 2
    for ledger in ledgers:
        assert (ledger.epsilon, ledger.delta, ledger.adjacency) == (0.7, 0.0, Adjacency.REPLACE_ONE)
        assert [(entry.event, entry.times) for entry in ledger.entries] == [(PureEvent(0.7), 1)]
        assert ledger.spent() == pytest.approx(0.7)
        assert ledger.remaining() == pytest.approx(0.0)
        with pytest.raises(BudgetExceeded):
            noisy_bits([0.3], 1e-6, ledger, np.random.default_rng(0))


def test_the_scale_of_a_bit_neither_overflows_nor_vanishes():
    assert bit_scale(1e4) == 1.0
    assert bit_scale(1e-3) == pytest.approx(2000, rel=1e-3)
