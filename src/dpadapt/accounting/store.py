"""Stores for the charges of a ledger: in memory, in memory with charges to a parent, or durably in a file.

A store does one thing atomically: it lets a check compare a charge with what all earlier ones add up to, and appends it
only if the check raises nothing. A charge is one or more entries, appended together.

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
behind or copied back undoes charges that were made since: SQLite replays such a journal without a complaint.

What the file can't show: that it is, as a whole, an older copy of itself. A process that has the ledger open refuses a
file that lacks charges that the process has seen; a process that starts afterwards can't know.

A run that may be resumed after a crash has a mark. The file then also records, in the same chain, how many of its
releases may have been made. That number is raised before the releases are made, so that neither a crash nor a copied
checkpoint leads to more releases than were charged.

No file is kept open after its transaction, so that a fork shares neither a lock nor a position in the file.
"""

import errno
import hashlib
import io
import json
import os
import re
import secrets
import shutil
import sqlite3
import stat
import sys
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep
from typing import IO, Any, Protocol

from dpadapt.accounting.filter import Filter, Sums
from dpadapt.accounting.receipt import Entry, entry_from_dict
from dpadapt.errors import BudgetExceeded, LedgerError, PrivacyError
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.persons import UNITS, Unit

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

# Takes a function, because adding up takes time that a ledger without a cap, or with one charge, can do without.
Check = Callable[[Callable[[], Sums]], None]
Charge = tuple[Entry, ...]

_FORMAT = "dpadapt ledger 2"
# Files of the first format are SQLite databases; `_converted` reads them.
_FIRST_FORMAT = "dpadapt ledger 1"
_SQLITE_MAGIC = b"SQLite format 3\0"
# Number of records, number of bytes, hash of the last record, hash of these three.
_COMMIT_LINE = re.compile(r"(\d{16}) (\d{16}) ([0-9a-f]{64}) ([0-9a-f]{64})\n", re.ASCII)
_COMMIT_BYTES = 16 + 1 + 16 + 1 + 64 + 1 + 64 + 1
_FIRST_COMMIT = len(_FORMAT) + 1
_FIRST_RECORD = _FIRST_COMMIT + 2 * _COMMIT_BYTES
# Hash, time (UTC), JSON.
_RECORD_LINE = re.compile(r"([0-9a-f]{64}) (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (.*)", re.ASCII)

# Seconds to wait for a lock. A charge holds it for some milliseconds, a conversion of an old file for seconds; a longer
# wait would hide a process that hangs.
_LOCK_PATIENCE = 60.0
# Seconds between two attempts to get a lock: short against the time that a charge takes on a disk.
_LOCK_PAUSE = 0.005
# Byte that is locked on Windows, where a locked byte can't be read: far beyond the end of every ledger.
_LOCKED_BYTE = 2**40

_MOUNTS = Path("/proc/self/mountinfo")
# File systems on which several machines can write to one file. Their locks and caches don't reliably reach all of them.
_NETWORK_FILE_SYSTEMS = frozenset(
    "9p afs beegfs ceph cifs coda davfs fhgfs gfs glusterfs gpfs lustre ncpfs nfs nfs4 orangefs prl_fs pvfs2 smb2 smb3 "
    "smbfs vboxsf virtiofs vmhgfs".split()
)
_NETWORK_USER_FILE_SYSTEMS = frozenset(
    "beegfs blobfuse blobfuse2 ceph ceph-fuse curlftpfs davfs davfs2 gcsfuse glusterfs goofys grpcfuse gvfsd-fuse "
    "hdfs juicefs lizardfs mfs moosefs mount-s3 objectivefs osxfs rclone s3fs seaweedfs smbnetfs sshfs vmhgfs-fuse "
    "weed".split()
)

