"""Ledgers on a PostgreSQL server: what differs from a file. `test_store.py` and `test_ledger.py` test what both do."""

import contextlib
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from crash_books import DRIVER, accepted, check_books
from ledger_files import STEP, SUM, UNSAFE, ServerPlace, charged_three_times
from postgres_server import PASSWORD, Server

from dpadapt.accounting import Ledger
from dpadapt.accounting.filter import Filter
from dpadapt.errors import BudgetExceeded, LedgerError
from dpadapt.integrations import postgres
from dpadapt.integrations.postgres import Address
from dpadapt.mechanisms import Gaussian, RandomizedResponse


@pytest.fixture
def place(server, request):
    """Return ledgers in a database of their own."""
    name = re.sub(r"\W+", "_", request.node.name.lower())[-60:]
    server.execute(f'DROP DATABASE IF EXISTS "{name}"')
    server.execute(f'CREATE DATABASE "{name}"')
    yield ServerPlace(server, "", name)
    server.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def ledger(place):
    return charged_three_times(place.open(epsilon=3.0, delta=1e-6))


def labels_of(place):
    return [entry.label for entry in place.open().entries]


def refusal(action, kind=LedgerError):
    """Return the message with which `action` is refused: one safe line, without the password or the driver's words."""
    with pytest.raises(kind) as caught:
        action()
    message = str(caught.value)
    assert not UNSAFE.search(message), message
    assert "\n" not in message
    shown = "".join(traceback.format_exception(caught.value))
    error = caught.value
    while error is not None:
        assert PASSWORD not in str(error)
        assert type(error).__module__.partition(".")[0] != "psycopg", "the driver's error is the context of this one"
        error = error.__cause__ or error.__context__
    assert PASSWORD not in shown
    return message


class Proxy:
    """Stands between client and server, and cuts connections when a commit passes.

    `cut` is "before" (the commit does not arrive), "after" (its answer does not), or None. `closed` refuses new
    connections after a cut.
    """

    def __init__(self, server):
        self.cut, self.closed, self.cuts = None, False, 0
        self._to = ("127.0.0.1", server.port)
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = self._door.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self._door.accept()
            except OSError:
                return
            if self.closed:
                client.close()
                continue
            upstream = socket.create_connection(self._to)
            state = {"silent": False}
            for source, target, from_client in ((client, upstream, True), (upstream, client, False)):
                threading.Thread(
                    target=self._pass_on, args=(source, target, from_client, state, (client, upstream)), daemon=True
                ).start()

    def _pass_on(self, source, target, from_client, state, ends):
        try:
            while data := source.recv(65536):
                if from_client and self.cut and b"; COMMIT" in data:
                    way, self.cut, self.cuts = self.cut, None, self.cuts + 1
                    if way == "before":
                        break
                    state["silent"] = True
                elif not from_client and state["silent"]:
                    break  # the answer to the commit: it was made
                target.sendall(data)
        except OSError:
            pass
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self):
        self._door.close()


@pytest.fixture
def proxy(server):
    proxy = Proxy(server)
    yield proxy
    proxy.close()


# A commit that is not answered


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_charge_whose_commit_was_not_answered_is_made_exactly_once(place, ledger, proxy, monkeypatch, cut):
    through = Ledger.open(place.server.url(place.database, port=proxy.port), dataset="ledger")
    drawn, draw = [], through._draw

    def count(*args):
        drawn.append(labels_of(place))
        return draw(*args)

    monkeypatch.setattr(through, "_draw", count)
    proxy.cut = cut
    through.release(Gaussian(20.0), SUM, label="fourth")
    assert proxy.cuts == 1
    assert drawn == [["first", "second", "third", "fourth"]]
    through.start(STEP, label="fifth")
    assert labels_of(place) == ["first", "second", "third", "fourth", "fifth"]


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_charge_that_may_stand_is_reported_and_nothing_is_released(place, ledger, proxy, monkeypatch, cut):
    monkeypatch.setattr(postgres, "_RECONNECT_PATIENCE", 0.3)
    through = Ledger.open(place.server.url(place.database, port=proxy.port), dataset="ledger")
    monkeypatch.setattr(through, "_draw", lambda *args: pytest.fail("drawn"))
    proxy.cut, proxy.closed = cut, True
    message = refusal(lambda: through.release(Gaussian(20.0), SUM, label="fourth"))
    assert "It may count as spent. Nothing was released" in message
    assert labels_of(place) == ["first", "second", "third"] + ["fourth"] * (cut == "after")
    # Later charges, when no server can be reached, are certainly not made.
    assert "Nothing was charged and nothing was released" in refusal(lambda: through.start(STEP, label="x"))
    proxy.closed = False
    through.start(STEP, label="last")
    assert labels_of(place)[-1] == "last"


