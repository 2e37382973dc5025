"""Checkpoints: a killed and resumed training is charged once, and makes no more releases than it was charged for."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from kill_driver import STEPS, estimator, opened, problem  # noqa: E402
from torch import nn  # noqa: E402

from dpadapt import Adjacency, Ledger, PrivacyError, Public  # noqa: E402
from dpadapt.networks import PrivateNetwork, private_training  # noqa: E402

DRIVER = Path(__file__).with_name("kill_driver.py")


class Killed(BaseException):
    """Simulates a crash inside the process."""


def draws(folder):
    path = folder / "draws"
    return len(path.read_text().splitlines()) if path.exists() else 0


def crash_at(monkeypatch, step):
    """Crash the training after the noise of a step was drawn, before it is used."""
    update = private_training.State.update

    def dying(state, gradient, recipe):
        if state.step == step:
            raise Killed
        update(state, gradient, recipe)

    monkeypatch.setattr(private_training.State, "update", dying)


def killed_fit(monkeypatch, folder, step, ledger=None, **params):
    X, y, public = problem()
    with monkeypatch.context() as patch:
        crash_at(patch, step)
        with pytest.raises(Killed):
            estimator(folder, **params).fit(X, y, public=public, ledger=ledger or opened(folder))
    return X, y, public


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted")
    X, y, public = problem()
    model = estimator(folder).fit(X, y, public=public, ledger=opened(folder))
    assert draws(folder) == STEPS
    assert not (folder / "checkpoint").exists()
    return model.privacy_


def test_a_killed_and_resumed_training_has_the_receipt_of_an_uninterrupted_one(tmp_path, uninterrupted):
    process = subprocess.Popen([sys.executable, str(DRIVER), str(tmp_path)])
    deadline = time.monotonic() + 120
    while draws(tmp_path) < 12 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "done").exists()
    assert 12 <= draws(tmp_path) < STEPS
    X, y, public = problem()
    ledger = opened(tmp_path)
    model = estimator(tmp_path).fit(X, y, public=public, ledger=ledger)
    assert model.privacy_ == uninterrupted
    assert [entry.times for entry in ledger.entries] == [STEPS]
    assert ledger.spent() == pytest.approx(model.privacy_.epsilon)
    # A kill may lose releases that were reserved and not yet drawn, but nothing is drawn beyond the charge.
    assert STEPS - 7 <= draws(tmp_path) <= STEPS
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize("step", [0, 6, 7, 59])
def test_a_step_lost_in_a_crash_is_not_drawn_again(monkeypatch, tmp_path, uninterrupted, step):
    X, y, public = killed_fit(monkeypatch, tmp_path, step)
    assert draws(tmp_path) == step + 1
    model = estimator(tmp_path).fit(X, y, public=public, ledger=opened(tmp_path))
    assert model.privacy_ == uninterrupted
    # The rest of the reserved block is lost too.
    assert draws(tmp_path) == step + 1 + STEPS - min(STEPS, 7 * (step // 7 + 1))


def test_a_resumed_training_continues_from_its_checkpoint(monkeypatch, tmp_path):
    X, y, public = killed_fit(monkeypatch, tmp_path, 30)
    kept = torch.load(tmp_path / "checkpoint", weights_only=True)
    assert kept["step"] == 28
    seen = []
    update = private_training.State.update

    def watching(state, gradient, recipe):
        seen.append((state.step, state.weights.clone()))
        update(state, gradient, recipe)

    with monkeypatch.context() as patch:
        patch.setattr(private_training.State, "update", watching)
        estimator(tmp_path).fit(X, y, public=public, ledger=opened(tmp_path))
    # Steps 28 to 34 were reserved.
    assert [step for step, _ in seen] == list(range(35, STEPS))
    assert torch.equal(seen[0][1], kept["weights"])


def test_a_copied_checkpoint_allows_no_further_releases(monkeypatch, tmp_path):
    X, y, public = killed_fit(monkeypatch, tmp_path, 30)
    shutil.copy(tmp_path / "checkpoint", tmp_path / "copy")
    estimator(tmp_path).fit(X, y, public=public, ledger=opened(tmp_path))
    made = draws(tmp_path)
    shutil.copy(tmp_path / "copy", tmp_path / "checkpoint")
    model = estimator(tmp_path).fit(X, y, public=public, ledger=opened(tmp_path))
    assert draws(tmp_path) == made
    assert [entry.times for entry in opened(tmp_path).entries] == [STEPS]
    assert np.isfinite(model.predict_proba(X)).all()


@pytest.mark.parametrize(
    "params",
    [
        {"learning_rate": 0.1},
        {"n_steps": STEPS + 1},
        {"clip_norm": 2.0},
        {"module": nn.Linear(4, 2)},
        {"epsilon": 1.9},
        {"classes": [0, 1, 2]},
    ],
    ids=lambda params: next(iter(params)),
)
def test_a_checkpoint_of_another_training_is_refused(monkeypatch, tmp_path, params):
    X, y, public = killed_fit(monkeypatch, tmp_path, 10)
    made, ledger = draws(tmp_path), opened(tmp_path)
    with pytest.raises(ValueError, match="belongs to another training"):
        estimator(tmp_path).set_params(**params).fit(X, y, public=public, ledger=ledger)
    assert draws(tmp_path) == made
    assert len(ledger.entries) == 1


def squared(outputs, targets):
    return (outputs[:, 0] - targets).square()


def absolute(outputs, targets):
    return (outputs[:, 0] - targets).abs()


def test_a_checkpoint_of_a_loss_whose_code_has_changed_is_refused(monkeypatch, tmp_path):
    params = {"loss": squared, "module": nn.Linear(4, 1), "classes": None}
    X, y, public = killed_fit(monkeypatch, tmp_path, 10, **params)
    with monkeypatch.context() as patch:
        patch.setattr(squared, "__code__", absolute.__code__)
        with pytest.raises(ValueError, match="belongs to another training"):
            estimator(tmp_path, **params).fit(X, y, public=public, ledger=opened(tmp_path))
    assert estimator(tmp_path, **params).fit(X, y, public=public, ledger=opened(tmp_path)).privacy_.epsilon > 0


def test_a_checkpoint_of_other_frozen_weights_is_refused(monkeypatch, tmp_path):
    def network(seed):
        torch.manual_seed(seed)
        module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        module[0].requires_grad_(False)
        return module

    X, y, public = killed_fit(monkeypatch, tmp_path, 10, module=network(0))
    with pytest.raises(ValueError, match="belongs to another training"):
        estimator(tmp_path, module=network(1)).fit(X, y, public=public, ledger=opened(tmp_path))
    assert estimator(tmp_path, module=network(0)).fit(X, y, public=public, ledger=opened(tmp_path)).privacy_.epsilon > 0


@pytest.mark.parametrize("place", ["no/such/folder/c", "."])
def test_a_checkpoint_that_cannot_be_written_is_refused_and_nothing_is_spent(tmp_path, place):
    X, y, public = problem()
    ledger = opened(tmp_path)
    with pytest.raises(ValueError, match=r"checkpoint .*can't be (written|read)"):
        estimator(tmp_path).set_params(checkpoint=tmp_path / place).fit(X, y, public=public, ledger=ledger)
    assert ledger.entries == []


def test_a_checkpoint_of_other_data_or_another_ledger_is_refused(monkeypatch, tmp_path):
    X, y, public = killed_fit(monkeypatch, tmp_path, 10)
    for rows in (X[:-1], np.column_stack([X, X[:, 0]])):
        other = Public(np.zeros((5, rows.shape[1])) + np.arange(5)[:, None], [0, 1, 0, 1, 0])
        with pytest.raises(ValueError, match="belongs to another training"):
            estimator(tmp_path).fit(rows, y[: len(rows)], public=other, ledger=opened(tmp_path))
    with pytest.raises(ValueError, match="belongs to another training"):
        estimator(tmp_path).fit(X, y, public=Public(public.X * 2, public.y), ledger=opened(tmp_path))
    elsewhere = opened(tmp_path, "other")
    with pytest.raises(PrivacyError, match="holds no such run"):
        estimator(tmp_path).fit(X, y, public=public, ledger=elsewhere)
    assert elsewhere.entries == []


@pytest.mark.parametrize("content", [b"", b"no checkpoint", b"PK\x03\x04 half a file"])
def test_a_damaged_checkpoint_is_refused(tmp_path, content):
    X, y, public = problem()
    (tmp_path / "checkpoint").write_bytes(content)
    ledger = opened(tmp_path)
    with pytest.raises(ValueError, match="can't be read"):
        estimator(tmp_path).fit(X, y, public=public, ledger=ledger)
    assert ledger.entries == []


def test_a_checkpoint_needs_a_durable_ledger_and_no_seed(tmp_path):
    X, y, public = problem()
    with pytest.raises(ValueError, match="checkpoint needs a durable ledger"):
        estimator(tmp_path).fit(X, y, public=public)
    memory = Ledger(epsilon=5.0, delta=1e-5)
    with pytest.raises(PrivacyError, match="only a durable ledger"):
        estimator(tmp_path).fit(X, y, public=public, ledger=memory)
    assert memory.entries == []
    with pytest.raises(ValueError, match="random_state=None"):
        estimator(tmp_path, random_state=0).fit(X, y, public=public, ledger=opened(tmp_path))


def test_a_checkpoint_holds_nothing_private(monkeypatch, tmp_path):
    """With two data sets and the same releases, the checkpoints differ only in the mark."""
    contents = []
    for secret in (1.0, 9.0):
        folder = tmp_path / str(secret)
        folder.mkdir()
        X, y, public = problem()
        X[0] = secret
        ledger = Ledger.open(folder / "ledger", epsilon=2.5, delta=1e-5)
        ledger._draw = lambda mechanism, bounded, scale, random: np.full(bounded.value.shape, 0.5)
        with monkeypatch.context() as patch:
            patch.setattr(np.random, "default_rng", lambda seed, make=np.random.default_rng: make(3))
            crash_at(patch, 10)
            with pytest.raises(Killed):
                estimator(folder).fit(X, y, public=public, ledger=ledger)
        contents.append(torch.load(folder / "checkpoint", weights_only=True))
    first, second = contents
    assert first.pop("mark") != second.pop("mark")
    assert first.keys() == second.keys()
    for name, value in first.items():
        values, others = (entry if isinstance(entry, list) else [entry] for entry in (value, second[name]))
        for one, other in zip(values, others, strict=True):
            assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other, name


def test_a_checkpoint_does_not_hold_the_private_number_of_rows(monkeypatch, tmp_path):
    """A digest of a number that few others are possible for would give it away."""
    fingerprints = []
    for n in (250, 249):
        folder = tmp_path / str(n)
        folder.mkdir()
        X, y, public = problem()
        ledger = Ledger.open(folder / "ledger", epsilon=2.5, delta=1e-5, adjacency=Adjacency.ADD_REMOVE)
        with monkeypatch.context() as patch:
            crash_at(patch, 1)
            with pytest.raises(Killed):
                estimator(folder, adjacency="add-remove", n_rows=240).fit(X[:n], y[:n], public=public, ledger=ledger)
        fingerprints.append(torch.load(folder / "checkpoint", weights_only=True)["fingerprint"])
    assert fingerprints[0] == fingerprints[1]


def test_finished_trainings_leave_no_checkpoint_and_the_next_fit_is_charged(tmp_path):
    X, y, public = problem()
    ledger = Ledger.open(tmp_path / "ledger", epsilon=5.0, delta=1e-5)
    for fits in (1, 2):
        PrivateNetwork(
            epsilon=1.0,
            delta=1e-5,
            n_steps=3,
            batch_size=250,
            public_steps=1,
            checkpoint=tmp_path / "c",
            classes=[0, 1],
        ).fit(X, y, public=public, ledger=ledger)
        assert len(ledger.entries) == fits
