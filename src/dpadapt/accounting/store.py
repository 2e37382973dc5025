"""Stores for the charges of a ledger: in memory, in memory with charges to a parent, or durably.

A store does one thing atomically: it lets a check compare a charge with what all earlier ones add up to, and appends it
only if the check raises nothing. A charge is one or more entries, appended together. A durable store keeps a chain of
records (`chain.py`), here in a file; `integrations/postgres.py` keeps it on a server.

**The file** is text: the name of the format, two commit lines, and one line per record, the terms first. Each record
carries a hash of itself and of the record before it; each commit line states how many records and bytes are committed
and the last hash, and carries a hash of itself. So every byte is covered by some hash, and a file with altered terms,
or with missing or altered records, is refused.

To charge, a process locks the file, appends its records, writes them through to the disk, and then overwrites the older
of the two commit lines and writes that through. Only then is noise drawn. Complete records after the last commit count
as charged, whether or not they were used; an incomplete one was never used and is dropped. If one commit line is
unreadable, as a power failure may leave it, complete records must follow the other one; otherwise the file is refused.

Nothing that was charged lives in another file. A journal beside the file, as databases keep one, is found by its name:
under a second name of the ledger (a hard link, a file mounted into a container) it is missed, and one that was left
behind or copied back undoes charges that were made since.

What the file can't show: that it is, as a whole, an older copy of itself. A process that has the ledger open refuses a
file that lacks charges that the process has seen; a process that starts afterwards can't know.

A run that may be resumed after a crash has a mark. The file then also records, in the same chain, how many of its
releases may have been made. That number is raised before the releases are made, so that neither a crash nor a copied
checkpoint leads to more releases than were charged.

No file is kept open after its transaction, so that a fork shares neither a lock nor a position in the file.
"""

import errno
import math
import os
import re
import stat
import sys
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from time import monotonic, sleep
from typing import IO, Any, Protocol, cast

from dpadapt.accounting import chain
from dpadapt.accounting.chain import FORMAT, Allowance, Charge, Past, Record, State, Terms, link
from dpadapt.accounting.filter import Filter, Sums
from dpadapt.disk import network_file_system, sync, sync_folder, try_lock, unlock
from dpadapt.errors import LedgerError, PrivacyError
from dpadapt.mechanisms.events import Entry

# Number of records, number of bytes, hash of the last record, hash of these three.
_COMMIT_LINE = re.compile(r"(\d{16}) (\d{16}) ([0-9a-f]{64}) ([0-9a-f]{64})\n", re.ASCII)
_COMMIT_BYTES = 16 + 1 + 16 + 1 + 64 + 1 + 64 + 1
_FIRST_COMMIT = len(FORMAT) + 1
_FIRST_RECORD = _FIRST_COMMIT + 2 * _COMMIT_BYTES
# Hash, time (UTC), JSON.
_RECORD_LINE = re.compile(r"([0-9a-f]{64}) (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (.*)", re.ASCII)

# Seconds to wait for a lock. A charge holds it for some milliseconds; a longer wait would hide a process that hangs.
_LOCK_PATIENCE = 60.0
# Seconds between two attempts to get a lock: short against the time that a charge takes on a disk.
_LOCK_PAUSE = 0.005

NOTHING_HAPPENED = "Nothing was charged and nothing was released."
_NOT_DURABLE = (
    "only a durable ledger can resume a run: a ledger in memory is lost in a crash. Charge runs that must survive a "
    "crash to a ledger made by Ledger.open(path, ...)."
)


class Store(ABC):
    """Entries that are only ever added to."""

    @abstractmethod
    def append(self, charge: Charge, *, mark: str = "") -> None:
        """Append the charge if the filter lets it through after all earlier charges; else raise `BudgetExceeded`.

        With a `mark`, the last entry of the charge is a run that may be resumed.
        """

    def readmit(self, entry: Entry, mark: str) -> int:
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

    def history(self) -> list[Past]:
        """Return all charges, oldest first, with their times if these are known."""
        return [Past("", charge) for charge in self.charges()]


