"""Blocks on the workers of a Dask cluster: they hold the private rows, and return sums over them.

Ledger and noise stay with the process that calls `fit`, the coordinator: it sends functions of rows to the workers,
adds up what these return for each block, in the order of the blocks, and releases the sum. A sum is no release, so that
a lost worker costs nothing: Dask computes its blocks and sums again, elsewhere. This must give the same rows: if a row
came back in another block, it would count twice. So every group of blocks has a digest of its rows, which comes with
all that is computed from it, and is compared with the first.

An error on a worker is returned, not raised there: Dask would write the arguments of a task that fails into its logs,
private rows among them.
"""

import asyncio
import ctypes
import os
import pickle
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any, TypeVar

import numpy as np

from dpadapt.errors import made_here
from dpadapt.inputs.sources import Checked, in_own_pages, joined_arrays
from dpadapt.rows import BLOCK_ROWS, Blocks, P, Part, block_slices

Q = TypeVar("Q")

# Tasks per thread of a worker in one pass over the rows. With more of them a slower worker delays a pass less, but each
# costs the scheduler a millisecond. Chosen by hand.
_TASKS_PER_THREAD = 2


@dataclass(frozen=True, eq=False, repr=False)
class OnCluster:
    """Private rows in arrays or data frames of Dask."""

    X: Any
    y: Any

    def blocks(self, checked: Checked) -> Blocks[Part]:
        """Read all rows on the workers; return them in blocks, after `checked` has converted or refused them."""
        client = _client()
        if self.y is None or not hasattr(self.y, "__dask_graph__"):
            raise ValueError("y must be an array or a series of Dask, as X is, with one label per row.")
        import dask

        # Together, so that a step that both share, such as a random order, runs once: a row must keep its label.
        together = dask.persist(_whole_rows(self.X), _whole_rows(self.y))
        X, y = (client.compute(_partitions(part)) for part in together)
        sizes = [_read(client, client.map(len, part, pure=False)) for part in (X, y)]
        n_rows = sum(sizes[0])
        if sum(sizes[1]) != n_rows:
            raise ValueError("X and y must have the same number of rows.")
        starts = [np.concatenate([[0], np.cumsum(size)]) for size in sizes]
        if n_rows:
            # The first row here, so that the columns are known.
            first = [_pieces(client, part, start, slice(0, 1)) for part, start in zip((X, y), starts, strict=True)]
            checked(*(_joined(_read(client, pieces)) for pieces in first))
        blocks = block_slices(n_rows)
        n_groups = min(len(blocks), _TASKS_PER_THREAD * sum(client.nthreads().values()))
        groups = []
        for own in np.array_split(np.arange(len(blocks)), max(n_groups, 1)):
            rows = slice(blocks[own[0]].start, blocks[own[-1]].stop)
            parts = (_pieces(client, part, start, rows) for part, start in zip((X, y), starts, strict=True))
            groups.append((client.submit(_checked_group, *parts, checked, pure=False), len(own)))
        on_workers: OnWorkers[Part] = OnWorkers(client, groups, n_rows)
        on_workers.digests = on_workers.wait()
        return on_workers


