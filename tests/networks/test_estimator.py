"""`PrivateNetwork`: its cost and releases, what public rows contribute, custom losses, and scikit-learn's checks."""

import copy
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sklearn.base import is_classifier  # noqa: E402
from torch import nn  # noqa: E402

from benchmarks.mirror.models import lstm_language_model  # noqa: E402
from dpadapt import (  # noqa: E402
    Adjacency,
    Ledger,
    Public,
    audit,
)
from dpadapt.mechanisms.randomness import SeededRandom  # noqa: E402
from dpadapt.networks import PrivateNetwork  # noqa: E402
from dpadapt.networks.models import perceptron, sequence_loss, squared_loss  # noqa: E402


def data(n=400, seed=3):
    random = np.random.default_rng(seed)
    X = random.uniform(-1, 1, (n, 4))
    return X, np.digitize(X @ [1.0, -1.0, 0.5, 0.0], [-0.5, 0.5])


X, y = data()
PUBLIC = Public(*data(150, 4))


def make(**params):
    settings = {"epsilon": 2.0, "delta": 1e-5, "n_steps": 5, "batch_size": 400, "public_steps": 30, "random_state": 0}
    return PrivateNetwork(**{**settings, **params})


def flat(model):
    return np.concatenate([weights.detach().numpy().ravel() for weights in model.module_.parameters()])


def test_steps_with_weight_zero_of_private_gradients_are_not_charged():
    model = make(transfer="mirror", decay_steps=2).fit(X, y, public=PUBLIC)
    assert [entry.times for entry in model.privacy_.entries] == [2]
    floored = make(transfer="mirror", decay_steps=2, mixing_floor=0.2).fit(X, y, public=PUBLIC)
    assert [entry.times for entry in floored.privacy_.entries] == [5]


@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one", "add-remove"])
@pytest.mark.parametrize("transfer", ["cold", "mirror"])
def test_replay_finds_no_leak(adjacency, transfer):
    """Fit on neighbours with the same releases: the results must be equal."""
    params = {"transfer": transfer, "adjacency": adjacency, "classes": [0, 1, 2]}
    params["n_rows"] = 400 if adjacency == "add-remove" else None
    relation = Adjacency.of(adjacency)

    def fit(data, ledger):
        return make(**params).fit(*data, public=PUBLIC, ledger=ledger)

    tape = audit.record(fit, (X, y), adjacency=relation)
    for row, label in ((np.full(4, 1e300), 2), (np.zeros(4), 0), (-3 * X[0], y[0])):
        other = X.copy(), y.copy()
        other[0][0], other[1][0] = row, label
        if adjacency == "add-remove":
            other = X[1:], y[1:]
        played = audit.replay(fit, other, tape, adjacency=relation)
        assert np.array_equal(flat(played.result), flat(tape.result))
        assert played.result.temperature_ == tape.result.temperature_
        for name in ("engine_", "privacy_", "n_features_in_"):
            assert getattr(played.result, name) == getattr(tape.result, name)


def test_under_add_remove_no_row_moves_a_release_of_many_aligned_rows_beyond_its_sensitivity():
    """In float32 the rounding of all other rows would be part of what one row moves."""
    X_same = np.array([[0.3, -0.2, 0.9, 0.5]]) * (1 + 1e-3 * np.random.default_rng(0).random((1500, 1)))
    y_same = np.zeros(1500, dtype=int)
    params = {"adjacency": "add-remove", "n_rows": 1500, "batch_size": 1500, "n_steps": 2, "clip_norm": 0.1}

    def fit(data, ledger):
        return make(module=nn.Linear(4, 2), transfer="cold", classes=[0, 1], **params).fit(*data, ledger=ledger)

    tape = audit.record(fit, (X_same, y_same), adjacency=Adjacency.ADD_REMOVE)
    for row in (0, 1, 700, 1499):
        kept = np.arange(1500) != row
        played = audit.replay(fit, (X_same[kept], y_same[kept]), tape, adjacency=Adjacency.ADD_REMOVE)
        for before, after in zip(tape.releases, played.releases, strict=True):
            assert 0.09 < np.linalg.norm(before.value - after.value) <= 0.1 * (1 + 1e-9)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one", "add-remove"])
def test_neither_samples_nor_exact_sums_reach_a_fitted_attribute(adjacency):
    """The same releases with other Poisson samples, and with exact values that are overwritten after their release."""
    n_rows = 400 if adjacency == "add-remove" else None
    other = (X[:-1], y[:-1]) if adjacency == "add-remove" else (np.vstack([X[:-1], np.ones(4)]), y)
    params = {"adjacency": adjacency, "n_rows": n_rows, "batch_size": 100, "classes": [0, 1, 2]}
    assert audit.leaks(lambda: make(**params), (X, y), other, public=PUBLIC) == []


