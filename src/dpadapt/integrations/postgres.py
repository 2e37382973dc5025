"""`PostgresStore`: the charges of a ledger on a PostgreSQL server, shared by several machines.

**The tables** are ``dpadapt.ledgers`` (one row per data set: id, number of records, hash of the last one) and
``dpadapt.records`` (number, time, text and hash of each record, the terms first). The chain of records is that of a
file (`chain.py`). A record also has a random token, so that no two records have the same hash. Whoever uses a ledger
needs no right to change or take away records. Without it only the row of a ledger can be altered, which is detected.

**A charge** is one transaction. It locks the ledger's row, follows the chain from the state that this process knows to
the hash in the row, checks the charge, adds its records and the new hash, and commits. The server answers to the commit
when the records are on its disk: the transaction sets ``synchronous_commit``, and a server without ``fsync`` is
refused. Only then is noise drawn.

**A lost connection** before the commit means that nothing was charged. After the commit was sent, the charge may stand.
The process then connects again and locks the row. It gets the lock only when the first transaction has ended, so it
knows by the hash of its last record whether the charge arrived: if so, it goes on; if not, it charges again. If it
can't connect, the charge counts as uncertain, and nothing is released.

What the server can't show: that its tables are, as a whole, an older copy of themselves. A process that has the ledger
open refuses tables that lack charges that the process has seen.

Each process has one connection per ledger; a forked process makes its own. Threads take turns. The one whose turn it is
carries out all charges that wait, each checked after the one before it, in one transaction: the disk, which a commit
waits for, would otherwise limit how many charges a second there can be.
"""

import os
import re
import secrets
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from dpadapt.accounting import chain
from dpadapt.accounting.chain import Past, State, Terms
from dpadapt.accounting.filter import Sums
from dpadapt.accounting.store import NOTHING_HAPPENED, DurableStore
from dpadapt.errors import LedgerError

_Result = TypeVar("_Result")
# psycopg's, which is imported when a server is used: it is an extra.
_Connection = Any