class OnWorkers(Blocks[P]):
    """Blocks that workers hold, in groups of consecutive ones.

    `groups` has the Future of each group and its number of blocks, `digests` those of the rows that they were made
    from.
    """

    def __init__(self, client: Any, groups: list[tuple[Any, int]], n_rows: int, digests: Sequence[bytes] = ()) -> None:
        self._client = client
        self._groups = groups
        self.n_rows = n_rows
        self.digests = list(digests)

    def map(self, function: Callable[[P], Q]) -> "OnWorkers[Q]":
        """Return what `function` makes of each block, kept by the workers."""
        groups = self._submitted(_mapped, function)
        mapped: OnWorkers[Q] = OnWorkers(self._client, groups, self.n_rows, self.digests)
        self._require_same(mapped.wait())
        return mapped

    def results(self, function: Callable[..., Q], own: Sequence[Any] | None = None) -> Iterator[Q]:
        """Return what `function` gives for each block."""
        groups = [_raised(one) for one in self._at_once(function, own) or self._by_tasks(function, own)]
        self._require_same([group.digest for group in groups])
        for group in groups:
            yield from group.parts

    def _require_same(self, digests: list[bytes]) -> None:
        """Refuse what was computed from other rows than at first."""
        # Claim: every row is in 1 block, now as then. The bound of a sum over blocks (`added`) rests on that.
        if digests != self.digests:
            raise RuntimeError(
                "a worker was lost, and its rows came back different from before: the collection of Dask is computed "
                "anew, at random or from files that have changed. What was charged before counts as spent. Write the "
                "rows to files, and fit on these."
            )

    def _at_once(self, function: Callable[..., Any], own: Sequence[Any] | None) -> list[Any] | None:
        """Ask all workers directly for the results of the groups that they hold; None if one of them can't be found.

        A fit makes hundreds of passes over its rows, and the scheduler would take longer than many of them.
        """
        import cloudpickle

        keys, furthers, start = [], dict[str, list[Any]](), 0
        for group, size in self._groups:
            keys.append(group.key)
            if own is not None:
                furthers[group.key] = list(own[start : start + size])
            start += size
        try:
            packed = cloudpickle.dumps(function)
            answers = self._client.run(_results_here, packed, keys, furthers, on_error="return")
            results = {key: result for answer in answers.values() for key, result in answer.items()}
            return [pickle.loads(results[key]) for key in keys]
        except Exception:  # a worker was lost, or its groups are on their way to another one
            return None

    def _by_tasks(self, function: Callable[..., Any], own: Sequence[Any] | None) -> list[Any]:
        """Return the results of all groups by tasks, which Dask repeats until they succeed."""
        return _gathered(self._client, [future for future, _ in self._submitted(_results, function, own)])

    def wait(self) -> list[bytes]:
        """Wait until all blocks are there, and raise what went wrong with one of them; return their digests."""
        futures = _asked(lambda: [self._client.submit(_digest_of, group, pure=False) for group, _ in self._groups])
        return [_raised(one) for one in _gathered(self._client, futures)]

    def _submitted(
        self, work: Callable[..., Any], function: Callable[..., Any], own: Sequence[Any] | None = None
    ) -> list[tuple[Any, int]]:
        """Return a task for each group; `function` is pickled once."""
        import cloudpickle

        packed, submitted, start = cloudpickle.dumps(function), [], 0
        with warnings.catch_warnings():
            # Of a function that holds public rows: it is sent once for each group.
            warnings.filterwarnings("ignore", message="Sending large graph")
            for group, size in self._groups:
                further = None if own is None else list(own[start : start + size])
                task = _asked(partial(self._client.submit, work, group, packed, further, pure=False))
                submitted.append((task, size))
                start += size
        return submitted


@dataclass(frozen=True, eq=False, repr=False)
class _Group:
    """Some blocks, or what a function gives for each of them, and the digest of the rows that they were made from."""

    digest: bytes
    parts: list[Any]


@dataclass(frozen=True)
class _Failed:
    """An error on a worker: its type, and its text if it is ours, which shows no value."""

    kind: str
    text: str


def _safely(work: Callable[[], Any]) -> Any:
    """Return what `work` returns, or how it failed."""
    try:
        # A numerical warning would reveal an extreme row.
        with np.errstate(all="ignore"):
            return work()
    except Exception as error:
        return _Failed(type(error).__name__, str(error) if made_here(error) else "")


def _raised(found: Any) -> Any:
    """Return a result, or raise the error that a worker returned in its place."""
    if not isinstance(found, _Failed):
        return found
    if found.kind == "TypeError" and found.text:
        raise TypeError(found.text)
    raise ValueError(
        found.text
        or f"a worker can't compute a sum over its rows ({found.kind}). What was charged before counts as spent. All "
        f"machines need the same versions of Python, numpy and dpadapt."
    )


def _gathered(client: Any, futures: list[Any]) -> list[Any]:
    """Return results of our own tasks, none of which raises an error, in their order."""
    gathered, problem = _tried(client, futures)
    if problem:
        raise _lost(problem)
    return gathered


