"""The ledger checks, records and draws, in that order; nothing is released that was not charged."""

import copy
import math
import multiprocessing
import os
import pickle
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_files import FilePlace, ServerPlace

from benchmarks.ledger.analyst import Analyst, Counted
from dpadapt.accounting import Ledger, calibrate, epsilon
from dpadapt.accounting.cost import tally
from dpadapt.accounting.filter import Filter
from dpadapt.accounting.ledger import _reopened
from dpadapt.errors import BudgetExceeded, LedgerError, PrivacyError
from dpadapt.inputs.persons import person_shares
from dpadapt.mechanisms import (
    Adjacency,
    DiscreteGaussian,
    DiscreteLaplace,
    ExponentialMechanism,
    Gaussian,
    Laplace,
    NonPrivate,
    RandomizedResponse,
    clipped_sum,
    histogram,
    responses,
    votes,
)
from dpadapt.mechanisms.mechanism import Repeated, Sampled
from dpadapt.rows import row_shares

SUM = clipped_sum([[0.5], [0.25]], 1.0)


@dataclass(frozen=True)
class Broken(Gaussian):
    """Fails while drawing."""

    def _apply(self, bounded, *, scale, random):
        raise OSError("the machine went away")


@dataclass(frozen=True)
class Witness(Gaussian):
    """Logs its draws."""

    log: list = None

    def _apply(self, bounded, *, scale, random):
        self.log.append("drawn")
        return super()._apply(bounded, scale=scale, random=random)

    def __hash__(self):
        return id(self)


def test_ledger_charges_before_drawing():
    ledger = Ledger(10.0, 1e-6)
    with pytest.raises(OSError, match="went away"):
        ledger.release(Broken(2.0), SUM, label="sum")
    assert [entry.label for entry in ledger.entries] == ["sum"]
    assert ledger.spent() == epsilon(Gaussian(2.0), 1e-6)


def test_a_ledger_without_delta_names_it_when_gaussian_noise_is_charged():
    with pytest.raises(BudgetExceeded, match="needs a delta above 0"):
        Ledger(3.0).release(Gaussian(10.0), SUM, label="sum")


def test_a_release_over_the_cap_is_neither_recorded_nor_drawn():
    ledger, log = Ledger(0.1, 1e-6), []
    with pytest.raises(BudgetExceeded, match=r"over this ledger's cap of 0\.1\. Nothing was released"):
        ledger.release(Witness(2.0, log), SUM, label="sum")
    assert log == []
    assert ledger.entries == []
    assert ledger.spent() == 0.0


def test_a_statistic_without_the_needed_bound_is_refused_before_charging():
    ledger, log = Ledger(10.0, 1e-6), []
    for mechanism, statistic, error in (
        (Laplace(1.0), SUM, PrivacyError),
        (DiscreteLaplace(1.0), SUM, TypeError),
        (DiscreteGaussian(1.0), SUM, TypeError),
        (RandomizedResponse(1.0), SUM, TypeError),
        (Witness(1.0, log), responses([0, 1], 2), PrivacyError),
        (ExponentialMechanism(1.0), responses([0, 1], 2), PrivacyError),
    ):
        with pytest.raises(error):
            ledger.release(mechanism, statistic, label="x")
    assert log == []
    assert ledger.entries == []


def test_a_refused_statistic_does_not_use_a_step_of_the_run():
    run = Ledger(10.0, 1e-6).start(Repeated(Laplace(5.0), 2), label="x")
    with pytest.raises(PrivacyError):
        run.release(SUM)
    assert run.left == 2


def test_a_run_makes_as_many_releases_as_were_charged():
    run = Ledger(100.0, 1e-6).start(Repeated(Gaussian(2.0), 3), label="x")
    for _ in range(3):
        run.release(SUM)
    assert run.left == 0
    with pytest.raises(PrivacyError, match="charged for 3 releases and has made them all"):
        run.release(SUM)


def several(run, steps, value=SUM):
    return list(run.release_each(iter(lambda: value, None), steps))


def test_releases_together_are_those_made_one_by_one():
    one, together = (Ledger(100.0, 1e-6, random_state=3).start(Repeated(Gaussian(2.0), 9), label="x") for _ in range(2))
    expected = [one.release(SUM) for _ in range(9)]
    assert np.array_equal([*several(together, 4), *several(together, 5)], expected)
    assert together.left == one.left == 0
    with pytest.raises(PrivacyError, match="charged for 9 releases and has made them all"):
        several(together, 1)


def test_a_statistic_may_depend_on_the_releases_before_it():
    run = Ledger(100.0, 1e-6, random_state=0).start(Repeated(Gaussian(2.0), 3), label="x")
    at, seen = [0.0], []
    for noisy in run.release_each((clipped_sum([[at[0]]], 1.0) for _ in range(3)), 3):
        seen.append((at[0], float(noisy[0])))
        at[0] = float(noisy[0])
    assert [before for before, _ in seen[1:]] == [after for _, after in seen[:-1]]


def test_releases_together_are_all_counted_before_the_first_is_drawn():
    run = Ledger(100.0, 1e-6).start(Repeated(Broken(2.0), 5), label="x")
    with pytest.raises(OSError, match="went away"):
        several(run, 3)
    assert run.left == 2
    stopped = Ledger(100.0, 1e-6).start(Repeated(Gaussian(2.0), 5), label="x")
    next(stopped.release_each(iter([SUM, SUM]), 4))
    assert stopped.left == 1


def test_releases_together_that_were_not_charged_are_refused_and_none_is_drawn():
    log = []
    run = Ledger(100.0, 1e-6).start(Repeated(Witness(2.0, log), 3), label="x")
    with pytest.raises(PrivacyError, match="charged for 3 more releases, not for 4"):
        several(run, 4)
    with pytest.raises(ValueError, match="steps must be"):
        several(run, 0)
    sampled = Ledger(100.0, 1e-6).start(Sampled(Witness(2.0, log), rate=0.5, steps=3), label="x")
    with pytest.raises(PrivacyError, match="once per batch"):
        several(sampled, 1)
    next(sampled.batches(10))
    with pytest.raises(PrivacyError, match="once per batch"):
        several(sampled, 1)
    batch = next(run.batches(10))
    with pytest.raises(PrivacyError, match="statistic of one batch"):
        several(run, 1, batch.of(lambda rows: SUM))
    with pytest.raises(PrivacyError, match="once per batch"):
        several(run, 1)
    persons = Ledger(100.0, 1e-6, unit="person").start(Repeated(Witness(2.0, log), 3), label="x")
    with pytest.raises(PrivacyError, match="protects persons"):
        several(persons, 1)
    assert (run.left, sampled.left, persons.left, log) == (3, 3, 3, [])