class MemoryStore(Store):
    """Charges in the memory of this process."""

    def __init__(self, filter: Filter) -> None:
        self._filter = filter
        self._charges: list[Charge] = []
        self._sums = Sums()
        self._lock = threading.RLock()
        self._pid = os.getpid()

    def append(self, charge: Charge, *, mark: str = "") -> None:
        """Check and append under a lock."""
        self._require_same_process()
        if mark:
            raise PrivacyError(_NOT_DURABLE)
        with self._lock:
            self._check(charge)
            self._charges.append(charge)

    def _check(self, charge: Charge) -> None:
        # Adding up takes time that a ledger without a cap can do without.
        if math.isfinite(self._filter.epsilon):
            self._filter.require(self.sums(), charge)

    def charges(self) -> list[Charge]:
        """Return a copy of the charges."""
        with self._lock:
            return list(self._charges)

    def sums(self) -> Sums:
        """Add up charges that were not needed until now: a ledger that is charged once never needs its sums."""
        with self._lock:
            for charge in self._charges[self._sums.charges :]:
                self._sums += self._filter.sums(charge, self._sums)
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

    def append(self, charge: Charge, *, mark: str = "") -> None:
        """Check the child's cap, then charge the parent, and only then add the charge."""
        # Claim: a charge counts in every ledger above before it counts here. If a cap refuses it, no ledger has it.
        self._require_same_process()
        with self._lock:
            self._check(charge)
            self._parent._charge([self._scoped(entry) for entry in charge], mark=mark)
            self._charges.append(charge)

    def readmit(self, entry: Entry, mark: str) -> int:
        """Check the child's cap, let the parent find the run, and only then add the entry."""
        self._require_same_process()
        with self._lock:
            self._check((entry,))
            used = self._parent._readmit(self._scoped(entry), mark)
            self._charges.append((entry,))
            return used

    def reserve(self, mark: str, steps: int) -> None:
        """Let the parent record the releases."""
        self._parent._reserve(mark, steps)

    def _scoped(self, entry: Entry) -> Entry:
        return Entry(f"{self._scope}: {entry.label}", entry.event, entry.times, entry.seeded)