_NOTHING_HAPPENED = "Nothing was charged and nothing was released."
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
    unit : {"row", "person"}
        What is protected.
    allowances : dict
        Parts of the cap that are set aside under a name: none.
    """

    epsilon: float
    delta: float
    adjacency: str
    dataset: str
    share: float
    order: int
    unit: Unit = "row"
    allowances: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _ = self.filter  # checks
        if self.unit not in UNITS or self.allowances:
            raise ValueError("made by a later version")

    @property
    def filter(self) -> Filter:
        """The filter that decides on charges."""
        return Filter(self.epsilon, self.delta, Adjacency.of(self.adjacency), self.share, self.order)


@dataclass(frozen=True)
class _Commit:
    """A commit line: how many records and bytes of the file are committed, and the hash of the last record."""

    records: int
    end: int
    head: str

    def line(self) -> bytes:
        """Return the line as it stands in the file."""
        text = f"{self.records:016} {self.end:016} {self.head}"
        return f"{text} {_link(_FORMAT, text)}\n".encode()


def _read_commit(line: bytes) -> _Commit | None:
    """Return the commit line, or None if it is altered."""
    match = _COMMIT_LINE.fullmatch(line.decode("latin-1"))
    commit = _Commit(int(match[1]), int(match[2]), match[3]) if match else None
    return commit if commit and commit.line() == line else None


@dataclass(frozen=True)
class _State:
    """What the records up to a commit add up to.

    `runs` has, by mark, the entry that a run was charged with and how many of its releases may have been made. `closed`
    says that the charges of an old file exceed the cap under the filter.
    """

    commit: _Commit
    sums: Sums = field(default_factory=Sums)
    runs: Mapping[str, tuple[Entry, int]] = field(default_factory=dict)
    closed: bool = False


@dataclass(frozen=True)
class _Reading:
    """What one look at the file gave.

    `state` counts everything that must be taken as charged, `committed` what a commit line covers. `spare` is the
    number of the commit line that the next commit overwrites. After a crash the commit lines may be `stale`, and the
    `leftover` of an incomplete record may follow.
    """

    state: _State
    committed: _State
    charges: list[tuple[str, Charge]]
    spare: int
    stale: bool
    leftover: bool


class FileStore(Store):
    """Charges in a file, shared by the processes of one machine.

    Parameters
    ----------
    path : Path
        Resolved at once: a later change of the working folder does not matter.
    read_only : bool, default=False
        Never write, and do without the right to. Otherwise a file that can't be written to is refused at once.

    Notes
    -----
    A file of the first format is converted when it is opened (read-only: in memory alone). Its charges were accepted on
    the exact cost of all events together, which bounds what was released only if they had been chosen in advance,
    without looking at earlier releases. They stay covered in that case alone; no conversion can mend it. For all later
    charges each entry counts as a charge of its own under the filter of the rule "mixed". If one of the filter's sums
    is within its cap, the ledger goes on; otherwise it can be read, and refuses every charge.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = _resolved(path)
        self.read_only = read_only
        self._inode: tuple[int, int] | None = None
        self._content: bytes | None = None  # what the conversion of a file of the first format gave, if read only
        # Assigned as a whole and only while the file is locked: neither threads nor a fork see half of a change.
        self._known: _State
        _require_local(self.path)
        self._convert()
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
        _require_local(path)
        try:
            with _scratch(path, _content(terms, [])) as scratch, suppress(FileExistsError):
                # A link appears with the complete content and never replaces another ledger.
                os.link(scratch, path)
            _sync_folder(path.parent)
        except OSError as error:
            missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
            cause = "there is no such folder; make it first" if missing else _cause(error, "write to this folder")
            raise OSError(error.errno, cause, str(path)) from None
        return cls(path)

    def append(self, charge: Charge, check: Check, *, mark: str = "") -> None:
        """Check and append while the file is locked."""
        # Before the lock: the conversion of a sampled run takes time, for which other processes would wait.
        added = self._filter.sums(charge)
        texts = [_charged(charge, added), *([_used(mark, 0)] if mark else [])]
        with self._opened(write=True) as file:
            state, spare = self._catch_up(file)
            if state.closed:
                raise BudgetExceeded(
                    f"the ledger {self.path.name} is closed. It was made by an earlier version, and its charges exceed "
                    f"its cap of epsilon={self.terms.epsilon:.4g} if each may depend on earlier releases. It can be "
                    f"read, and accepts no charge. {_NOTHING_HAPPENED}"
                )
            check(lambda: state.sums)
            self._commit(file, state, spare, texts)

    def readmit(self, entry: Entry, mark: str, check: Check) -> int:
        """Look the run up in the file."""
        with self._opened(write=True) as file:
            state, _ = self._catch_up(file)
        charged, used = state.runs.get(mark, (None, 0))
        if charged != entry:
            raise PrivacyError(
                f"the ledger {self.path.name} holds no such run: it was charged to another ledger, or for another "
                f"plan. Use the ledger and the settings that it was started with, or start a new run in this "
                f"ledger, which is charged again."
            )
        return used

    def reserve(self, mark: str, steps: int) -> None:
        """Raise the number of recorded releases while the file is locked."""
        with self._opened(write=True) as file:
            state, spare = self._catch_up(file)
            entry, used = state.runs[mark]
            if used + steps > entry.times:
                raise PrivacyError(
                    "the releases of this run were all made, or reserved by another process. For more releases "
                    "start a new run, which is charged again."
                )
            self._commit(file, state, spare, [_used(mark, used + steps)])

    def charges(self) -> list[Charge]:
        """Return all charges, oldest first."""
        return [charge for _, charge in self.history()]

    def history(self) -> list[tuple[str, Charge]]:
        """Return all charges with the time (UTC) at which they were made."""
        with self._opened(write=False) as file:
            self._read(file, self._known)  # refuses a file that lacks what this process has seen
            return self._read(file, self._start).charges

    def sums(self) -> Sums:
        """Return what all charges add up to, with those that other processes made."""
        with self._opened(write=False) as file:
            reading = self._read(file, self._known)
            self._known = reading.committed
            return reading.state.sums

    # Reading

    def _start_reading(self) -> None:
        """Read the terms and all records."""
        with self._opened(write=not self.read_only) as file:
            top = file.read(_FIRST_COMMIT)
            if top != f"{_FORMAT}\n".encode():
                if re.fullmatch(rb"dpadapt ledger [0-9]+\s*", top):
                    raise LedgerError(self._from_later())
                raise LedgerError(
                    f"{self.path.name} is not a dpadapt ledger. If it was one and was damaged, the budget of its data "
                    f"set must be taken as spent. {_NOTHING_HAPPENED}"
                )
            file.seek(_FIRST_RECORD)
            line = file.read().partition(b"\n")[0]
            record = _read_record(_FORMAT, line)
            if record is None:
                raise LedgerError(self._damaged("its terms are missing or altered"))
            head, _, text = record
            try:
                self.terms = Terms(**json.loads(text)["terms"])
            except (AttributeError, KeyError, TypeError, ValueError):
                raise LedgerError(self._from_later()) from None
            self._filter = self.terms.filter
            self._start = _State(_Commit(0, _FIRST_RECORD + len(line) + 1, head))
            self._known = self._read(file, self._start).committed

    def _read(self, file: IO[bytes], known: _State) -> _Reading:
        """Follow the chain of hashes from a known state to the end of the file."""
        file.seek(_FIRST_COMMIT)
        lines = [file.read(_COMMIT_BYTES) for _ in range(2)]
        commits = [_read_commit(line) for line in lines]
        valid = [commit for commit in commits if commit is not None]
        if not valid:
            raise LedgerError(self._damaged("both of its commit lines are altered"))
        last = max(valid, key=lambda commit: commit.end)
        size = last.end - known.commit.end
        if size < 0 or file.seek(0, os.SEEK_END) < last.end:
            raise LedgerError(self._damaged("entries are missing at its end"))
        file.seek(known.commit.end)
        data = file.read()
        committed, charges = self._follow(known, data[:size])
        if committed.commit != last:
            raise LedgerError(self._damaged(f"entry {committed.commit.records + 1} is missing or altered"))
        rest = data[size:]
        state, more = self._follow(committed, rest)
        leftover = state.commit.end < last.end + len(rest)
        # An altered line may be the newer one, and all that follows the other one committed. A crash that spoils a
        # commit line leaves complete records; less than that is damage that may have hit charges.
        if len(valid) < 2 and (leftover or not rest):
            raise LedgerError(self._damaged("one of its commit lines is altered"))
        spare = commits.index(None) if len(valid) < 2 else 1 - commits.index(last)
        return _Reading(state, committed, charges + more, spare, state.commit != last, leftover)

    def _follow(self, known: _State, data: bytes) -> tuple[_State, list[tuple[str, Charge]]]:
        """Follow the chain through `data` as far as its records are complete and unaltered."""
        records, end, head = known.commit.records, known.commit.end, known.commit.head
        sums, runs, closed = known.sums, dict(known.runs), known.closed
        charges: list[tuple[str, Charge]] = []
        *lines, _ = data.split(b"\n")
        for line in lines:
            record = _read_record(head, line)
            if record is None:
                break
            records, end, (head, time, text) = records + 1, end + len(line) + 1, record
            first, second = self._parsed(text)
            if isinstance(second, Sums):
                charges.append((time, first))
                sums += second
            elif first is None:
                closed = sums.charges > 1 and not self._filter.level(sums) <= self.terms.epsilon
            else:
                # The first record of a mark was written together with the charge before it.
                mark, used = first, second
                if mark not in runs and (used or not charges):
                    raise LedgerError(self._damaged("it counts releases of an unknown run"))
                charged, before = runs.get(mark) or (charges[-1][1][-1], 0)
                if not before <= used <= charged.times:
                    raise LedgerError(self._damaged("it counts releases that were not charged"))
                runs[mark] = charged, used
        return _State(_Commit(records, end, head), sums, runs, closed), charges

    def _parsed(self, text: str) -> tuple[Any, Any]:
        """Return a charge and what it adds up to; a run's mark and how many releases it may have made; or two Nones.

        Two Nones stand for the record that ends the charges of a converted file.
        """
        try:
            fields = json.loads(text)
            if "converted" in fields:
                return None, None
            if "mark" in fields:
                return str(fields["mark"]), int(fields["used"])
            charge = tuple(entry_from_dict(entry) for entry in fields["charge"])
            pure, gaussian, renyi = map(float, fields["sums"])
            sums = Sums(pure, gaussian, renyi, int(fields["sampled"]), 1)
        except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError):
            raise LedgerError(self._damaged("it holds an entry of unknown form")) from None
        # Each comparison is false for NaN.
        valid = sums.pure >= 0 and sums.gaussian >= 0 and sums.renyi >= 0 and sums.sampled >= 0
        if not valid or not charge or any(entry.times < 1 for entry in charge):
            raise LedgerError(self._damaged("it holds an entry of unknown form"))
        return charge, sums

    # Writing

    def _catch_up(self, file: IO[bytes]) -> tuple[_State, int]:
        """Read what other processes appended and clear away what a crash left; return also the next commit line."""
        reading = self._read(file, self._known)
        state, spare = reading.state, reading.spare
        if reading.leftover:
            file.truncate(state.commit.end)
        if reading.stale:
            _put(file, _place(spare), state.commit.line())
            spare = 1 - spare
        self._known = state
        return state, spare

    def _commit(self, file: IO[bytes], state: _State, spare: int, texts: Sequence[str]) -> None:
        """Append records and commit them."""
        data, head, now = b"", state.commit.head, _now()
        for text in texts:
            head = _link(head, now, text)
            data += f"{head} {now} {text}\n".encode()
        after, _ = self._follow(state, data)
        try:
            _put(file, state.commit.end, data)
        except BaseException:
            with suppress(OSError):
                file.truncate(state.commit.end)
            raise
        try:
            _put(file, _place(spare), after.commit.line())
            self._known = after
            # A file that was replaced or got a second name meanwhile may not be what the next process opens.
            self._require_only_name(file)
        except OSError as error:
            cause = _cause(error, "write to it")
            raise LedgerError(
                f"the charge to the ledger {self.path.name} could not be completed: {cause}. It may count as spent. "
                f"Nothing was released."
            ) from None

    @contextmanager
    def _opened(self, *, write: bool) -> Iterator[IO[bytes]]:
        """Open the file and lock it, for reading too: else one could read half of a charge."""
        if write and self.read_only:
            raise LedgerError(
                f"the ledger {self.path.name} was opened for reading only. Open it without read_only=True to charge "
                f"it. {_NOTHING_HAPPENED}"
            )
        if self._content is not None:
            yield io.BytesIO(self._content)
            return
        try:
            with self._locked("r+b" if write else "rb") as file:
                try:
                    if write:
                        self._require_only_name(file)
                    yield file
                finally:
                    # Closing alone would keep the lock if another thread forked meanwhile.
                    _unlock(file)
        except OSError as error:
            cause = _cause(error, "write to it" if write else "read it")
            hint = " `dpadapt ledger show` can still read it." if write and error.errno in _NOT_WRITABLE else ""
            raise LedgerError(
                f"the ledger {self.path.name} can't be used: {cause}.{hint} {_NOTHING_HAPPENED}"
            ) from None

    def _locked(self, mode: str) -> IO[bytes]:
        """Return the open and locked file, the same as ever."""
        deadline = monotonic() + _LOCK_PATIENCE
        while True:
            if not stat.S_ISREG(self.path.stat().st_mode):
                raise LedgerError(f"{self.path.name} is not a file, so it can't be a ledger. {_NOTHING_HAPPENED}")
            file: IO[bytes] = self.path.open(mode, buffering=0)
            try:
                while not _try_lock(file):
                    if monotonic() > deadline:
                        raise LedgerError(
                            f"the ledger {self.path.name} is held by another process and did not become free within "
                            f"{_LOCK_PATIENCE:.0f} seconds. {_NOTHING_HAPPENED} Try again when the other process is "
                            f"done."
                        )
                    sleep(_LOCK_PAUSE)
                here, there = _identity(os.fstat(file.fileno())), _identity(self.path.stat())
                if here == there and self._inode in (None, here):
                    self._inode = here
                    return file
                if self._inode is not None:
                    raise LedgerError(
                        f"the ledger {self.path.name} was replaced by another file while it was open. "
                        f"{_NOTHING_HAPPENED} Put the very file back that was there: an older copy lacks charges."
                    )
                # Another process converted the file of the first format while this one waited.
                file.close()
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
                f"the ledger {self.path.name} has {facts.st_nlink} names (hard links), and a program that replaces one "
                f"of them would leave two ledgers for one data set. Give it a single name: `find -samefile` lists "
                f"them all. Nothing was released."
            )
        # A file mounted by itself can still be reached when it was replaced in its own folder.
        if facts.st_nlink < 1 or _identity(self.path.stat()) != _identity(facts):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    def _damaged(self, what: str) -> str:
        return (
            f"the ledger {self.path.name} can't be trusted: {what}. Unless this very file can be made readable, the "
            f"budget of its data set must be taken as spent: an older copy or a new ledger would lack charges."
        )

    def _from_later(self) -> str:
        return f"the ledger {self.path.name} was made by a later version of dpadapt. Use that version or a later one."

    # Files of the first format

    def _convert(self) -> None:
        """Put a file of this format in the place of one of the first format, or keep it in memory if read-only."""
        with self._opened(write=not self.read_only) as file:
            if file.read(len(_SQLITE_MAGIC)) != _SQLITE_MAGIC:
                return
            try:
                if self.read_only:
                    with tempfile.TemporaryDirectory() as folder:
                        copy = Path(folder) / "ledger"
                        for suffix in ("", "-wal"):
                            with suppress(FileNotFoundError):
                                shutil.copyfile(f"{self.path}{suffix}", f"{copy}{suffix}")
                        with closing(_connect(copy)) as connection:
                            self._content = self._converted(connection)
                else:
                    with closing(_connect(self.path)) as connection:
                        self._replace(connection, file)
            except UnicodeDecodeError:
                # SQLite's own message about a damaged file may quote its bytes.
                raise LedgerError(self._damaged("SQLite finds it malformed")) from None
            except sqlite3.Error as error:
                code = getattr(error, "sqlite_errorcode", 0) & 0xFF
                if code in _SQLITE_CAUSES:
                    raise OSError(_SQLITE_CAUSES[code], os.strerror(_SQLITE_CAUSES[code])) from None
                raise LedgerError(self._damaged("SQLite finds it malformed")) from None

    def _replace(self, connection: sqlite3.Connection, file: IO[bytes]) -> None:
        """Put the converted content in the place of a database, after a mark that makes earlier versions refuse it."""
        connection.execute("BEGIN IMMEDIATE")
        # Every record must be readable before the database is replaced.
        self._content = content = self._converted(connection)
        self._start_reading()
        self._content = None
        facts = os.fstat(file.fileno())
        with _scratch(self.path, content) as scratch:
            if hasattr(os, "chown") and _owner(scratch.stat()) != _owner(facts):
                os.chown(scratch, *_owner(facts))
            scratch.chmod(stat.S_IMODE(facts.st_mode))
            # A process of an earlier version may be waiting to charge the database. Without its head it refuses; this
            # version finds the head under its other name, if a crash comes before the database is replaced.
            connection.execute("UPDATE meta SET key = 'converted head' WHERE key = 'head'")
            connection.execute("COMMIT")
            # The mark must be in the main file: a process that has opened the database, and did not read it yet, would
            # miss what is only in the log beside it. That fails while somebody else reads.
            busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
            connection.close()
            os.replace(scratch, self.path)
        for ending in ("-wal", "-shm"):
            Path(f"{self.path}{ending}").unlink(missing_ok=True)
        _sync_folder(self.path.parent)
        self._inode = None

    def _converted(self, connection: sqlite3.Connection) -> bytes:
        """Return a file of this format with the terms and charges of a database of the first format.

        Of the first format are a table ``meta`` (format, terms, number of records and hash of the last one) and a
        table ``entries``, with one record per entry.
        """
        verdict = connection.execute("PRAGMA quick_check").fetchone()
        if verdict is None or verdict[0] != "ok":
            raise LedgerError(self._damaged("SQLite finds it malformed"))
        meta = dict(connection.execute("SELECT key, value FROM meta"))
        if meta.get("format") != _FIRST_FORMAT:
            raise LedgerError(f"{self.path.name} is not a dpadapt ledger. {_NOTHING_HAPPENED}")
        try:
            old = json.loads(meta["terms"])
            made = Filter.of("mixed", old["epsilon"], old["delta"], Adjacency.of(old["adjacency"]))
            terms = Terms(made.epsilon, made.delta, made.adjacency.value, old["dataset"], made.share, made.order)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise LedgerError(self._damaged("its terms are of unknown form")) from None
        head, records = _link(_FIRST_FORMAT, meta["terms"]), list[tuple[str, str]]()
        rows = connection.execute("SELECT id, time, entry, hash FROM entries ORDER BY id")
        for number, (place, at, text, digest) in enumerate(rows, 1):
            if place != number or digest != _link(head, at, text):
                raise LedgerError(self._damaged(f"entry {number} is missing or altered"))
            head = digest
            try:
                fields = json.loads(text)
                if "mark" not in fields:
                    entry = entry_from_dict(fields)
                    text = _charged((entry,), made.sums([entry]))
            except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError):
                raise LedgerError(self._damaged("it holds an entry of unknown form")) from None
            records.append((at, text))
        kept = meta.get("head") or meta.get("converted head")
        if kept != head or meta.get("count") != str(len(records)):
            raise LedgerError(self._damaged("entries are missing at its end"))
        records.append((_now(), json.dumps({"converted": _FIRST_FORMAT, "head": head})))
        return _content(terms, records)


