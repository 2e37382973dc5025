"""`PrivateHybridClassifier`: its error, its receipt, how many people it asks, and what it refuses."""

import numpy as np
import pytest

from dpadapt import Adjacency, BudgetExceeded, Ledger, audit
from dpadapt.audit.replay import differing
from dpadapt.hybrid import PrivateHybridClassifier, SimulatedAgents


def turning(n, centre, seed):
    """Draw rows whose concept turns with the first feature, so that no linear model fits two populations."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, 5))
    X[:, 0] += centre
    return X, (np.cos(X[:, 0]) * X[:, 1] + np.sin(X[:, 0]) * X[:, 2] > 0).astype(int)


def model(**params):
    wanted = {"epsilon": 2.0, "delta": 1e-5, "bounds": (-2, 2), "classes": [0, 1], "random_state": 0}
    return PrivateHybridClassifier(**{**wanted, **params})


def agents(X, y, n_people=100_000, seed=0):
    return SimulatedAgents(X, y, 1.0, n_people=n_people, random_state=seed)


def error_of_source(fitted, X, y):
    return np.mean((fitted.source_scores(X) > 0) != y)


@pytest.fixture(scope="module")
def turned():
    """Return a curator's sample, people and test rows of another population, and a fit on the first two."""
    curator, people, test = turning(10_000, -0.75, 1), turning(20_000, 0.75, 2), turning(20_000, 0.75, 3)
    asked = agents(*people)
    return curator, people, test, model().fit(*curator, agents=asked), asked


def test_people_correct_the_model_of_a_biased_sample(turned):
    _, _, test, fitted, _ = turned
    assert fitted.mode_ == "hybrid"
    assert fitted.chosen_ == "tilted, corrected"
    assert error_of_source(fitted, *test) > 0.4
    assert 1 - fitted.score(*test) < 0.32
    assert fitted.estimates_["size of the shift"] > 0.5


def test_the_receipt_states_the_candidates_their_estimated_errors_and_the_choice(turned):
    *_, fitted, _ = turned
    names = ["source", "tilted, corrected", "constant"]
    estimated = {name: fitted.estimates_[f"error of {name}"] for name in names}
    assert fitted.chosen_ == min(estimated, key=lambda name: estimated[name])
    (decision,) = (text for text in fitted.privacy_.warnings if "tested the candidates" in text)
    for name, error in estimated.items():
        assert f"{name}: {error:.3f}" in decision
    assert f"{fitted.people_asked_['test']:,} people" in decision
    assert f"standard deviation of {fitted.estimates_['noise of an error']:.3f}" in decision
    assert decision.endswith(f"The least decides: {fitted.chosen_}")


def test_a_constant_is_returned_where_every_model_is_worse():
    random = np.random.default_rng(0)
    X, X_people = random.uniform(-1, 1, (4000, 3)), random.uniform(-1, 1, (30_000, 3))
    # One in ten people has the label 1, whatever the features; the curator's labels follow the first feature.
    y_people = (random.random(30_000) < 0.1).astype(int)
    # 15 of 16 seeds pass: the noise of the test is as large as the difference to a corrected model.
    asked = agents(X_people, y_people, n_people=25_000, seed=1)
    fitted = model(bounds=None, random_state=1).fit(X, (X[:, 0] > 0).astype(int), agents=asked)
    assert 1 - fitted.score(X_people, y_people) <= 0.11
    assert error_of_source(fitted, X_people, y_people) > 0.4


def test_auto_tests_people_alone_too_if_the_curator_can_release_nothing():
    people = turning(20_000, 0.75, 2)
    fitted = model(epsilon=0.001).fit(*turning(50, -0.75, 1), agents=agents(*people, n_people=200_000))
    assert (fitted.mode_, fitted.privacy_.entries) == ("local", ())
    assert set(fitted.people_asked_) == {"labels", "people alone", "test"}
    assert set(fitted.estimates_) == {"error of people alone", "error of constant", "noise of an error"}
    assert any("because the curator's budget is too small" in text for text in fitted.privacy_.warnings)


