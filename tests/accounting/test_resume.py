"""Runs that are resumed after a crash: charged once, and never more releases than were paid for."""

import json
import multiprocessing
import sqlite3

import numpy as np
import pytest

from dpadapt.accounting import Ledger
from dpadapt.errors import BudgetExceeded, LedgerError, PrivacyError
from dpadapt.mechanisms import Gaussian, clipped_sum
from dpadapt.mechanisms.plan import Repeated, Sampled

PLAN = Repeated(Gaussian(20.0), 10)
SUM = clipped_sum([[0.5]], 1.0)


@pytest.fixture
def ledger(tmp_path):
    return Ledger.open(tmp_path / "ledger", epsilon=3.0, delta=1e-6)


def again(tmp_path):
    return Ledger.open(tmp_path / "ledger")


def test_a_resumed_run_has_what_is_left_and_is_charged_once(tmp_path, ledger):
    run = ledger.start(PLAN, label="steps", resumable=True)
    spent = ledger.spent()
    for _ in range(4):
        run.release(SUM)
    other = again(tmp_path)
    resumed = other.resume(PLAN, run.mark, label="steps")
    assert resumed.left == 6
    for _ in range(6):
        resumed.release(SUM)
    with pytest.raises(PrivacyError, match="has made them all"):
        resumed.release(SUM)
    assert other.spent() == spent
    assert [entry.times for entry in other.entries] == [10]
    assert again(tmp_path).resume(PLAN, run.mark, label="steps").left == 0


def test_each_release_is_recorded_before_it_is_drawn(tmp_path, ledger):
    def dying(*release):
        raise KeyboardInterrupt

    ledger._draw = dying
    run = ledger.start(PLAN, label="steps", resumable=True)
    with pytest.raises(KeyboardInterrupt):
        run.release(SUM)
    assert again(tmp_path).resume(PLAN, run.mark, label="steps").left == 9


def test_reserved_releases_count_as_made(tmp_path, ledger):
    run = ledger.start(PLAN, label="steps", resumable=True)
    run.reserve(5)
    run.release(SUM)
    assert run.left == 9
    assert again(tmp_path).resume(PLAN, run.mark, label="steps").left == 5
    with pytest.raises(PrivacyError, match="all made, or reserved"):
        run.reserve(6)
    for nothing in (0, -5):
        with pytest.raises(ValueError, match="steps must be"):
            run.reserve(nothing)


def test_two_that_resume_one_run_share_what_is_left(tmp_path, ledger):
    mark = ledger.start(PLAN, label="steps", resumable=True).mark
    first, second = (again(tmp_path).resume(PLAN, mark, label="steps") for _ in range(2))
    for _ in range(5):
        first.release(SUM)
        second.release(SUM)
    for run in (first, second):
        assert run.left == 5  # as far as it knows
        with pytest.raises(PrivacyError, match="reserved by another process"):
            run.release(SUM)


def _release_all(path, mark, drawn):
    run = Ledger.open(path).resume(PLAN, mark, label="steps")
    try:
        while True:
            run.release(SUM)
            with drawn.get_lock():
                drawn.value += 1
    except PrivacyError:
        pass


