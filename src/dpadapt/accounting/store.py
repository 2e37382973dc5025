"""Stores for the entries of a ledger: in memory, in memory with charges to a parent, or durably in an SQLite file.

A store does one thing atomically: it lets a check compare a charge with what all earlier ones add up to, and appends it
only if the check raises nothing. A charge is one or more entries, appended together.

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
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from dpadapt.accounting.filter import Filter, Sums
from dpadapt.accounting.receipt import Entry, entry_from_dict
from dpadapt.errors import LedgerError, PrivacyError
from dpadapt.mechanisms.adjacency import Adjacency

# Takes a function, because adding up takes time that a ledger without a cap, or with one charge, can do without.
Check = Callable[[Callable[[], Sums]], None]
Charge = tuple[Entry, ...]

_FORMAT = "dpadapt ledger 2"
# Files of the first format have no filter in their terms and one record per entry; see `FileStore._convert`.
_FIRST_FORMAT = "dpadapt ledger 1"
_NOT_DURABLE = (
    "only a durable ledger can resume a run: a ledger in memory is lost in a crash. Charge runs that must survive a "
    "crash to a ledger made by Ledger.open(path, ...)."
)


class Store(ABC):
    """Entries that are only ever added to."""

    @abstractmethod
    def append(self, charge: Charge, check: Check, *, mark: str = "") -> None:
        """Call `check` with a function that adds up all earlier charges; if it returns, append the charge.

        With a `mark`, the last entry of the charge is a run that may be resumed.
        """

    def readmit(self, entry: Entry, mark: str, check: Check) -> int:
        """Return how many releases the run with this mark may have made; refuse it if `entry` was not its charge."""
        raise PrivacyError(_NOT_DURABLE)

    def reserve(self, mark: str, steps: int) -> None:
        """Record that the run with this mark may have made `steps` further releases; refuse if fewer are left."""
        raise PrivacyError(_NOT_DURABLE)

    @abstractmethod
    def charges(self) -> list[Charge]:
        """Return all charges, oldest first."""

    @abstractmethod
    def sums(self) -> Sums:
        """Return what all charges add up to."""


class MemoryStore(Store):
    """Charges in the memory of this process."""

    def __init__(self, filter: Filter) -> None:
        self._filter = filter
        self._charges: list[Charge] = []
        self._sums = Sums()
        self._lock = threading.RLock()
        self._pid = os.getpid()

    def append(self, charge: Charge, check: Check, *, mark: str = "") -> None:
        """Check and append under a lock."""
        self._require_same_process()
        if mark:
            raise PrivacyError(_NOT_DURABLE)
        with self._lock:
            check(self.sums)
            self._charges.append(charge)

    def charges(self) -> list[Charge]:
        """Return a copy of the charges."""
        with self._lock:
            return list(self._charges)

    def sums(self) -> Sums:
        """Add up charges that were not needed until now: a ledger that is charged once never needs its sums."""
        with self._lock:
            for charge in self._charges[self._sums.charges :]:
                self._sums += self._filter.sums(charge)
            return self._sums

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

    def __init__(self, filter: Filter, parent: Parent, scope: str) -> None:
        super().__init__(filter)
        self._parent = parent
        self._scope = scope

    def append(self, charge: Charge, check: Check, *, mark: str = "") -> None:
        """Check the child's cap, then charge the parent, and only then add the charge."""
        self._require_same_process()
        with self._lock:
            check(self.sums)
            self._parent._charge([self._scoped(entry) for entry in charge], mark=mark)
            super().append(charge, _already_checked)

    def readmit(self, entry: Entry, mark: str, check: Check) -> int:
        """Check the child's cap, let the parent find the run, and only then add the entry."""
        self._require_same_process()
        with self._lock:
            check(self.sums)
            used = self._parent._readmit(self._scoped(entry), mark)
            super().append((entry,), _already_checked)
            return used

    def reserve(self, mark: str, steps: int) -> None:
        """Let the parent record the releases."""
        self._parent._reserve(mark, steps)

    def _scoped(self, entry: Entry) -> Entry:
        return Entry(f"{self._scope}: {entry.label}", entry.event, entry.times, entry.seeded)


@dataclass(frozen=True)
class Terms:
    """What a durable ledger is for, fixed when it is made.

    Parameters
    ----------
    epsilon, delta : float
        The cap.
    adjacency, dataset : str
    share, order : float, int
        The filter's; see `Filter`.
    unit : str
        What is protected: a "row".
    allowances : dict
        Parts of the cap that are set aside under a name: none.
    """

    epsilon: float
    delta: float
    adjacency: str
    dataset: str
    share: float
    order: int
    unit: str = "row"
    allowances: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _ = self.filter  # checks
        if self.unit != "row" or self.allowances:
            raise ValueError("made by a later version")

    @property
    def filter(self) -> Filter:
        """The filter that decides on charges."""
        return Filter(self.epsilon, self.delta, Adjacency.of(self.adjacency), self.share, self.order)