class DurableStore(Store):
    """Charges in a chain of records that several processes share.

    A subclass has the place of the chain: `name` is what messages call it, `read_only` says that it is never written
    to. `terms` and `id` were read from its first record.
    """

    name: str
    read_only: bool
    terms: Terms
    id: str

    @abstractmethod
    def _transact(self, decide: Callable[[State], Sequence[chain.Content]]) -> State:
        """Lock the ledger and commit the records that `decide` returns for its present state; return that state.

        If `decide` raises an error, nothing is written. When this returns, the records survive a crash.
        """

    @abstractmethod
    def state(self) -> State:
        """Return what all records add up to, with those that other processes made."""

    @abstractmethod
    def history(self) -> list[Past]:
        """Return all charges, and how allowances were made and changed, oldest first."""

    @property
    @abstractmethod
    def reopening(self) -> tuple[Any, ...]:
        """What a pickle of the ledger holds: the arguments of `Ledger._reopened`. No password is among them."""

    @property
    @abstractmethod
    def last_sums(self) -> Sums:
        """What all records added up to when this process last looked: nothing is read."""

    def append(self, charge: Charge, *, mark: str = "") -> None:
        """Check and append while the ledger is locked."""
        # Before the lock: the costs of a sampled run take time, for which other processes would wait. They are kept.
        self._filter.sums(charge, self.last_sums)
        self._append(
            lambda state: chain.charged(charge, self._filter.sums(charge, state.sums)),
            lambda state: self._filter.require(state.sums, charge),
            mark,
        )

    def append_under(self, name: str, charge: Charge, *, mark: str = "") -> None:
        """Check a charge against the cap and against the present limit of an allowance, and append it."""
        known = self.allowance(name)
        known.filter.sums(charge, known.sums)

        def content(state: State) -> chain.Content:
            allowance = state.allowances[name]
            return {
                **chain.charged(charge, self._filter.sums(charge, state.sums)),
                **chain.under(name, allowance.filter.sums(charge, allowance.sums)),
            }

        def check(state: State) -> None:
            # Both filters are asked under the lock, each about all charges that it counts. So the claim of
            # `Filter.needs` holds twice: all releases have the cap's epsilon and delta, and those under the name have
            # the allowance's, if they were chosen by themselves alone.
            allowance = state.allowances[name]
            self._filter.require(state.sums, charge)
            allowance.filter.require(allowance.sums, charge, name)

        self._append(content, check, mark)

    def _append(self, content: Callable[[State], chain.Content], check: Callable[[State], None], mark: str) -> None:
        """Append the record of a charge if the check passes, with a record for a run that may be resumed."""

        def decide(state: State) -> Sequence[chain.Content]:
            check(state)
            return [content(state), chain.used(mark, 0)] if mark else [content(state)]

        self._transact(decide)

    def allow(self, name: str, epsilon: float, delta: float | None) -> None:
        """Make an allowance, or change the epsilon of one; a missing delta is the ledger's, or stays as it was."""

        def decide(state: State) -> Sequence[chain.Content]:
            known = state.allowances.get(name)
            if known is None:
                kept = self.terms.delta if delta is None else delta
                made = Filter.of(self._filter.rule, epsilon, kept, self._filter.adjacency)
            else:
                made = replace(known.filter, epsilon=epsilon)
            if delta is not None and delta != made.delta:
                raise LedgerError(
                    f"the allowance {name!r} of the ledger {self.name} has delta={made.delta!r}, not {delta!r}. It is "
                    f"fixed when the allowance is made; leave delta out, or use another name. {NOTHING_HAPPENED}"
                )
            return [] if known is not None and known.filter == made else [chain.allowed(name, made)]

        self._transact(decide)

    def allowance(self, name: str) -> Allowance:
        """Return an allowance as it is now, or refuse a name that has none."""
        known = self.state().allowances
        if name not in known:
            names = ", ".join(sorted(map(repr, known))) or "none"
            raise ValueError(
                f"the ledger {self.name} has no allowance {name!r}. It has: {names}. Make one with `dpadapt ledger "
                f"allow`, or in Python with ledger.allow(name, epsilon). {NOTHING_HAPPENED}"
            )
        return known[name]

    def readmit(self, entry: Entry, mark: str, *, allowance: str = "") -> int:
        """Look the run up in the chain."""
        state = self._transact(lambda _: [])
        charged, used, under = state.runs.get(mark, (None, 0, ""))
        if charged != entry or under != allowance:
            raise PrivacyError(
                f"the ledger {self.name} holds no such run: it was charged to another ledger, or for another "
                f"plan. Use the ledger and the settings that it was started with, or start a new run in this "
                f"ledger, which is charged again."
            )
        return used

    def reserve(self, mark: str, steps: int) -> None:
        """Raise the number of recorded releases while the ledger is locked."""

        def decide(state: State) -> Sequence[chain.Content]:
            entry, used, _ = state.runs[mark]
            if used + steps > entry.times:
                raise PrivacyError(
                    "the releases of this run were all made, or reserved by another process. For more releases "
                    "start a new run, which is charged again."
                )
            return [chain.used(mark, used + steps)]

        self._transact(decide)

    def charges(self) -> list[Charge]:
        """Return all charges, oldest first."""
        return [past.charge for past in self.history() if past.charge]

    def sums(self) -> Sums:
        """Return what all charges add up to, with those that other processes made."""
        return self.state().sums

    def _begin(self, record: Record | None) -> State:
        """Take the terms from the first record; return the state after it."""
        try:
            begun = None if record is None else chain.begin(record)
        except chain.UnknownTerms:
            raise LedgerError(self._from_later()) from None
        if begun is None:
            raise LedgerError(self._damaged("its terms are missing or altered"))
        self.id, self.terms, state = begun
        self._filter = self.terms.filter
        return state

    def _follow(self, known: State, records: Sequence[Record]) -> tuple[State, list[Past]]:
        """Follow the chain as far as its records are unaltered; refuse records that no store wrote."""
        try:
            return chain.follow(known, records, self.terms)
        except chain.BrokenChain as error:
            what = str(error)
        raise LedgerError(self._damaged(what))

    def _require_writable(self) -> None:
        if self.read_only:
            raise LedgerError(
                f"the ledger {self.name} was opened for reading only. Open it without read_only=True to charge "
                f"it. {NOTHING_HAPPENED}"
            )

    @abstractmethod
    def _damaged(self, what: str) -> str:
        """Return the message about a ledger that can't be trusted."""

    def _from_later(self) -> str:
        return f"the ledger {self.name} was made by a later version of dpadapt. Use that version or a later one."


