"""Where a ledger keeps its entries: in memory, in its parent, or durably in an SQLite file.

A store does one thing atomically: show the tally so far to a check, and append only if the check raises nothing.

The file is in write-ahead mode with full synchronisation; each charge is one immediate transaction, so processes take
turns and a crash loses nothing that was committed. Entries form a hash chain whose head lies in the same file: a file
with missing or altered entries is refused. Keep the ``-wal`` file, if there is one, beside the main file.
"""

import hashlib
import json
import os
import sqlite3
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpadapt.accounting.entry import Entry, entry_from_dict
from dpadapt.errors import LedgerError
from dpadapt.mechanisms.events import Event

Tally = dict[Event, int]
Check = Callable[[Tally], None]

_FORMAT = "dpadapt ledger 1"
_GENESIS = hashlib.sha256(_FORMAT.encode()).hexdigest()


class Store(ABC):
    """Entries that can only grow."""

    @abstractmethod
    def append(self, entries: Sequence[Entry], check: Check) -> None:
        """Call `check` with the tally that `entries` would lead to; if it returns, append them, all or none."""

    @abstractmethod
    def entries(self) -> list[Entry]:
        """Return all entries, oldest first."""

    def tally(self) -> Tally:
        """Return how often each event happened."""
        return _add({}, self.entries())