def test_a_curators_sample_of_one_class_is_refused_or_corrected():
    """If the classes are declared, a refusal would reveal that all private labels are equal."""
    X, y = turning(2000, 0.75, 1)
    people = turning(20_000, 0.75, 2)
    ledger, asked = Ledger(5.0, 1e-5), agents(*people)
    with pytest.raises(ValueError, match=r"at least two classes, got one class\. Declare all of them") as refused:
        model(classes=None).fit(X, np.ones_like(y), agents=asked, ledger=ledger)
    assert "\n" not in str(refused.value)
    assert (ledger.entries, asked.asked) == ([], 0)
    fitted = model().fit(X, np.ones_like(y), agents=asked, ledger=ledger)
    assert 1 - fitted.score(*people) <= min(np.mean(people[1]), 1 - np.mean(people[1])) + 0.01


@pytest.mark.parametrize("lost", [np.nan, 2.0, -1.0])
def test_people_without_a_readable_label_change_nothing(turned, lost):
    curator, people, *_ = turned
    nobody, half = np.full(20_000, lost), np.where(np.arange(20_000) % 2 == 0, people[1], lost)
    # Noise is taken for labels with probability 0.006, so that this fails once in 160 seeds.
    fitted = model().fit(*curator, agents=agents(people[0], nobody))
    assert (fitted.chosen_, fitted.estimates_, fitted.usable_share_[1]) == ("source", {}, 0.0)
    assert list(fitted.people_asked_) == ["labels"]
    assert np.array_equal(fitted.coef_, fitted.source_coef_)
    assert any("Compare how labels are written" in text for text in fitted.privacy_.warnings)
    # With half of the labels, the same correction is found, and errors are not understated.
    fitted = model().fit(*curator, agents=agents(people[0], half))
    _, low, high = fitted.usable_share_
    assert low < 0.5 < high
    assert fitted.chosen_ == "tilted, corrected"
    error = 1 - fitted.score(*people)
    assert error < 0.32
    # Five standard deviations: once in a million fits.
    assert fitted.estimates_["error of tilted, corrected"] > error - 5 * fitted.estimates_["noise of an error"]


@pytest.mark.parametrize("seed", range(4))
def test_without_a_shift_the_result_is_no_worse_than_the_source_model(seed):
    curator, people = turning(6000, 0.75, seed), turning(20_000, 0.75, seed + 10)
    fitted = model(random_state=seed).fit(*curator, agents=agents(*people, seed=seed))
    assert 1 - fitted.score(*people) <= error_of_source(fitted, *people) + 0.005


def test_people_alone_show_nothing_of_the_curators_rows():
    X, y = turning(600, -0.75, 1)
    people = turning(2000, 0.75, 2)
    first, second = (
        model(mode="local").fit(*rows, agents=agents(*people, n_people=30_000))
        for rows in ((X, y), (5 * X[::-1] + 1, np.ones_like(y)))
    )
    assert differing(first, second) == []


def test_people_who_do_not_answer_are_tolerated():
    people = turning(20_000, 0.75, 2)
    some = SimulatedAgents(*people, 1.0, n_people=150_000, response_rate=0.6, random_state=1)
    fitted = model().fit(*turning(10_000, -0.75, 1), agents=some)
    assert 1 - fitted.score(*people) < 0.33


