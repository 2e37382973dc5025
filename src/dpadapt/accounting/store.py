"""Stores for the entries of a ledger: in memory, in memory with charges to a parent, or durably in an SQLite file.

A store does one thing atomically: it passes the tally that new entries would lead to to a check, and appends the
entries only if the check raises nothing.

The file is in write-ahead mode with full synchronisation. Each charge is one immediate transaction, so processes take
turns and a crash loses nothing that was committed. Terms and entries form a hash chain whose head is kept in the same
file: a file with altered terms, or with missing or altered entries, is refused. After a crash there may be a ``-wal``
file beside the main file; it belongs to the ledger and must stay there.

A run that may be resumed after a crash has a mark. The file then also records, in the same chain, how many of its
releases may have been made. That number is raised before the releases are made, so that neither a crash nor a copied
checkpoint leads to more releases than were charged.

No connection is kept open after its transaction. A forked process does not inherit SQLite's locks: with a connection
kept open across a fork, the first process to close the file would delete the log that the other still commits to.
"""

import hashlib
import json
import os
import sqlite3
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from dpadapt import checks
from dpadapt.accounting.cost import add_entries
from dpadapt.accounting.receipt import Entry, entry_from_dict
from dpadapt.errors import LedgerError, PrivacyError
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.mechanism import Event

Tally = dict[Event, int]
Check = Callable[[Tally], None]

_FORMAT = "dpadapt ledger 1"
_NOT_DURABLE = (
    "only a durable ledger can resume a run: a ledger in memory is lost in a crash. Charge runs that must survive a "
    "crash to a ledger made by Ledger.open(path, ...)."
)


class Store(ABC):
    """Entries that are only ever added to."""

    @abstractmethod
    def append(self, entries: Sequence[Entry], check: Check, *, mark: str = "") -> None:
        """Call `check` with the tally that `entries` would lead to; if it returns, append all entries at once.

        With a `mark`, the last entry is a run that may be resumed.
        """

    def readmit(self, entry: Entry, mark: str, check: Check) -> int:
        """Return how many releases the run with this mark may have made; refuse it if `entry` was not its charge."""
        raise PrivacyError(_NOT_DURABLE)

    def reserve(self, mark: str, steps: int) -> None:
        """Record that the run with this mark may have made `steps` further releases; refuse if fewer are left."""
        raise PrivacyError(_NOT_DURABLE)

    @abstractmethod
    def entries(self) -> list[Entry]:
        """Return all entries, oldest first."""

    def tally(self) -> Tally:
        """Return the number of each event."""
        return add_entries({}, self.entries())


class MemoryStore(Store):
    """Entries in the memory of this process."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._tally: Tally = {}
        self._lock = threading.RLock()
        self._pid = os.getpid()

    def append(self, entries: Sequence[Entry], check: Check, *, mark: str = "") -> None:
        """Check and append under a lock."""
        self._require_same_process()
        if mark:
            raise PrivacyError(_NOT_DURABLE)
        with self._lock:
            after = add_entries(self._tally, entries)
            check(after)
            self._entries.extend(entries)
            self._tally = after

    def entries(self) -> list[Entry]:
        """Return a copy of the entries."""
        with self._lock:
            return list(self._entries)

    def _require_same_process(self) -> None:
        if self._pid != os.getpid():
            raise PrivacyError(
                "a ledger in memory can't be used in a forked process: charges made there would be lost. Start with "
                "Ledger.open(path, ...), or use n_jobs=1."
            )


class Parent(Protocol):
    """The methods of the parent ledger that the store of a child calls."""

    def _charge(self, entries: Sequence[Entry], *, mark: str = "") -> None: ...

    def _readmit(self, entry: Entry, mark: str) -> int: ...

    def _reserve(self, mark: str, steps: int) -> None: ...


class ChildStore(MemoryStore):
    """Entries that are also charged to a parent ledger: both caps must allow them."""

    def __init__(self, parent: Parent, scope: str) -> None:
        super().__init__()
        self._parent = parent
        self._scope = scope

    def append(self, entries: Sequence[Entry], check: Check, *, mark: str = "") -> None:
        """Check the child's cap, then charge the parent, and only then add the entries."""
        self._require_same_process()
        with self._lock:
            check(add_entries(self._tally, entries))
            self._parent._charge([self._scoped(entry) for entry in entries], mark=mark)
            super().append(entries, _already_checked)

    def readmit(self, entry: Entry, mark: str, check: Check) -> int:
        """Check the child's cap, let the parent find the run, and only then add the entry."""
        self._require_same_process()
        with self._lock:
            check(add_entries(self._tally, [entry]))
            used = self._parent._readmit(self._scoped(entry), mark)
            super().append([entry], _already_checked)
            return used

    def reserve(self, mark: str, steps: int) -> None:
        """Let the parent record the releases."""
        self._parent._reserve(mark, steps)

    def _scoped(self, entry: Entry) -> Entry:
        return Entry(f"{self._scope}: {entry.label}", entry.event, entry.times, entry.seeded)


