"""Durable ledgers: what is committed stays, and a file that can't be trusted is refused, always with a LedgerError."""

import contextlib
import copy
import gc
import json
import multiprocessing
import os
import pickle
import shutil
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpadapt.accounting import Ledger
from dpadapt.errors import BudgetExceeded, LedgerError, PrivacyError
from dpadapt.mechanisms import Adjacency, Gaussian, Laplace, RandomizedResponse, clipped_sum
from dpadapt.mechanisms.mechanism import Repeated

DRIVER = Path(__file__).with_name("crash_driver.py")


def notes(path, word):
    """Return the numbers of the charges that a worker noted with `word`, "intend" or "drawn"."""
    lines = [line.split() for line in path.read_text().splitlines()]
    return {int(words[1]) for words in lines if words[:1] == [word] and len(words) == 3}


def charge_and_kill(folder, *, workers, charges, kills, allowed, seed=0):
    arguments = [str(folder), *map(str, (workers, charges, kills, allowed, seed))]
    done = subprocess.run([sys.executable, str(DRIVER), *arguments], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert [path.read_text() for path in folder.glob("error*")] == []
    ledger = Ledger.open(folder / "ledger")
    labels = [entry.label for entry in ledger.entries]
    assert len(labels) == len(set(labels)) <= allowed
    assert ledger.spent() <= ledger.epsilon * (1 + 1e-9)
    recorded = {worker: set() for worker in range(workers)}
    for label in labels:
        worker, k = map(int, label.split(":"))
        recorded[worker].add(k)
    for worker in range(workers):
        path = folder / f"worker{worker}"
        assert notes(path, "drawn") <= recorded[worker] <= notes(path, "intend")
    return json.loads(done.stdout)["killed"], labels


def test_a_ledger_survives_kills(tmp_path):
    killed, labels = charge_and_kill(tmp_path, workers=4, charges=100, kills=40, allowed=10_000)
    assert killed >= 20
    assert len(labels) >= 200


def test_the_cap_holds_across_processes_and_kills(tmp_path):
    killed, labels = charge_and_kill(tmp_path, workers=4, charges=100, kills=20, allowed=150, seed=1)
    assert killed >= 10
    assert len(labels) == 150


@pytest.mark.slow
def test_eight_processes_five_hundred_charges_two_hundred_kills(tmp_path):
    killed, labels = charge_and_kill(tmp_path, workers=8, charges=500, kills=200, allowed=3000, seed=2)
    assert killed == 200
    assert len(labels) == 3000


SUM = clipped_sum([[0.5]], 1.0)
STEP = RandomizedResponse(0.125)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "patients.ledger"


@pytest.fixture
def ledger(path):
    ledger = Ledger.open(path, epsilon=3.0, delta=1e-6, dataset="patients")
    ledger.release(Gaussian(20.0), SUM, label="first")
    ledger.start(Repeated(STEP, 3), label="second")
    ledger.release(Gaussian(30.0), SUM, label="third")
    return ledger


def edit(path, *statements):
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def test_entries_and_terms_survive(path, ledger):
    again = Ledger.open(path)
    assert again.entries == ledger.entries
    assert [entry.label for entry in again.entries] == ["first", "second", "third"]
    assert (again.epsilon, again.delta, again.adjacency, again.dataset) == (3.0, 1e-6, Adjacency.ZERO_OUT, "patients")
    assert again.spent() == ledger.spent() > 0
    assert all(len(time) == 19 for time, _ in again.history())


def test_at_rest_a_ledger_is_one_file(path, ledger):
    assert os.listdir(path.parent) == [path.name]


def test_two_openings_see_each_other(path, ledger):
    other = Ledger.open(path)
    other.start(STEP, label="theirs")
    assert ledger.entries[-1].label == "theirs"
    with pytest.raises(BudgetExceeded):
        ledger.start(Repeated(STEP, 100), label="too much")
    assert ledger.spent() == other.spent()


def test_a_child_of_a_durable_ledger_is_durable(path, ledger):
    ledger.child(1.0, 1e-6, label="fit").start(STEP, label="gradient")
    assert Ledger.open(path).entries[-1].label == "fit: gradient"


def test_a_new_ledger_needs_terms(path):
    with pytest.raises(ValueError, match="give epsilon and delta to make one"):
        Ledger.open(path)
    with pytest.raises(ValueError, match="epsilon must be a positive number"):
        Ledger.open(path, epsilon=-1.0, delta=0.0)
    with pytest.raises(ValueError, match="delta must lie in"):
        Ledger.open(path, epsilon=1.0, delta=1.0)
    assert os.listdir(path.parent) == []


@pytest.mark.parametrize(
    "terms", [{"epsilon": 4.0}, {"delta": 1e-5}, {"adjacency": Adjacency.REPLACE_ONE}, {"dataset": "customers"}]
)
def test_an_existing_ledger_is_refused_with_other_terms(path, ledger, terms):
    with pytest.raises(LedgerError, match=next(iter(terms)).replace("dataset", "data set")):
        Ledger.open(path, **terms)
    assert Ledger.open(path, epsilon=3.0, delta=1e-6, adjacency=Adjacency.ZERO_OUT, dataset="patients").spent() > 0


def test_an_unnamed_ledger_does_not_become_a_named_one(path):
    Ledger.open(path, epsilon=3.0, delta=1e-6)
    with pytest.raises(LedgerError, match="belongs to the data set ''"):
        Ledger.open(path, dataset="patients")


def test_the_cap_may_be_unlimited(path):
    Ledger.open(path, epsilon=float("inf"), delta=0.0).start(Gaussian(1.0), label="x")
    assert Ledger.open(path).spent() == float("inf")


DAMAGE = {
    "row deleted from the middle": "DELETE FROM entries WHERE id = 2",
    "first row deleted": "DELETE FROM entries WHERE id = 1",
    "last row deleted": "DELETE FROM entries WHERE id = 3",
    "all rows deleted": "DELETE FROM entries",
    "row altered": "UPDATE entries SET entry = replace(entry, '\"times\": 3', '\"times\": 1')",
    "label altered": "UPDATE entries SET entry = replace(entry, 'second', 'decoy')",
    "time altered": "UPDATE entries SET time = '1999-01-01 00:00:00' WHERE id = 2",
    "hash altered": "UPDATE entries SET hash = 'x' WHERE id = 2",
    "row of bytes": "UPDATE entries SET entry = x'00ff' WHERE id = 2",
    "row added": "INSERT INTO entries VALUES (4, 'now', '{}', 'x')",
    "numbers swapped": "UPDATE entries SET id = -id",
    "count altered": "UPDATE meta SET value = '2' WHERE key = 'count'",
    "head altered": "UPDATE meta SET value = 'x' WHERE key = 'head'",
    "cap raised": "UPDATE meta SET value = replace(value, '3.0', '9.0') WHERE key = 'terms'",
    "cap removed": "DELETE FROM meta WHERE key = 'terms'",
    "terms garbled": "UPDATE meta SET value = '[1, 2]' WHERE key = 'terms'",
    "terms impossible": "UPDATE meta SET value = replace(value, '3.0', '\"x\"') WHERE key = 'terms'",
    "format of the future": "UPDATE meta SET value = 'dpadapt ledger 2' WHERE key = 'format'",
    "no meta": "DROP TABLE meta",
    "no entries": "DROP TABLE entries",
}


@pytest.mark.parametrize("what", DAMAGE)
def test_altered_files_are_refused(path, ledger, what):
    edit(path, DAMAGE[what])
    with pytest.raises(LedgerError):
        Ledger.open(path)
    # A process that has the file open already refuses altered entries too.
    if what not in ("cap raised", "cap removed", "terms garbled", "terms impossible", "format of the future"):
        with pytest.raises(LedgerError):
            _ = ledger.entries


def test_an_open_ledger_detects_deleted_entries(path, ledger):
    before = ledger.spent()
    edit(path, "DELETE FROM entries WHERE id = 3", "UPDATE meta SET value = '2' WHERE key = 'count'")
    with pytest.raises(LedgerError):
        ledger.start(STEP, label="x")
    with pytest.raises(LedgerError):
        ledger.spent()
    assert before > 0


def crafted(path, text):
    """Append a row with a valid hash, as only deliberate tampering would."""
    from dpadapt.accounting.store import _link

    connection = sqlite3.connect(path)
    head = connection.execute("SELECT value FROM meta WHERE key = 'head'").fetchone()[0]
    digest = _link(head, "now", text)
    connection.execute("INSERT INTO entries VALUES (4, 'now', ?, ?)", (text, digest))
    connection.execute("UPDATE meta SET value = ? WHERE key = 'head'", (digest,))
    connection.execute("UPDATE meta SET value = '4' WHERE key = 'count'")
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "null",
        '{"label": "x", "event": {"kind": "Free"}, "times": 1, "seeded": false}',
        '{"label": "x", "event": {"kind": "Gaussian", "noise_multiplier": -1}, "times": 1, "seeded": false}',
        '{"label": "x", "event": {"kind": "Pure", "epsilon": 1.0}, "times": -5, "seeded": false}',
        '{"label": "x", "event": 3, "times": 1, "seeded": false}',
    ],
)
def test_entries_of_unknown_form_are_refused(path, ledger, text):
    crafted(path, text)
    for action in (lambda: Ledger.open(path), lambda: ledger.start(STEP, label="x"), ledger.spent):
        with pytest.raises(LedgerError, match="unknown form"):
            action()