def test_processes_together_release_no_more_than_was_paid(tmp_path, ledger):
    mark = ledger.start(PLAN, label="steps", resumable=True).mark
    context = multiprocessing.get_context("fork")
    drawn = context.Value("i", 0)
    workers = [context.Process(target=_release_all, args=(tmp_path / "ledger", mark, drawn)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert drawn.value == 10


def test_resuming_needs_the_same_plan_label_mark_and_ledger(tmp_path, ledger):
    mark = ledger.start(PLAN, label="steps", resumable=True).mark
    Ledger.open(tmp_path / "other", epsilon=3.0, delta=1e-6).start(PLAN, label="steps", resumable=True)
    attempts = [
        (again(tmp_path), Repeated(Gaussian(20.0), 11), mark, "steps"),
        (again(tmp_path), Repeated(Gaussian(19.0), 10), mark, "steps"),
        (again(tmp_path), Sampled(Gaussian(20.0), 0.5, 10), mark, "steps"),
        (again(tmp_path), PLAN, mark, "others"),
        (again(tmp_path), PLAN, "0" * 32, "steps"),
        (Ledger.open(tmp_path / "other"), PLAN, mark, "steps"),
    ]
    for other, plan, asked, label in attempts:
        with pytest.raises(PrivacyError, match="holds no such run"):
            other.resume(plan, asked, label=label)


def test_an_ordinary_run_can_not_be_resumed(tmp_path, ledger):
    run = ledger.start(PLAN, label="steps")
    assert run.mark == ""
    with pytest.raises(PrivacyError, match="holds no such run"):
        again(tmp_path).resume(PLAN, run.mark, label="steps")
    with pytest.raises(PrivacyError, match="resumable=True"):
        run.reserve(1)


def test_a_ledger_in_memory_refuses_before_charging():
    ledger = Ledger(epsilon=3.0, delta=1e-6)
    for one in (ledger, ledger.child(1.0, 1e-6, label="fit")):
        with pytest.raises(PrivacyError, match="only a durable ledger"):
            one.start(PLAN, label="steps", resumable=True)
        with pytest.raises(PrivacyError, match="only a durable ledger"):
            one.resume(PLAN, "0" * 32, label="steps")
        assert one.entries == []


def test_children_resume_under_their_own_cap_and_name(tmp_path, ledger):
    child = ledger.child(2.5, 1e-6, label="fit").child(2.4, 1e-6, label="part")
    run = child.start(PLAN, label="steps", resumable=True)
    run.release(SUM)
    receipt = child.receipt()
    other = again(tmp_path)
    resumed = other.child(2.5, 1e-6, label="fit").child(2.4, 1e-6, label="part")
    assert resumed.resume(PLAN, run.mark, label="steps").left == 9
    assert resumed.receipt() == receipt
    assert [entry.label for entry in other.entries] == ["fit: part: steps"]
    with pytest.raises(PrivacyError, match="holds no such run"):
        other.child(2.5, 1e-6, label="another fit").resume(PLAN, run.mark, label="steps")
    with pytest.raises(BudgetExceeded):
        other.child(0.1, 1e-6, label="fit").child(2.4, 1e-6, label="part").resume(PLAN, run.mark, label="steps")


def test_a_resumed_run_draws_other_samples_and_noise(tmp_path, ledger):
    plan = Sampled(Gaussian(20.0), 0.5, 3)
    run = ledger.start(plan, label="steps", resumable=True)
    first = next(run.batches(1000)), run.release(clipped_sum(np.ones((4, 50)), 1.0))
    resumed = again(tmp_path).resume(plan, run.mark, label="steps")
    second = next(resumed.batches(1000)), resumed.release(clipped_sum(np.ones((4, 50)), 1.0))
    assert resumed.left == 1
    assert not any(np.array_equal(*pair) for pair in zip(first, second, strict=True))


def test_taking_back_what_was_recorded_is_noticed(tmp_path, ledger):
    run = ledger.start(PLAN, label="steps", resumable=True)
    run.reserve(5)
    with sqlite3.connect(tmp_path / "ledger") as connection:
        connection.execute("""UPDATE entries SET entry = '{"mark": "x", "used": 0}' WHERE id = 3""")
    with pytest.raises(LedgerError, match="can't be trusted"):
        again(tmp_path)


def test_resuming_is_no_way_to_draw_a_sample_anew(tmp_path, ledger):
    plan = Sampled(Gaussian(20.0), 0.5, 3)
    run = ledger.start(plan, label="steps", resumable=True)
    next(run.batches(1000))  # looked at, never released
    assert again(tmp_path).resume(plan, run.mark, label="steps").left == 2


@pytest.mark.parametrize(("mark", "used"), [("known", 11), ("known", -1), ("unknown", 1), ("known", 1e400)])
def test_a_chain_that_counts_what_was_not_paid_for_is_refused(tmp_path, ledger, mark, used):
    run = ledger.start(PLAN, label="steps", resumable=True)
    store = ledger._store
    text = json.dumps({"mark": run.mark if mark == "known" else "x", "used": used})
    with store._transaction("BEGIN IMMEDIATE") as connection:
        store._extend(connection, [text])
    with pytest.raises(LedgerError, match="can't be trusted"):
        again(tmp_path)