@pytest.mark.parametrize("what", ["a warning", "a rollback"])
def test_a_commit_that_the_server_does_not_vouch_for_releases_nothing(place, ledger, monkeypatch, what):
    """As when a synchronous standby did not confirm, or a pooler split the transaction."""
    trick = {"a warning": "DO $$BEGIN RAISE WARNING 'x'; END$$", "a rollback": "ROLLBACK"}[what]
    with monkeypatch.context() as patch:
        patch.setattr(postgres, "_ADD_RECORDS", f"{postgres._ADD_RECORDS}; {trick}")
        patch.setattr(ledger, "_draw", lambda *args: pytest.fail("drawn"))
        message = refusal(lambda: ledger.release(Gaussian(20.0), SUM, label="x"))
    assert "does not vouch for the commit. It may count as spent" in message
    ledger.start(STEP, label="next")
    assert labels_of(place)[-1] == "next"


def test_a_commit_that_is_answered_by_a_rollback_without_a_warning_releases_nothing(ledger, monkeypatch):
    """So a transaction that had failed is answered."""
    answers = postgres._results

    def rolled_back(connection, statement, values):
        results = answers(connection, statement, values)
        return [*results[:-1], "ROLLBACK"] if statement.endswith("; COMMIT") else results

    monkeypatch.setattr(postgres, "_results", rolled_back)
    monkeypatch.setattr(ledger, "_draw", lambda *args: pytest.fail("drawn"))
    assert "does not vouch for the commit" in refusal(lambda: ledger.release(Gaussian(20.0), SUM, label="x"))


def test_a_commit_of_a_server_that_says_that_it_ends_is_looked_for(place, ledger, monkeypatch):
    """Such a warning, unlike others, is a lost connection: the charge is found when the server is back."""
    warning = "DO $$BEGIN RAISE WARNING USING ERRCODE = '57P01', MESSAGE = 'x'; END$$"
    with monkeypatch.context() as patch:
        patch.setattr(postgres, "_ADD_RECORDS", f"{postgres._ADD_RECORDS}; {warning}")
        ledger.start(STEP, label="x")
    assert labels_of(place)[3:] == ["x"]


def test_charges_go_on_after_the_server_restarts(place, ledger):
    other = place.open()
    for mode in ("fast", "immediate"):
        place.server.restart(mode=mode)
        for each in (ledger, other):
            each.start(RandomizedResponse(0.01), label=mode)
    assert labels_of(place)[3:] == ["fast", "fast", "immediate", "immediate"]


def test_a_charge_does_not_depend_on_the_defaults_of_the_server(place, ledger):
    """Neither on whether commits wait for the disk, nor on the isolation of transactions."""
    for setting in ("synchronous_commit = off", "default_transaction_isolation = 'serializable'"):
        place.execute(f'ALTER DATABASE "{place.database}" SET {setting}')
    assert place.execute("SHOW synchronous_commit") == [("off",)]
    ledgers = [place.open() for _ in range(2)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda each: each.start(STEP, label="x"), ledgers * 3))
    assert len(labels_of(place)) == 9


def test_a_server_that_does_not_write_through_is_refused(place, ledger):
    place.server.restart("fsync=off")
    try:
        for action in (lambda: ledger.start(STEP, label="x"), place.open):
            message = refusal(action)
            assert "fsync" in message
            assert "Nothing was charged and nothing was released" in message
        assert len(place.open(read_only=True).entries) == 3
    finally:
        place.server.restart()
    ledger.start(STEP, label="x")


def test_tables_that_a_crash_empties_are_refused(place, ledger):
    place.execute("ALTER TABLE dpadapt.records SET UNLOGGED")
    assert "empties after a crash" in refusal(place.open)


# Damage, and older copies