def test_releases_together_have_the_bounds_that_their_noise_was_drawn_for():
    run = Ledger(100.0, 1e-6).start(Repeated(Gaussian(2.0), 3), label="x")
    made = []
    with pytest.raises(PrivacyError, match="must have the same bounds"):
        made.extend(run.release_each(iter([SUM, clipped_sum([[0.5], [0.25]], 1.1)]), 3))
    assert len(made) <= 1


def test_a_sampled_run_releases_once_per_batch():
    run = Ledger(100.0, 1e-6).start(Sampled(Gaussian(2.0), rate=0.5, steps=3), label="x")
    with pytest.raises(PrivacyError, match="once per batch"):
        run.release(SUM)
    for batch in run.batches(10):
        run.release(batch.of(lambda index: SUM))
        with pytest.raises(PrivacyError):
            run.release(batch.of(lambda index: SUM))
    assert run.left == 0


def test_only_a_statistic_of_the_runs_last_batch_is_released():
    """A release on another sample than its own would have been charged as if the samples were independent."""
    plan = Sampled(Gaussian(2.0), rate=0.5, steps=3)
    ledger = Ledger(100.0, 1e-6)
    run, other = ledger.start_all([(plan, "x"), (plan, "y")])
    batches, others = run.batches(10), other.batches(10)
    batch, foreign = next(batches), next(others)
    for wrong in (SUM, foreign.of(lambda index: SUM)):
        with pytest.raises(PrivacyError, match="not a statistic of the run's last batch"):
            run.release(wrong)
    with pytest.raises(PrivacyError, match="can't be given out as that of another"):
        batch.of(lambda index: foreign.of(lambda index: SUM))
    run.release(batch.of(lambda index: SUM))
    next(batches)
    with pytest.raises(PrivacyError, match="not a statistic of the run's last batch"):
        run.release(batch.of(lambda index: SUM))  # the batch of an earlier step
    with pytest.raises(PrivacyError, match="not a statistic of the run's last batch"):
        ledger.start(Gaussian(2.0), label="z").release(batch.of(lambda index: SUM))


def test_a_run_without_sampling_hands_out_all_rows():
    run = Ledger(100.0, 1e-6, random_state=0).start(Repeated(Gaussian(2.0), 3), label="x")
    rows, seen = np.ones((5, 2)), []
    for batch in run.batches(5):
        run.release(batch.of(lambda index: clipped_sum(seen.append(rows[index]) or rows[index], 1.0)))
    assert [len(taken) for taken in seen] == [5, 5, 5]
    assert run.left == 0


def test_a_batch_can_not_be_skipped():
    run = Ledger(100.0, 1e-6).start(Sampled(Gaussian(2.0), rate=0.5, steps=3), label="x")
    batches = run.batches(10)
    next(batches)
    with pytest.raises(PrivacyError, match="the last batch was not released"):
        next(batches)
    with pytest.raises(PrivacyError, match="the last batch was not released"):
        next(run.batches(10))


def test_runs_can_not_be_copied_or_pickled():
    run = Ledger(100.0, 1e-6).start(Gaussian(2.0), label="x")
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(PrivacyError, match="can't be copied or pickled"):
            duplicate(run)


def test_ledgers_in_memory_can_not_be_copied_or_pickled():
    ledger = Ledger(100.0, 1e-6)
    for each in (ledger, ledger.child(1.0, 1e-6, label="fit")):
        for duplicate in (copy.copy, copy.deepcopy):
            with pytest.raises(PrivacyError, match="can't be copied"):
                duplicate(each)
        with pytest.raises(PrivacyError, match="can't be sent to another process"):
            pickle.dumps(each)


