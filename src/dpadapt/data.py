"""`Public`: public data, declared as such; and `Remembered`, so that each `Public` is prepared once."""

import hashlib
import threading
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray


class Public:
    """Data that needs no protection.

    It has no length, shape or index on purpose: so cross-validation can't split it together with the private rows, and
    no function can take it for private rows.

    Parameters
    ----------
    X : array-like of shape (n_rows, n_features), data frame, or path of a file
        Public features, with the same columns as the private ones. Paths are for `TableModel`, which reads them.
    y : array-like of shape (n_rows,), optional
        Public labels.
    tasks : array-like of shape (n_rows,), optional
        The task of each row, if there are several public tasks.
    unseen : bool or array-like of bool of shape (n_rows,), optional
        For estimators that are given a fitted `public_model`: the rows that it was not fitted to; True: all rows.

    Examples
    --------
    >>> public = Public([[0.0, 1.0], [1.0, 0.0]], [0, 1])
    >>> public
    Public(labelled)
    """

    def __init__(self, X: Any, y: Any = None, *, tasks: Any = None, unseen: Any = None) -> None:
        if isinstance(X, Public):
            raise TypeError("X must be an array or a data frame, got a Public. Use that Public itself, or its parts.")
        if isinstance(X, str | Path):
            if any(part is not None for part in (y, tasks, unseen)):
                raise ValueError("public X is a file, which holds its own labels: leave y, tasks and unseen out.")
            n_rows = 0
        else:
            n_rows = _length(X, "X")
        for name, part in (("y", y), ("tasks", tasks)):
            if part is not None and _length(part, name) != n_rows:
                raise ValueError(
                    f"public {name} must have one entry per public row: {n_rows}, got {_length(part, name)}."
                )
        if unseen is not None:
            marked = np.asarray(unseen)
            if marked.dtype != bool or marked.shape not in ((), (n_rows,)):
                raise ValueError(f"unseen must be True or hold True or False for each of the {n_rows} public rows.")
            unseen = marked if marked.any() else None
        self.X: Any = X
        self.y: Any = y
        self.tasks: Any = tasks
        self.unseen: Any = unseen

    def __repr__(self) -> str:
        """Return a text that says which parts there are."""
        parts = ["unlabelled" if self.y is None else "labelled"]
        if self.tasks is not None:
            parts.append("with tasks")
        return f"Public({', '.join(parts)})"


def _length(part: Any, name: str) -> int:
    try:
        shape = part.shape if hasattr(part, "shape") else np.shape(part)
    except ValueError:
        raise ValueError(f"public {name} must be an array or a table: its rows have different lengths.") from None
    if len(shape) == 0:
        raise TypeError(f"public {name} must be an array, a list or a data frame, got {type(part).__name__}.")
    return int(shape[0])


T = TypeVar("T")


class Remembered(Generic[T]):
    """One preparation for each `Public`, kept while the object lives and its content stays the same; thread-safe."""

    def __init__(self) -> None:
        self._known: weakref.WeakKeyDictionary[Public, tuple[bytes, T]] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def get(self, public: Public, parts: Iterable[NDArray[Any] | None], make: Callable[[], T]) -> T:
        """Return the result of `make` for these parts of `public`: the stored one if they have not changed."""
        digest = _digest(parts)
        with self._lock:
            known = self._known.get(public)
        if known is not None and known[0] == digest:
            return known[1]
        made = make()
        with self._lock:
            self._known[public] = digest, made
        return made


def _digest(parts: Iterable[NDArray[Any] | None]) -> bytes:
    """Return a fingerprint of arrays of numbers or text, with their shapes and types."""
    digest = hashlib.blake2b()
    for part in parts:
        if part is None:
            digest.update(b"none")
            continue
        # The bytes of an object array are addresses; the text of its values is used instead.
        array = np.ascontiguousarray(part.astype(str) if part.dtype == object else part)
        digest.update(f"{array.shape}{array.dtype.str}".encode())
        digest.update(array.tobytes())
    return digest.digest()