@pytest.mark.parametrize(
    ("params", "people", "error", "words"),
    [
        ({"mode": "magic"}, None, ValueError, "mode must be one of"),
        ({"tolerance": 0.0}, None, ValueError, "tolerance must lie"),
        ({"bounds": (1, 0)}, None, ValueError, "bounds"),
        ({"groups": [[0]]}, None, ValueError, "groups"),
        ({"groups": 5}, None, ValueError, "groups must be a list of lists"),
        ({"groups": [["a", "b"]]}, None, ValueError, "each column of groups must be a whole number"),
        ({"bounds": "wide"}, None, ValueError, "bounds"),
        ({"mode": "hybrid"}, None, ValueError, "agents"),
        ({"mode": "local"}, 500, ValueError, "at least 1,000 people"),
        ({}, "somebody", TypeError, "agents must be Agents"),
        ({"classes": [0, 1, 2]}, 5000, ValueError, "Only binary"),
        ({"adjacency": "add-remove"}, 5000, ValueError, "n_rows must be given"),
    ],
)
def test_bad_arguments_are_named_and_nothing_is_spent_or_asked(params, people, error, words):
    X, y = turning(500, 0.0, 0)
    ledger = Ledger(5.0, 1e-5, adjacency=Adjacency.of(params.get("adjacency", "zero-out")))
    asked = agents(X, y, n_people=people) if isinstance(people, int) else people
    with pytest.raises(error, match=words):
        model(**params).fit(X, y, agents=asked, ledger=ledger)
    assert ledger.entries == []
    assert not isinstance(people, int) or asked.asked == 0


def test_agents_with_other_columns_are_refused_and_nothing_is_spent():
    X, y = turning(500, 0.0, 0)
    ledger, people = Ledger(5.0, 1e-5), agents(X[:, :3], y, n_people=30_000)
    with pytest.raises(ValueError, match="agents must have the private rows' 5 columns, got 3"):
        model().fit(X, y, agents=people, ledger=ledger)
    assert ledger.entries == []
    assert people.asked == 0


@pytest.mark.parametrize("mode", ["local", "curator"])
def test_the_receipt_mentions_people_only_if_they_were_asked(mode):
    X, y = turning(500, 0.0, 0)
    receipt = model(mode=mode, random_state=None).fit(X, y, agents=agents(X, y, n_people=2000)).privacy_
    assert not receipt.seeded
    assert any("people's noise came from a seed" in text for text in receipt.warnings) == (mode == "local")
    assert any("randomized on the person's device" in fact for fact in receipt.assumptions) == (mode == "local")


def test_nobody_is_asked_if_the_curators_ledger_refuses():
    curator, people = turning(10_000, -0.75, 1), agents(*turning(1000, 0.75, 2))
    with pytest.raises(BudgetExceeded):
        model().fit(*curator, agents=people, ledger=Ledger(1.0, 1e-5))
    assert people.asked == 0


class WithPeople:
    """An estimator that asks the same people anew in every fit, which only a test may do."""

    def __init__(self, adjacency, epsilon=60.0):
        self.adjacency = adjacency
        self.epsilon = epsilon

    def fit(self, X, y, *, ledger=None):
        # The budget is large enough for weights, so that all kinds of releases are made.
        known = {"adjacency": self.adjacency, "n_rows": 600 if self.adjacency == "add-remove" else None}
        people = agents(*turning(2000, 0.75, 2), n_people=30_000)
        return model(epsilon=self.epsilon, delta=1e-3, mode="hybrid", **known).fit(X, y, agents=people, ledger=ledger)


def neighbours(adjacency):
    X, y = turning(600, -0.75, 1)
    if adjacency == "add-remove":
        yield (X, y), (X[1:], y[1:])
        return
    for row in (np.full(5, 1e6), np.full(5, 1e200), np.zeros(5), np.array([9.0, -9.0, 0.0, 0.0, 0.0])):
        X_other, y_other = X.copy(), y.copy()
        X_other[0], y_other[0] = row, 1 - y[0]
        yield (X, y), (X_other, y_other)


def test_the_largest_weight_does_not_depend_on_the_private_number_of_rows():
    """At this budget the bound on weights follows from the number of rows, which is private under add-remove."""
    fitted = WithPeople("add-remove", 5.0).fit(*turning(600, -0.75, 1))
    assert 2.0 < fitted.estimates_["largest weight"] < 10.0
    for data, neighbour in neighbours("add-remove"):
        assert audit.leaks(lambda: WithPeople("add-remove", 5.0), data, neighbour) == []
