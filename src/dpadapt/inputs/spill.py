"""`Spill`: blocks in memory up to a limit, and beyond it in a file that nobody else can open.

A spill file is readable by its owner alone and has no name: the system removes it when the process ends, however it
ends. It holds private rows in plain bytes, so it must lie on a disk of this machine; encrypt that disk if it could be
stolen.
"""

import errno
import io
import mmap
import os
import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from weakref import finalize

import numpy as np

from dpadapt.disk import network_file_system
from dpadapt.rows import Blocks, P

Q = TypeVar("Q")

# Bytes. Blocks begin at whole pages, so that the pages of one can be given back without touching the next.
_MEMORY_PAGE = mmap.ALLOCATIONGRANULARITY
# Bytes that blocks in memory take unless the user says otherwise.
DEFAULT_MEMORY = 512 * 2**20


class Spill:
    """A place for blocks, shared by all stages of one fit.

    Parameters
    ----------
    memory : int
        Bytes that blocks may take in memory, all stages together.
    folder : str or Path, optional
        Where spill files lie. Default: the system's folder for temporary files (TMPDIR).
    """

    def __init__(self, memory: int = DEFAULT_MEMORY, folder: str | Path | None = None) -> None:
        self._free = memory
        self._folder = Path(tempfile.gettempdir() if folder is None else folder).resolve()
        kind = network_file_system(self._folder)
        if kind:
            raise ValueError(
                f"the folder for private rows that don't fit into memory, {self._folder}, lies on a network file "
                f"system ({kind}). Name a folder on a disk of this machine by TMPDIR."
            )

    def kept(self, parts: Iterable[P], spare: int = 0) -> "Spilled[P]":
        """Keep blocks: each in memory if there is room and `spare` bytes are left, else in the file of this stage."""
        kept: Spilled[P] = Spilled(self, spare)
        try:
            for part in parts:
                kept.add(part)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
        else:
            return kept
        # Outside the handler: nothing of the original error stays attached.
        raise OSError(
            errno.ENOSPC,
            f"{self._folder} has no room for the private rows that don't fit into memory. Free some space, name "
            f"another folder by TMPDIR, or allow more memory. What was charged before counts as spent",
        )

    def _taken(self, size: int, spare: int) -> bool:
        if size > self._free - spare:
            return False
        self._free -= size
        return True

    def _given_back(self, sizes: list[int]) -> None:
        self._free += sum(sizes)

    def _open(self) -> Any:
        # No name, and for its owner alone.
        return tempfile.TemporaryFile(buffering=0, dir=self._folder)


@dataclass(frozen=True, eq=False)
class _InFile:
    """A block in the file: its pickle without its arrays, and where each of these lies."""

    head: bytes
    start: int
    sizes: list[int]


class Spilled(Blocks[P]):
    """Blocks of one stage, some in memory and the others in one file. Arrays that come from the file are read-only."""

    def __init__(self, spill: Spill, spare: int = 0) -> None:
        self._spill = spill
        self._spare = spare
        self._parts: list[tuple[bool, Any]] = []
        self._file: Any = None
        self._end = 0
        self._view: mmap.mmap | None = None
        self.n_rows = 0
        # Room in memory is given back with the stage; a file goes when it is closed.
        self._sizes: list[int] = []
        finalize(self, spill._given_back, self._sizes)

    def add(self, part: P) -> None:
        """Keep a further block."""
        head, arrays = _pickled(part)
        size = len(head) + sum(array.nbytes for array in arrays)
        if self._file is None and self._spill._taken(size, self._spare):
            self._sizes.append(size)
            # A copy: the arrays of `part` may be views of a file that will be closed.
            self._parts.append((True, _loaded(head, arrays)))
            return
        if self._file is None:
            self._file = self._spill._open()
            finalize(self, self._file.close)
        self._parts.append((False, _InFile(head, self._end, [array.nbytes for array in arrays])))
        written = sum(_written(self._file, array) for array in arrays)
        padding = -written % _MEMORY_PAGE
        _written(self._file, memoryview(bytes(padding)))
        self._end += written + padding

    def map(self, function: Callable[[P], Q]) -> "Spilled[Q]":
        """Return what `function` makes of each block, kept in the same place."""
        mapped = self._spill.kept(self.results(function))
        mapped.n_rows = self.n_rows
        return mapped

    def results(self, function: Callable[..., Q], own: Sequence[Any] | None = None) -> Iterator[Q]:
        """Return what `function` gives for each block."""
        for k, (in_memory, part) in enumerate(self._parts):
            further = () if own is None else (own[k],)
            if in_memory:
                yield function(part, *further)
                continue
            view = self._mapped()
            start, arrays = part.start, []
            for size in part.sizes:
                arrays.append(memoryview(view)[start : start + size])
                start += size
            loaded: P = pickle.loads(part.head, buffers=arrays)
            result = function(loaded, *further)
            del loaded, arrays
            yield result
            # The pages leave this process, and stay in the system's cache as long as there is room. Arrays that still
            # show them remain valid.
            if start > part.start and hasattr(view, "madvise"):
                view.madvise(mmap.MADV_DONTNEED, part.start, start - part.start)

    def _mapped(self) -> mmap.mmap:
        if self._view is None:
            self._view = mmap.mmap(self._file.fileno(), self._end, access=mmap.ACCESS_READ)
        return self._view


class _Pickler(pickle.Pickler):
    """Leaves all arrays out of the pickle, also those that are a part of a larger one."""

    def reducer_override(self, value: Any) -> Any:
        """Copy an array that does not lie in one piece: it would become part of the pickle."""
        if type(value) is np.ndarray and not value.flags.forc:
            return np.ascontiguousarray(value).__reduce_ex__(5)
        return NotImplemented


def _pickled(part: Any) -> tuple[bytes, list[memoryview]]:
    """Return a pickle without its arrays, and the bytes of each of these."""
    head, buffers = io.BytesIO(), list[pickle.PickleBuffer]()
    _Pickler(head, protocol=5, buffer_callback=buffers.append).dump(part)
    return head.getvalue(), [buffer.raw() for buffer in buffers]


def in_own_pages(part: P) -> P:
    """Return a copy of a block whose arrays go back to the system as soon as nothing refers to them."""
    copied: P = _loaded(*_pickled(part))
    return copied


def _loaded(head: bytes, arrays: list[memoryview]) -> Any:
    return pickle.loads(head, buffers=[_own_pages(array) for array in arrays])


def _own_pages(content: memoryview) -> Any:
    """Return a copy in memory that goes back to the system as soon as nothing refers to it.

    Memory of the usual kind stays with the process where something else lies behind it: over the stages of a fit that
    was a third more than the limit.
    """
    if content.nbytes < _MEMORY_PAGE:
        return bytearray(content)
    # Private: a process that is forked from this one must not write to the same pages.
    flags = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    room = mmap.mmap(-1, content.nbytes, **flags)
    room[:] = content
    return room


def _written(file: Any, content: memoryview) -> int:
    """Write all of `content`; return its size."""
    size = done = content.nbytes
    while done:
        done -= os.write(file.fileno(), content[size - done :])
    return size
