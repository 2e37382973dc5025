"""Durable ledgers: what is committed stays, and a file that can't be trusted is refused, always with a LedgerError."""

import ast
import contextlib
import copy
import errno
import json
import multiprocessing
import os
import pickle
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from crash_books import accepted, check_books, drive
from crash_driver import DELTA, cap
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ledger_files import FIRST_RECORD, STEP, SUM, UNSAFE, charged_three_times, commits_of, records_of, with_records

import dpadapt
from dpadapt import disk
from dpadapt.accounting import Ledger, store
from dpadapt.accounting.filter import Filter
from dpadapt.errors import BudgetExceeded, LedgerError, PrivacyError
from dpadapt.mechanisms import Adjacency, Gaussian, Laplace, RandomizedResponse
from dpadapt.mechanisms.events import entry_from_dict
from dpadapt.mechanisms.mechanism import Repeated, Sampled
from tests.failures import failing

fcntl = pytest.importorskip("fcntl", reason="these tests lock and kill as POSIX does")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "patients.ledger"


@pytest.fixture
def ledger(path):
    return charged_three_times(Ledger.open(path, epsilon=3.0, delta=1e-6, dataset="patients"))


@pytest.fixture
def no_sync(monkeypatch):
    """Don't wait for the disk: these tests make the states of a crash themselves."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture
def shared(place):
    """Return a ledger with three charges, in a file or on a server."""
    return charged_three_times(place.open(epsilon=3.0, delta=1e-6))


def labels_of(place):
    ledger = Ledger.open(place) if isinstance(place, Path) else place.open()
    return [entry.label for entry in ledger.entries]


def refusal(action):
    """Return the message with which `action` is refused, which must be safe to follow."""
    with pytest.raises(LedgerError) as caught:
        action()
    message = str(caught.value)
    assert not UNSAFE.search(message), message
    return message


# Kills, writers, damage: small here, at full size in `make audit`


@pytest.mark.parametrize(
    ("workers", "charges", "kills"), [(4, 25, 25), pytest.param(8, 500, 1000, marks=pytest.mark.slow)]
)
def test_no_used_charge_is_lost_when_processes_are_killed(tmp_path, workers, charges, kills):
    counts = drive("kills", tmp_path, workers, charges, kills, 100_000, 0)
    recorded = check_books(tmp_path, workers)
    print(f"{counts['killed']} kills, {recorded} charges, none lost")
    assert counts["killed"] == kills
    assert recorded >= workers * charges - kills


@pytest.mark.parametrize(
    ("workers", "charges", "kills", "allowed"),
    [
        (4, 25, 8, 50),
        (16, 8, 0, 96),
        pytest.param(8, 500, 200, 1500, marks=pytest.mark.slow),
        pytest.param(64, 8, 0, 384, marks=pytest.mark.slow),
    ],
)
def test_the_cap_holds_across_processes_and_kills(tmp_path, workers, charges, kills, allowed):
    drive("kills", tmp_path, workers, charges, kills, allowed, 1)
    assert check_books(tmp_path, workers) == accepted(allowed)


@pytest.mark.parametrize(
    ("workers", "charges", "kills", "allowed"),
    [(4, 25, 8, 50), pytest.param(8, 500, 200, 1500, marks=pytest.mark.slow)],
)
def test_an_allowance_holds_across_processes_and_kills(place, tmp_path, workers, charges, kills, allowed):
    folder = tmp_path / "workers"
    folder.mkdir()
    drive("allowance_kills", folder, workers, charges, kills, allowed, 1, *place.arguments().values())
    assert check_books(folder, workers, place.open().allowance("analyst")) == accepted(allowed)


@pytest.mark.parametrize(
    ("workers", "ledgers", "rounds", "flips"),
    [(3, 1, 6, 25), pytest.param(8, 16, 8, 40, marks=pytest.mark.slow)],
)
def test_a_flipped_bit_after_a_kill_loses_no_used_charge(tmp_path, workers, ledgers, rounds, flips):
    counts = drive("flips", tmp_path, workers, ledgers, rounds, flips, 3)
    messages = counts.pop("messages")
    print(counts)
    assert counts["killed"] == workers * ledgers * rounds
    assert counts["flips"] == ledgers * rounds * flips
    assert counts["refused"] + counts["shown"] == counts["flips"] + ledgers
    assert counts["refused"] > 0.3 * counts["flips"]
    assert counts["shown"] > 0.1 * counts["flips"]
    assert counts["lost"] == counts["over"] == 0
    assert [message for message in messages if UNSAFE.search(message)] == []


def private_mounts():
    """Return a command that runs another one with mounts of its own; skip if this user may not mount."""
    command = ["unshare", "--mount", "--propagation", "private"]
    try:
        if subprocess.run([*command, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True).returncode == 0:
            return command
    except FileNotFoundError:
        pass
    pytest.skip("mounting needs the superuser and the command unshare")


def in_mounts(script, code, *arguments):
    """Return what Python code prints, as JSON, after a shell script made mounts for it."""
    command = [*private_mounts(), "sh", "-c", f'{script} && exec "$@"', "sh", sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("charges", "kills", "allowed"),
    [(20, 10, 50), pytest.param(200, 200, 100_000, marks=pytest.mark.slow)],
)
def test_a_ledger_mounted_under_a_second_name_loses_nothing(tmp_path, charges, kills, allowed):
    """As a container mounts a single file. Half of the workers that open the ledger do so by the other name."""
    command = private_mounts()
    path, other = tmp_path / "ledger", tmp_path / "worker-sees-this"
    Ledger.open(path, epsilon=cap(allowed), delta=DELTA)
    other.touch()
    mount = [*command, "sh", "-c", 'mount --bind "$0" "$1" && shift && exec "$@"', path, other]
    counts = drive("kills", tmp_path, 8, charges, kills, allowed, 4, path, other, command=mount)
    other.unlink()
    recorded = check_books(tmp_path, 8)
    print(f"two names: {counts['killed']} kills, {recorded} charges, none lost")
    if allowed < 1000:
        assert recorded == accepted(allowed)
    else:
        assert counts["killed"] == kills


REPLACED = """
import json, os, sys
from dpadapt.accounting import Ledger
from dpadapt.errors import LedgerError
from dpadapt.mechanisms import RandomizedResponse
path, mounted, other = sys.argv[1:]
ledger = Ledger.open(mounted)
ledger.start(RandomizedResponse(1e-4), label="x")
os.replace(other, path)
try:
    ledger.start(RandomizedResponse(1e-4), label="y")