def _asked(ask: Callable[[], Q]) -> Q:
    """Return what the client answers. In place of an error, whose message may quote a cell, raise `_lost`."""
    try:
        return ask()
    except Exception as error:
        problem = type(error).__name__
    raise _lost(problem)


def _lost(problem: str) -> RuntimeError:
    return RuntimeError(
        f"the cluster can't be reached any more, or lost too many workers ({problem}). What was charged before counts "
        f"as spent. Give the workers more memory, and fit again."
    )


def _read(client: Any, futures: list[Any]) -> list[Any]:
    """Return parts of the user's collections, or refuse those that can't be computed: the error may quote a cell."""
    gathered, problem = _tried(client, futures)
    if problem:
        raise ValueError(
            f"X and y can't be computed on the workers ({problem}). Nothing was spent. Compute them without a fit, "
            f"where private values may be shown, to see why."
        )
    return gathered


def _tried(client: Any, futures: list[Any]) -> tuple[list[Any], str]:
    """Return results, or the type of the error that was raised in their place."""
    try:
        return list(client.gather(futures)), ""
    except Exception as error:
        return [], type(error).__name__


def _pieces(client: Any, partitions: list[Any], starts: Any, rows: slice) -> list[Any]:
    """Return tasks for the parts of partitions that hold some rows."""
    pieces = []
    for partition, start, end in zip(partitions, starts[:-1], starts[1:], strict=True):
        low, high = max(rows.start, start), min(rows.stop, end)
        if low < high:
            pieces.append(client.submit(_rows, partition, int(low - start), int(high - start), pure=False))
    return pieces


def _rows(partition: Any, start: int, end: int) -> Any:
    return partition.iloc[start:end] if hasattr(partition, "iloc") else partition[start:end]


def _joined(pieces: list[Any]) -> Any:
    if hasattr(pieces[0], "iloc"):
        import pandas as pd

        kinds = [getattr(piece, "dtype", None) for piece in pieces]
        # Labels of different types as objects, so that each stays as it is. Features become floats in any case.
        return pd.concat(pieces if len(set(kinds)) == 1 else [piece.astype(object) for piece in pieces])
    return joined_arrays(pieces)


def _checked_group(X: list[Any], y: list[Any], checked: Checked) -> Any:
    def group() -> _Group:
        if not X:
            return _Group(b"", [])
        rows, labels = checked(_joined(X), _joined(y))
        rows, labels = np.ascontiguousarray(rows), np.ascontiguousarray(labels)
        digest = blake2b(rows.data, digest_size=16)
        digest.update(labels.data)
        parts = [
            Part(rows[start : start + BLOCK_ROWS], labels[start : start + BLOCK_ROWS])
            for start in range(0, len(rows), BLOCK_ROWS)
        ]
        return _Group(digest.digest(), parts)

    return _safely(group)


def _results(group: Any, packed: bytes, own: list[Any] | None, keep: Callable[[Any], Any] | None = None) -> Any:
    """Return what a function gives for each block of a group, and `keep` makes of it."""
    if isinstance(group, _Failed):
        return group

    def results() -> _Group:
        function = pickle.loads(packed)
        further = [()] * len(group.parts) if own is None else [(one,) for one in own]
        parts = []
        with _memory_kept():
            for part, more in zip(group.parts, further, strict=True):
                result = function(part, *more)
                parts.append(result if keep is None else keep(result))
        return _Group(group.digest, parts)

    return _safely(results)


def _mapped(group: Any, packed: bytes, own: list[Any] | None) -> Any:
    """Return the same to be kept: rows that Dask drops later must not stay behind in the memory of its worker."""
    return _results(group, packed, own, in_own_pages)


# Parameters of glibc's mallopt, and their values in bytes while sums are computed: how much freed memory stays at the
# end of the heap, and from which size on an array gets pages of its own (the largest that glibc allows).
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT_BYTES, _OWN_PAGES_BYTES = 2**28, 2**25
# Glibc's own, where the environment does not say otherwise.
_USUAL_OWN_PAGES_BYTES = 2**17