# Bits of SQLite's error codes, as causes that the system knows: busy, locked, no memory, read-only, I/O error, full,
# can't open (for a journal, in the folder), no permission.
_SQLITE_CAUSES = {
    5: errno.EBUSY,
    6: errno.EBUSY,
    7: errno.ENOMEM,
    8: errno.EACCES,
    10: errno.EIO,
    13: errno.ENOSPC,
    14: errno.EACCES,
    3: errno.EACCES,
}
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


def _connect(path: Path) -> sqlite3.Connection:
    """Connect to a database of the first format."""
    # mode=rw: SQLite must not make an empty one.
    return sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=_LOCK_PATIENCE)


def _read_record(head: str, line: bytes) -> tuple[str, str, str] | None:
    """Return hash, time and text of the record after `head`, or None if it is altered."""
    match = _RECORD_LINE.fullmatch(line.decode("latin-1"))
    return (match[1], match[2], match[3]) if match and match[1] == _link(head, match[2], match[3]) else None


def _content(terms: Terms, records: Sequence[tuple[str, str]]) -> bytes:
    """Return a whole file with these terms and records."""
    # The id makes each ledger's hashes its own, so that it can't pass for another ledger with equal terms.
    first = json.dumps({"id": secrets.token_hex(16), "terms": asdict(terms)}, sort_keys=True)
    lines, head = [], _FORMAT
    for at, text in [(_now(), first), *records]:
        head = _link(head, at, text)
        lines.append(f"{head} {at} {text}\n")
    body = "".join(lines).encode()
    commit = _Commit(len(records), _FIRST_RECORD + len(body), head).line()
    return f"{_FORMAT}\n".encode() + commit + commit + body