# Seconds to wait for the ledger's row. A charge holds it for some milliseconds; a longer wait would hide a process that
# hangs.
_ROW_PATIENCE = 60.0
# Seconds after which the server ends a transaction that has gone silent, so that a machine without power does not hold
# the ledger: less than `_ROW_PATIENCE`, and more than the cost of the largest plan takes to compute.
_LONGEST_SILENCE = 30.0
# Seconds for which a charge tries to get a lost connection back: a server that restarts is away for a few.
_RECONNECT_PATIENCE = 60.0
_RECONNECT_PAUSE = 0.1
# Used unless the address says otherwise (seconds; `tcp_user_timeout` in milliseconds): libpq's own would wait for hours
# for a server that has lost its power.
_CONNECTION_OPTIONS = {
    "application_name": "dpadapt",
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
# Characters: the longest name of a data set. PostgreSQL's index takes about 2,700 bytes.
_LONGEST_DATASET = 500

_CREATE = """
CREATE SCHEMA IF NOT EXISTS dpadapt;
CREATE TABLE IF NOT EXISTS dpadapt.ledgers (
    id text PRIMARY KEY,
    dataset text NOT NULL UNIQUE,
    records bigint NOT NULL,
    head text NOT NULL
);
CREATE TABLE IF NOT EXISTS dpadapt.records (
    ledger text NOT NULL REFERENCES dpadapt.ledgers (id),
    number bigint NOT NULL,
    time text NOT NULL,
    text text NOT NULL,
    hash text NOT NULL,
    PRIMARY KEY (ledger, number)
);
"""
# Number of the lock that lets one process at a time make tables: an arbitrary one.
_MAKING = 0x6470616461707431
_ADD_RECORDS = """
WITH added AS (
    INSERT INTO dpadapt.records (ledger, number, hash, time, text)
    SELECT %s, * FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::text[])
)
UPDATE dpadapt.ledgers SET records = %s, head = %s WHERE id = %s
"""
_RECORDS_AFTER = (
    "SELECT number, hash, time, text FROM dpadapt.records WHERE ledger = %s AND number > %s ORDER BY number"
)
# One clock for all machines.
_TIME = "to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS')"


def without_passwords(address: str) -> str:
    """Return the address of a server as it may be shown and kept; refuse one that is not understood."""
    return Address.of(address, "any").text


@dataclass(frozen=True)
class Address:
    """Where a ledger on a server is.

    `text` is the address without passwords, `options` what libpq is given; passwords are in these alone.
    """

    text: str
    dataset: str
    options: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, text: str, dataset: str | None) -> "Address":
        """Read an address; the message about a bad one shows nothing of it, because a password may be anywhere."""
        psycopg = _psycopg()
        parsed = None
        with suppress(psycopg.Error, UnicodeError, ValueError):
            parsed = psycopg.pq.Conninfo.parse(text.encode())
        options = {option.keyword.decode(): option.val.decode() for option in parsed or [] if option.val is not None}
        # An unencoded "@" or "/" in a password moves part of it to these.
        misplaced = re.compile(r"[@\s]").search(options.get("host", "")) or re.search(
            r"[@/\s]", options.get("dbname", "")
        )
        if parsed is None or misplaced or not re.fullmatch(r"[\d,]*", options.get("port", "")):
            raise ValueError(
                "the address of the ledger is not understood. Expected: postgresql://user@host:port/database, with "
                "libpq's options after a question mark, and %40 for @ or %2F for / in names and passwords. (It is not "
                f"repeated here, because it may contain a password.) {NOTHING_HAPPENED}"
            )
        if not dataset:
            raise ValueError(
                "a ledger on a server is found by the name of its data set: give dataset=... with the address."
            )
        if len(dataset) > _LONGEST_DATASET or not dataset.isprintable():
            raise ValueError(
                f"dataset must be a name of at most {_LONGEST_DATASET} characters, without control characters."
            )
        secret = {option.keyword.decode() for option in parsed if option.dispchar == b"*"}
        return cls(_url({name: value for name, value in options.items() if name not in secret}), dataset, options)

    @property
    def name(self) -> str:
        """What messages call the ledger."""
        host = self.options.get("host") or self.options.get("hostaddr") or os.environ.get("PGHOST") or "localhost"
        database = self.options.get("dbname") or os.environ.get("PGDATABASE") or self.options.get("user") or ""
        return f"{host}/{database}/{self.dataset}"

    def connect(self) -> _Connection:
        """Return a new connection; raise `_Lost` if there is none to be had."""
        psycopg = _psycopg()
        options = {**_CONNECTION_OPTIONS, **self.options, "client_encoding": "utf8"}
        try:
            return psycopg.connect(autocommit=True, prepare_threshold=None, **options)
        except (psycopg.Error, UnicodeError) as error:
            # The driver's words may quote parts of the address.
            cause = _why_not_connected(str(error))
        raise _Lost(cause)


def _url(options: Mapping[str, str]) -> str:
    """Return the address with these options; what a plain address can't say stands after the question mark."""
    rest = dict(options)
    user = f"{quote(rest.pop('user'), safe='')}@" if "user" in rest else ""
    place = ""
    if re.fullmatch(r"[\w.-]+", rest.get("host", "")) and "," not in rest.get("port", ""):
        place = rest.pop("host") + (f":{rest.pop('port')}" if "port" in rest else "")
    elif user:
        rest["user"], user = options["user"], ""  # libpq refuses a user without a host
    database = quote(rest.pop("dbname", ""), safe="")
    return f"postgresql://{user}{place}/{database}" + (f"?{urlencode(rest, quote_via=quote)}" if rest else "")


class _Lost(Exception):
    """There is no connection, or there is none any more; the message says why."""


class _Refused(Exception):
    """The server refused a statement; the message says why."""