@contextmanager
def _memory_kept() -> Iterator[None]:
    """Let freed memory stay with this process while sums are computed, if Dask told it to return all at once.

    Dask starts its workers with MALLOC_TRIM_THRESHOLD_=65536. Then every intermediate array gets new pages from the
    system, and a fit takes 1.6 times as long. Afterwards all goes back: intermediate arrays hold private rows.
    """
    told, system = _setting("MALLOC_TRIM_THRESHOLD_"), ctypes.CDLL(None) if os.name == "posix" else None
    if told is None or system is None or not hasattr(system, "mallopt"):
        yield
        return
    system.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
    system.mallopt(_MMAP_THRESHOLD, _OWN_PAGES_BYTES)
    try:
        yield
    finally:
        system.mallopt(_TRIM_THRESHOLD, told)
        system.mallopt(_MMAP_THRESHOLD, _setting("MALLOC_MMAP_THRESHOLD_") or _USUAL_OWN_PAGES_BYTES)
        system.malloc_trim(0)


def _setting(name: str) -> int | None:
    """Return a number of bytes from the environment; None if there is none that glibc would take."""
    text = os.environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


async def _results_here(
    packed: bytes, keys: list[str], own: dict[str, list[Any]], dask_worker: Any = None
) -> dict[str, bytes]:
    """Return the results of the groups that this worker holds, computed and packed in its threads for tasks.

    Each as one pickle: Dask would send each of hundreds of small arrays by itself, which takes longer than many a sum.
    A group that fails is left out: Dask would log the arguments of this function, and `own` may hold the row numbers of
    a sample.
    """
    try:
        loop, threads = asyncio.get_running_loop(), dask_worker.executors["default"]
        held = [key for key in keys if key in dask_worker.data]
        jobs = [
            loop.run_in_executor(threads, _packed_results, dask_worker.data[key], packed, own.get(key)) for key in held
        ]
        answers = await asyncio.gather(*jobs)
        return {key: answer for key, answer in zip(held, answers, strict=True) if answer is not None}
    except Exception:
        return {}


def _packed_results(group: Any, packed: bytes, own: list[Any] | None) -> bytes | None:
    try:
        return pickle.dumps(_results(group, packed, own))
    except Exception:
        return None


def _digest_of(group: Any) -> Any:
    return group if isinstance(group, _Failed) else group.digest


def _whole_rows(part: Any) -> Any:
    """Return a collection each of whose partitions has whole rows."""
    return part.rechunk({1: -1}) if getattr(part, "ndim", 0) == 2 and hasattr(part, "rechunk") else part


def _partitions(part: Any) -> list[Any]:
    return list(np.ravel(np.asarray(part.to_delayed(), dtype=object)))


def _client() -> Any:
    from distributed import default_client

    try:
        return default_client()
    except ValueError:
        pass
    raise ValueError(
        "X is a collection of Dask, and no cluster is connected. Make a client first: from distributed import Client; "
        "client = Client(...)."
    )


# Predictions


def lazily(method: Callable[..., Any], X: Any, width: int) -> Any:
    """Return what `method` gives for each row of a Dask collection of `width` columns, computed when it is asked for.

    Arrays give arrays. Data frames give series, or data frames where a row has several numbers, with their own index.
    """
    example = np.asarray(method(np.zeros((1, width))))
    if hasattr(X, "map_partitions"):
        return X.map_partitions(partial(_of_frame, method), meta=_of_frame(lambda _: example[:0], X._meta))
    X = X.rechunk({1: -1})
    if example.ndim == 1:
        return X.map_blocks(method, dtype=example.dtype, drop_axis=1)
    return X.map_blocks(method, dtype=example.dtype, chunks=(X.chunks[0], (example.shape[1],)))


def _of_frame(method: Callable[..., Any], frame: Any) -> Any:
    import pandas as pd

    predictions = np.asarray(method(frame))
    return pd.Series(predictions, frame.index) if predictions.ndim == 1 else pd.DataFrame(predictions, frame.index)