def of_persons(rows, ids, *, batch_size, **params):
    """Return the exact sums and the persons drawn in each step of a fit whose gradient is the row itself."""
    drawn, sums = [], []
    poisson_sample = SeededRandom.poisson_sample

    def watched(random, n, rate):
        drawn.append((n, rate, poisson_sample(random, n, rate)))
        return drawn[-1][2]

    def draw(mechanism, bounded, scale, random):
        assert scale == pytest.approx(2.0 * mechanism.noise_multiplier)
        sums.append(bounded.value.copy())
        return np.ones_like(bounded.value)

    ledger = Ledger(math.inf, 1e-5, unit="person", random_state=0)
    ledger._draw = draw
    loss = lambda outputs, targets: outputs[:, 0]  # noqa: E731
    settings = {"loss": loss, "n_steps": 4, "clip_norm": 2.0, "average": 0.0, "learning_rate": 1.0, **params}
    model = make(module=zeros(rows.shape[1]), batch_size=batch_size, **settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SeededRandom, "poisson_sample", watched)
        model.fit(rows, np.zeros(len(rows)), persons=ids, ledger=ledger)
    return model, sums, drawn


def zeros(width):
    module = nn.Linear(width, 1, bias=False)
    nn.init.zeros_(module.weight)
    return module


def test_persons_are_sampled_with_all_their_rows_and_each_row_counts_its_share():
    ids = np.arange(60) % 20
    ids[40:50] = 0  # rows 0, 20 and 40 to 49: twelve rows of person 0
    shares = 1 / np.bincount(ids)[ids]
    model, sums, drawn = of_persons(np.eye(60), ids, batch_size=5)
    assert [(n, rate) for n, rate, _ in drawn] == [(20, 0.25)] * 4
    for total, (_, _, persons) in zip(sums, drawn, strict=True):
        assert total == pytest.approx(np.where(np.isin(ids, persons), shares, 0.0), rel=1e-12)
    # Four steps of a released sum of ones over the expected number of persons in a batch.
    assert flat(model) == pytest.approx(np.full(60, -4 / 5))


def test_all_rows_take_part_if_the_batch_holds_all_persons_and_rows_without_an_id_count_nothing():
    ids = ["a", None, "b", "a", "c", "", "d"] * 5
    model, sums, drawn = of_persons(np.eye(35), ids, batch_size=4, epsilon=50.0)
    expected = np.array([{"a": 0.1, "b": 0.2, "c": 0.2, "d": 0.2}.get(each, 0.0) for each in ids])
    assert (len(sums), drawn) == (4, [])
    for total in sums:
        assert total == pytest.approx(expected, rel=1e-12)
    assert flat(model) == pytest.approx(np.full(35, -4 / 4))


def test_the_number_of_rows_of_a_person_changes_nothing_but_the_exact_sums():
    """The same persons with other numbers of rows, and the same released values."""
    ids = np.repeat(np.arange(20), 3)
    first, *_ = of_persons(np.ones((60, 2)), ids, batch_size=5)
    second, *_ = of_persons(np.ones((150, 2)), np.concatenate([ids, np.full(90, 7)]), batch_size=5)
    assert np.array_equal(flat(first), flat(second))
    assert first.privacy_ == second.privacy_
    assert "one person (all rows with one id)" in str(first.privacy_)


def test_a_checkpointed_training_of_persons_is_charged_to_a_ledger_of_persons(tmp_path):
    ids = np.arange(400) // 4
    ledger = Ledger.open(tmp_path / "a.ledger", epsilon=2.0, delta=1e-5, unit="person")
    settings = {"random_state": None, "checkpoint": tmp_path / "c.pt", "checkpoint_every": 2, "batch_size": 25}

    def stop(step, module):
        if step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(watch=stop, **settings).fit(X, y, public=PUBLIC, persons=ids, ledger=ledger)
    model = make(**settings).fit(X, y, public=PUBLIC, persons=ids, ledger=ledger)
    assert (model.privacy_.unit, ledger.n_charges) == ("person", 1)