class _Session:
    """The connection of this process to a server, made when it is needed; threads take turns."""

    def __init__(self, address: Address) -> None:
        self._address = address
        # Connections of the process that this one was forked from. Closing one would end it for that process too.
        self._inherited: list[_Connection] = []
        self._reset()

    def _reset(self) -> None:
        self._pid, self._lock = os.getpid(), threading.Lock()
        self._connection: _Connection | None = None
        self._warnings: list[str] = []
        # Charges that wait, and whether a thread is carrying some out.
        self.waiting: deque[_Request] = deque()
        self.busy, self.turn = False, threading.Condition()

    def require_own(self) -> None:
        """In a forked process, forget the connection, the locks and the waiting charges of the other process."""
        if self._pid != os.getpid():
            self._inherited.append(self._connection)
            self._reset()

    def take(self) -> list["_Request"]:
        """Return the charges that wait, which then don't wait any more."""
        # One at a time: another thread may add to the queue meanwhile.
        taken = []
        while self.waiting:
            taken.append(self.waiting.popleft())
        return taken

    def use(self, work: Callable[[_Connection], _Result]) -> _Result:
        """Return ``work(connection)``; after any error the connection is closed, which ends its transaction."""
        self.require_own()
        with self._lock:
            if self._connection is None:
                self._connection = self._address.connect()
                self._connection.add_notice_handler(self._notice)
            try:
                return work(self._connection)
            except BaseException as error:
                refusal = _refusal_of(error, self._connection)
                self.close()
                if refusal is None:
                    raise
        # Not inside the block above: the driver's words may quote what it was given, and would be the error's context.
        raise refusal

    def _notice(self, diagnostic: Any) -> None:
        if diagnostic.severity_nonlocalized == "WARNING":
            self._warnings.append(diagnostic.sqlstate or "")

    def commit(self, statement: str, values: Sequence[Any]) -> None:
        """Carry out a last statement and commit, in one message; make sure that the server vouches for it."""
        assert self._connection is not None
        self._warnings.clear()
        status = _results(self._connection, f"{statement}; COMMIT", values)[-1]
        if any(_ENDED.fullmatch(code) for code in self._warnings):
            raise _Lost(_CONNECTION_LOST)
        # Another warning says that a standby did not confirm, or that a pooler split the transaction. Without one, a
        # transaction that had failed is answered by ROLLBACK.
        if status != "COMMIT" or self._warnings:
            raise _Refused("the server does not vouch for the commit")

    def close(self) -> None:
        """Close the connection if it is of this process."""
        if self._pid == os.getpid() and self._connection is not None:
            with suppress(Exception):
                self._connection.close()
            self._connection = None


@dataclass(eq=False)
class _Request:
    """Records that a thread wants to add: `decide` returns them. The outcome is the state that it saw, or an error."""

    decide: Callable[[State], Sequence[chain.Content]]
    state: State | None = None
    error: Exception | None = None
    done: bool = False