def test_emptied_and_foreign_files_are_refused_and_left_alone(path, ledger, tmp_path):
    foreign = tmp_path / "other.db"
    edit(foreign, "CREATE TABLE people (name TEXT)", "INSERT INTO people VALUES ('x')")
    text = tmp_path / "notes.txt"
    text.write_text("not a database, but long enough to look like something\n" * 100)
    path.write_bytes(b"")
    for each in (foreign, text, path):
        before = each.read_bytes()
        with pytest.raises(LedgerError):
            Ledger.open(each, epsilon=3.0, delta=1e-6)
        assert each.read_bytes() == before
    with pytest.raises(LedgerError):
        Ledger.open(tmp_path, epsilon=3.0, delta=1e-6)
    with pytest.raises(LedgerError):
        ledger.start(STEP, label="x")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_truncated_and_overwritten_files_never_show_less_than_was_spent(path, ledger, data):
    whole = path.read_bytes()
    spent = ledger.spent()
    damaged = path.with_name("damaged")
    for extra in ("damaged-wal", "damaged-shm"):
        path.with_name(extra).unlink(missing_ok=True)
    if data.draw(st.booleans()):
        damaged.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    else:
        at = data.draw(st.integers(0, len(whole) - 1))
        junk = data.draw(st.binary(min_size=1, max_size=200))
        damaged.write_bytes((whole[:at] + junk + whole[at + len(junk) :])[: len(whole)])
    with contextlib.suppress(LedgerError):
        assert Ledger.open(damaged).spent() >= spent  # the damage hit unused bytes


