"""The private baselines: what they compute without noise, what they release, and what they don't read."""

import math

import numpy as np
import pytest

from dpadapt import Adjacency, Ledger, PrivateLinearRegression, Public, calibrate
from dpadapt.mechanisms.bounded_losses import gradient_bounds
from dpadapt.papers.adaptation.matching import DiscrepancyMinimization, PrivateDiscrepancyMinimization
from dpadapt.papers.adaptation.noisy_sgd import NoisySGD
from dpadapt.papers.adaptation.private_statistics import Moment, PrivateMixture, ReverseAdaptation, kept_share
from dpadapt.papers.adaptation.unprotected import AlphaMixture

BUDGET = {"epsilon": 2.0, "delta": 1e-5}


class Tape:
    """A ledger whose releases are written down and, if asked, carry no noise or are replaced."""

    def __init__(self, *, noiseless=True, replay=None, adjacency=Adjacency.ZERO_OUT):
        self.ledger = Ledger(epsilon=100.0, delta=1e-5, adjacency=adjacency)
        self.values, self.scales = [], []
        draw = self.ledger._draw
        waiting = iter(replay or [])

        def spy(mechanism, bounded, scale, random):
            self.values.append(bounded.value.copy())
            self.scales.append(scale)
            if replay is not None:
                return next(waiting).copy()
            return bounded.value.copy() if noiseless else draw(mechanism, bounded, scale, random)

        self.ledger._draw = spy


def samples(seed=0, m=400, n=600, shift=0.5):
    random = np.random.default_rng(seed)
    X_source, X = random.uniform(-1, 1, (m, 3)), random.uniform(-1, 1, (n, 3))
    y_source, y = X_source @ [0.5, 0.5, 0.0], X @ [0.5, 0.5 - shift, 0.0]
    return X, y + 0.05 * random.normal(size=n), Public(X_source, y_source + 0.05 * random.normal(size=m))


PRIVATE = [NoisySGD, PrivateMixture, PrivateDiscrepancyMinimization, ReverseAdaptation]
every_private = pytest.mark.parametrize("kind", PRIVATE)


@every_private
@pytest.mark.parametrize("labelled", [True, False])
def test_the_model_follows_from_the_releases_alone(kind, labelled):
    X, y, public = samples()
    public = public if labelled else Public(public.X)
    first = Tape(noiseless=False)
    model = kind(**BUDGET).fit(X, y, public=public, ledger=first.ledger)
    # Entirely different rows, the same answers at the door: the same model.
    X_other, y_other, _ = samples(seed=9, shift=-3.0)
    answers = [value + 0.1 for value in first.values]
    models = [
        kind(**BUDGET).fit(*rows, public=public, ledger=Tape(replay=answers).ledger)
        for rows in ((X, y), (X_other, y_other))
    ]
    assert np.array_equal(models[0].coef_, models[1].coef_)
    assert models[0].intercept_ == models[1].intercept_
    # The other way round: the releases matter, unless cross-validation turned the source down.
    assert kind is ReverseAdaptation or not np.array_equal(models[0].coef_, model.coef_)


@every_private
@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
def test_no_row_moves_a_release_further_than_its_noise_assumes(kind, adjacency):
    X, y, public = samples(n=200)
    relation = Adjacency.of(adjacency)
    random = np.random.default_rng(4)
    furthest = 0.0
    for _ in range(60):
        pair = []
        for row in random.choice([1e6, 1.0, 0.2, 0.0], 2) * random.choice([-1.0, 1.0], 2):
            direction = random.normal(size=3)
            pair.append((row * direction / np.linalg.norm(direction), random.choice([-1e6, -1.0, 0.3, 1.0, 1e6])))
        tapes = []
        for row, label in pair:
            tape = Tape(adjacency=relation, replay=None if not tapes else tapes[0].values)
            model = kind(**BUDGET, adjacency=adjacency, random_state=0)
            model.fit(np.vstack([row, X[1:]]), np.append(label, y[1:]), public=public, ledger=tape.ledger)
            tapes.append(tape)
            # A null row stands for the neighbour under zero-out.
            if adjacency == "zero-out":
                pair[1] = (np.full(3, 1e300), 0.0)
        noise = model.privacy_.entries[0].event.noise_multiplier
        for before, after, scale in zip(tapes[0].values, tapes[1].values, tapes[0].scales, strict=True):
            moved = np.linalg.norm(before - after) * noise / scale
            assert moved <= 1 + 1e-9
            furthest = max(furthest, moved)
    assert furthest > 0.2  # rows do matter; steps from 0 stay far from where gradients are longest