DAMAGE = {
    "record cut out of the middle": "DELETE FROM dpadapt.records WHERE number = 2",
    "last record cut off": "DELETE FROM dpadapt.records WHERE number = 3",
    "all records cut off": "DELETE FROM dpadapt.records WHERE number > 0",
    "terms cut out": "DELETE FROM dpadapt.records WHERE number = 0",
    "cap raised": "UPDATE dpadapt.records SET text = replace(text, '\"epsilon\": 3.0', '\"epsilon\": 9.0')",
    "label altered": "UPDATE dpadapt.records SET text = replace(text, 'second', 'decoy')",
    "time altered": "UPDATE dpadapt.records SET time = '1999-01-01 00:00:00' WHERE number = 2",
    "hash altered": "UPDATE dpadapt.records SET hash = 'x' WHERE number = 2",
    "numbers swapped": "UPDATE dpadapt.records SET number = 4 - number + 10 WHERE number > 0",
    "a number skipped": "UPDATE dpadapt.records SET number = 7 WHERE number = 3",
    "record added": (
        "INSERT INTO dpadapt.records SELECT ledger, 4, time, text, hash FROM dpadapt.records WHERE number = 3"
    ),
    "number in the row lowered": "UPDATE dpadapt.ledgers SET records = 2",
    "row set back": (
        "UPDATE dpadapt.ledgers SET records = 2, head = (SELECT hash FROM dpadapt.records WHERE number = 2)"
    ),
    "row set back to the start": (
        "UPDATE dpadapt.ledgers SET records = 0, head = (SELECT hash FROM dpadapt.records WHERE number = 0)"
    ),
    "head altered": "UPDATE dpadapt.ledgers SET head = 'x'",
}


@pytest.mark.parametrize("what", DAMAGE)
def test_altered_tables_are_refused(place, ledger, what):
    place.execute(DAMAGE[what])
    assert "can't be trusted" in refusal(place.open)
    refusal(lambda: place.open(read_only=True))
    # A process that has the ledger open knows the terms, and refuses altered records too.
    if what not in ("terms cut out", "cap raised"):
        refusal(lambda: ledger.entries)
    if "row" in what or "head" in what or "added" in what:
        refusal(lambda: ledger.start(STEP, label="x"))


def test_a_ledger_that_is_gone_or_has_another_id_is_refused(place, ledger):
    place.execute("INSERT INTO dpadapt.ledgers SELECT 'other', 'copy', records, head FROM dpadapt.ledgers")
    place.execute("UPDATE dpadapt.records SET ledger = 'other'")
    place.execute("DELETE FROM dpadapt.ledgers WHERE id <> 'other'")
    place.execute("UPDATE dpadapt.ledgers SET dataset = 'ledger'")
    assert "names another ledger" in refusal(place.open)
    assert "not on its server any more" in refusal(ledger.spent)


def test_a_renamed_ledger_does_not_pass_for_that_of_another_data_set(place, ledger):
    place.execute("UPDATE dpadapt.ledgers SET dataset = 'customers'")
    assert "its row names another ledger" in refusal(lambda: place.open("customers"))


def test_tables_that_lack_charges_that_a_process_has_seen_are_refused(place, ledger):
    """As when an older copy of the database was put in its place, and charged again."""
    older = place.records()
    ledger.start(STEP, label="later")
    seen = place.open()
    place.set_records(older)
    for each in (ledger, seen):
        for action in (lambda each=each: each.start(STEP, label="x"), each.remaining, lambda each=each: each.entries):
            assert "entries are missing at its end" in refusal(action)
    stranger = place.open()  # can't know
    for label in ("other", "more"):
        stranger.start(STEP, label=label)
    for action in (lambda: ledger.start(STEP, label="x"), ledger.remaining, lambda: ledger.entries):
        assert "is missing or altered" in refusal(action)


def test_a_new_ledger_of_the_same_name_does_not_pass_for_an_open_or_pickled_one(place, ledger):
    pickled = pickle.dumps(ledger)
    place.execute("TRUNCATE dpadapt.ledgers CASCADE")
    assert "not on its server any more" in refusal(lambda: ledger.start(STEP, label="x"))
    place.open(epsilon=3.0, delta=1e-6)
    refusal(lambda: ledger.start(STEP, label="x"))
    assert "is not the one that was pickled" in refusal(lambda: pickle.loads(pickled))


# Names, terms, rights