def test_the_message_about_a_damaged_ledger_says_that_the_budget_is_spent(path, ledger):
    edit(path, DAMAGE["last row deleted"])
    with pytest.raises(LedgerError, match="budget of its data set must be taken as spent") as caught:
        Ledger.open(path)
    assert "backup" not in str(caught.value)
    assert "an older copy or a new ledger would lack charges" in str(caught.value)


def test_a_deleted_or_replaced_ledger_is_not_charged(path, ledger, tmp_path):
    old = tmp_path / "older copy"
    shutil.copy(path, old)
    ledger.start(STEP, label="later")
    os.replace(old, path)
    with pytest.raises(LedgerError, match="missing"):
        ledger.start(STEP, label="x")
    path.unlink()
    with pytest.raises(LedgerError):
        ledger.start(STEP, label="x")
    assert not path.exists()


def test_a_ledger_locked_by_another_process_is_refused_for_the_time_being(path, ledger, monkeypatch):
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **options: connect(*args, **{**options, "timeout": 0.05}))
    holder = connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerError, match="held by another process"):
        ledger.start(STEP, label="x")
    holder.execute("ROLLBACK")
    holder.close()
    ledger.start(STEP, label="x")


def test_a_charge_that_fails_leaves_the_ledger_usable(path, ledger):
    before = ledger.entries
    with pytest.raises(BudgetExceeded):
        ledger.start(Laplace(0.1), label="too much")
    with pytest.raises(TypeError):
        ledger.start(STEP, label=object())
    assert ledger.entries == before
    ledger.start(STEP, label="fine")
    assert len(Ledger.open(path).entries) == len(before) + 1