except LedgerError as error:
    print(json.dumps(str(error)))
"""


def test_a_mounted_ledger_that_was_replaced_in_its_own_folder_is_not_charged(tmp_path):
    path, mounted, copied = (tmp_path / name for name in ("ledger", "mounted", "copy"))
    Ledger.open(path, epsilon=1.0, delta=0.0)
    shutil.copy(path, copied)
    mounted.touch()
    message = in_mounts(f'mount --bind "{path}" "{mounted}"', REPLACED, path, mounted, copied)
    assert "not where it was" in message
    assert not UNSAFE.search(message)


FULL_DISK = """
import json, subprocess, sys
from pathlib import Path
from dpadapt.accounting import Ledger
from dpadapt.errors import LedgerError
from dpadapt.mechanisms import RandomizedResponse
place = Path(sys.argv[1])
path = place / "ledger"
ledger = Ledger.open(path, epsilon=1.0, delta=0.0)
used, messages = [], []
def fill():
    for k in range(2000):
        label = f"{len(messages)}:{k}"
        try:
            ledger.start(RandomizedResponse(1e-4), label=label)
            used.append(label)
        except LedgerError as error:
            messages.append(str(error))
            return
fill()
assert [entry.label for entry in ledger.entries] == [entry.label for entry in Ledger.open(path).entries] == used
with (place / "filler").open("wb", buffering=0) as filler:
    try:
        while True:
            filler.write(b"x" * 100)
    except OSError:
        pass
fill()
try:
    Ledger.open(place / "another", epsilon=1.0, delta=0.0)
except OSError as error:
    messages.append(str(error))
subprocess.run(["mount", "-o", "remount,size=1m", str(place)], check=True)
ledger.start(RandomizedResponse(1e-4), label="after")
names = sorted(each.name for each in place.iterdir())
complete = [entry.label for entry in Ledger.open(path).entries] == [*used, "after"]
print(json.dumps([complete, len(used), messages, names]))
"""


def test_a_full_disk_loses_no_charge_and_the_ledger_goes_on_when_there_is_room(tmp_path):
    script = f'mount -t tmpfs -o size=64k tmpfs "{tmp_path}"'
    complete, used, messages, names = in_mounts(script, FULL_DISK, tmp_path)
    assert complete
    assert used > 50
    assert len(messages) == 3
    for message in messages:
        assert "the disk is full; free some space and try again" in message
        assert not UNSAFE.search(message)
    assert "Nothing was charged and nothing was released" in messages[0]
    assert names == ["filler", "ledger"]


READ_ONLY_DISK = """
import json, sys
from pathlib import Path
from dpadapt.accounting import Ledger
from dpadapt.errors import LedgerError
path, messages = Path(sys.argv[1]) / "ledger", []
for action in (lambda: Ledger.open(path), lambda: Ledger.open(path.with_name("new"), epsilon=1.0, delta=0.0)):
    try:
        action()
    except (LedgerError, OSError) as error:
        messages.append(str(error))