def test_a_data_set_has_one_ledger(place, ledger):
    with pytest.raises(LedgerError, match=r"has epsilon=3\.0, not 4\.0"):
        place.open(epsilon=4.0, delta=1e-6)
    with pytest.raises(ValueError, match=r"there is no ledger .*/customers: give epsilon and delta"):
        place.open("customers")
    place.open("customers", epsilon=1.0, delta=0.0).start(STEP, label="theirs")
    assert labels_of(place) == ["first", "second", "third"]
    import psycopg

    with pytest.raises(psycopg.errors.UniqueViolation):
        place.execute("INSERT INTO dpadapt.ledgers SELECT 'other', dataset, records, head FROM dpadapt.ledgers")


def test_a_ledger_made_by_several_threads_at_once_is_one_ledger(place):
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: place.open(epsilon=3.0, delta=0.0), range(4)))
    assert len({each._store.id for each in made}) == 1


def test_labels_and_names_of_any_characters_are_kept(place):
    name = 'Zürich\'s "patients" \\ 100% $$ 患者'
    ledger = place.open(name, epsilon=3.0, delta=0.0)
    for label in ("it's 100% \\u0041 $1", "%s", "é\n患"):
        ledger.start(STEP, label=label)
    again = place.open(name)
    assert [entry.label for entry in again.entries] == ["it's 100% \\u0041 $1", "%s", "é\n患"]
    assert again.dataset == name


@pytest.fixture
def role(place):
    """Return a function that makes a user of the server, who is gone afterwards."""
    made = []

    def make(name):
        made.append(name)
        place.execute(f"DROP ROLE IF EXISTS {name}")
        place.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}'")
        return place.server.url(place.database, user=name)

    yield make
    for name in made:
        place.execute(f"DROP OWNED BY {name}")
        place.execute(f"DROP ROLE {name}")