def in_a_fork(action):
    """Return the name of the error that `action` raises in a forked process."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            action()
            os.write(write, b"nothing")
        except BaseException as error:
            os.write(write, type(error).__name__.encode())
        os._exit(0)
    os.waitpid(pid, 0)
    text = os.read(read, 100).decode()
    os.close(read)
    os.close(write)
    return text


def test_a_forked_process_can_not_spend_from_a_ledger_in_memory():
    ledger = Ledger(100.0, 1e-6)
    child = ledger.child(1.0, 1e-6, label="fit")
    run = ledger.start(Repeated(Gaussian(2.0), 2), label="x")
    assert in_a_fork(lambda: ledger.release(Gaussian(50.0), SUM, label="x")) == "PrivacyError"
    assert in_a_fork(lambda: child.release(Gaussian(50.0), SUM, label="x")) == "PrivacyError"
    assert in_a_fork(lambda: run.release(SUM)) == "PrivacyError"
    together = ledger.start(Repeated(Gaussian(2.0), 5), label="x").release_each(iter(lambda: SUM, None), 5)
    next(together)
    # The noise of the next releases was drawn before the fork: on both sides it would be the same.
    assert in_a_fork(lambda: next(together)) == "PrivacyError"
    next(together)
    run.release(SUM)


def test_two_threads_do_not_make_one_release_twice():
    run = Ledger(math.inf, random_state=0).start(Gaussian(1.0), label="x")
    require = run._require_releases_left

    def slowly():
        require()
        time.sleep(0.1)

    run._require_releases_left = slowly
    with ThreadPoolExecutor(2) as pool:
        made = [pool.submit(run.release, SUM) for _ in range(2)]
    assert sum(one.exception() is None for one in made) == 1


def test_two_threads_do_not_spend_what_is_left_twice(monkeypatch):
    needs = Filter.needs

    def slowly(*args):
        answer = needs(*args)
        time.sleep(0.1)
        return answer

    monkeypatch.setattr(Filter, "needs", slowly)
    ledger = Ledger(1.0)
    with ThreadPoolExecutor(2) as pool:
        made = [pool.submit(ledger.start, Laplace(1 / 0.7), label="x") for _ in range(2)]
    assert sum(one.exception() is None for one in made) == 1


def test_a_child_charges_its_parent_and_obeys_both_caps():
    parent = Ledger(3.0, 1e-6)
    child = parent.child(1.0, 1e-6, label="fit")
    child.release(Gaussian(10.0), SUM, label="sum")
    assert [entry.label for entry in parent.entries] == ["fit: sum"]
    assert child.spent() == parent.spent()
    with pytest.raises(BudgetExceeded, match="over this ledger's cap of 1"):
        child.release(Gaussian(3.0), SUM, label="sum")
    generous = parent.child(100.0, 1e-6, label="other")
    with pytest.raises(BudgetExceeded, match="over this ledger's cap of 3"):
        generous.release(Gaussian(1.0), SUM, label="sum")
    assert len(parent.entries) == 1
    assert generous.entries == []


def test_several_plans_are_charged_together_or_not_at_all():
    ledger = Ledger(5.0, 1e-6)
    with pytest.raises(BudgetExceeded):
        ledger.start_all([(Gaussian(2.0), "a"), (Gaussian(0.1), "b")])
    assert ledger.entries == []
    assert len(ledger.start_all([(Gaussian(4.0), "a"), (Repeated(Laplace(9.0), 2), "b")])) == 2
    assert [entry.times for entry in ledger.entries] == [1, 2]


def test_a_deliberate_leak_needs_an_unlimited_cap_and_is_recorded():
    with pytest.raises(BudgetExceeded):
        Ledger(1e9, 0.5).release(NonPrivate(), SUM, label="leak")
    ledger = Ledger(math.inf, 1e-6)
    assert ledger.release(NonPrivate(), SUM, label="leak").tolist() == [0.75]
    assert ledger.spent() == math.inf
    assert ledger.receipt().epsilon == math.inf


def test_a_cost_of_nan_is_refused(monkeypatch):
    monkeypatch.setattr("dpadapt.accounting.filter.composed_epsilon", lambda *args, **kwargs: math.nan)
    with pytest.raises(BudgetExceeded):
        Ledger(1.0, 1e-6).start(Gaussian(2.0), label="x")


def test_seeds_mark_entries_and_make_noise_repeat():
    noisy = [Ledger(9.0, 1e-6, random_state=4).release(Gaussian(2.0), SUM, label="x") for _ in range(2)]
    assert noisy[0] == noisy[1]
    fresh = [Ledger(9.0, 1e-6).release(Gaussian(2.0), SUM, label="x") for _ in range(2)]
    assert fresh[0] != fresh[1]
    parent = Ledger(9.0, 1e-6)
    parent.child(9.0, 1e-6, label="fit", random_state=4).release(Gaussian(2.0), SUM, label="x")
    parent.release(Gaussian(9.0), SUM, label="y")
    assert [entry.seeded for entry in parent.entries] == [True, False]
    assert parent.receipt().seeded


def test_a_release_does_not_change_the_statistic():
    bounded = histogram([0, 1, 1], 2)
    Ledger(9.0, 1e-6).release(Gaussian(2.0), bounded, label="x")
    Ledger(9.0, 1e-6).release(DiscreteLaplace(2.0), bounded, label="x")
    assert bounded.value.tolist() == [1, 2]


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_noise_is_relative_to_the_ledgers_adjacency(adjacency):
    ledger = Ledger(math.inf, adjacency=adjacency, random_state=0)
    noise = ledger.release(Gaussian(1.0), clipped_sum(np.zeros((1, 4000)), 3.0), label="x")
    # Seeded. The standard deviation of n normal variates has a relative standard error of 1 / sqrt(2 n): four of them.
    factor = 2.0 if adjacency is Adjacency.REPLACE_ONE else 1.0
    assert noise.std() == pytest.approx(3.0 * factor, rel=4 / math.sqrt(8000))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["g", "l", "e"]), st.floats(0.3, 30.0), st.integers(1, 20)), max_size=6),
    st.floats(0.1, 20.0),
    st.sampled_from([0.0, 1e-6, 1e-2]),
)
def test_spent_is_the_cost_of_what_was_recorded_and_never_above_the_cap(charges, cap, delta):
    ledger, made = Ledger(cap, delta), []
    make = {"g": Gaussian, "l": Laplace, "e": lambda s: ExponentialMechanism(1 / s)}
    for kind, noise, steps in charges:
        plan = Repeated(make[kind](noise), steps)
        try:
            ledger.start(plan, label=kind)
            made.append(plan)
        except BudgetExceeded:
            pass
    assert len(ledger.entries) == len(made)
    # Never below the cost of the same events fixed in advance, and equal to it after one charge.
    exact = epsilon(tally(made), delta) if made else 0.0
    assert ledger.spent() == exact if len(made) < 2 else exact * (1 - 1e-3) <= ledger.spent()
    assert ledger.spent() <= cap * (1 + 1e-9)
    # The same after each charge.
    spending = ledger.spending()
    assert len(spending) == len(made)
    assert spending == sorted(spending)
    assert [0.0, *spending][-1] == ledger.spent()


@pytest.mark.parametrize("first", [[], [Gaussian(5.0)], [Gaussian(8.0), Laplace(20.0)]])
def test_the_remaining_epsilon_can_be_spent_and_not_much_more(first):
    ledger = Ledger(2.0, 1e-5)
    for mechanism in first:
        ledger.start(mechanism, label="first")
    left = ledger.remaining()
    assert 0.2 < left <= 2.0
    with pytest.raises(BudgetExceeded):
        ledger.start(Gaussian(calibrate(left * 1.02, 1e-5)), label="too much")
    ledger.start(Gaussian(calibrate(left, 1e-5)), label="rest")


def test_nothing_remains_after_a_charge_that_rounding_lets_past_the_cap():
    ledger = Ledger(1.0)
    ledger.start(Laplace(1 / (1 + 5e-10)), label="all")
    assert ledger.spent() > 1.0
    assert ledger.remaining() == 0.0


def test_messages_contain_the_label_but_no_private_value():
    with pytest.raises(BudgetExceeded) as caught:
        Ledger(0.1, 0.0).release(Laplace(1.0), votes([[0.123456789]]), label="ballots")
    assert "ballots" in str(caught.value)
    assert "123456" not in str(caught.value)


def test_a_refused_release_does_not_suggest_another_ledger():
    with pytest.raises(BudgetExceeded, match="another ledger for the same data would lack what was already spent"):
        Ledger(0.1, 0.0).start(Laplace(1.0), label="x")


# Runs that are resumed after a crash.
PLAN = Repeated(Gaussian(20.0), 10)
RESUMED_SUM = clipped_sum([[0.5]], 1.0)


@pytest.fixture
def ledger(place):
    return place.open(epsilon=3.0, delta=1e-6)


def reopened(place):
    return place.open()


def test_a_resumed_run_makes_the_remaining_releases_and_is_charged_once(place, ledger):
    run = ledger.start(PLAN, label="steps", resumable=True)
    spent = ledger.spent()
    for _ in range(4):
        run.release(RESUMED_SUM)
    other = reopened(place)
    resumed = other.resume(PLAN, run.mark, label="steps")
    assert resumed.left == 6
    for _ in range(6):
        resumed.release(RESUMED_SUM)
    with pytest.raises(PrivacyError, match="has made them all"):
        resumed.release(RESUMED_SUM)
    assert other.spent() == spent
    assert [entry.times for entry in other.entries] == [10]
    assert reopened(place).resume(PLAN, run.mark, label="steps").left == 0


def test_each_release_is_recorded_before_it_is_drawn(place, ledger):
    def dying(*release):
        raise KeyboardInterrupt

    ledger._draw = dying
    run = ledger.start(PLAN, label="steps", resumable=True)
    with pytest.raises(KeyboardInterrupt):
        run.release(RESUMED_SUM)
    assert reopened(place).resume(PLAN, run.mark, label="steps").left == 9


def test_releases_together_are_recorded_before_the_first_is_drawn(place, ledger):
    def dying(*release):
        raise KeyboardInterrupt

    ledger._draw = dying
    run = ledger.start(PLAN, label="steps", resumable=True)
    with pytest.raises(KeyboardInterrupt):
        several(run, 4, RESUMED_SUM)
    assert reopened(place).resume(PLAN, run.mark, label="steps").left == 6
    # Those that were reserved are not recorded again.
    run.reserve(3)
    assert reopened(place).resume(PLAN, run.mark, label="steps").left == 3
    with pytest.raises(KeyboardInterrupt):
        several(run, 2, RESUMED_SUM)
    assert reopened(place).resume(PLAN, run.mark, label="steps").left == 3
    with pytest.raises(KeyboardInterrupt):
        several(run, 2, RESUMED_SUM)
    assert reopened(place).resume(PLAN, run.mark, label="steps").left == 2


def test_reserved_releases_count_as_made(place, ledger):
    run = ledger.start(PLAN, label="steps", resumable=True)
    run.reserve(5)
    run.release(RESUMED_SUM)
    assert run.left == 9
    assert reopened(place).resume(PLAN, run.mark, label="steps").left == 5
    with pytest.raises(PrivacyError, match="all made, or reserved"):
        run.reserve(6)
    for nothing in (0, -5):
        with pytest.raises(ValueError, match="steps must be"):
            run.reserve(nothing)


def test_two_resumptions_of_one_run_share_its_remaining_releases(place, ledger):
    mark = ledger.start(PLAN, label="steps", resumable=True).mark
    first, second = (reopened(place).resume(PLAN, mark, label="steps") for _ in range(2))
    for _ in range(5):
        first.release(RESUMED_SUM)
        second.release(RESUMED_SUM)
    for run in (first, second):
        assert run.left == 5  # the other one's releases are only in the file
        with pytest.raises(PrivacyError, match="reserved by another process"):
            run.release(RESUMED_SUM)


def _release_all(place, mark):
    """Make as many releases of a run as possible; return how many."""
    run, drawn = place.open().resume(PLAN, mark, label="steps"), 0
    while True:
        try:
            run.release(RESUMED_SUM)
        except PrivacyError:
            return drawn
        drawn += 1


def test_processes_together_make_no_more_releases_than_were_charged(place, ledger):
    mark = ledger.start(PLAN, label="steps", resumable=True).mark
    with ProcessPoolExecutor(3, multiprocessing.get_context("fork")) as pool:
        assert sum(pool.map(_release_all, [place] * 3, [mark] * 3)) == 10


def test_resuming_needs_the_same_plan_label_mark_and_ledger(place, ledger):
    mark = ledger.start(PLAN, label="steps", resumable=True).mark
    place.open("other", epsilon=3.0, delta=1e-6).start(PLAN, label="steps", resumable=True)
    attempts = [
        (reopened(place), Repeated(Gaussian(20.0), 11), mark, "steps"),
        (reopened(place), Repeated(Gaussian(19.0), 10), mark, "steps"),
        (reopened(place), Sampled(Gaussian(20.0), 0.5, 10), mark, "steps"),
        (reopened(place), PLAN, mark, "others"),
        (reopened(place), PLAN, "0" * 32, "steps"),
        (place.open("other"), PLAN, mark, "steps"),
    ]
    for other, plan, asked, label in attempts:
        with pytest.raises(PrivacyError, match="holds no such run"):
            other.resume(plan, asked, label=label)


def test_a_run_that_is_not_resumable_can_not_be_resumed(place, ledger):
    run = ledger.start(PLAN, label="steps")
    assert run.mark == ""
    with pytest.raises(PrivacyError, match="holds no such run"):
        reopened(place).resume(PLAN, run.mark, label="steps")
    with pytest.raises(PrivacyError, match="resumable=True"):
        run.reserve(1)


def test_a_ledger_in_memory_refuses_resumable_runs_before_charging():
    ledger = Ledger(epsilon=3.0, delta=1e-6)
    for one in (ledger, ledger.child(1.0, 1e-6, label="fit")):
        with pytest.raises(PrivacyError, match="only a durable ledger"):
            one.start(PLAN, label="steps", resumable=True)
        with pytest.raises(PrivacyError, match="only a durable ledger"):
            one.resume(PLAN, "0" * 32, label="steps")
        assert one.entries == []


def test_children_resume_with_their_own_cap_and_label(place, ledger):
    child = ledger.child(2.5, 1e-6, label="fit").child(2.4, 1e-6, label="part")
    run = child.start(PLAN, label="steps", resumable=True)
    run.release(RESUMED_SUM)
    receipt = child.receipt()
    other = reopened(place)
    resumed = other.child(2.5, 1e-6, label="fit").child(2.4, 1e-6, label="part")
    assert resumed.resume(PLAN, run.mark, label="steps").left == 9
    assert resumed.receipt() == receipt
    assert [entry.label for entry in other.entries] == ["fit: part: steps"]
    with pytest.raises(PrivacyError, match="holds no such run"):
        other.child(2.5, 1e-6, label="another fit").resume(PLAN, run.mark, label="steps")
    with pytest.raises(BudgetExceeded):
        other.child(0.1, 1e-6, label="fit").child(2.4, 1e-6, label="part").resume(PLAN, run.mark, label="steps")


def drawn_and_released(run):
    """Return the indices of the next batch and what is released on it."""
    drawn = []
    batch = next(run.batches(1000))
    released = run.release(batch.of(lambda index: drawn.append(index) or clipped_sum(np.ones((4, 50)), 1.0)))
    return drawn[0], released


def test_a_resumed_run_draws_new_samples_and_noise(place, ledger):
    plan = Sampled(Gaussian(20.0), 0.5, 3)
    run = ledger.start(plan, label="steps", resumable=True)
    first = drawn_and_released(run)
    resumed = reopened(place).resume(plan, run.mark, label="steps")
    second = drawn_and_released(resumed)
    assert resumed.left == 1
    assert not any(np.array_equal(*pair) for pair in zip(first, second, strict=True))


def test_a_sample_that_was_drawn_but_not_released_counts_as_used(place, ledger):
    plan = Sampled(Gaussian(20.0), 0.5, 3)
    run = ledger.start(plan, label="steps", resumable=True)
    next(run.batches(1000))  # drawn, never released
    assert reopened(place).resume(plan, run.mark, label="steps").left == 2


# A cap is a cap, and a plan is charged for all of its steps.


@pytest.mark.parametrize("before", [0, 1, 3])
@pytest.mark.parametrize(
    ("delta", "mechanism"), [(0.0, lambda e: Laplace(1 / e)), (1e-6, lambda e: Gaussian(calibrate(e, 1e-6)))]
)
@pytest.mark.parametrize("kind", ["in memory", "child", "file", "server"])
def test_a_charge_a_thousandth_above_what_remains_is_refused(tmp_path, request, kind, delta, mechanism, before):
    ledgers = [Ledger(1.0, delta)]
    # Two openings of one ledger, charged in turn.
    if kind == "file":
        ledgers = [Ledger.open(tmp_path / "new", epsilon=1.0, delta=delta) for _ in range(2)]
    elif kind == "server":
        place = ServerPlace(request.getfixturevalue("server"), request.node.name)
        ledgers = [place.open(epsilon=1.0, delta=delta) for _ in range(2)]
    elif kind == "child":
        ledgers = [Ledger(9.0, delta).child(1.0, delta, label="child")]
    for number in range(before):
        ledgers[number % len(ledgers)].start(mechanism(0.2), label="before")
    left = ledgers[0].remaining()
    for ledger in ledgers:
        with pytest.raises(BudgetExceeded):
            ledger.start(mechanism(left * 1.001), label="too much")
        assert len(ledger.entries) == before
    ledgers[-1].start(mechanism(left), label="rest")


@pytest.mark.parametrize(
    "plan",
    [
        Repeated(Laplace(10.0), 7),
        Repeated(Gaussian(20.0), 7),
        Sampled(Gaussian(20.0), 0.1, 7),
        Sampled(Laplace(9.0), 0.1, 7),
    ],
)
@pytest.mark.parametrize("way", ["start", "start_all", "resumable", "child"])
def test_every_step_of_a_plan_is_charged(ledger, plan, way):
    once = epsilon(type(plan)(**{**vars(plan), "steps": 1}), ledger.delta)
    if way == "start_all":
        ledger.start_all([(plan, "x")])
    elif way == "child":
        ledger.child(1.0, ledger.delta, label="child").start(plan, label="x")
    else:
        ledger.start(plan, label="x", resumable=way == "resumable")
    assert [(entry.event, entry.times) for entry in ledger.entries] == [(plan.event(), 7)]
    assert ledger.spent() == epsilon(plan, ledger.delta) > 1.5 * once


def test_a_sample_is_recorded_before_it_is_drawn(ledger, monkeypatch):
    run = ledger.start(Sampled(Gaussian(5.0), 0.5, 3), label="x", resumable=True)
    drawn = []
    monkeypatch.setattr(run._random, "poisson_sample", lambda n, rate: drawn.append(n))

    def full(mark, steps):
        raise OSError("the disk is full")

    monkeypatch.setattr(run, "_record", full)
    with pytest.raises(OSError, match="full"):
        next(run.batches(4))
    assert drawn == []


def test_a_receipt_lists_the_entries_of_all_charges():
    ledger = Ledger(5.0, 1e-6)
    for number in range(3):
        ledger.start_all([(Gaussian(9.0), f"{number}, first"), (Repeated(Laplace(90.0), 2), f"{number}, second")])
    receipt = ledger.receipt()
    assert [entry.label for entry in receipt.entries] == [
        f"{n}, {part}" for n in range(3) for part in ("first", "second")
    ]
    assert (receipt.charges, receipt.epsilon) == (3, ledger.spent())
    assert Ledger(5.0, 1e-6).receipt().charges == 1  # 0 would say that it is unknown
    assert len(str(receipt).split("released:")) == 7


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.uint8, np.int64])
def test_small_integer_types_do_not_wrap_in_sums(kind, tmp_path):
    """A count of int16 made a sum of costs negative, and a ledger that was over its cap seem empty."""
    steps = kind(100)
    for ledger in (Ledger(1.0, 1e-6), Ledger.open(tmp_path / "a.ledger", epsilon=1.0, delta=1e-6)):
        ledger.start(Gaussian(1000.0), label="a")
        with pytest.raises(BudgetExceeded):
            ledger.start(Repeated(Gaussian(20.0), steps), label="b")
        ledger.start(Repeated(Gaussian(200.0), steps), label="c")
        assert ledger.spent() > epsilon(Repeated(Gaussian(200.0), 100), 1e-6)
    together = Ledger(9.0, 1e-6)
    together.start_all([(Repeated(Gaussian(35.0), steps), "a"), (Sampled(Gaussian(35.0), np.float16(1.0), steps), "b")])
    assert together.spent() == pytest.approx(epsilon(Repeated(Gaussian(35.0), 200), 1e-6), rel=1e-2)


def test_an_empty_charge_is_none():
    ledger = Ledger(1.0, 1e-6)
    assert ledger.start_all([]) == []
    assert ledger.n_charges == 0


def test_threads_do_not_get_two_batches_at_once():
    run = Ledger(100.0, 1e-6).start(Sampled(Gaussian(2.0), rate=0.5, steps=3), label="x")
    sample = run._random.poisson_sample

    def slow(*arguments):
        time.sleep(0.02)
        return sample(*arguments)

    run._random.poisson_sample = slow

    with ThreadPoolExecutor(2) as pool:
        batches = [pool.submit(next, run.batches(10)) for _ in range(2)]
    assert sum(isinstance(one.exception(), PrivacyError) for one in batches) == 1


# Persons as the unit.


def of_persons(value=1.0):
    return clipped_sum([[value], [value]], 1.0, person_shares(["a", "a"], 2))


def test_a_ledger_of_persons_refuses_what_is_bounded_for_rows_before_anything_is_charged():
    ledger = Ledger(epsilon=5.0, delta=1e-6, unit="person", random_state=0)
    with pytest.raises(PrivacyError, match="protects persons"):
        ledger.release(Gaussian(10.0), clipped_sum([[1.0]], 1.0), label="rows")
    assert ledger.entries == []
    ledger.release(Gaussian(10.0), of_persons(), label="persons")
    run = ledger.start(Gaussian(10.0), label="run")
    with pytest.raises(PrivacyError, match="protects persons"):
        run.release(clipped_sum([[1.0]], 1.0))
    assert run.left == 1
    run.release(of_persons())


def test_a_child_protects_what_its_parent_protects():
    of_both = {unit: Ledger(epsilon=5.0, delta=1e-6, unit=unit) for unit in ("row", "person")}
    for unit, ledger in of_both.items():
        assert ledger.child(1.0, 1e-6, label="a").unit == unit
        assert ledger.child(1.0, 1e-6, label="a").child(1.0, 1e-6, label="b", unit=unit).unit == unit
    with pytest.raises(PrivacyError, match="persons="):
        of_both["person"].child(1.0, 1e-6, label="a", unit="row")
    # One row with another id changes the number of persons, which is public only if a person is the unit.
    with pytest.raises(PrivacyError, match="protects rows, this fit persons"):
        of_both["row"].child(1.0, 1e-6, label="a", unit="person")
    with pytest.raises(PrivacyError, match="bounded for persons"):
        of_both["row"].release(Gaussian(10.0), of_persons(), label="persons")
    assert of_both["row"].entries == of_both["person"].entries == []


def test_a_ledger_of_persons_refuses_samples_of_rows_before_anything_is_charged(tmp_path):
    """A sample of rows holds a person with many rows nearly always, so that sampling lowers no cost."""
    ledger = Ledger.open(tmp_path / "a.ledger", epsilon=50.0, delta=1e-6, unit="person")
    plan = Sampled(Gaussian(10.0), rate=0.5, steps=2)
    for start in (
        lambda: ledger.start(plan, label="a"),
        lambda: ledger.start(plan, label="a", resumable=True),
        lambda: ledger.resume(plan, "mark", label="a"),
        lambda: ledger.start_all([(Gaussian(10.0), "a"), (plan, "b")]),
    ):
        with pytest.raises(PrivacyError, match="would sample rows"):
            start()
    assert ledger.entries == []
    rows = Ledger(epsilon=50.0, delta=1e-6)
    with pytest.raises(PrivacyError, match="would sample persons"):
        rows.start(Sampled(Gaussian(10.0), rate=0.5, steps=2, unit="person"), label="a")
    assert rows.entries == []


def test_a_run_of_persons_samples_persons_with_all_their_rows():
    ids = np.array([0, 1, 2, 0, 0, "", 1, 3, "", 0])
    shares = person_shares(ids, len(ids))
    steps, rate = 4000, 0.3
    ledger = Ledger(epsilon=math.inf, unit="person", random_state=0)
    run = ledger.start(Sampled(Gaussian(10.0), rate, steps, unit="person"), label="a")
    drawn = np.zeros((steps, len(ids)), dtype=bool)
    for step, batch in enumerate(run.batches(len(ids), shares)):
        # A statistic must see its rows; here only to be checked.
        drawn[step, batch._index] = True
        run.release(batch.of(lambda index: clipped_sum(np.ones((len(ids), 1))[index], 1.0, shares.take(index))))
    assert not drawn[:, ids == ""].any()
    for person in "0123":
        together = drawn[:, ids == person]
        assert (together == together[:, :1]).all()
        # False alarms: 5 standard deviations of a binomial share, below 1e-6.
        assert abs(together[:, 0].mean() - rate) < 5 * (rate * (1 - rate) / steps) ** 0.5
    # Persons are drawn independently: two of them together with probability rate².
    both = (drawn[:, 0] & drawn[:, 1]).mean()
    assert abs(both - rate**2) < 5 * (rate**2 * (1 - rate**2) / steps) ** 0.5


@pytest.mark.parametrize("shares", [None, row_shares(np.ones(4, dtype=bool))])
def test_a_run_that_samples_persons_needs_their_shares(shares):
    ledger = Ledger(epsilon=math.inf, unit="person", random_state=0)
    run = ledger.start(Sampled(Gaussian(10.0), 0.5, 2, unit="person"), label="a")
    with pytest.raises(PrivacyError, match="needs the shares"):
        next(run.batches(4, shares))


def test_the_unit_of_a_durable_ledger_is_fixed_when_it_is_made(tmp_path):
    path = tmp_path / "a.ledger"
    ledger = Ledger.open(path, epsilon=5.0, delta=1e-6, unit="person")
    assert ledger.receipt().unit == "person"
    again = Ledger.open(path)
    assert again.unit == "person"
    with pytest.raises(PrivacyError, match="protects persons"):
        again.release(Gaussian(10.0), clipped_sum([[1.0]], 1.0), label="rows")
    with pytest.raises(LedgerError, match="has unit='person', not 'row'"):
        Ledger.open(path, unit="row")
    with pytest.raises(ValueError, match="unit must be one of"):
        Ledger(1.0, 1e-6, unit="household")
    for bad in ("household", ""):
        with pytest.raises(ValueError, match="unit must be one of"):
            Ledger.open(tmp_path / "b.ledger", epsilon=1.0, delta=1e-6, unit=bad)
    assert not (tmp_path / "b.ledger").exists()


@pytest.mark.parametrize(
    "given", [{}, {"epsilon": 1.0}, {"delta": 1e-6}, {"epsilon": 1.0, "delta": 1e-6, "read_only": True}]
)
def test_a_ledger_that_is_missing_is_not_made_without_a_cap_or_for_reading(tmp_path, given):
    with pytest.raises(ValueError, match="there is no ledger a"):
        Ledger.open(tmp_path / "a", **given)
    assert not (tmp_path / "a").exists()


def test_the_ledger_of_another_data_set_is_refused(tmp_path):
    Ledger.open(tmp_path / "a", epsilon=1.0, delta=0.0, dataset="patients")
    for other in ("visits", ""):
        with pytest.raises(LedgerError, match="belongs to the data set 'patients'"):
            Ledger.open(tmp_path / "a", dataset=other)


def test_the_address_of_a_server_is_no_path():
    with pytest.raises(TypeError, match="must be a str"):
        Ledger.open(Path("postgresql://user@host/database"), dataset="patients")


def test_a_pickle_is_not_opened_as_another_ledger(tmp_path):
    """A ledger on a server is pickled with its id: elsewhere its address may lead to another server."""
    ledgers = [Ledger.open(tmp_path / name, epsilon=1.0, delta=0.0) for name in "ab"]
    assert _reopened(str(tmp_path / "a"), False, None, ledgers[0]._store.id).epsilon == 1.0
    with pytest.raises(LedgerError, match="is not the one that was pickled"):
        _reopened(str(tmp_path / "a"), False, None, ledgers[1]._store.id)


# Allowances


def test_a_charge_under_an_allowance_obeys_its_limit_and_the_cap(place):
    ledger = place.open(epsilon=1.0, delta=1e-6)
    anna = ledger.allow("anna", 0.5)
    anna.release(Gaussian(calibrate(0.45, 1e-6)), SUM, label="sum")
    assert (anna.epsilon, anna.delta, anna.dataset, anna.adjacency) == (0.5, 1e-6, ledger.dataset, ledger.adjacency)
    assert ledger.entries == anna.entries
    assert ledger.spent() == anna.spent() == pytest.approx(0.45, rel=1e-6)
    before = ledger.entries
    with pytest.raises(BudgetExceeded, match=r"over the cap of 0.5 of the allowance 'anna'\. Nothing was released"):
        anna.release(Gaussian(calibrate(0.3, 1e-6)), SUM, label="too much for Anna")
    ledger.release(Gaussian(calibrate(0.7, 1e-6)), SUM, label="not under the allowance")
    assert anna.allows(Gaussian(calibrate(0.1, 1e-6)).event())
    ledger.allow("anna", 1.0)
    with pytest.raises(BudgetExceeded, match="over this ledger's cap of 1"):
        anna.release(Gaussian(calibrate(0.8, 1e-6)), SUM, label="too much for the ledger")
    assert ledger.entries[:1] == before == anna.entries
    assert len(ledger.entries) == 2


def test_an_allowance_sets_nothing_aside(place):
    ledger = place.open(epsilon=1.0, delta=1e-6)
    for name in ("anna", "bert", "clara"):
        ledger.allow(name, 1.0)
    assert ledger.remaining() == pytest.approx(1.0)
    ledger.allowance("anna").start(Gaussian(calibrate(0.9, 1e-6)), label="x")
    assert ledger.allowance("bert").remaining() == pytest.approx(1.0)
    with pytest.raises(BudgetExceeded, match="over this ledger's cap"):
        ledger.allowance("bert").start(Gaussian(calibrate(0.9, 1e-6)), label="x")


def test_allowances_are_raised_and_lowered_by_further_records(place):
    ledger = place.open(epsilon=3.0, delta=1e-6)
    anna = ledger.allow("anna", 0.5, 1e-7)
    ledger.allow("anna", 0.5)  # no change, no record
    anna.start(RandomizedResponse(0.4), label="first")
    ledger.allow("anna", 1.0)
    # The limit at the moment of a charge counts, also for who opened the allowance before.
    anna.start(RandomizedResponse(0.4), label="second")
    ledger.allow("anna", 0.1, 1e-7)
    for allowance in (anna, reopened(place).allowance("anna")):
        with pytest.raises(BudgetExceeded, match=r"cap of 0\.1 of the allowance 'anna'"):
            allowance.start(RandomizedResponse(0.01), label="third")
    shown = [(past.allowance, past.limit or past.charge[0].label) for past in reopened(place).records()]
    assert shown == [
        ("anna", (0.5, 1e-7)),
        ("anna", "first"),
        ("anna", (1.0, 1e-7)),
        ("anna", "second"),
        ("anna", (0.1, 1e-7)),
    ]
    assert reopened(place).allowances == ["anna"]
    assert all(len(past.time) == 19 for past in ledger.records())
    assert [entry.label for _, entry in ledger.history()] == ["first", "second"] == [e.label for e in anna.entries]
    with pytest.raises(LedgerError, match=r"delta=1e-07, not 1e-06\. It is fixed"):
        ledger.allow("anna", 1.0, 1e-6)


def test_allowances_are_told_apart(place):
    ledger = place.open(epsilon=3.0, delta=1e-6)
    anna, bert = ledger.allow("anna", 0.5), ledger.allow("bert", 0.5)
    anna.start(RandomizedResponse(0.4), label="a")
    bert.start(RandomizedResponse(0.4), label="b")
    ledger.start(RandomizedResponse(0.4), label="c")
    assert [[entry.label for entry in each.entries] for each in (anna, bert, ledger)] == [["a"], ["b"], ["a", "b", "c"]]
    assert anna.spent() == pytest.approx(0.4, rel=1e-4)
    assert ledger.spent() > 1
    for each in (anna, bert):
        with pytest.raises(BudgetExceeded):
            each.start(RandomizedResponse(0.2), label="d")


def test_what_is_wrong_with_an_allowance_is_said_and_nothing_is_recorded(place):
    ledger = place.open(epsilon=1.0, delta=1e-6)
    ledger.allow("anna", 0.5)
    before = ledger.records()
    for arguments, words in (
        (("bert", 1.1), r"epsilon \(--epsilon\) of an allowance must be at most that of the ledger's cap, 1.0"),
        (("bert", 1.0, 1e-5), r"delta \(--delta\) of an allowance must be at most that of the ledger's cap, 1e-06"),
        (("bert", 0.0), "epsilon must be"),
        (("bert", math.inf), "epsilon must be"),
        (("bert", math.nan), "epsilon must be"),
        (("bert", 0.5, -1.0), "delta must"),
        (("", 0.5), "the name of an allowance"),
        ((5, 0.5), "the name of an allowance"),
        ((" bert", 0.5), "the name of an allowance"),
        (("b" * 101, 0.5), "the name of an allowance"),
        (("b\x1b[2J", 0.5), "control characters"),
    ):
        with pytest.raises(ValueError, match=words):
            ledger.allow(*arguments)
    with pytest.raises(ValueError, match=r"has no allowance 'bert'. It has: 'anna'. .* Nothing was charged"):
        ledger.allowance("bert")
    with pytest.raises(LedgerError, match="opened for reading only"):
        place.open(read_only=True).allow("bert", 0.5)
    assert place.open(read_only=True).allowance("anna").remaining() == pytest.approx(0.5)
    assert ledger.records() == before


def test_only_durable_ledgers_have_allowances(place):
    for ledger in (Ledger(1.0, 1e-6), place.open(epsilon=1.0, delta=1e-6).allow("anna", 0.5)):
        assert ledger.allowances == []
        for action in (lambda: ledger.allow("anna", 0.5), lambda: ledger.allowance("anna")):  # noqa: B023
            with pytest.raises(PrivacyError, match=r"Ledger.open has allowances\. .*ledger.child"):
                action()


def test_an_allowance_is_pickled_as_its_ledger_and_name(place):
    ledger = place.open(epsilon=1.0, delta=1e-6)
    again = pickle.loads(pickle.dumps(ledger.allow("anna", 0.5)))
    again.start(RandomizedResponse(0.4), label="from the copy")
    assert [past.allowance for past in ledger.records()] == ["anna", "anna"]
    with pytest.raises(BudgetExceeded, match="'anna'"):
        again.start(RandomizedResponse(0.4), label="x")


def test_a_run_is_resumed_under_the_allowance_that_it_was_charged_under(place):
    ledger = place.open(epsilon=3.0, delta=1e-6)
    child = ledger.allow("anna", 2.0).child(2.0, 1e-6, label="fit")
    run = child.start(PLAN, label="steps", resumable=True)
    run.release(RESUMED_SUM)
    again = reopened(place)
    again.allow("bert", 2.0)
    for other in (again.allowance("bert"), again):
        with pytest.raises(PrivacyError, match="holds no such run"):
            other.child(2.0, 1e-6, label="fit").resume(PLAN, run.mark, label="steps")
    resumed = again.allowance("anna").child(2.0, 1e-6, label="fit").resume(PLAN, run.mark, label="steps")
    assert resumed.left == 9
    resumed.release(RESUMED_SUM)
    assert again.n_charges == 1


class ThroughAllowances(Filter):
    """Accepts what real ledgers accept: charge k of an analyst is made under the k-th allowance, again and again."""

    def setup(self, folder, limits):
        object.__setattr__(self, "limits", limits)
        object.__setattr__(self, "place", FilePlace(folder))
        ledger = self.place.open("new", epsilon=self.cap, delta=self.delta)
        for name, limit in limits.items():
            ledger.allow(name, limit)
        object.__setattr__(self, "content", (folder / "new").read_bytes())
        return self

    def sums(self, charge, before):
        return Counted(charges=1, entries=tuple(charge))

    def needs(self, before, charge):
        path = self.place.folder / "tried"
        path.unlink(missing_ok=True)
        path.write_bytes(self.content)
        ledger, names = self.place.open("tried"), list(self.limits)
        try:
            for k, entry in enumerate((*getattr(before, "entries", ()), *charge)):
                ledger.allowance(names[k % len(names)])._charge([entry])
        except BudgetExceeded:
            return math.inf
        return 0.0


@pytest.mark.parametrize(
    ("cap", "limits", "level"),
    [(3.0, {"anna": 1.0}, 1.0), (1.0, {"anna": 1.0, "bert": 1.0}, 1.0), (1.0, {"anna": 0.9, "bert": 0.9}, 1.0)],
    ids=["the allowance", "the cap, by two analysts", "the cap, by two analysts with less"],
)
def test_no_adaptive_analyst_gets_past_an_allowance_or_the_cap(tmp_path, monkeypatch, cap, limits, level):
    """Exact, without sampling: the best analyst who chooses each charge by the privacy loss of all earlier ones."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    made = Filter.of("mixed", level, 1e-6, Adjacency.ZERO_OUT)
    doors = ThroughAllowances(made.epsilon, made.delta, made.adjacency, made.share, made.order)
    object.__setattr__(doors, "cap", cap)
    analyst = Analyst(doors.setup(tmp_path, limits), firsts=(0.1, 0.3, 0.7, 0.97), bisections=14, nodes=151)
    reach = analyst.delta() / 1e-6
    # The analyst is strong: what one sum alone admits is close to half of delta.
    assert 0.5 < reach <= 1 + 1e-6


def test_an_allowance_protects_what_its_ledger_protects(tmp_path):
    for unit in ("row", "person"):
        ledger = Ledger.open(tmp_path / f"{unit}.ledger", epsilon=5.0, delta=1e-6, unit=unit)
        assert ledger.allow("anna", 5.0).unit == ledger.allowance("anna").unit == unit
    with pytest.raises(PrivacyError, match="protects persons"):
        ledger.allowance("anna").release(Gaussian(10.0), clipped_sum([[1.0]], 1.0), label="rows")
    with pytest.raises(PrivacyError, match="persons="):
        ledger.allowance("anna").child(1.0, 1e-6, label="a", unit="row")
    assert ledger.entries == []
    ledger.allowance("anna").release(Gaussian(10.0), of_persons(), label="persons")