def test_durable_ledgers_pickle_as_their_path(path, ledger, monkeypatch):
    data = pickle.dumps(ledger)
    monkeypatch.chdir("/")
    again = pickle.loads(data)
    again.start(STEP, label="from the copy")
    assert ledger.entries[-1].label == "from the copy"
    path.unlink()
    with pytest.raises(ValueError, match=r"there is no ledger .* its budget must be taken as spent"):
        pickle.loads(data)


def test_durable_ledgers_are_not_copied_and_their_children_not_pickled(ledger):
    for duplicate in (copy.copy, copy.deepcopy):
        with pytest.raises(PrivacyError, match="can't be copied"):
            duplicate(ledger)
    with pytest.raises(PrivacyError, match="can't be sent to another process"):
        pickle.dumps(ledger.child(1.0, 1e-6, label="fit"))


def charge(ledger, label, times):
    for k in range(times):
        ledger.start(RandomizedResponse(1e-4), label=f"{label}{k}")


def test_processes_charge_one_ledger(path):
    ledger = Ledger.open(path, epsilon=1.0, delta=0.0)
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        workers = [context.Process(target=charge, args=(ledger, f"{method}{i}-", 10)) for i in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
            assert worker.exitcode == 0
    assert len({entry.label for entry in ledger.entries}) == 40


def test_charges_after_a_fork_survive_the_end_of_the_other_process(path):
    """SQLite's locks are not inherited: with a kept connection the parent deleted the log the child committed to."""
    ledger = Ledger.open(path, epsilon=1.0, delta=0.0)
    ledger.start(RandomizedResponse(1e-4), label="parent")
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        charge(ledger, "before", 1)
        os.write(ready[1], b".")
        os.read(go[0], 1)
        charge(ledger, "after", 20)
        os._exit(0)
    os.read(ready[0], 1)
    del ledger
    gc.collect()
    os.write(go[1], b".")
    assert os.waitpid(child, 0)[1] == 0
    for end in (*ready, *go):
        os.close(end)
    assert len(Ledger.open(path).entries) == 22


def test_threads_charge_one_ledger(path):
    ledger = Ledger.open(path, epsilon=40 * 0.125 + 0.01, delta=0.0)
    made = []

    def work():
        for _ in range(15):
            try:
                ledger.start(STEP, label="x")
                made.append(1)
            except BudgetExceeded:
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 40 == len(Ledger.open(path).entries)


CREATE = """
import sys
from dpadapt.accounting import Ledger
from dpadapt.mechanisms import RandomizedResponse
sys.stdin.readline()
Ledger.open(sys.argv[1], epsilon=1.0, delta=0.0).start(RandomizedResponse(0.001), label=sys.argv[2])
"""


def test_a_ledger_made_by_several_processes_at_once_is_one_ledger(path):
    workers = [
        subprocess.Popen([sys.executable, "-c", CREATE, str(path), str(i)], stdin=subprocess.PIPE) for i in range(3)
    ]
    for worker in workers:
        worker.stdin.write(b"\n")
        worker.stdin.flush()
    for worker in workers:
        worker.communicate()
        assert worker.returncode == 0
    assert sorted(entry.label for entry in Ledger.open(path).entries) == ["0", "1", "2"]
    assert os.listdir(path.parent) == [path.name]


def test_terms_must_agree_if_another_process_made_the_ledger_first(path, monkeypatch):
    Ledger.open(path, epsilon=1.0, delta=0.0)
    monkeypatch.setattr(type(path), "exists", lambda self: False)  # as if it had not existed a moment ago
    with pytest.raises(LedgerError, match=r"has epsilon=1\.0, not 2\.0"):
        Ledger.open(path, epsilon=2.0, delta=0.0)