def test_the_rights_that_an_analyst_needs_do_not_let_charges_disappear(place, ledger, role):
    """The rights of docs/guides/ledger-on-a-server.md: to add records, and to change the row of a ledger."""
    page = (Path(__file__).parents[2] / "docs" / "guides" / "ledger-on-a-server.md").read_text()
    (grants,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    address = role("anna")
    assert "lacks a right" in refusal(lambda: Ledger.open(address, dataset="ledger"))
    for statement in grants.split(";")[:-1]:
        place.execute(statement)
    Ledger.open(address, dataset="ledger").start(STEP, label="anna's")
    Ledger.open(address, dataset="new", epsilon=1.0, delta=0.0).start(STEP, label="x")
    import psycopg

    with psycopg.connect(place.server.url(place.database, user="anna", password=PASSWORD), autocommit=True) as her:
        for statement in (
            "DELETE FROM dpadapt.records",
            "UPDATE dpadapt.records SET text = ''",
            "DELETE FROM dpadapt.ledgers",
            "TRUNCATE dpadapt.records",
            "ALTER TABLE dpadapt.records RENAME TO other",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                her.execute(statement)
        her.execute(DAMAGE["row set back to the start"].replace("number = 0)", "number = 0 AND ledger = id)"))
    assert "don't agree" in refusal(place.open)


def test_a_reader_needs_no_right_to_write(place, ledger, role):
    address = role("rita")
    place.execute("GRANT USAGE ON SCHEMA dpadapt TO rita")
    place.execute("GRANT SELECT ON ALL TABLES IN SCHEMA dpadapt TO rita")
    assert len(Ledger.open(address, dataset="ledger", read_only=True).entries) == 3
    assert "lacks a right" in refusal(lambda: Ledger.open(address, dataset="ledger"))
    assert "lacks a right" in refusal(lambda: Ledger.open(address, dataset="new", epsilon=1.0, delta=0.0))


def test_a_row_that_is_never_free_is_reported(place, ledger, monkeypatch):
    monkeypatch.setattr(postgres, "_ROW_PATIENCE", 0.2)
    with place.server.connect(place.database) as holder:
        holder.execute("BEGIN")
        holder.execute("SELECT * FROM dpadapt.ledgers FOR UPDATE")
        message = refusal(lambda: ledger.start(STEP, label="x"))
        assert "another process holds it" in message
        assert "Nothing was charged and nothing was released" in message
        assert ledger.spent() > 0  # reading needs no lock
    ledger.start(STEP, label="x")


def test_a_client_that_falls_silent_does_not_hold_the_ledger(place, ledger, monkeypatch):
    monkeypatch.setattr(postgres, "_LONGEST_SILENCE", 0.5)
    child = os.fork()
    if child == 0:
        monkeypatch.setattr(Filter, "require", lambda *_: os.kill(os.getpid(), signal.SIGSTOP))
        place.open()._store.append((ledger.entries[0],))
        os._exit(0)
    try:
        os.waitpid(child, os.WUNTRACED)
        began = time.monotonic()
        ledger.start(STEP, label="mine")
        assert time.monotonic() - began < 20
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert labels_of(place) == ["first", "second", "third", "mine"]


# Addresses and passwords


def test_passwords_stay_in_memory(place, monkeypatch, capsys):
    monkeypatch.delenv("PGPASSWORD")
    address = place.server.url(place.database, password=PASSWORD)
    ledger = Ledger.open(address, dataset="ledger", epsilon=3.0, delta=1e-6)
    ledger.release(Gaussian(20.0), SUM, label="first")
    for shown in (repr(ledger), repr(ledger._store._address), str(ledger.receipt()), ledger.receipt().to_json()):
        assert "sesame" not in shown
    data = pickle.dumps(ledger)
    assert b"sesame" not in data
    assert "does not let this user in" in refusal(lambda: pickle.loads(data))
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    pickle.loads(data).start(STEP, label="from the copy")
    assert ledger.entries[-1].label == "from the copy"
    monkeypatch.setenv("PGPASSWORD", "wrong-one")
    message = refusal(lambda: place.open())
    assert "PGPASSWORD" in message
    assert "wrong-one" not in message


@pytest.mark.parametrize("dataset", [None, "", "x" * 501, "june\njuly"])
def test_a_name_that_finds_no_ledger_is_refused_before_anybody_connects(dataset):
    """An index of the server takes no longer name, and messages show it."""
    pytest.importorskip("psycopg")
    with pytest.raises(ValueError, match=r"name of its data set|of at most 500 characters, without control"):
        postgres.Address.of("postgresql://anna@host/db", dataset)
    assert postgres.Address.of("postgresql://anna@host/db", "x" * 500).dataset == "x" * 500


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://anna:sesame/open@host/db",
        "postgresql://anna:se@same@host/db",
        "postgresql://anna:12/sesame@host/db",
        "postgresql://anna@host:sesame/db",
        "postgresql://anna@host/db?sesame=1",
        "postgresql://anna@host/db?sslmode",
        "postgresql://anna@[host/db",
        "postgresql://anna%zz@host/db",
        "postgresql://anna:sesame@ho st/db",
    ],
)
def test_addresses_that_are_not_understood_are_not_repeated(address):
    pytest.importorskip("psycopg")
    message = refusal(lambda: Ledger.open(address, dataset="x"), ValueError)
    assert "the address of the ledger is not understood" in message
    assert "same" not in message


def test_addresses_without_passwords_lead_to_the_same_place():
    pytest.importorskip("psycopg")
    for given, text in {
        "postgresql://anna:secret@host:5433/db": "postgresql://anna@host:5433/db",
        "postgres://anna@host/db?sslmode=require&password=secret": "postgresql://anna@host/db?sslmode=require",
        "postgresql://anna:secret@h1:1,h2:2/db": "postgresql:///db?host=h1%2Ch2&port=1%2C2&user=anna",
        "postgresql:///db?host=/run/postgresql&sslpassword=secret": "postgresql:///db?host=%2Frun%2Fpostgresql",
        "postgresql://anna%40corp:secret@host/db": "postgresql://anna%40corp@host/db",
        "postgresql://an%2Fna:secret@host": "postgresql://an%2Fna@host/",
    }.items():
        address = Address.of(given, "patients")
        assert address.text == text
        again = Address.of(text, "patients")
        assert again.text == text
        secrets = {"password", "sslpassword"}
        assert again.options == {name: value for name, value in address.options.items() if name not in secrets}
    assert Address.of("postgresql://anna:secret@host/db", "patients").name == "host/db/patients"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"port": 1}, "no server answers at that address"),
        ({"database": "none"}, "no such database"),
        ({"user": "nobody_known"}, "does not let this user in"),
        ({"sslmode": "require"}, "no encrypted connection"),
    ],
)
def test_a_connection_that_is_refused_is_explained_in_one_line(server, change, words):
    message = refusal(lambda: Ledger.open(server.url(**change), dataset="patients"))
    assert words in message
    assert message.startswith("the ledger 127.0.0.1/")
    assert "/patients can't be used" in message
    assert "Nothing was charged and nothing was released" in message