class FileStore(Store):
    """Entries in an SQLite file, shared by processes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self.terms, self._genesis = self._verify()
        self._filter = self.terms.filter
        self._last, self._head, self._sums = 0, self._genesis, Sums()
        # By mark: the entry that a run was charged with, and how many of its releases may have been made.
        self._runs: dict[str, tuple[Entry, int]] = {}
        self.sums()

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
                text = json.dumps(asdict(terms), sort_keys=True)
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

    def append(self, charge: Charge, check: Check, *, mark: str = "") -> None:
        """Check and append in one immediate transaction."""
        # Before the transaction: the conversion of a sampled run takes time, for which other processes would wait.
        added = self._filter.sums(charge)
        with self._lock:
            with self._transaction("BEGIN IMMEDIATE") as connection:
                self._catch_up(connection)
                check(lambda: self._sums)
                text = _charged(charge, added)
                last, head = self._extend(connection, [text, *([_used(mark, 0)] if mark else [])])
            # Only after the commit: if it fails, the next charge reads the file again from the last known record.
            self._last, self._head, self._sums = last, head, self._sums + added
            if mark:
                self._runs[mark] = charge[-1], 0

    def readmit(self, entry: Entry, mark: str, check: Check) -> int:
        """Look the run up in the file."""
        with self._lock:
            self.sums()
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

    def charges(self) -> list[Charge]:
        """Return all charges, oldest first."""
        return [charge for _, charge in self.history()]

    def history(self) -> list[tuple[str, Charge]]:
        """Return all charges with the time (UTC) at which they were made."""
        with self._transaction("BEGIN") as connection:
            _, _, fresh = self._follow(connection, 0, self._genesis, {})
            return [(time, charge) for time, charge, _ in fresh]

    def sums(self) -> Sums:
        """Return what all charges add up to, with those that other processes made."""
        with self._lock, self._transaction("BEGIN") as connection:
            self._catch_up(connection)
            return self._sums

    def _catch_up(self, connection: sqlite3.Connection) -> None:
        """Read what other processes appended."""
        last, head, fresh = self._follow(connection, self._last, self._head, self._runs)
        self._last, self._head, self._sums = last, head, sum((added for _, _, added in fresh), self._sums)

    def _follow(
        self, connection: sqlite3.Connection, last: int, head: str, runs: dict[str, tuple[Entry, int]]
    ) -> tuple[int, str, list[tuple[str, Charge, Sums]]]:
        """Follow the hash chain to its end; return the number and hash of the last link, and all charges on the way.

        Records of runs that may be resumed are put into `runs`.
        """
        fresh: list[tuple[str, Charge, Sums]] = []
        rows = connection.execute("SELECT id, time, entry, hash FROM entries WHERE id > ? ORDER BY id", (last,))
        for number, time, text, digest in rows:
            if number != last + 1 or digest != _link(head, time, text):
                raise LedgerError(self._damaged(f"entry {last + 1} is missing or altered"))
            last, head = number, digest
            first, second = self._parsed(text)
            if isinstance(second, Sums):
                fresh.append((str(time), first, second))
            else:
                # The first record of a mark was written together with the charge before it.
                mark, used = first, second
                if mark not in runs and (used or not fresh):
                    raise LedgerError(self._damaged("it counts releases of an unknown run"))
                charged, before = runs.get(mark) or (fresh[-1][1][-1], 0)
                if not before <= used <= charged.times:
                    raise LedgerError(self._damaged("it counts releases that were not charged"))
                runs[mark] = charged, used
        meta = dict(connection.execute("SELECT key, value FROM meta"))
        if meta.get("head") != head or meta.get("count") != str(last):
            raise LedgerError(self._damaged("entries are missing at its end"))
        return last, head, fresh

    def _parsed(self, text: str) -> tuple[Any, Any]:
        """Return a charge and what it adds up to, or a run's mark and how many releases it may have made."""
        try:
            fields = json.loads(text)
            if "mark" in fields:
                return str(fields["mark"]), int(fields["used"])
            charge = tuple(entry_from_dict(entry) for entry in fields["charge"])
            pure, gaussian, renyi = map(float, fields["sums"])
            sums = Sums(pure, gaussian, renyi, int(fields["sampled"]), 1)
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
            raise LedgerError(self._damaged("it holds an entry of unknown form")) from None
        # Each comparison is false for NaN.
        valid = sums.pure >= 0 and sums.gaussian >= 0 and sums.renyi >= 0 and sums.sampled >= 0
        if not valid or not charge or any(entry.times < 1 for entry in charge):
            raise LedgerError(self._damaged("it holds an entry of unknown form"))
        return charge, sums

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


def _charged(charge: Charge, sums: Sums) -> str:
    """Return the record of a charge, with what it adds to the filter's sums."""
    entries = [entry.to_dict() for entry in charge]
    added = [sums.pure, sums.gaussian, sums.renyi]
    return json.dumps({"charge": entries, "sums": added, "sampled": sums.sampled}, sort_keys=True)


def _used(mark: str, releases: int) -> str:
    """Return the record that the run with this mark may have made this many releases."""
    return json.dumps({"mark": mark, "used": releases})


def _link(head: str, *parts: str) -> str:
    """Return the hash of the link after `head`."""
    return hashlib.sha256("\n".join([head, *map(str, parts)]).encode()).hexdigest()


def _already_checked(_: Any) -> None:
    """Accept the entries: they were checked before."""