class PostgresStore(DurableStore):
    """Charges on a PostgreSQL server, shared by processes of several machines.

    With `read_only` it never writes, and does without the right to. Else a ledger that can't be written to is refused
    at once.
    """

    def __init__(self, address: Address, *, read_only: bool = False) -> None:
        self._address = address
        self.name = address.name
        self.read_only = read_only
        self._session = _Session(address)
        weakref.finalize(self, self._session.close)
        # Assigned as a whole and only while the session is locked: neither threads nor a fork see half of a change.
        self._start: State
        self._known: State
        self._attempts(self._start_reading, patience=0.0)
        if not read_only:
            self._transact(lambda _: [])

    @staticmethod
    def exists(address: Address) -> bool:
        """Return whether the server has a ledger of this data set; refuse if that can't be known."""

        def look(connection: _Connection) -> bool:
            query = "SELECT count(*) FROM dpadapt.ledgers WHERE dataset = %s"
            return _has_tables(connection) and bool(connection.execute(query, [address.dataset]).fetchone()[0])

        return _briefly(address, look)

    @classmethod
    def create(cls, address: Address, terms: Terms) -> "PostgresStore":
        """Make a new ledger, complete or not at all; if another process made one first, open that."""

        def make(connection: _Connection) -> None:
            connection.execute(_begin_writing())
            # Two processes that make tables at once would get in each other's way.
            connection.execute("SELECT pg_advisory_xact_lock(%s)", [_MAKING])
            if not _has_tables(connection):
                connection.execute(_CREATE)
            (time,) = connection.execute(f"SELECT {_TIME}").fetchone()
            text = chain.first_text(terms)
            name, head = chain.id_of(text), chain.link(chain.FORMAT, time, text)
            made = connection.execute(
                "INSERT INTO dpadapt.ledgers (id, dataset, records, head) VALUES (%s, %s, 0, %s) "
                "ON CONFLICT (dataset) DO NOTHING",
                [name, terms.dataset, head],
            )
            if made.rowcount:
                connection.execute(
                    "INSERT INTO dpadapt.records (ledger, number, hash, time, text) VALUES (%s, 0, %s, %s, %s)",
                    [name, head, time, text],
                )
            connection.execute("COMMIT")

        _briefly(address, make)
        return cls(address)

    @property
    def reopening(self) -> tuple[Any, ...]:
        """The address without passwords, the data set, and the id: another ledger of this name is not this one."""
        return self._address.text, self.read_only, self._address.dataset, self.id

    def history(self) -> list[Past]:
        """Return all charges, and how allowances were made and changed, oldest first; by the server's clock."""

        def read(connection: _Connection) -> list[Past]:
            head = self._head(connection)
            self._read(connection, self._known, head)  # refuses tables that lack what this process has seen
            return self._read(connection, self._start, head)[1]

        return self._attempts(self._reading(read))

    @property
    def last_sums(self) -> Sums:
        """What all records added up to when this process last looked."""
        return self._known.sums

    def state(self) -> State:
        """Return what all records add up to, with those that other processes made."""

        def read(connection: _Connection) -> State:
            self._known, _ = self._read(connection, self._known, self._head(connection))
            return self._known

        return self._attempts(self._reading(read))

    # Reading

    def _start_reading(self, connection: _Connection) -> None:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        n_durable = connection.execute(
            "SELECT count(*) FROM pg_class WHERE oid IN ('dpadapt.ledgers'::regclass, 'dpadapt.records'::regclass) "
            "AND relpersistence = 'p'"
        ).fetchone()[0]
        if n_durable != 2:
            raise LedgerError(
                f"the ledger {self.name} is in tables that the server empties after a crash (unlogged ones). Let the "
                f"server's administrator make them logged. {NOTHING_HAPPENED}"
            )
        row = connection.execute(
            "SELECT id, hash, time, text FROM dpadapt.ledgers LEFT JOIN dpadapt.records ON ledger = id AND number = 0 "
            "WHERE dataset = %s",
            [self._address.dataset],
        ).fetchone()
        self._start = self._begin(None if row is None or None in row else row[1:])
        if row[0] != self.id or self.terms.dataset != self._address.dataset:
            raise LedgerError(self._damaged("its row names another ledger"))
        self._known, _ = self._read(connection, self._start, self._head(connection))
        connection.execute("COMMIT")

    @staticmethod
    def _reading(read: Callable[[_Connection], _Result]) -> Callable[[_Connection], _Result]:
        """Return `read` in a transaction that sees one state of the tables."""

        def transaction(connection: _Connection) -> _Result:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            result = read(connection)
            connection.execute("COMMIT")
            return result

        return transaction

    def _head(self, connection: _Connection) -> tuple[int, str]:
        """Return number and hash of the last record, as the ledger's row has them."""
        row = connection.execute("SELECT records, head FROM dpadapt.ledgers WHERE id = %s", [self.id]).fetchone()
        if row is None:
            raise LedgerError(self._damaged("it is not on its server any more"))
        return row[0], row[1]

    def _read(self, connection: _Connection, known: State, head: tuple[int, str]) -> tuple[State, list[Past]]:
        """Follow the chain of hashes from a known state to the end, which must be what the ledger's row says."""
        rows = connection.execute(_RECORDS_AFTER, [self.id, known.records]).fetchall()
        return self._followed(known, rows, head)

    def _followed(self, known: State, rows: Sequence[Sequence[Any]], head: tuple[int, str]) -> tuple[State, list[Past]]:
        """Follow the chain through rows of numbered records, which must end at `head`."""
        if head[0] < known.records:
            raise LedgerError(self._damaged("entries are missing at its end"))
        state, charges = self._follow(known, [(row[1], row[2], row[3]) for row in rows])
        if [row[0] for row in rows] != list(range(known.records + 1, state.records + 1)):
            raise LedgerError(self._damaged(f"entry {state.records + 1} is missing or altered"))
        if (state.records, state.head) != head:
            raise LedgerError(self._damaged("its entries and its row don't agree"))
        return state, charges

    # Writing

    def _transact(self, decide: Callable[[State], Sequence[chain.Content]]) -> State:
        """Let `decide` choose records while the ledger's row is locked; they are committed when this returns."""
        self._require_writable()
        request = _Request(decide)
        self._session.require_own()
        session = self._session
        with session.turn:
            session.waiting.append(request)
            session.turn.wait_for(lambda: request.done or not session.busy)
            mine = not request.done
            session.busy = session.busy or mine
        if mine:
            try:
                self._carry_out()
            finally:
                with session.turn:
                    session.busy = False
                    session.turn.notify_all()
        if request.error is not None:
            raise request.error
        assert request.state is not None
        return request.state

    def _carry_out(self) -> None:
        """Commit the records of all waiting requests in one transaction, once; set their outcomes."""
        batch: list[_Request] = []
        try:
            self._commit_once(batch)
        except BaseException as error:
            interrupted = f"the charge to the ledger {self.name} was interrupted. It may count as spent. "
            words = str(error) if isinstance(error, LedgerError) else f"{interrupted}Nothing was released."
            for request in [*batch, *self._session.take()]:
                request.error, request.done = LedgerError(words), True
            if not isinstance(error, LedgerError):
                raise

    def _commit_once(self, batch: list[_Request]) -> None:
        token = secrets.token_hex(16)
        # Number and hash of the last record of a transaction whose commit was sent and not answered.
        sent: tuple[int, str] | None = None

        def transaction(connection: _Connection) -> None:
            nonlocal sent
            state, time = self._locked(connection)
            # This transaction holds the lock, so the one that was sent has ended: its records are here or never will
            # be. The token makes their hash unlike that of anybody else's record.
            if sent is not None and self._hash(connection, sent[0]) == sent[1]:
                connection.execute("ROLLBACK")
                self._known = state
                return
            sent = None
            # Only now: while this thread waited for the lock, others may have come.
            batch.extend(self._session.take())
            after, records = state, list[chain.Record]()
            for request in batch:
                request.state, request.error = after, None
                try:
                    contents = request.decide(after)
                    new = chain.chained(after.head, time, [{**content, "token": token} for content in contents])
                    after, _ = self._follow(after, new)
                    records += new
                except Exception as error:
                    request.error = error
            if not records:
                connection.execute("ROLLBACK")
                self._known = state
                return
            numbers = list(range(state.records + 1, after.records + 1))
            columns = [list(column) for column in zip(*records, strict=True)]
            sent = after.records, after.head
            self._session.commit(_ADD_RECORDS, [self.id, numbers, *columns, after.records, after.head, self.id])
            self._known = after

        self._attempts(transaction, unanswered=lambda: sent is not None)
        for request in batch:
            request.done = True

    def _locked(self, connection: _Connection) -> tuple[State, str]:
        """Lock the ledger's row; return its present state, and the time."""
        *_, found, rows = _results(
            connection,
            f"{_begin_writing()}; SELECT records, head, {_TIME}, current_setting('fsync'), "
            "current_setting('synchronous_commit'), has_table_privilege('dpadapt.records', 'INSERT') "
            f"FROM dpadapt.ledgers WHERE id = %s FOR UPDATE; {_RECORDS_AFTER}",
            [self.id, self.id, self._known.records],
        )
        if not found:
            raise LedgerError(self._damaged("it is not on its server any more"))
        records, head, time, fsync, synchronous, may_insert = found[0]
        if fsync != "on" or synchronous != "on":
            raise _Refused(
                "its server does not write commits through to the disk (fsync or synchronous_commit is off), so a "
                "power failure would lose charges; let the server's administrator turn it on"
            )
        if not may_insert:
            raise _Refused(_CAUSES["42501"])
        return self._followed(self._known, rows, (records, head))[0], time

    def _hash(self, connection: _Connection, number: int) -> str | None:
        query = "SELECT hash FROM dpadapt.records WHERE ledger = %s AND number = %s"
        row = connection.execute(query, [self.id, number]).fetchone()
        return None if row is None else str(row[0])

    def _attempts(
        self,
        transaction: Callable[[_Connection], _Result],
        *,
        patience: float | None = None,
        unanswered: Callable[[], bool] = lambda: False,
    ) -> _Result:
        """Carry out a transaction; after a lost connection, connect again and repeat it, as long as patience lasts."""
        deadline = monotonic() + (_RECONNECT_PATIENCE if patience is None else patience)
        while True:
            try:
                return self._session.use(transaction)
            except _Lost as error:
                cause, again = str(error), monotonic() < deadline
            except _Refused as error:
                cause, again = str(error), False
            if not again:
                break
            sleep(_RECONNECT_PAUSE)
        if unanswered():
            raise LedgerError(
                f"the charge to the ledger {self.name} could not be completed: {cause}. It may count as spent. Nothing "
                f"was released."
            )
        raise LedgerError(_unusable(self.name, cause))

    def _damaged(self, what: str) -> str:
        return (
            f"the ledger {self.name} can't be trusted: {what}. Unless these very tables can be made readable, the "
            f"budget of its data set must be taken as spent: an older copy or a new ledger would lack charges."
        )