class AllowanceStore(Store):
    """The charges under an allowance of a durable ledger: a child whose record is the ledger's own.

    `filter` has the limit of the moment when this was made; what counts is the limit at the moment of a charge.
    """

    def __init__(self, ledger: DurableStore, allowance: str) -> None:
        self.ledger = ledger
        self.allowance = allowance
        self.filter = ledger.allowance(allowance).filter

    def append(self, charge: Charge, *, mark: str = "") -> None:
        """Let the ledger check its cap and the allowance's present limit, and append."""
        self.ledger.append_under(self.allowance, charge, mark=mark)

    def readmit(self, entry: Entry, mark: str) -> int:
        """Let the ledger find a run that was charged under this allowance; its charge counts already."""
        return self.ledger.readmit(entry, mark, allowance=self.allowance)

    def reserve(self, mark: str, steps: int) -> None:
        """Let the ledger record the releases."""
        self.ledger.reserve(mark, steps)

    def history(self) -> list[Past]:
        """Return the charges under this allowance, and how it was made and changed."""
        return [past for past in self.ledger.history() if past.allowance == self.allowance]

    def charges(self) -> list[Charge]:
        """Return the charges under this allowance, oldest first."""
        return [past.charge for past in self.history() if past.charge]

    def sums(self) -> Sums:
        """Return what the charges under this allowance add up to."""
        return self.ledger.allowance(self.allowance).sums


@dataclass(frozen=True)
class _Commit:
    """A commit line: how many records and bytes of the file are committed, and the hash of the last record."""

    records: int
    end: int
    head: str

    def line(self) -> bytes:
        """Return the line as it stands in the file."""
        text = f"{self.records:016} {self.end:016} {self.head}"
        return f"{text} {link(FORMAT, text)}\n".encode()


def _read_commit(line: bytes) -> _Commit | None:
    """Return the commit line, or None if it is altered."""
    match = _COMMIT_LINE.fullmatch(line.decode("latin-1"))
    commit = _Commit(int(match[1]), int(match[2]), match[3]) if match else None
    return commit if commit and commit.line() == line else None


@dataclass(frozen=True)
class _Position:
    """A state of the ledger, and where its records end in the file."""

    state: State
    end: int

    @property
    def commit(self) -> _Commit:
        """The commit line for this position."""
        return _Commit(self.state.records, self.end, self.state.head)


@dataclass(frozen=True)
class _Reading:
    """What one look at the file gave.

    `last` counts everything that must be taken as charged, `committed` what a commit line covers. `spare` is the
    number of the commit line that the next commit overwrites. After a crash the commit lines may be `stale`, and the
    `leftover` of an incomplete record may follow.
    """

    last: _Position
    committed: _Position
    charges: list[Past]
    spare: int
    stale: bool
    leftover: bool