def test_noisy_steps_equal_a_verbatim_loop():
    X, y, public = samples()
    tape = Tape(adjacency=Adjacency.REPLACE_ONE)
    model = NoisySGD(**BUDGET, radius=2.0, n_steps=50, adjacency="replace-one").fit(
        X, y, public=public, ledger=tape.ledger
    )
    single, replaced = gradient_bounds(1.0, 1.0, 2.0)
    sigma = replaced * math.sqrt(50) / (calibrate(**BUDGET) ** -1 * len(X))
    length = 2.0 / math.sqrt(50 * (single**2 + 4 * sigma**2))
    center, scale = public.X.mean(axis=0), public.X.std(axis=0)
    rows = np.column_stack([(X - center) / scale, np.ones(len(X))])
    source = np.column_stack([(public.X - center) / scale, np.ones(len(public.X))])
    rows /= np.quantile(np.linalg.norm(source, axis=1), 0.95)
    middle = public.y.mean()
    half = np.quantile(np.abs(public.y - middle), 0.99)
    shorter = np.maximum(1.0, np.linalg.norm(rows, axis=1))
    rows /= shorter[:, None]
    labels = np.clip((y - middle) / half, -1, 1) / shorter
    w, visited = np.zeros(4), []
    for _ in range(50):
        gradient = sum(2 * (w @ row - label) * row for row, label in zip(rows, labels, strict=True)) / len(rows)
        w = w - length * gradient
        w *= min(1.0, 2.0 / np.linalg.norm(w))
        visited.append(w)
    mean = np.mean(visited, axis=0)
    predicted = (model.predict(X) - middle) / half
    whole = np.column_stack([(X - center) / scale, np.ones(len(X))]) / np.quantile(np.linalg.norm(source, axis=1), 0.95)
    assert predicted == pytest.approx(whole @ mean, abs=1e-9)
    assert tape.scales[0] == pytest.approx(sigma * len(X), rel=1e-6)


def test_more_steps_cost_no_more_and_come_closer():
    X, y, _ = samples(n=4000, shift=0.0)
    few, many = (NoisySGD(20.0, 1e-5, n_steps=steps, random_state=0).fit(X, y) for steps in (20, 4000))
    assert few.privacy_.epsilon == pytest.approx(many.privacy_.epsilon)
    assert many.score(X, y) > 0.9 > few.score(X, y)


def test_sampled_steps_are_charged_as_such_and_take_empty_batches():
    X, y, public = samples(n=60)
    ledger = Ledger(epsilon=0.5, delta=1e-5)
    sampled = NoisySGD(0.5, 1e-5, sampling_rate=0.02, n_steps=10, random_state=0)
    model = sampled.fit(X, y, public=public, ledger=ledger)
    (entry,) = ledger.entries
    assert (entry.event.rate, entry.times) == (0.02, 10)
    assert 0.49 < model.privacy_.epsilon <= 0.5 * (1 + 1e-9)
    assert np.isfinite(model.coef_).all()


def test_mixture_runs_from_the_private_target_to_the_public_source():
    X, y, public = samples(n=5000, shift=0.2)
    slopes = []
    for alpha in (0.0, 0.25, 0.5, 0.75, 1.0):
        tape = Tape()
        model = PrivateMixture(50.0, 1e-5, alpha=alpha).fit(X, y, public=public, ledger=tape.ledger)
        exact = AlphaMixture(alpha).fit(X, y, public=public)
        slopes.append(model.coef_[1])
        assert model.coef_ == pytest.approx(exact.coef_, abs=0.02)
    assert np.all(np.diff(slopes) > 0)


def test_mixture_of_the_source_alone_spends_nothing():
    X, y, public = samples()
    model = PrivateMixture(**BUDGET, alpha=1.0).fit(X, y, public=public)
    assert model.privacy_.epsilon == 0.0
    assert model.privacy_.entries == ()


def test_mixture_without_public_data_is_as_good_as_private_statistics():
    X, y, _ = samples(n=5000)
    ours = PrivateMixture(**BUDGET, random_state=0).fit(X, y)
    theirs = PrivateLinearRegression(**BUDGET, solver="statistics", random_state=0).fit(X, y)
    assert ours.score(X, y) > theirs.score(X, y) - 0.02


def test_moment_of_noise_alone_is_shrunk_to_nothing_wild():
    random = np.random.default_rng(0)
    noise = random.normal(size=(9, 9))
    found = Moment((noise + noise.T) / 2, noise=1.0).solution()
    assert np.isfinite(found).all()
    assert np.linalg.norm(found) < 50


def test_kept_share_is_that_of_the_shortened_rows():
    Z, e = np.array([[3.0, 0.0], [0.5, 0.0]]), np.array([4.0, 0.0])
    assert kept_share(Z, e, 1.0) == pytest.approx((1 + 0.25) / (25 + 0.25))