# Processes and threads


def backends(place):
    """Return how many clients are connected to the database."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND application_name = 'dpadapt'"
    return place.server.execute(query, place.database)[0][0]


def test_a_forked_process_has_a_connection_of_its_own(place, ledger):
    mine = ledger._store._session._connection
    number = mine.info.backend_pid
    child = os.fork()
    if child == 0:
        code = 1
        try:
            ledger.start(STEP, label="child")
            code = int(ledger._store._session._connection.info.backend_pid == number)
            ledger._store._session.close()
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    ledger.start(STEP, label="parent")
    assert ledger._store._session._connection is mine
    assert labels_of(place)[-2:] == ["child", "parent"]


def test_threads_share_one_connection_which_ends_with_the_ledger(place):
    ledger = place.open(epsilon=3.0, delta=0.0)
    with ThreadPoolExecutor(8) as pool:
        for _ in range(8):
            pool.submit(ledger.start, RandomizedResponse(0.01), label="x")
    assert len(ledger.entries) == 8
    assert backends(place) == 1
    del ledger, pool
    for _ in range(100):
        if not backends(place):
            break
        time.sleep(0.05)
    assert backends(place) == 0


def test_waiting_charges_are_committed_together_and_checked_one_after_the_other(place):
    """While one thread waits for the row, nine others want a charge of which only seven fit under the cap."""
    ledger = place.open(epsilon=8 * 0.125 + 0.01, delta=0.0)
    with ThreadPoolExecutor(10) as pool, place.server.connect(place.database) as holder:
        holder.execute("BEGIN")
        holder.execute("SELECT * FROM dpadapt.ledgers FOR UPDATE")
        charges = [pool.submit(ledger.start, STEP, label="x") for _ in range(10)]
        while len(ledger._store._session.waiting) < 10:
            time.sleep(0.01)
        holder.execute("COMMIT")
    errors = [type(charge.exception()) for charge in charges]
    assert (errors.count(type(None)), errors.count(BudgetExceeded)) == (8, 2)
    tokens = place.execute(
        'SELECT count(DISTINCT substring(text from \'"token": "[0-9a-f]+\')) FROM dpadapt.records WHERE number > 0'
    )
    assert tokens == [(1,)]
    assert len(labels_of(place)) == 8


# Kills and a restart: small here, at full size in `make audit`


@pytest.mark.parametrize(
    ("threads", "charges", "kills", "allowed"),
    [
        (4, 20, 12, 100_000),
        (4, 20, 4, 200),
        pytest.param(16, 500, 200, 1_000_000, marks=pytest.mark.slow),
        pytest.param(16, 500, 50, 8_000, marks=pytest.mark.slow),
    ],
)
def test_no_used_charge_is_lost_when_clients_are_killed_and_the_server_restarts(
    tmp_path, monkeypatch, threads, charges, kills, allowed
):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    server = _own_server()
    try:
        arguments = [4, threads, charges, kills, allowed, 8, server.url()]
        command = [sys.executable, DRIVER, "server_kills", tmp_path, *arguments]
        driver = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
        ledger, some = None, min(threads * charges, allowed) // 4
        while driver.poll() is None and (ledger is None or len(ledger.entries) < some):
            time.sleep(0.2)
            if ledger is None:
                try:
                    ledger = Ledger.open(server.url(), dataset=str(tmp_path))
                except ValueError:  # not made yet
                    continue
        assert driver.poll() is None, "the server must restart while the writers are at work"
        server.restart()
        counts, _ = driver.communicate(timeout=1800)
        assert driver.returncode == 0
        assert [error.read_text() for error in tmp_path.glob("error*")] == []
        recorded = check_books(tmp_path, 4 * threads, Ledger.open(server.url(), dataset=str(tmp_path)))
        print(f"{4 * threads} writers, {recorded} charges, none lost; {counts.strip()}")
        if allowed < 10_000:
            assert recorded == accepted(allowed)
        else:
            assert recorded >= 4 * threads * charges - kills * threads
            assert f'"killed": {kills}' in counts
    finally:
        server.close()


def _own_server():
    from postgres_server import why_not

    if why_not():
        pytest.skip(why_not())
    return Server()
