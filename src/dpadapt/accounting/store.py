"""Where a ledger keeps its entries: in memory, in its parent, or durably in an SQLite file.

A store does one thing atomically: show the tally so far to a check, and append only if the check raises nothing.

The file is in write-ahead mode with full synchronisation; each charge is one immediate transaction, so processes take
turns and a crash loses nothing that was committed. Terms and entries form a hash chain whose head lies in the same
file: a file with altered terms or missing or altered entries is refused. Keep the ``-wal`` file, if there is one (after
a crash), beside the main file.

A run that may be resumed after a crash has a mark. The file then also says how many of its releases may have been made.
That number is raised before they are, in the same chain: no crash and no copy of a checkpoint makes more of them than
were paid for.

No connection outlives its transaction. SQLite's locks are not inherited by a forked process: were one kept open across
a fork, the first process to close the file would delete the log that the other goes on committing to.
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
from dpadapt.accounting.receipt import Entry, entry_from_dict
from dpadapt.errors import LedgerError, PrivacyError
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.mechanism import Event

Tally = dict[Event, int]
Check = Callable[[Tally], None]

_FORMAT = "dpadapt ledger 1"
_NOT_DURABLE = (
    "only a durable ledger can resume a run: after a crash, one in memory is gone. Use Ledger.open(path, ...)."
)


class Store(ABC):
    """Entries that can only grow."""

    @abstractmethod
    def append(self, entries: Sequence[Entry], check: Check, *, mark: str = "") -> None:
        """Call `check` with the tally that `entries` would lead to; if it returns, append them, all or none.

        With a `mark`, the last of them is a run that may be resumed.
        """

    def readmit(self, entry: Entry, mark: str, check: Check) -> int:
        """Return how many releases the run of `entry` with this mark may have made; refuse any other run."""
        raise PrivacyError(_NOT_DURABLE)

    def reserve(self, mark: str, steps: int) -> None:
        """Record that the run with this mark may have made `steps` further releases, if so many are left."""
        raise PrivacyError(_NOT_DURABLE)

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
        self._pid = os.getpid()

    def append(self, entries: Sequence[Entry], check: Check, *, mark: str = "") -> None:
        """Check and append under a lock."""
        self._require_same_process()
        if mark:
            raise PrivacyError(_NOT_DURABLE)
        with self._lock:
            after = _add(self._tally, entries)
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
                "a ledger in memory can't be used in a forked process: its charges would be forgotten. "
                "Use Ledger.open(path, ...), or n_jobs=1."
            )


class Parent(Protocol):
    """What a child's store needs of the parent ledger."""

    def _charge(self, entries: Sequence[Entry], *, mark: str = "") -> None: ...

    def _readmit(self, entry: Entry, mark: str) -> int: ...

    def _reserve(self, mark: str, steps: int) -> None: ...


class ChildStore(MemoryStore):
    """Entries that are charged to a parent too: both caps must allow them."""

    def __init__(self, parent: Parent, scope: str) -> None:
        super().__init__()
        self._parent = parent
        self._scope = scope

    def append(self, entries: Sequence[Entry], check: Check, *, mark: str = "") -> None:
        """Check the own cap, then charge the parent, and only then keep the entries."""
        self._require_same_process()
        with self._lock:
            check(_add(self._tally, entries))
            self._parent._charge([self._scoped(entry) for entry in entries], mark=mark)
            super().append(entries, _allow)

    def readmit(self, entry: Entry, mark: str, check: Check) -> int:
        """Check the own cap, let the parent find the run, and only then keep the entry."""
        self._require_same_process()
        with self._lock:
            check(_add(self._tally, [entry]))
            used = self._parent._readmit(self._scoped(entry), mark)
            super().append([entry], _allow)
            return used

    def reserve(self, mark: str, steps: int) -> None:
        """Pass it on to where it is kept."""
        self._parent._reserve(mark, steps)

    def _scoped(self, entry: Entry) -> Entry:
        return Entry(f"{self._scope}: {entry.label}", entry.event, entry.times, entry.seeded)