def shifted_features(m=800, n=2000):
    random = np.random.default_rng(0)
    X_source, X = random.uniform(-2, 2, (m, 2)), random.uniform(0.5, 1.5, (n, 2))
    curve = lambda X: X[:, 0] ** 2 + X[:, 1]  # noqa: E731
    return X, curve(X), Public(X_source, curve(X_source))


def test_private_matching_comes_close_to_the_open_one():
    X, y, public = shifted_features()
    error = lambda model: np.mean((model.predict(X) - y) ** 2)  # noqa: E731
    source, open_one = AlphaMixture(1.0).fit(X, y, public=public), DiscrepancyMinimization().fit(X, y, public=public)
    private = PrivateDiscrepancyMinimization(4.0, 1e-5, random_state=0).fit(X, public=public)
    assert error(open_one) < 0.3 * error(source)
    assert error(private) < 0.5 * error(source)


def test_private_matching_reads_no_private_label():
    X, y, public = shifted_features(n=300)
    tapes = [Tape(), Tape()]
    first = PrivateDiscrepancyMinimization(**BUDGET).fit(X, y, public=public, ledger=tapes[0].ledger)
    second = PrivateDiscrepancyMinimization(**BUDGET).fit(X, public=public, ledger=tapes[1].ledger)
    assert np.array_equal(first.coef_, second.coef_)
    assert np.array_equal(tapes[0].values[0], tapes[1].values[0])
    with pytest.raises(ValueError, match="requires y"):
        PrivateDiscrepancyMinimization(**BUDGET).fit(X, public=Public(public.X))


def test_private_matching_without_budget_is_the_source_alone():
    X, y, public = shifted_features(n=50)
    model = PrivateDiscrepancyMinimization(1e-3, 1e-9).fit(X, y, public=public)
    assert model.privacy_.epsilon == 0.0
    assert model.predict(X) == pytest.approx(AlphaMixture(1.0).fit(X, y, public=public).predict(X), abs=1e-2)


def test_reverse_leans_on_the_source_when_labels_are_few_and_on_the_target_when_it_differs():
    random = np.random.default_rng(0)
    X_source = random.uniform(-1, 1, (4000, 5))
    good, bad = X_source @ [1.0, -1.0, 0.5, 0.0, 0.3], X_source @ [-1.0, 1.0, 2.0, 1.0, 0.0]
    noise = random.normal(size=4000)
    X_target = random.uniform(-1, 1, (1030, 5))
    y_target = X_target @ [1.0, -1.0, 0.5, 0.0, 0.3] + random.normal(size=1030)
    few = Public(X_target[:30], y_target[:30])
    test = X_target[30:], X_target[30:] @ [1.0, -1.0, 0.5, 0.0, 0.3]
    alone = ReverseAdaptation(2.0, 1e-6, alpha=0.0).fit(X_source, good, public=few)
    assert alone.privacy_.epsilon == 0.0
    helped = ReverseAdaptation(2.0, 1e-6, random_state=0).fit(X_source, good + noise, public=few)
    assert helped.score(*test) > alone.score(*test) + 0.05
    many = Public(X_target[:500], y_target[:500])
    misled = ReverseAdaptation(2.0, 1e-6, random_state=0).fit(X_source, bad, public=many)
    certain = ReverseAdaptation(2.0, 1e-6, alpha=1.0, random_state=0).fit(X_source, bad, public=many)
    assert misled.score(*test) > 0.9
    assert certain.score(*test) < 0


def test_reverse_with_an_unlabelled_target_uses_the_source_alone():
    X, y, public = samples(n=3000, shift=0.0)
    model = ReverseAdaptation(2.0, 1e-6, random_state=0).fit(X, y, public=Public(public.X))
    assert model.score(public.X, public.y) > 0.8


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (NoisySGD(radius=0.0), "radius"),
        (NoisySGD(n_steps=0), "n_steps"),
        (NoisySGD(sampling_rate=2.0), "sampling_rate"),
        (NoisySGD(target_bounds=(1.0, 0.0)), "target_bounds"),
        (PrivateMixture(alpha=3.0), "alpha"),
        (PrivateDiscrepancyMinimization(tolerance=0.0), "tolerance"),
        (PrivateDiscrepancyMinimization(ridge=0.0), "ridge"),
        (ReverseAdaptation(alpha=-1.0), "alpha"),
    ],
)
def test_bad_parameters_are_named_and_cost_nothing(model, name):
    X, y, public = samples()
    ledger = Ledger(epsilon=5.0, delta=1e-5)
    with pytest.raises(ValueError, match=name):
        model.fit(X, y, public=public, ledger=ledger)
    assert ledger.entries == []