@contextmanager
def _scratch(path: Path, content: bytes) -> Iterator[Path]:
    """Write `content` to a new file beside `path`, through to the disk and locked; at the end its name is unlinked."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".new", dir=path.parent)
    scratch = Path(name)
    try:
        with os.fdopen(handle, "r+b", buffering=0) as file:
            # Whoever opens the file under its final name waits until it has no other.
            _try_lock(file)
            _put(file, 0, content)
            yield scratch
            if os.name == "posix":
                scratch.unlink(missing_ok=True)  # before the lock ends; Windows keeps the name of an open file
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
    if sys.platform == "darwin":
        fcntl.fcntl(file, fcntl.F_FULLFSYNC)  # fsync alone stops at the disk's cache
    else:
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Make sure that the name of a new file survives a power failure; needed and possible on POSIX only."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _try_lock(file: IO[bytes]) -> bool:
    """Lock the file for this opening of it, against other threads too; return False if somebody else holds it."""
    try:
        if sys.platform == "win32":
            file.seek(_LOCKED_BYTE)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            file.seek(0)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _unlock(file: IO[bytes]) -> None:
    if sys.platform == "win32":
        file.seek(_LOCKED_BYTE)
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)
    else:
        fcntl.flock(file, fcntl.LOCK_UN)


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except RuntimeError:
        raise LedgerError(f"{path.name} is a symbolic link that leads back to itself. {_NOTHING_HAPPENED}") from None


def _identity(facts: os.stat_result) -> tuple[int, int]:
    return facts.st_dev, facts.st_ino


def _owner(facts: os.stat_result) -> tuple[int, int]:
    return facts.st_uid, facts.st_gid


def _require_local(path: Path) -> None:
    """Refuse a file on a network file system, where locks and caches don't reliably reach all machines."""
    kind = _file_system(path)
    if kind in _NETWORK_FILE_SYSTEMS or kind.removeprefix("fuse.") in _NETWORK_USER_FILE_SYSTEMS:
        raise LedgerError(
            f"{path.name} lies on a network file system ({kind}), where locks can fail and two machines could spend "
            f"the same budget. Keep the ledger on a local disk of the machine that runs the fits. {_NOTHING_HAPPENED}"
        )


def _file_system(path: Path) -> str:
    """Return the type of the file system that holds `path`, or nothing where the system does not list its mounts."""
    try:
        lines = _MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return ""
    above = {str(path), *map(str, path.parents)}
    longest, kind = 0, ""
    for line in lines:
        # proc(5): number, parent, device, root, mount point, options, ... - type, source, options.
        mount, _, rest = line.partition(" - ")
        fields, types = mount.split(" "), rest.split(" ")
        if len(fields) < 5:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4])
        # Of two mounts on one point, the later one covers the earlier one.
        if point in above and len(point) >= longest:
            longest, kind = len(point), types[0]
    return kind


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")


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