class FileStore(DurableStore):
    """Charges in a file, shared by the processes of one machine.

    Parameters
    ----------
    path : Path
        Resolved at once: a later change of the working folder does not matter.
    read_only : bool, default=False
        Never write, and do without the right to. Otherwise a file that can't be written to is refused at once.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = _resolved(path)
        self.name = self.path.name
        self.read_only = read_only
        self._inode: tuple[int, int] | None = None
        # Assigned as a whole and only while the file is locked: neither threads nor a fork see half of a change.
        self._known: _Position
        _require_tested()
        _require_local(self.path)
        self._start_reading()

    @staticmethod
    def exists(path: Path) -> bool:
        """Return whether there is a file at `path`; refuse if that can't be known."""
        try:
            return path.exists()
        except OSError as error:
            cause = _cause(error, "enter its folder")
        raise LedgerError(
            f"the ledger {path.name} can't be opened: {cause}. Nothing was charged and nothing was released."
        )

    @classmethod
    def create(cls, path: Path, terms: Terms) -> "FileStore":
        """Make a new file, complete or not at all; if another process made one first, open that."""
        path = _resolved(path)
        _require_tested()
        _require_local(path)
        try:
            with _scratch(path, _content(terms, [])) as scratch, suppress(FileExistsError):
                # A link appears with the complete content and never replaces another ledger.
                os.link(scratch, path)
            sync_folder(path.parent)
        except OSError as error:
            missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
            cause = "there is no such folder; make it first" if missing else _cause(error, "write to this folder")
            raise OSError(error.errno, cause, str(path)) from None
        return cls(path)

    @property
    def reopening(self) -> tuple[Any, ...]:
        """The path."""
        return str(self.path), self.read_only

    def _transact(self, decide: Callable[[State], Sequence[chain.Content]]) -> State:
        """Let `decide` choose records while the file is locked, and append them."""
        with self._opened(write=True) as file:
            last, spare = self._catch_up(file)
            if records := decide(last.state):
                self._commit(file, last, spare, records)
            return last.state

    def history(self) -> list[Past]:
        """Return all charges, and how allowances were made and changed, oldest first."""
        with self._opened(write=False) as file:
            self._read(file, self._known)  # refuses a file that lacks what this process has seen
            return self._read(file, self._start).charges

    def state(self) -> State:
        """Return what all records add up to, with those that other processes made."""
        with self._opened(write=False) as file:
            reading = self._read(file, self._known)
            self._known = reading.committed
            return reading.last.state

    @property
    def last_sums(self) -> Sums:
        """What all records added up to when this process last looked."""
        return self._known.state.sums

    # Reading

    def _start_reading(self) -> None:
        """Read the terms and all records."""
        with self._opened(write=not self.read_only) as file:
            top = file.read(_FIRST_COMMIT)
            if top != f"{FORMAT}\n".encode():
                if re.fullmatch(rb"dpadapt ledger [0-9]+\s*", top):
                    raise LedgerError(self._from_later())
                raise LedgerError(
                    f"{self.name} is not a dpadapt ledger. If it was one and was damaged, the budget of its data "
                    f"set must be taken as spent. {NOTHING_HAPPENED}"
                )
            file.seek(_FIRST_RECORD)
            line = file.read().partition(b"\n")[0]
            self._start = _Position(self._begin(_read_record(line)), _FIRST_RECORD + len(line) + 1)
            self._known = self._read(file, self._start).committed

    def _read(self, file: IO[bytes], known: _Position) -> _Reading:
        """Follow the chain of hashes from a known state to the end of the file."""
        file.seek(_FIRST_COMMIT)
        lines = [file.read(_COMMIT_BYTES) for _ in range(2)]
        commits = [_read_commit(line) for line in lines]
        valid = [commit for commit in commits if commit is not None]
        if not valid:
            raise LedgerError(self._damaged("both of its commit lines are altered"))
        last = max(valid, key=lambda commit: commit.end)
        size = last.end - known.end
        if size < 0 or file.seek(0, os.SEEK_END) < last.end:
            raise LedgerError(self._damaged("entries are missing at its end"))
        file.seek(known.end)
        data = file.read()
        committed, charges = self._follow_lines(known, data[:size])
        if committed.commit != last:
            raise LedgerError(self._damaged(f"entry {committed.state.records + 1} is missing or altered"))
        rest = data[size:]
        end, more = self._follow_lines(committed, rest)
        leftover = end.end < last.end + len(rest)
        # An altered line may be the newer one, and all that follows the other one committed. A crash that spoils a
        # commit line leaves complete records; less than that is damage that may have hit charges.
        if len(valid) < 2 and (leftover or not rest):
            raise LedgerError(self._damaged("one of its commit lines is altered"))
        spare = commits.index(None) if len(valid) < 2 else 1 - commits.index(last)
        return _Reading(end, committed, charges + more, spare, end.commit != last, leftover)

    def _follow_lines(self, known: _Position, data: bytes) -> tuple[_Position, list[Past]]:
        """Follow the chain through `data` as far as its lines are complete and unaltered."""
        *lines, _ = data.split(b"\n")
        records = list(takewhile(lambda record: record is not None, map(_read_record, lines)))
        state, charges = self._follow(known.state, cast(list[Record], records))
        followed = lines[: state.records - known.state.records]
        return _Position(state, known.end + sum(len(line) + 1 for line in followed)), charges

    # Writing

    def _catch_up(self, file: IO[bytes]) -> tuple[_Position, int]:
        """Read what other processes appended and clear away what a crash left; return also the next commit line."""
        reading = self._read(file, self._known)
        last, spare = reading.last, reading.spare
        if reading.leftover:
            file.truncate(last.end)
        if reading.stale:
            _put(file, _place(spare), last.commit.line())
            spare = 1 - spare
        self._known = last
        return last, spare

    def _commit(self, file: IO[bytes], last: _Position, spare: int, contents: Sequence[chain.Content]) -> None:
        """Append records and commit them."""
        records = chain.chained(last.state.head, chain.now(), contents)
        data = "".join(map(_line, records)).encode()
        after, _ = self._follow_lines(last, data)
        try:
            _put(file, last.end, data)
        except BaseException:
            with suppress(OSError):
                file.truncate(last.end)
            raise
        try:
            _put(file, _place(spare), after.commit.line())
            self._known = after
            # A file that was replaced or got a second name meanwhile may not be what the next process opens.
            self._require_only_name(file)
        except OSError as error:
            cause = _cause(error, "write to it")
            raise LedgerError(
                f"the charge to the ledger {self.name} could not be completed: {cause}. It may count as spent. "
                f"Nothing was released."
            ) from None

    @contextmanager
    def _opened(self, *, write: bool) -> Iterator[IO[bytes]]:
        """Open the file and lock it, for reading too: else one could read half of a charge."""
        if write:
            self._require_writable()
        try:
            with self._locked("r+b" if write else "rb") as file:
                try:
                    if write:
                        self._require_only_name(file)
                    yield file
                finally:
                    unlock(file)
        except OSError as error:
            cause = _cause(error, "write to it" if write else "read it")
            hint = " `dpadapt ledger show` can still read it." if write and error.errno in _NOT_WRITABLE else ""
            raise LedgerError(f"the ledger {self.name} can't be used: {cause}.{hint} {NOTHING_HAPPENED}") from None

    def _locked(self, mode: str) -> IO[bytes]:
        """Return the open and locked file, the same as ever."""
        if not stat.S_ISREG(self.path.stat().st_mode):
            raise LedgerError(f"{self.name} is not a file, so it can't be a ledger. {NOTHING_HAPPENED}")
        deadline = monotonic() + _LOCK_PATIENCE
        file: IO[bytes] = self.path.open(mode, buffering=0)
        try:
            while not try_lock(file):
                if monotonic() > deadline:
                    raise LedgerError(
                        f"the ledger {self.name} is held by another process and did not become free within "
                        f"{_LOCK_PATIENCE:.0f} seconds. {NOTHING_HAPPENED} Try again when the other process is "
                        f"done."
                    )
                sleep(_LOCK_PAUSE)
            here, there = _identity(os.fstat(file.fileno())), _identity(self.path.stat())
            if here != there or self._inode not in (None, here):
                raise LedgerError(
                    f"the ledger {self.name} was replaced by another file while it was open. "
                    f"{NOTHING_HAPPENED} Put the very file back that was there: an older copy lacks charges."
                )
            self._inode = here
            return file
        except BaseException:
            file.close()
            raise

    def _require_only_name(self, file: IO[bytes]) -> None:
        """Refuse a file that is reached by several names, or no longer by its own.

        A program that saves by replacing would cut the names apart, and leave two ledgers for one data set.
        """
        facts = os.fstat(file.fileno())
        if facts.st_nlink > 1:
            # A process that was killed while it made this ledger may have left the name under which it wrote it.
            for name in _scratch_names(self.path):
                if _identity(name.stat()) == _identity(facts):
                    name.unlink()
            facts = os.fstat(file.fileno())
        if facts.st_nlink > 1:
            raise LedgerError(
                f"the ledger {self.name} has {facts.st_nlink} names (hard links), and a program that replaces one "
                f"of them would leave two ledgers for one data set. Give it a single name: `find -samefile` lists "
                f"them all. Nothing was released."
            )
        # A file mounted by itself can still be reached when it was replaced in its own folder.
        if facts.st_nlink < 1 or _identity(self.path.stat()) != _identity(facts):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    def _damaged(self, what: str) -> str:
        return (
            f"the ledger {self.name} can't be trusted: {what}. Unless this very file can be made readable, the "
            f"budget of its data set must be taken as spent: an older copy or a new ledger would lack charges."
        )