@dataclass(frozen=True)
class Terms:
    """Cap, adjacency and data set of a durable ledger, fixed when it is made."""

    epsilon: float
    delta: float
    adjacency: str
    dataset: str

    def __post_init__(self) -> None:
        checks.positive(self.epsilon, "epsilon", infinite=True)
        checks.delta(self.delta)
        Adjacency.of(self.adjacency)


class FileStore(Store):
    """Entries in an SQLite file, shared by processes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self.terms, self._genesis = self._verify()
        self._last, self._head, self._tally = 0, self._genesis, Tally()
        # By mark: the entry that a run was charged with, and how many of its releases may have been made.
        self._runs: dict[str, tuple[Entry, int]] = {}
        self.tally()

    @classmethod
    def create(cls, path: Path, terms: Terms) -> "FileStore":
        """Make a new file, complete or not at all; if another process made one first, open that."""
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
        scratch = Path(name)
        try:
            with closing(_connect(scratch)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.executescript(
                    "CREATE TABLE entries (id INTEGER PRIMARY KEY, time TEXT NOT NULL, entry TEXT NOT NULL,"
                    " hash TEXT NOT NULL);"
                    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);"
                )
                text = json.dumps(terms.__dict__)
                meta = {"format": _FORMAT, "terms": text, "head": _link(_FORMAT, text), "count": "0"}
                connection.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
            with suppress(FileExistsError):
                # A link appears with the complete content and never replaces another ledger.
                os.link(scratch, path)
            _sync_folder(path.parent)
        finally:
            for leftover in (scratch, Path(f"{scratch}-wal"), Path(f"{scratch}-shm")):
                leftover.unlink(missing_ok=True)
        return cls(path)

    def append(self, entries: Sequence[Entry], check: Check, *, mark: str = "") -> None:
        """Check and append in one immediate transaction."""
        with self._lock:
            with self._transaction("BEGIN IMMEDIATE") as connection:
                self._catch_up(connection)
                after = add_entries(self._tally, entries)
                check(after)
                texts = [json.dumps(entry.to_dict(), sort_keys=True) for entry in entries]
                last, head = self._extend(connection, [*texts, *([_used(mark, 0)] if mark else [])])
            # Only after the commit: if it fails, the next charge reads the file again from the last known entry.
            self._last, self._head, self._tally = last, head, after
            if mark:
                self._runs[mark] = entries[-1], 0

    def readmit(self, entry: Entry, mark: str, check: Check) -> int:
        """Look the run up in the file."""
        with self._lock:
            self.tally()
            charged, used = self._runs.get(mark, (None, 0))
            if charged != entry:
                raise PrivacyError(
                    f"the ledger {self.path.name} holds no such run: it was charged to another ledger, or for another "
                    f"plan. Use the ledger and the settings that it was started with, or start a new run in this "
                    f"ledger, which is charged again."
                )
            return used

    def reserve(self, mark: str, steps: int) -> None:
        """Raise the number of recorded releases in one immediate transaction."""
        with self._lock:
            with self._transaction("BEGIN IMMEDIATE") as connection:
                self._catch_up(connection)
                entry, used = self._runs[mark]
                if used + steps > entry.times:
                    raise PrivacyError(
                        "the releases of this run were all made, or reserved by another process. For more releases "
                        "start a new run, which is charged again."
                    )
                last, head = self._extend(connection, [_used(mark, used + steps)])
            self._last, self._head = last, head
            self._runs[mark] = entry, used + steps

    def _extend(self, connection: sqlite3.Connection, texts: Sequence[str]) -> tuple[int, str]:
        """Add links to the hash chain; return the number and the hash of the last one."""
        last, head = self._last, self._head
        for text in texts:
            row = (datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S"), text)
            last, head = last + 1, _link(head, *row)
            connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?)", (last, *row, head))
        connection.execute("UPDATE meta SET value = ? WHERE key = 'head'", (head,))
        connection.execute("UPDATE meta SET value = ? WHERE key = 'count'", (str(last),))
        return last, head

    def entries(self) -> list[Entry]:
        """Return all entries, oldest first."""
        return [entry for _, entry in self.history()]

    def history(self) -> list[tuple[str, Entry]]:
        """Return all entries with the time (UTC) at which they were charged."""
        with self._transaction("BEGIN") as connection:
            return self._follow(connection, 0, self._genesis, {})[2]

    def tally(self) -> Tally:
        """Return the number of each event, with those that other processes charged."""
        with self._lock, self._transaction("BEGIN") as connection:
            self._catch_up(connection)
            return dict(self._tally)

    def _catch_up(self, connection: sqlite3.Connection) -> None:
        """Read what other processes appended."""
        last, head, fresh = self._follow(connection, self._last, self._head, self._runs)
        self._last, self._head, self._tally = last, head, add_entries(self._tally, [entry for _, entry in fresh])

    def _follow(
        self, connection: sqlite3.Connection, last: int, head: str, runs: dict[str, tuple[Entry, int]]
    ) -> tuple[int, str, list[tuple[str, Entry]]]:
        """Follow the hash chain to its end; return the number and hash of the last link, and all entries on the way.

        Records of runs that may be resumed are put into `runs`.
        """
        fresh: list[tuple[str, Entry]] = []
        rows = connection.execute("SELECT id, time, entry, hash FROM entries WHERE id > ? ORDER BY id", (last,))
        for number, time, text, digest in rows:
            if number != last + 1 or digest != _link(head, time, text):
                raise LedgerError(self._damaged(f"entry {last + 1} is missing or altered"))
            last, head = number, digest
            record = self._parsed(text)
            if isinstance(record, Entry):
                fresh.append((str(time), record))
            else:
                # The first record of a mark was written together with the entry before it.
                mark, used = record
                if mark not in runs and (used or not fresh):
                    raise LedgerError(self._damaged("it counts releases of an unknown run"))
                charged, before = runs.get(mark) or (fresh[-1][1], 0)
                if not before <= used <= charged.times:
                    raise LedgerError(self._damaged("it counts releases that were not charged"))
                runs[mark] = charged, used
        meta = dict(connection.execute("SELECT key, value FROM meta"))
        if meta.get("head") != head or meta.get("count") != str(last):
            raise LedgerError(self._damaged("entries are missing at its end"))
        return last, head, fresh

    def _parsed(self, text: str) -> Entry | tuple[str, int]:
        """Return an entry, or a run's mark and how many releases it may have made."""
        try:
            fields = json.loads(text)
            if "mark" in fields:
                return str(fields["mark"]), int(fields["used"])
            entry = entry_from_dict(fields)
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
            raise LedgerError(self._damaged("it holds an entry of unknown form")) from None
        if entry.times < 1:
            raise LedgerError(self._damaged("it holds an entry of unknown form"))
        return entry

    def _verify(self) -> tuple[Terms, str]:
        """Check the form of the file when it is opened; return its terms and the start of its hash chain."""
        try:
            if self.path.stat().st_size == 0:
                raise LedgerError(self._damaged("it is empty"))
        except OSError as error:
            raise LedgerError(self._damaged(error.strerror or "it can't be read")) from None
        with self._transaction("BEGIN") as connection:
            verdict = connection.execute("PRAGMA quick_check").fetchone()
            if verdict is None or verdict[0] != "ok":
                raise LedgerError(self._damaged("SQLite finds it malformed"))
            meta = dict(connection.execute("SELECT key, value FROM meta"))
        if meta.get("format") != _FORMAT:
            raise LedgerError(f"{self.path.name} is not a dpadapt ledger.")
        try:
            return Terms(**json.loads(meta["terms"])), _link(_FORMAT, meta["terms"])
        except (KeyError, TypeError, ValueError):
            raise LedgerError(self._damaged("its terms are of unknown form")) from None

    def _damaged(self, what: str) -> str:
        return (
            f"the ledger {self.path.name} can't be trusted: {what}. Unless this very file can be made readable, the "
            f"budget of its data set must be taken as spent: an older copy or a new ledger would lack charges."
        )

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        try:
            # Closing the connection rolls back what was not committed.
            with closing(_connect(self.path)) as connection:
                connection.execute(begin)
                yield connection
                connection.execute("COMMIT")
        except UnicodeDecodeError:
            # SQLite's own message about a damaged file may quote its bytes.
            raise LedgerError(self._damaged("SQLite finds it malformed")) from None
        except sqlite3.Error as error:
            if "locked" in str(error) or "busy" in str(error):
                raise LedgerError(
                    f"the ledger {self.path.name} is held by another process and did not become free. Nothing was "
                    f"released; try again."
                ) from None
            raise LedgerError(self._damaged(str(error))) from None


def _connect(path: Path) -> sqlite3.Connection:
    # mode=rw: if the ledger was deleted, SQLite must not make an empty one.
    connection = sqlite3.connect(
        f"{path.resolve().as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=120.0, check_same_thread=False
    )
    try:
        connection.execute("PRAGMA synchronous = FULL")
    except BaseException:
        connection.close()
        raise
    return connection


def _sync_folder(folder: Path) -> None:
    """Make sure that the name of a new file survives a power failure; needed and possible on POSIX only."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _used(mark: str, releases: int) -> str:
    """Return the record that the run with this mark may have made this many releases."""
    return json.dumps({"mark": mark, "used": releases})


def _link(head: str, *parts: str) -> str:
    """Return the hash of the link after `head`."""
    return hashlib.sha256("\n".join([head, *map(str, parts)]).encode()).hexdigest()


def _already_checked(_: Any) -> None:
    """Accept the entries: they were checked before."""