@dataclass(frozen=True)
class Terms:
    """What a durable ledger was made for; fixed for its lifetime."""

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
        # By mark: what a run was charged, and how many of its releases may have been made.
        self._runs: dict[str, tuple[Entry, int]] = {}
        self.tally()

    @classmethod
    def create(cls, path: Path, terms: Terms) -> "FileStore":
        """Make a new file, whole or not at all; if another process was faster, open its file."""
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
                # A link appears with its full content and never replaces another ledger.
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
                after = _add(self._tally, entries)
                check(after)
                texts = [json.dumps(entry.to_dict(), sort_keys=True) for entry in entries]
                last, head = self._extend(connection, [*texts, *([_used(mark, 0)] if mark else [])])
            # Only after the commit: had it failed, the next charge would read the file again from where we were.
            self._last, self._head, self._tally = last, head, after
            if mark:
                self._runs[mark] = entries[-1], 0

    def readmit(self, entry: Entry, mark: str, check: Check) -> int:
        """Find the run in the file."""
        with self._lock:
            self.tally()
            charged, used = self._runs.get(mark, (None, 0))
            if charged != entry:
                raise PrivacyError(
                    f"the ledger {self.path.name} holds no such run: it was charged to another ledger, or for another "
                    f"plan. Use the ledger and the settings that it was started with, or start a new one."
                )
            return used

    def reserve(self, mark: str, steps: int) -> None:
        """Raise the number of releases in one immediate transaction."""
        with self._lock:
            with self._transaction("BEGIN IMMEDIATE") as connection:
                self._catch_up(connection)
                entry, used = self._runs[mark]
                if used + steps > entry.times:
                    raise PrivacyError("the releases of this run were all made, or reserved by another process.")
                last, head = self._extend(connection, [_used(mark, used + steps)])
            self._last, self._head = last, head
            self._runs[mark] = entry, used + steps

    def _extend(self, connection: sqlite3.Connection, texts: Sequence[str]) -> tuple[int, str]:
        """Add links to the hash chain; return number and hash of the last."""
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
        """Return how often each event happened, other processes' included."""
        with self._lock, self._transaction("BEGIN") as connection:
            self._catch_up(connection)
            return dict(self._tally)

    def _catch_up(self, connection: sqlite3.Connection) -> None:
        """Read what other processes appended."""
        last, head, fresh = self._follow(connection, self._last, self._head, self._runs)
        self._last, self._head, self._tally = last, head, _add(self._tally, [entry for _, entry in fresh])

    def _follow(
        self, connection: sqlite3.Connection, last: int, head: str, runs: dict[str, tuple[Entry, int]]
    ) -> tuple[int, str, list[tuple[str, Entry]]]:
        """Follow the hash chain to its end; return number and hash of the last link, and all entries on the way.

        What the chain says of runs that may be resumed goes into `runs`.
        """
        fresh: list[tuple[str, Entry]] = []
        rows = connection.execute("SELECT id, time, entry, hash FROM entries WHERE id > ? ORDER BY id", (last,))
        for number, time, text, digest in rows:
            if number != last + 1 or digest != _link(head, time, text):
                raise LedgerError(self._damaged(f"entry {last + 1} is missing or altered"))
            last, head = number, digest
            found = self._parsed(text)
            if isinstance(found, Entry):
                fresh.append((str(time), found))
            else:
                # The first link with a mark was written together with the entry before it.
                mark, used = found
                if mark not in runs and (used or not fresh):
                    raise LedgerError(self._damaged("it counts releases of an unknown run"))
                charged, before = runs.get(mark) or (fresh[-1][1], 0)
                if not before <= used <= charged.times:
                    raise LedgerError(self._damaged("it counts releases that were not paid for"))
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
        """Check the file's form, at opening; return its terms and where its hash chain starts."""
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
            f"the ledger {self.path.name} can't be trusted: {what}. Restore it from a backup; a new ledger would forget"
            f" what was spent."
        )

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        try:
            # Closing rolls back what was not committed.
            with closing(_connect(self.path)) as connection:
                connection.execute(begin)
                yield connection
                connection.execute("COMMIT")
        except UnicodeDecodeError:
            # What SQLite has to say about a damaged file may quote its bytes.
            raise LedgerError(self._damaged("SQLite finds it malformed")) from None
        except sqlite3.Error as error:
            if "locked" in str(error) or "busy" in str(error):
                raise LedgerError(
                    f"the ledger {self.path.name} is held by another process and did not become free. Nothing was "
                    f"released; try again."
                ) from None
            raise LedgerError(self._damaged(str(error))) from None


def _connect(path: Path) -> sqlite3.Connection:
    # mode=rw: a ledger that has vanished must not come back empty.
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
    """Make a new file's name survive a power cut; needed and possible on POSIX only."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _used(mark: str, releases: int) -> str:
    return json.dumps({"mark": mark, "used": releases})


def _link(head: str, *parts: str) -> str:
    return hashlib.sha256("\n".join([head, *map(str, parts)]).encode()).hexdigest()


def _add(tally: Tally, entries: Sequence[Entry]) -> Tally:
    after = dict(tally)
    for entry in entries:
        after[entry.event] = after.get(entry.event, 0) + entry.times
    return after


def _allow(_: Any) -> None:
    """Accept: the check was made already."""