_NOT_WRITABLE = {errno.EACCES, errno.EPERM, errno.EROFS}


def _cause(error: OSError, action: str) -> str:
    """Return why a file can't be used, and what to do; `action` is what was tried."""
    match error.errno:
        case errno.EACCES | errno.EPERM:
            return f"this user has no permission to {action}; use an account that has it"
        case errno.EROFS:
            return "its file system is mounted read-only; run this where it is mounted for writing"
        case errno.ENOSPC | errno.EDQUOT:
            return "the disk is full; free some space and try again"
        case errno.EBUSY:
            return (
                "another process holds it, or it is a file mounted by itself, to be opened in its own folder once; try "
                "again when nothing else uses it"
            )
        case errno.ENOENT | errno.ENOTDIR:
            return (
                "it is not where it was, or its folder is missing; put that very file in its place, because an older "
                "copy would lack charges"
            )
        case errno.ENOLCK | errno.ENOSYS | errno.EOPNOTSUPP:
            return "its file system lacks locks or links; keep it on a local disk of the machine that runs the fits"
    return (
        f"the system reports {error.strerror or type(error).__name__!r}; use this very file again when that is mended"
    )


def _read_record(line: bytes) -> Record | None:
    """Return the record of a line, or None if it is none."""
    match = _RECORD_LINE.fullmatch(line.decode("latin-1"))
    return (match[1], match[2], match[3]) if match else None


