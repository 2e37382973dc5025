"""Private steps: the mixing schedule, the optimizers, division by the expected batch size, and safe error messages."""

import copy
import math
import traceback
import warnings
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from dpadapt import Adjacency, Ledger, PrivacyError, PrivacyWarning  # noqa: E402
from dpadapt.networks import PrivateNetwork  # noqa: E402
from dpadapt.networks.models import perceptron  # noqa: E402
from dpadapt.networks.private_training import Recipe, State, mixing_weights  # noqa: E402

RANDOM = np.random.default_rng(0)
X, y = RANDOM.standard_normal((60, 4)), RANDOM.integers(0, 3, 60)


def flat(module):
    return np.concatenate([weights.detach().numpy().ravel() for weights in module.parameters()])


def test_the_weight_follows_the_cosine_and_never_turns_negative():
    weights = mixing_weights(9600, decay_steps=2000)
    assert weights[0] == 1.0
    assert weights[1000] == pytest.approx(math.cos(math.pi / 4))
    # The printed cosine would be -1 here.
    assert weights[4000] == 0.0
    assert np.all(weights >= 0)
    # As printed, four fifths of the training would be on public rows alone.
    assert np.count_nonzero(weights) == 2000


def recipe(optimizer, momentum=0.9, average=0.0, n_steps=4):
    return Recipe(
        rate=1.0,
        n_rows=10.0,
        clip_norm=1.0,
        learning_rate=0.1,
        optimizer=optimizer,
        momentum=momentum,
        average=average,
        mixing=np.ones(n_steps),
    )


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_updates_are_those_of_torchs_optimizer(name):
    weights = nn.Parameter(torch.ones(3))
    reference = {
        "sgd": lambda: torch.optim.SGD([weights], lr=0.1, momentum=0.9),
        "adam": lambda: torch.optim.Adam([weights], lr=0.1, betas=(0.9, 0.999)),
    }[name]()
    state = State(torch.ones(3))
    for step in range(4):
        gradient = torch.tensor([1.0, -2.0, 0.5]) * (step + 1)
        state.update(gradient, recipe(name))
        weights.grad = gradient.clone()
        reference.step()
        assert state.weights.numpy() == pytest.approx(weights.detach().numpy(), rel=1e-4)


def test_the_rate_depends_on_the_number_of_the_step_and_falls_to_nearly_zero():
    rates = [replace(recipe("sgd", n_steps=200), schedule="cosine").rate_at(step) for step in range(200)]
    assert rates[0] == 0.1
    assert rates[100] == pytest.approx(0.05)
    assert rates[-1] < 1e-5
    assert np.all(np.diff(rates) < 0)
    # A resumed state continues at its own step, not at the first.
    state = State(torch.ones(1), step=199)
    state.update(torch.ones(1), replace(recipe("sgd", n_steps=200), schedule="cosine"))
    assert float(state.weights) == pytest.approx(1.0, abs=1e-5)


def test_a_private_training_follows_its_schedule():
    seen, start = {}, perceptron(4, 3)
    shared = {"n_steps": 12, "batch_size": 60, "average": 0.0, "learning_rate": 0.5, "random_state": 0}
    for schedule in ("constant", "cosine"):
        path = [start]
        kept = partial(lambda path, _, one: path.append(copy.deepcopy(one)), path)
        model = PrivateNetwork(start, 1.0, 1e-6, transfer="cold", schedule=schedule, watch=kept, **shared)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)
            model.fit(X, y)
        seen[schedule] = [np.linalg.norm(flat(b) - flat(a)) for a, b in pairwise(path)]
    # The noise dominates here, so the lengths of the steps are those of the rates.
    assert seen["constant"][0] == seen["cosine"][0]
    factors = 0.5 * (1 + np.cos(np.pi * np.arange(12) / 12))
    assert np.array(seen["cosine"]) == pytest.approx(factors * np.mean(seen["constant"]), rel=0.3)