class MemoryStore(Store):
    """Entries of this process."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._tally: Tally = {}
        self._lock = threading.RLock()

    def append(self, entries: Sequence[Entry], check: Check) -> None:
        """Check and append under a lock."""
        with self._lock:
            after = _add(self._tally, entries)
            check(after)
            self._entries.extend(entries)
            self._tally = after

    def entries(self) -> list[Entry]:
        """Return a copy of the entries."""
        with self._lock:
            return list(self._entries)


class ChildStore(MemoryStore):
    """Entries that are charged to a parent too: both caps must allow them."""

    def __init__(self, charge_parent: Callable[[Sequence[Entry]], None], scope: str) -> None:
        super().__init__()
        self._charge_parent = charge_parent
        self._scope = scope

    def append(self, entries: Sequence[Entry], check: Check) -> None:
        """Check the own cap, then charge the parent, and only then keep the entries."""
        with self._lock:
            check(_add(self._tally, entries))
            self._charge_parent([Entry(f"{self._scope}: {e.label}", e.event, e.times, e.seeded) for e in entries])
            super().append(entries, _allow)


@dataclass(frozen=True)
class Terms:
    """What a durable ledger was made for; fixed for its lifetime."""

    epsilon: float
    delta: float
    adjacency: str
    dataset: str


class FileStore(Store):
    """Entries in an SQLite file, shared by processes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._pid = -1
        self._last, self._head, self._tally = 0, _GENESIS, Tally()
        self.terms = self._verify()

    @classmethod
    def create(cls, path: Path, terms: Terms) -> "FileStore":
        """Make a new file, whole or not at all; if another process was faster, open its file."""
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
        scratch = Path(name)
        try:
            with _connect(scratch) as connection:
                connection.executescript(
                    "CREATE TABLE entries (id INTEGER PRIMARY KEY, time TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,"
                    " entry TEXT NOT NULL, hash TEXT NOT NULL);"
                    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);"
                )
                meta = {"format": _FORMAT, "terms": json.dumps(terms.__dict__), "head": _GENESIS, "count": "0"}
                connection.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
            connection.close()
            with suppress(FileExistsError):
                # A link appears with its full content and never replaces another ledger.
                os.link(scratch, path)
        finally:
            for leftover in (scratch, Path(f"{scratch}-wal"), Path(f"{scratch}-shm")):
                leftover.unlink(missing_ok=True)
        return cls(path)

    def append(self, entries: Sequence[Entry], check: Check) -> None:
        """Check and append in one immediate transaction."""
        with self._lock, self._transaction() as connection:
            self._catch_up(connection)
            after = _add(self._tally, entries)
            check(after)
            last, head = self._last, self._head
            for entry in entries:
                text = json.dumps(entry.to_dict(), sort_keys=True)
                last, head = last + 1, _link(head, text)
                connection.execute("INSERT INTO entries (id, entry, hash) VALUES (?, ?, ?)", (last, text, head))
            connection.execute("UPDATE meta SET value = ? WHERE key = 'head'", (head,))
            connection.execute("UPDATE meta SET value = ? WHERE key = 'count'", (str(last),))
        # Only after the commit: had it failed, the next charge would read the file again from where we were.
        self._last, self._head, self._tally = last, head, after

    def entries(self) -> list[Entry]:
        """Return all entries, oldest first."""
        return [entry for _, entry in self.history()]

    def history(self) -> list[tuple[str, Entry]]:
        """Return all entries with the time (UTC) at which they were charged."""
        with self._lock, self._reading() as connection:
            rows = connection.execute("SELECT time, entry FROM entries ORDER BY id").fetchall()
        return [(str(time), entry_from_dict(json.loads(text))) for time, text in rows]

    def tally(self) -> Tally:
        """Return how often each event happened, other processes' included."""
        with self._lock, self._transaction() as connection:
            self._catch_up(connection)
        return dict(self._tally)

    def _catch_up(self, connection: sqlite3.Connection) -> None:
        """Read what other processes appended, following the hash chain."""
        rows = connection.execute("SELECT id, entry, hash FROM entries WHERE id > ? ORDER BY id", (self._last,))
        last, head, fresh = self._last, self._head, []
        for number, text, digest in rows:
            if number != last + 1 or digest != _link(head, text):
                raise LedgerError(self._damaged(f"entry {last + 1} is missing or altered"))
            last, head = number, digest
            fresh.append(entry_from_dict(json.loads(text)))
        meta = dict(connection.execute("SELECT key, value FROM meta"))
        if meta.get("head") != head or meta.get("count") != str(last):
            raise LedgerError(self._damaged("entries are missing at its end"))
        self._last, self._head, self._tally = last, head, _add(self._tally, fresh)

    def _verify(self) -> Terms:
        """Check the whole file once, at opening."""
        try:
            if self.path.stat().st_size == 0:
                raise LedgerError(self._damaged("it is empty"))
            with self._transaction() as connection:
                verdict = connection.execute("PRAGMA quick_check").fetchone()
                if verdict is None or verdict[0] != "ok":
                    raise LedgerError(self._damaged("SQLite finds it malformed"))
                meta = dict(connection.execute("SELECT key, value FROM meta"))
                if meta.get("format") != _FORMAT:
                    raise LedgerError(f"{self.path.name} is not a dpadapt ledger.")
                self._catch_up(connection)
                return Terms(**json.loads(meta["terms"]))
        except sqlite3.OperationalError as error:
            if "locked" in str(error) or "busy" in str(error):
                raise
            raise LedgerError(self._damaged(str(error))) from None
        except (sqlite3.DatabaseError, json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise LedgerError(self._damaged(str(error))) from None

    def _damaged(self, what: str) -> str:
        return (
            f"the ledger {self.path.name} can't be trusted: {what}. Restore it from a backup; a new ledger would forget"
            f" what was spent."
        )

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        if self._connection is None or self._pid != os.getpid():
            # A connection must not cross a fork.
            self._connection, self._pid = _connect(self.path), os.getpid()
        try:
            yield self._connection
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            raise LedgerError(self._damaged(str(error))) from None

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._reading() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=120.0, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _link(head: str, text: str) -> str:
    return hashlib.sha256(f"{head}\n{text}".encode()).hexdigest()


def _add(tally: Tally, entries: Sequence[Entry]) -> Tally:
    after = dict(tally)
    for entry in entries:
        after[entry.event] = after.get(entry.event, 0) + entry.times
    return after


def _allow(_: Any) -> None:
    """Accept: the check was made already."""