def _line(record: Record) -> str:
    """Return a record as it stands in the file."""
    digest, time, text = record
    return f"{digest} {time} {text}\n"


def _content(terms: Terms, records: Sequence[tuple[str, str]]) -> bytes:
    """Return a whole file with these terms and records."""
    lines, head = [], FORMAT
    for time, text in [(chain.now(), chain.first_text(terms)), *records]:
        head = link(head, time, text)
        lines.append(_line((head, time, text)))
    body = "".join(lines).encode()
    commit = _Commit(len(records), _FIRST_RECORD + len(body), head).line()
    return f"{FORMAT}\n".encode() + commit + commit + body


@contextmanager
def _scratch(path: Path, content: bytes) -> Iterator[Path]:
    """Write `content` to a new file beside `path`, through to the disk and locked; at the end its name is unlinked."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".new", dir=path.parent)
    scratch = Path(name)
    try:
        with os.fdopen(handle, "r+b", buffering=0) as file:
            # Whoever opens the file under its final name waits until it has no other.
            try_lock(file)
            _put(file, 0, content)
            yield scratch
            scratch.unlink(missing_ok=True)  # before the lock ends
    finally:
        scratch.unlink(missing_ok=True)


def _scratch_names(path: Path) -> list[Path]:
    """Return the names that `_scratch` may have left for `path`."""
    return [name for name in path.parent.iterdir() if re.fullmatch(rf"\.{re.escape(path.name)}\..+\.new", name.name)]


def _place(number: int) -> int:
    """Return where commit line 0 or 1 stands in the file."""
    return _FIRST_COMMIT + number * _COMMIT_BYTES


def _put(file: IO[bytes], place: int, data: bytes) -> None:
    """Write `data` at a place of the file, through to the disk."""
    file.seek(place)
    while data:
        data = data[file.write(data) :]
    sync(file)


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except RuntimeError:
        raise LedgerError(f"{path.name} is a symbolic link that leads back to itself. {NOTHING_HAPPENED}") from None


def _identity(facts: os.stat_result) -> tuple[int, int]:
    return facts.st_dev, facts.st_ino


def _require_tested() -> None:
    """Refuse a system on which no test shows that locks hold and that written data survive."""
    if sys.platform != "linux":
        raise LedgerError(
            f"a ledger in a file is tested on Linux alone, and this is {sys.platform}. Keep it on a PostgreSQL server: "
            f"Ledger.open('postgresql://user@host/database', dataset=...). {NOTHING_HAPPENED}"
        )


def _require_local(path: Path) -> None:
    """Refuse a file on a network file system, where locks and caches don't reliably reach all machines."""
    kind = network_file_system(path)
    if kind:
        raise LedgerError(
            f"{path.name} lies on a network file system ({kind}), where locks can fail and two machines could spend "
            f"the same budget. Keep the ledger on a local disk of the machine that runs the fits, or, for several "
            f"machines, on a PostgreSQL server: Ledger.open('postgresql://user@host/database', dataset=...). "
            f"{NOTHING_HAPPENED}"
        )