def test_the_average_forgets_the_start():
    state, settings = State(torch.full((2,), 100.0)), recipe("sgd", momentum=0.0, average=0.97)
    state.update(torch.full((2,), 1000.0), settings)  # from 100 to 0, where it stays
    for _ in range(50):
        state.update(torch.zeros(2), settings)
    assert state.step == 51
    assert state.average.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("size", [1e-3, 1.0, 50.0])
def test_the_second_clip_shortens_long_released_gradients_and_no_others(size):
    """Appendix F.2: against the update by hand, for released sums of known length."""
    moved = {}
    for second in (False, True):
        ledger = Ledger(epsilon=10.0, delta=1e-5)
        direction = np.random.default_rng(0).standard_normal(flat(perceptron(4, 3)).size)
        # The mean gradient that is released has length `size`.
        ledger._draw = lambda mechanism, bounded, scale, random, d=direction: len(X) * size * d / np.linalg.norm(d)
        module = perceptron(4, 3)
        model = PrivateNetwork(
            module, 2.0, 1e-5, learning_rate=0.5, transfer="cold", n_steps=1, average=0.0, batch_size=len(X),
            clip_norm=0.7, clip_released=second, random_state=0,
        )  # fmt: skip
        before = flat(module)
        moved[second] = before - flat(model.fit(X, y, ledger=ledger).module_)
    assert np.linalg.norm(moved[False]) == pytest.approx(0.5 * size, rel=1e-2)
    assert moved[True] == pytest.approx(moved[False] * min(1.0, 0.7 / size), rel=1e-2, abs=1e-6)


def test_gradients_are_divided_by_the_expected_batch_size_and_empty_batches_count(monkeypatch):
    """At a sampling rate of one in a hundred thousand, every batch is empty: only noise moves the weights."""
    ledger = Ledger(epsilon=10.0, delta=1e-5, adjacency=Adjacency.ADD_REMOVE)
    released = []

    def draw(mechanism, bounded, scale, random):
        released.append(bounded.value)
        return np.full(bounded.value.shape, 100.0)

    ledger._draw = draw
    # Calibrating the noise at so low a rate is slow, and is not tested here.
    monkeypatch.setattr("dpadapt.networks.private_training.calibrate", lambda *budget, **plan: 10.0)
    module = perceptron(4, 3)
    params = {"adjacency": "add-remove", "n_rows": 10**8, "batch_size": 1000, "n_steps": 2, "average": 0.0}
    model = PrivateNetwork(module, 2.0, 1e-5, learning_rate=0.5, transfer="cold", random_state=0, **params)
    model.fit(X, y, ledger=ledger)
    assert len(released) == 2
    assert not np.any(released)
    before = flat(module)
    assert flat(model.module_) - before == pytest.approx(np.full(before.size, -2 * 0.5 * 100.0 / 1000), rel=1e-3)


def test_the_error_of_a_loss_in_a_private_step_does_not_show_the_targets():
    """A loss that fails only once gradients are computed, which nothing before the charge can find."""

    def loss(outputs, targets):
        if torch.is_grad_enabled() and len(targets) > 6:
            raise KeyError(f"no entry for {targets.max()}")
        return outputs[:, 0] * targets

    targets = np.full(60, 77123)
    with pytest.raises(PrivacyError, match="The charge stays spent") as failure:
        PrivateNetwork(nn.Linear(4, 2), n_steps=2, batch_size=60, loss=loss, random_state=0).fit(X, targets)
    assert "77123" not in "".join(traceback.format_exception(failure.value))
    assert failure.value.__context__ is None


def test_no_warning_of_a_loss_shows_the_size_of_a_sample(recwarn):
    def loss(outputs, targets):
        warnings.warn(f"{len(targets)} targets", stacklevel=1)
        return outputs[:, 0] * targets

    warnings.simplefilter("always")
    PrivateNetwork(nn.Linear(4, 2), n_steps=2, batch_size=60, loss=loss, random_state=0).fit(X, y)
    said = {str(each.message) for each in recwarn if not issubclass(each.category, PrivacyWarning)}
    assert said <= {"1 targets", "6 targets"}  # the rows of the trial