def test_every_release_is_a_sum_over_the_sample_of_its_own_step():
    """Rows that are told apart by their number: the gradient of the constant counts the rows of the sample."""
    samples, sums = [], []
    poisson_sample = SeededRandom.poisson_sample

    def watched(random, n_rows, rate):
        samples.append(poisson_sample(random, n_rows, rate))
        return samples[-1]

    def draw(mechanism, bounded, scale, random):
        sums.append(bounded.value.copy())
        return np.zeros_like(bounded.value)

    rows, target = np.eye(40), np.zeros(40)
    loss = lambda outputs, targets: outputs[:, 0]  # noqa: E731
    ledger = Ledger(math.inf, 1e-5, random_state=0)
    ledger._draw = draw
    model = make(module=nn.Linear(40, 1, bias=False), loss=loss, batch_size=8, n_steps=6, clip_norm=2.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SeededRandom, "poisson_sample", watched)
        model.fit(rows, target, ledger=ledger)
    assert len(samples) == len(sums) == 6
    for sample, total in zip(samples, sums, strict=True):
        assert total == pytest.approx(np.bincount(sample, minlength=40))


def test_a_fit_changes_neither_torchs_global_stream_nor_the_given_module():
    module = perceptron(4, 3)
    before = copy.deepcopy(module.state_dict())
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    make(module=module).fit(X, y, public=PUBLIC)
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(weights, before[name]) for name, weights in module.state_dict().items())


def test_a_custom_loss_gives_a_regressor():
    target = (X @ [1.0, -1.0, 0.5, 0.0])[:, None] + [[0.0, 1.0]]
    public = Public(PUBLIC.X, (PUBLIC.X @ [1.0, -1.0, 0.5, 0.0])[:, None] + [[0.0, 1.0]])
    model = make(module=torch.nn.Linear(4, 2), loss=squared_loss, public_learning_rate=0.05, public_steps=200)
    model.fit(X, target, public=public)
    assert not is_classifier(model)
    assert not hasattr(model, "predict_proba")
    assert model.predict(X).shape == (400, 2)
    assert -0.3 < model.score(X, target) <= 0


def test_a_language_model_is_trained_on_sequences():
    random = np.random.default_rng(0)
    text = (np.arange(5)[None, :] + random.integers(0, 6, (300, 1))) % 6
    public = Public(text[:60, :-1], text[:60, 1:])
    model = make(module=lstm_language_model(6, n_units=8, n_layers=1), loss=sequence_loss, public_learning_rate=0.05)
    model.fit(text[60:, :-1], text[60:, 1:], public=public)
    assert model.engine_ == "ghost"
    assert model.predict(text[:3, :-1]).shape == (3, 4, 6)
    assert model.score(text[60:, :-1], text[60:, 1:]) > -1.0  # uniform guessing scores -1.79


def test_watch_is_called_after_every_step_and_last_with_the_fitted_network():
    seen = []

    def watch(step, module):
        seen.append((step, np.concatenate([weights.detach().numpy().ravel() for weights in module.parameters()])))

    watched = make(watch=watch).fit(X, y, public=PUBLIC)
    assert [step for step, _ in seen] == [1, 2, 3, 4, 5]
    assert np.array_equal(seen[-1][1], flat(watched))
    assert not np.array_equal(seen[0][1], seen[1][1])
    # Watching changes nothing.
    assert np.array_equal(flat(make().fit(X, y, public=PUBLIC)), flat(watched))


def test_public_rows_need_labels_and_the_shape_of_private_rows():
    with pytest.raises(ValueError, match="public must have labels"):
        make().fit(X, y, public=Public(X[:10].copy()))
    images = X.reshape(400, 1, 2, 2)
    with pytest.raises(ValueError, match="shape"):
        PrivateNetwork(n_steps=2).fit(images, y, public=Public(np.zeros((9, 1, 4, 1)), y[:9]))


@pytest.mark.parametrize(
    "params",
    [
        {"transfer": "hot"},
        {"optimizer": "lbfgs"},
        {"n_steps": 0},
        {"batch_size": 0},
        {"clip_norm": 0.0},
        {"learning_rate": -1.0},
        {"momentum": 1.0},
        {"average": 1.5},
        {"epsilon": 0.0},
        {"delta": 0.0},
        {"mixing_floor": 2.0, "transfer": "mirror"},
        {"holdout": 0.0},
        {"public_steps": -1},
    ],
    ids=str,
)
def test_bad_parameters_are_refused_by_name(params):
    ledger = Ledger(epsilon=5.0, delta=1e-5)
    with pytest.raises(ValueError, match=f"{'floor' if 'mixing_floor' in params else next(iter(params))} must"):
        make(**params).fit(X, y, public=PUBLIC, ledger=ledger)
    assert ledger.entries == []