def _begin_writing() -> str:
    """Return the statements that begin a transaction whose commit is on the disk when it is answered."""
    # Read committed: what is read after the row was locked is what the last holder of the lock committed.
    return (
        "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL synchronous_commit = on; "
        f"SET LOCAL lock_timeout = {1000 * _ROW_PATIENCE:.0f}; "
        f"SET LOCAL idle_in_transaction_session_timeout = {1000 * _LONGEST_SILENCE:.0f}"
    )


def _results(connection: _Connection, statements: str, values: Sequence[Any]) -> list[Any]:
    """Carry out several statements in one message; return the rows, or else the status, of each."""
    # This cursor puts the values into the text, quoted, as a message with several statements needs it.
    cursor = _psycopg().ClientCursor(connection)
    cursor.execute(statements, values)
    results = []
    while True:
        results.append(cursor.fetchall() if cursor.description else cursor.statusmessage)
        if not cursor.nextset():
            return results


def _has_tables(connection: _Connection) -> bool:
    return bool(connection.execute("SELECT to_regclass('dpadapt.records') IS NOT NULL").fetchone()[0])


def _briefly(address: Address, work: Callable[[_Connection], _Result]) -> _Result:
    """Return ``work(connection)`` with a connection of its own; its errors are about the ledger."""
    session = _Session(address)
    try:
        return session.use(work)
    except (_Lost, _Refused) as error:
        cause = str(error)
    finally:
        session.close()
    raise LedgerError(_unusable(address.name, cause))