print(json.dumps([messages, len(Ledger.open(path, read_only=True).entries)]))
"""


def test_a_read_only_file_system_is_named_and_the_ledger_can_be_read(tmp_path):
    Ledger.open(tmp_path / "ledger", epsilon=1.0, delta=0.0).start(STEP, label="x")
    script = f'mount --bind "{tmp_path}" "{tmp_path}" && mount -o remount,ro,bind "{tmp_path}"'
    messages, shown = in_mounts(script, READ_ONLY_DISK, tmp_path)
    assert shown == 1
    assert len(messages) == 2
    assert all("its file system is mounted read-only" in message for message in messages)
    assert not any(UNSAFE.search(message) for message in messages)


# What a ledger is


def test_entries_and_terms_survive(place, shared):
    again = place.open()
    assert again.entries == shared.entries
    assert [entry.label for entry in again.entries] == ["first", "second", "third"]
    assert (again.epsilon, again.delta, again.adjacency, again.dataset) == (
        3.0,
        1e-6,
        Adjacency.ZERO_OUT,
        shared.dataset,
    )
    assert again.spent() == shared.spent() > 0
    assert all(len(time) == 19 for time, _ in again.history())


def test_the_number_of_sampled_runs_survives(place, shared):
    for _ in range(2):
        shared.start(Sampled(Gaussian(30.0), 0.1, 3), label="sampled")
    assert shared._store.sums().sampled == place.open()._store.sums().sampled == 2


def test_a_ledger_is_one_file_also_while_it_is_charged(path, ledger, monkeypatch):
    seen = []
    monkeypatch.setattr(Filter, "require", lambda *_: seen.extend(os.listdir(path.parent)))
    ledger._store.append((ledger.entries[0],))
    assert seen == os.listdir(path.parent) == [path.name]


def test_files_beside_a_ledger_are_no_part_of_it(path, ledger, no_sync):
    earlier = path.read_bytes()
    ledger.start(STEP, label="later")
    for ending in ("-journal", "-wal", "-shm"):
        path.with_name(f"{path.name}{ending}").write_bytes(earlier)
    ledger.start(STEP, label="last")
    assert labels_of(path) == ["first", "second", "third", "later", "last"]


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


def test_the_cap_may_be_unlimited(place):
    place.open(epsilon=float("inf"), delta=0.0).start(Gaussian(1.0), label="x")
    assert place.open().spent() == float("inf")


def test_a_ledger_opened_for_reading_only_is_not_charged(place, shared):
    before = place.records()
    shown = place.open(read_only=True)
    assert shown.entries == shared.entries
    assert "opened for reading only" in refusal(lambda: shown.start(STEP, label="x"))
    assert place.records() == before


# Damage


def swapped(lines, i, j):
    lines[i], lines[j] = lines[j], lines[i]
    return lines


# By name: the lines of a ledger with three charges (the format, two commit lines, the terms, three records), altered.
DAMAGE = {
    "record cut out of the middle": lambda lines: [*lines[:5], *lines[6:]],
    "first record cut out": lambda lines: [*lines[:4], *lines[5:]],
    "last record cut off": lambda lines: lines[:-1],
    "all records cut off": lambda lines: lines[:4],
    "number altered": lambda lines: [line.replace('"times": 3', '"times": 1') for line in lines],
    "label altered": lambda lines: [line.replace("second", "decoy") for line in lines],
    "sums altered": lambda lines: [re.sub(r'"sums": \[[^,]+', '"sums": [0', line) for line in lines],
    "time altered": lambda lines: [*lines[:5], lines[5].replace(" 20", " 19", 1), *lines[6:]],
    "hash altered": lambda lines: [*lines[:5], "0" * 64 + lines[5][64:], *lines[6:]],
    "record of other signs": lambda lines: [*lines[:5], "ÿ\0" * 40 + "\n", *lines[6:]],
    "records swapped": lambda lines: swapped(lines, 4, 5),
    "newer commit line lost": lambda lines: [lines[0], *[min(lines[1:3])] * 2, *lines[3:]],
    "newer commit line lost with its record": lambda lines: [lines[0], *[min(lines[1:3])] * 2, *lines[3:-1]],
    "one commit line garbled": lambda lines: [lines[0], lines[1].replace("0", "1"), *lines[2:]],
    "both commit lines garbled": lambda lines: [lines[0], *[line.replace("0", "1") for line in lines[1:3]], *lines[3:]],
    "commit line cut out": lambda lines: [lines[0], *lines[2:]],
    "cap raised": lambda lines: [line.replace('"epsilon": 3.0', '"epsilon": 9.0') for line in lines],
    "terms cut out": lambda lines: [*lines[:3], *lines[4:]],
    "format of the future": lambda lines: ["dpadapt ledger 3\n", *lines[1:]],
    "no format": lambda lines: lines[1:],
    "Windows line ends": lambda lines: [line.replace("\n", "\r\n") for line in lines],
}
# A consistent older state: only a process that saw the last charge can refuse it.
OLDER_STATE = "newer commit line lost with its record"


@pytest.mark.parametrize("what", DAMAGE)
def test_altered_files_are_refused(path, ledger, what):
    lines = path.read_text().splitlines(keepends=True)
    assert len(lines) == 7
    path.write_bytes("".join(DAMAGE[what](lines)).encode())
    if what == "newer commit line lost":
        assert labels_of(path) == ["first", "second", "third"]
    elif what == OLDER_STATE:
        assert labels_of(path) == ["first", "second"]
    else:
        refusal(lambda: Ledger.open(path))
    # A process that has the file open already refuses altered records too.
    if what not in ("format of the future", "cap raised"):
        refusal(lambda: ledger.entries)
    if what.startswith("newer commit line lost") or what.endswith("cut off"):
        refusal(lambda: ledger.start(STEP, label="x"))


def test_a_ledger_of_a_later_version_is_not_called_damaged(path, ledger):
    whole = path.read_bytes()
    path.write_bytes(b"dpadapt ledger 3" + whole[16:])
    assert "made by a later version" in refusal(lambda: Ledger.open(path))
    path.write_bytes(whole)
    (time, terms), *rest = records_of(path)
    with_records(path, [(time, terms.replace('"unit": "row"', '"unit": "household"')), *rest])
    assert "made by a later version" in refusal(lambda: Ledger.open(path))


RECORD = '{"charge": [%s], "sums": [1.0, 1.0, 1.0], "sampled": 0}'
ENTRY = '{"label": "x", "event": {"kind": "Pure", "epsilon": 1.0}, "times": 1, "seeded": false}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "null",
        "[" * 100_000,
        RECORD % "",
        RECORD % ENTRY.replace('"Pure"', '"Free"'),
        RECORD % ENTRY.replace("1.0", "-1.0"),
        RECORD % ENTRY.replace('"times": 1', '"times": -5'),
        RECORD % ENTRY.replace('{"kind": "Pure", "epsilon": 1.0}', "3"),
        (RECORD % ENTRY).replace("[1.0, ", "[NaN, "),
        (RECORD % ENTRY).replace("[1.0, ", "[-1.0, "),
        (RECORD % ENTRY).replace("[1.0, ", "["),
        (RECORD % ENTRY).replace('"sampled": 0', '"sampled": -1'),
        '{"mark": "x", "used": 1}',
    ],
)
def test_records_of_unknown_form_are_refused(place, shared, text):
    records = place.records()
    place.set_records([*records, (records[-1][0], text)])
    for action in (lambda: place.open(), lambda: shared.start(STEP, label="x"), shared.spent):
        message = refusal(action)
        assert "unknown form" in message or "unknown run" in message


def test_emptied_and_foreign_files_are_refused_and_left_alone(path, ledger, tmp_path):
    foreign = tmp_path / "other.db"
    connection = sqlite3.connect(foreign)
    connection.execute("CREATE TABLE people (name TEXT)")
    connection.commit()
    connection.close()
    text = tmp_path / "notes.txt"
    text.write_text("not a ledger, but long enough to look like something\n" * 100)
    path.write_bytes(b"")
    for each in (foreign, text, path):
        before = each.read_bytes()
        for read_only in (False, True):
            refusal(lambda each=each, read_only=read_only: Ledger.open(each, read_only=read_only))
        assert each.read_bytes() == before
    refusal(lambda: ledger.start(STEP, label="x"))
    assert path.read_bytes() == b""


def test_what_is_not_a_plain_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("", "pipe", "loop"):
        refusal(lambda name=name: Ledger.open(tmp_path / name, epsilon=3.0, delta=1e-6))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_truncated_and_overwritten_files_never_show_less_than_was_spent(path, ledger, data):
    whole = path.read_bytes()
    spent = ledger.spent()
    damaged = path.with_name("damaged")
    if data.draw(st.booleans()):
        damaged.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    else:
        at = data.draw(st.integers(0, len(whole) - 1))
        junk = data.draw(st.binary(min_size=1, max_size=200))
        damaged.write_bytes((whole[:at] + junk + whole[at + len(junk) :])[: len(whole)])
    with contextlib.suppress(LedgerError):
        assert Ledger.open(damaged).spent() >= spent  # the damage changed nothing, or the newer commit line


def test_a_process_that_has_the_ledger_open_survives_or_refuses_a_flipped_bit(path, ledger, no_sync):
    """Whatever it does, the next process finds every charge that was used, or refuses."""
    chance, whole, used = random.Random(5), path.read_bytes(), labels_of(path)
    accepted = 0
    for trial in range(300):
        path.write_bytes(whole)
        ledger = Ledger.open(path)
        data = bytearray(whole)
        data[chance.choice([chance.randrange(len(data)), chance.randrange(FIRST_RECORD)])] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        expected = list(used)
        with contextlib.suppress(LedgerError):
            ledger.start(STEP, label="later")
            expected.append("later")
            accepted += 1
        with contextlib.suppress(LedgerError):
            assert labels_of(path) == expected, trial
    assert accepted > 50


def test_the_message_about_a_damaged_ledger_says_that_the_budget_is_spent(path, ledger):
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    message = refusal(lambda: Ledger.open(path))
    assert "budget of its data set must be taken as spent" in message
    assert "an older copy or a new ledger would lack charges" in message


# Crashes, in every state that they can leave


def crash_states(before, writes, step):
    """Yield what a file can look like if power fails, with the number of writes that were complete.

    Writes are synchronised one by one, so all earlier ones are on the disk; of the last one any part may be.
    """
    for done, (place, data) in enumerate(writes):
        old = before[place : place + len(data)].ljust(len(data), b"\0")
        for cut in range(0, len(data), step):
            for part in (data[:cut] + old[cut:], old[:cut] + data[cut:], data[:cut]):
                yield done, before[:place] + part + before[place + len(part) :]
        before = before[:place] + data + before[place + len(data) :]
    yield len(writes), before


@pytest.mark.parametrize("step", [20, pytest.param(1, marks=pytest.mark.slow)])
def test_every_state_that_a_crash_can_leave_shows_every_used_charge(path, ledger, no_sync, monkeypatch, step):
    writes, put = [], store._put
    before = path.read_bytes()
    monkeypatch.setattr(store, "_put", lambda file, *write: (writes.append(write), put(file, *write)))
    ledger.start(STEP, label="fourth")
    ledger.start(Repeated(STEP, 3), label="fifth", resumable=True)
    monkeypatch.undo()
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    assert [place < FIRST_RECORD for place, _ in writes] == [False, True, False, True]  # records, then the commit
    labels, states = ["first", "second", "third", "fourth", "fifth"], 0
    for number, (done, content) in enumerate(crash_states(before, writes, step)):
        path.write_bytes(content)
        # A charge was used only if both of its writes were complete; it may count before.
        shown = labels_of(path)
        assert labels[: 3 + done // 2] == shown[: 3 + done // 2]
        assert shown == labels[: len(shown)]
        if number % 7 == 0:
            Ledger.open(path).start(STEP, label="next")
            assert labels_of(path) == [*shown, "next"]
            assert None not in commits_of(path)
            assert path.stat().st_size == max(commit.end for commit in commits_of(path))
        states += 1
    print(f"{states} crash states")
    assert states > 3000 // step


def test_a_charge_whose_commit_line_was_spoilt_counts(path, ledger):
    data = bytearray(path.read_bytes())
    newer = commits_of(path).index(max(commits_of(path), key=lambda commit: commit.end))
    data[store._place(newer) + 5] ^= 1
    path.write_bytes(data)
    assert [entry.label for entry in Ledger.open(path, read_only=True).entries] == ["first", "second", "third"]
    assert path.read_bytes() == data  # reading repairs nothing
    again = Ledger.open(path)
    with pytest.raises(BudgetExceeded):
        again.start(Repeated(STEP, 100), label="too much")
    again.start(STEP, label="next")
    assert labels_of(path) == ["first", "second", "third", "next"]
    assert None not in commits_of(path)


def test_a_spoilt_commit_line_with_a_spoilt_record_is_refused(path, ledger):
    """The record may be a used charge: the commit line that would say so is unreadable."""
    data = bytearray(path.read_bytes())
    newer = commits_of(path).index(max(commits_of(path), key=lambda commit: commit.end))
    data[store._place(newer) + 5] ^= 1
    data[-5] ^= 1
    path.write_bytes(data)
    assert "one of its commit lines is altered" in refusal(lambda: Ledger.open(path))


def test_a_process_killed_while_it_made_the_ledger_leaves_a_usable_one(path, ledger):
    leftover = path.with_name(f".{path.name}.abc.new")
    os.link(path, leftover)  # as between the two calls that give the file its name
    Ledger.open(path).start(STEP, label="x")
    assert not leftover.exists()
    assert len(ledger.entries) == 4


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
@pytest.mark.parametrize("call", [1, 2])
def test_a_write_that_fails_is_reported_and_nothing_is_released(path, ledger, monkeypatch, number, call):
    calls, sync, drawn = [], os.fsync, []

    def fail(handle):
        calls.append(handle)
        if len(calls) == call:
            raise OSError(number, os.strerror(number))
        sync(handle)

    monkeypatch.setattr(os, "fsync", fail)
    monkeypatch.setattr(ledger, "_draw", lambda *args: drawn.append(args))
    message = refusal(lambda: ledger.release(Gaussian(20.0), SUM, label="fourth"))
    monkeypatch.setattr(os, "fsync", sync)
    assert drawn == []
    assert "disk is full" in message or "Input/output error" in message
    if call == 1:
        assert "Nothing was charged and nothing was released" in message
        assert labels_of(path) == ["first", "second", "third"]
    else:
        assert "may count as spent. Nothing was released" in message
    ledger.start(STEP, label="fifth")
    assert labels_of(path)[-1] == "fifth"


def test_an_interrupted_charge_leaves_the_ledger_usable(path, ledger, monkeypatch):
    monkeypatch.setattr(os, "fsync", failing(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        ledger.start(STEP, label="x")
    monkeypatch.undo()
    ledger.start(STEP, label="y")
    assert labels_of(path) == ["first", "second", "third", "y"]


def test_a_charge_that_fails_leaves_the_ledger_usable(place, shared):
    before = shared.entries
    with pytest.raises(BudgetExceeded):
        shared.start(Laplace(0.1), label="too much")
    with pytest.raises(TypeError):
        shared.start(STEP, label=object())
    assert shared.entries == before
    shared.start(STEP, label="fine")
    assert len(place.open().entries) == len(before) + 1


# Names and places


def test_hard_links_are_refused_under_every_name(path, ledger, tmp_path):
    other = tmp_path / "other name"
    os.link(path, other)
    before = path.read_bytes()
    for action in (
        lambda: ledger.start(STEP, label="x"),
        lambda: Ledger.open(path),
        lambda: Ledger.open(other),
    ):
        assert "has 2 names (hard links)" in refusal(action)
    assert len(Ledger.open(other, read_only=True).entries) == 3
    assert path.read_bytes() == before
    other.unlink()
    ledger.start(STEP, label="x")


def test_a_hard_link_made_during_a_charge_is_detected_before_the_draw(path, ledger, tmp_path, monkeypatch):
    put = store._put
    monkeypatch.setattr(store, "_put", lambda *args: (put(*args), (tmp_path / "other").hardlink_to(path)))
    monkeypatch.setattr(ledger, "_draw", lambda *args: pytest.fail("drawn"))
    monkeypatch.setattr(Path, "hardlink_to", lambda self, target: None if self.exists() else os.link(target, self))
    assert "hard links" in refusal(lambda: ledger.release(Gaussian(20.0), SUM, label="x"))


def test_symbolic_links_lead_to_the_ledger(path, ledger, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(path)
    Ledger.open(link).start(STEP, label="through the link")
    assert ledger.entries[-1].label == "through the link"
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "target")
    Ledger.open(dangling, epsilon=1.0, delta=0.0)
    assert (tmp_path / "target").is_file()


def test_a_relative_path_is_resolved_when_the_ledger_is_opened(tmp_path, monkeypatch):
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    ledger = Ledger.open("a.ledger", epsilon=3.0, delta=0.0)
    monkeypatch.chdir(tmp_path / "there")
    other = Ledger.open("a.ledger", epsilon=3.0, delta=0.0)
    ledger.start(STEP, label="here")
    assert [entry.label for entry in ledger.entries] == ["here"]
    assert other.entries == []
    assert pickle.loads(pickle.dumps(ledger)).entries == ledger.entries


def test_a_deleted_or_replaced_ledger_is_not_charged(path, ledger, tmp_path):
    old, now = tmp_path / "older copy", tmp_path / "the same"
    shutil.copy(path, old)
    ledger.start(STEP, label="later")
    shutil.copy(path, now)
    for copied in (now, old):
        os.replace(copied, path)
        for action in (lambda: ledger.start(STEP, label="x"), ledger.spent, lambda: ledger.entries):
            assert "replaced by another file" in refusal(action)
    path.unlink()
    assert "not where it was" in refusal(lambda: ledger.start(STEP, label="x"))
    assert not path.exists()


def test_an_older_content_in_the_same_file_is_refused_by_a_process_that_saw_more(path, ledger):
    older = path.read_bytes()
    ledger.start(STEP, label="later")
    path.write_bytes(older)
    for action in (lambda: ledger.start(STEP, label="x"), ledger.remaining):
        assert "entries are missing at its end" in refusal(action)


def test_another_ledger_with_equal_terms_does_not_pass_for_this_one(tmp_path):
    ledgers = [Ledger.open(tmp_path / name, epsilon=3.0, delta=0.0) for name in "ab"]
    (tmp_path / "a").write_bytes((tmp_path / "b").read_bytes())
    refusal(lambda: ledgers[0].start(STEP, label="x"))


def test_a_ledger_moved_away_during_a_charge_is_detected_before_the_draw(path, ledger, monkeypatch):
    put, moved = store._put, []

    def put_and_move(file, place, data):
        put(file, place, data)
        if not moved:
            moved.append(path.rename(path.with_name("moved")))

    monkeypatch.setattr(store, "_put", put_and_move)
    monkeypatch.setattr(ledger, "_draw", lambda *args: pytest.fail("drawn"))
    message = refusal(lambda: ledger.release(Gaussian(20.0), SUM, label="x"))
    assert "may count as spent. Nothing was released" in message


MOUNTS = """21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
22 21 0:5 / {local} rw - tmpfs tmpfs rw
23 21 0:40 / {folder} rw,relatime shared:7 master:2 - {kind} server:/export rw
not a line of this file
"""


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "lustre", "fuse.sshfs", "fuse.s3fs"])
def test_network_file_systems_are_refused(tmp_path, monkeypatch, kind):
    folder, local = tmp_path / "a folder", tmp_path / "a folder" / "local"
    local.mkdir(parents=True)
    ledger = Ledger.open(folder / "ledger", epsilon=1.0, delta=0.0)
    mounts = tmp_path / "mountinfo"
    named = {"folder": str(folder).replace(" ", "\\040"), "local": str(local).replace(" ", "\\040")}
    mounts.write_text(MOUNTS.format(kind=kind, **named))
    monkeypatch.setattr(disk, "_MOUNTS", mounts)
    for action in (
        lambda: Ledger.open(folder / "ledger"),
        lambda: Ledger.open(folder / "new", epsilon=1.0, delta=0.0),
    ):
        message = refusal(action)
        assert f"network file system ({kind})" in message
        assert "Keep the ledger on a local disk of the machine that runs the fits" in message
    assert os.listdir(folder) == ["local", "ledger"] or os.listdir(folder) == ["ledger", "local"]
    Ledger.open(local / "ledger", epsilon=1.0, delta=0.0)
    mounts.write_text(MOUNTS.format(kind="btrfs", **named))
    assert Ledger.open(folder / "ledger").entries == ledger.entries
    monkeypatch.setattr(disk, "_MOUNTS", tmp_path / "no such file")
    assert Ledger.open(folder / "ledger").entries == ledger.entries


# Locks and rights


def test_a_lock_that_never_comes_is_reported(path, ledger, monkeypatch):
    monkeypatch.setattr(store, "_LOCK_PATIENCE", 0.05)
    with path.open("rb") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        for action in (lambda: ledger.start(STEP, label="x"), ledger.spent, lambda: Ledger.open(path)):
            message = refusal(action)
            assert "held by another process" in message
            assert "Nothing was charged and nothing was released" in message
    ledger.start(STEP, label="x")


@pytest.fixture
def ordinary_folder():
    """Return a folder of an ordinary user, whose rights the test then has.

    That user may not be allowed to read the folder of the tests, nor modules that are not loaded yet.
    """
    folder = Path(tempfile.mkdtemp())
    Ledger.open(folder / "first", epsilon=1.0, delta=1e-6).start(Gaussian(9.0), label="x")
    assert Ledger.open(folder / "first", read_only=True).remaining() >= 0
    superuser = os.geteuid() == 0
    if superuser:
        os.chown(folder, 65534, 65534)
        folder.chmod(0o755)
        os.setegid(65534)
        os.seteuid(65534)
    try:
        yield folder
    finally:
        if superuser:
            os.seteuid(0)
            os.setegid(0)
        for each in [folder, *folder.rglob("*")]:
            each.chmod(0o700)
        shutil.rmtree(folder)


def test_a_ledger_that_may_not_be_written_to_can_be_shown_and_is_not_charged(ordinary_folder):
    path = ordinary_folder / "ledger"
    ledger = Ledger.open(path, epsilon=3.0, delta=0.0)
    ledger.start(STEP, label="x")
    path.chmod(0o400)
    for action in (lambda: ledger.start(Laplace(10.0), label="y"), lambda: Ledger.open(path)):
        message = refusal(action)
        assert "no permission to write to it" in message
        assert "Nothing was charged and nothing was released" in message
        assert "`dpadapt ledger show` can still read it" in message
    assert [entry.label for entry in Ledger.open(path, read_only=True).entries] == ["x"]
    path.chmod(0o000)
    assert "no permission to read it" in refusal(lambda: Ledger.open(path, read_only=True))
    path.chmod(0o600)
    # A charge needs no right to write to the folder; a new ledger does.
    ordinary_folder.chmod(0o500)
    ledger.start(STEP, label="y")
    with pytest.raises(PermissionError, match="no permission to write to this folder"):
        Ledger.open(ordinary_folder / "new", epsilon=3.0, delta=0.0)
    assert [entry.label for entry in Ledger.open(path).entries] == ["x", "y"]


@pytest.mark.parametrize("read_only", [False, True])
def test_a_folder_that_may_not_be_entered_is_no_missing_ledger(ordinary_folder, read_only):
    inside = ordinary_folder / "inside"
    inside.mkdir()
    inside.chmod(0o000)
    with pytest.raises(LedgerError, match="no permission to enter its folder"):
        Ledger.open(inside / "ledger", read_only=read_only)


def test_a_new_ledger_needs_a_folder(tmp_path):
    for place in (tmp_path / "none", tmp_path / "file"):
        (tmp_path / "file").touch()
        with pytest.raises(OSError, match="there is no such folder; make it first"):
            Ledger.open(place / "ledger", epsilon=1.0, delta=0.0)


def test_no_message_of_the_ledger_gives_unsafe_advice():
    for name in ("accounting/store", "accounting/ledger", "integrations/postgres"):
        tree = ast.parse((Path(dpadapt.__file__).parent / f"{name}.py").read_text())
        raised = [node for node in ast.walk(tree) if isinstance(node, ast.Raise | ast.Return | ast.Assign)]
        texts = [
            node.value
            for statement in raised
            for node in ast.walk(statement)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value
        ]
        assert len(texts) > 10
        assert [text for text in texts if UNSAFE.search(text)] == []
    assert UNSAFE.search("Restore it from a backup.")


# Copies, processes, threads


def test_durable_ledgers_pickle_as_their_path(path, ledger, monkeypatch):
    data = pickle.dumps(ledger)
    monkeypatch.chdir("/")
    again = pickle.loads(data)
    again.start(STEP, label="from the copy")
    assert ledger.entries[-1].label == "from the copy"
    path.unlink()
    with pytest.raises(ValueError, match=r"there is no ledger .* its budget must be taken as spent"):
        pickle.loads(data)


def test_a_ledger_opened_for_reading_is_pickled_for_reading(place, shared):
    again = pickle.loads(pickle.dumps(place.open(read_only=True)))
    with pytest.raises(LedgerError, match="opened for reading only"):
        again.start(STEP, label="x")


def test_durable_ledgers_are_not_copied_and_their_children_not_pickled(shared):
    for duplicate in (copy.copy, copy.deepcopy):
        with pytest.raises(PrivacyError, match="can't be copied"):
            duplicate(shared)
    with pytest.raises(PrivacyError, match="can't be sent to another process"):
        pickle.dumps(shared.child(1.0, 1e-6, label="fit"))


def charge(ledger, label, times):
    for k in range(times):
        ledger.start(RandomizedResponse(1e-4), label=f"{label}{k}")


def test_processes_charge_one_ledger(place):
    ledger = place.open(epsilon=1.0, delta=0.0)
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        workers = [context.Process(target=charge, args=(ledger, f"{method}{i}-", 10)) for i in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
            assert worker.exitcode == 0
    assert len({entry.label for entry in ledger.entries}) == 40


def test_a_process_forked_during_a_charge_neither_keeps_the_lock_nor_waits_for_it(place, monkeypatch):
    """A fork copies the open file and its lock; the charge of the parent ends the lock for both."""
    monkeypatch.setattr(store, "_LOCK_PATIENCE", 5.0)
    monkeypatch.setattr("dpadapt.integrations.postgres._ROW_PATIENCE", 5.0)
    ledger = place.open(epsilon=2.0, delta=0.0)
    children = []

    def fork(*_):
        child = os.fork()
        if child == 0:
            time.sleep(30)
            os._exit(0)
        children.append(child)

    with monkeypatch.context() as during:
        during.setattr(Filter, "require", fork)
        ledger._store.append((entry_from_dict(json.loads(ENTRY)),))
    ledger.start(RandomizedResponse(1e-4), label="while the child lives")
    os.kill(children[0], signal.SIGKILL)
    os.waitpid(children[0], 0)
    assert len(ledger.entries) == 2


def test_threads_charge_one_ledger(place):
    ledger, other = (place.open(epsilon=40 * 0.125 + 0.01, delta=0.0) for _ in range(2))
    with ThreadPoolExecutor(4) as pool:
        made = [pool.submit(mine.start, STEP, label="x") for _ in range(30) for mine in (ledger, other)]
    assert sum(one.exception() is None for one in made) == 40 == len(place.open().entries)


OPEN_AND_CHARGE = """
import sys
from dpadapt.accounting import Ledger
from dpadapt.mechanisms import RandomizedResponse
sys.stdin.readline()
Ledger.open(sys.argv[1], epsilon=1.0, delta=0.0).start(RandomizedResponse(0.001), label=sys.argv[2])
"""


def test_a_ledger_made_by_several_processes_at_once_is_one_ledger(path):
    workers = [
        subprocess.Popen([sys.executable, "-c", OPEN_AND_CHARGE, str(path), str(i)], stdin=subprocess.PIPE, text=True)
        for i in range(2)
    ]
    for worker in workers:
        worker.stdin.write("\n")
        worker.stdin.flush()
    for worker in workers:
        worker.communicate()
        assert worker.returncode == 0
    assert sorted(labels_of(path)) == ["0", "1"]
    assert os.listdir(path.parent) == [path.name]


def test_terms_must_agree_if_another_process_made_the_ledger_first(path, monkeypatch):
    Ledger.open(path, epsilon=1.0, delta=0.0)
    monkeypatch.setattr(type(path), "exists", lambda self: False)  # as if it had not existed a moment ago
    with pytest.raises(LedgerError, match=r"has epsilon=1\.0, not 2\.0"):
        Ledger.open(path, epsilon=2.0, delta=0.0)


def test_a_ledger_in_a_file_is_refused_where_no_test_shows_that_it_is_durable(path, ledger, monkeypatch):
    monkeypatch.setattr("sys.platform", "darwin")
    for action in (lambda: Ledger.open(path), lambda: Ledger.open(path.with_name("new"), epsilon=1.0, delta=0.0)):
        assert "tested on Linux alone, and this is darwin" in refusal(action)