def _unusable(name: str, cause: str) -> str:
    return f"the ledger {name} can't be used: {cause}. {NOTHING_HAPPENED}"


# By PostgreSQL's code of an error: why a statement was refused, and what to do.
_CAUSES = {
    "25006": "this server is a copy for reading only (a standby); use the address of the server that can be written to",
    "42501": (
        "this user lacks a right on the tables of the schema dpadapt; docs/guides/ledger-on-a-server.md lists what the "
        "administrator must grant, and a ledger opened with read_only=True needs less"
    ),
    "42P01": "its tables are not on the server any more; use the server that has them",
    "42703": "its tables were made by another version of dpadapt",
    "3F000": "its tables are not on the server any more; use the server that has them",
    "53100": "the server's disk is full; free some space there and try again",
    "55P03": "another process holds it and did not become free in time; try again when that process is done",
    "57014": "the server ended a statement that took too long, or somebody did; try again",
}
# Codes of errors that end a connection: class 08 (connection), and a server that stops, starts or ends a session.
_ENDED = re.compile("08...|57P0.|25P0[34]")
_CONNECTION_LOST = "the connection to the server was lost; try again when the server can be reached"
# By the words of libpq and the server: why there is no connection, and what to do.
_NOT_CONNECTED = (
    (
        r"password|authentication|role .* does not exist|no pg_hba\.conf entry|not permitted to log in",
        "the server does not let this user in from here; check the user, and give the password by PGPASSWORD or in "
        "~/.pgpass",
    ),
    (r"database .* does not exist|permission denied for database", "the server has no such database for this user"),
    (r"too many clients|connection slots|too many connections", "the server has no free connection; try again later"),
    (r"starting up|shutting down|in recovery mode", "the server is starting or stopping; try again in a moment"),
    (r"resolve|translate host|Name or service", "there is no machine of that name; check the address"),
    (r"timeout|timed out", "the server does not answer; check the address and the network"),
    (r"certificate|SSL|GSS", "no encrypted connection could be made; check sslmode and the certificates"),
    (r"refused|No such file|No route|unreachable", "no server answers at that address; check it, or start the server"),
)


def _why_not_connected(words: str) -> str:
    for pattern, cause in _NOT_CONNECTED:
        if re.search(pattern, words, re.IGNORECASE):
            return cause
    return "no connection could be made; check the address and the server"


def _refusal_of(error: BaseException, connection: _Connection) -> _Lost | _Refused | None:
    """Return the error to raise in place of one of the driver, with a message of ours; None for any other error."""
    psycopg = _psycopg()
    if isinstance(error, UnicodeError):
        return _Refused("the database can't store the name of the data set; use one in plain letters")
    if not isinstance(error, psycopg.Error):
        return None
    code = error.sqlstate or ""
    if connection.closed or _ENDED.fullmatch(code):
        return _Lost(_CONNECTION_LOST)
    return _Refused(_CAUSES.get(code) or f"the server reports error {code or 'without a code'}; ask its administrator")


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError:
        raise ImportError(
            f"a ledger on a PostgreSQL server needs psycopg: pip install 'dpadapt[postgres]'. {NOTHING_HAPPENED}",
            name="psycopg",
        ) from None
    return psycopg
