"""Replay: fit on one data set and record all releases, then refit on a neighbour with the recorded releases.

A difference between the two fits did not come through the ledger: it is a leak. Everything here reads private values;
use it with made-up data only.
"""

import math
import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.accounting.ledger import Ledger
from dpadapt.accounting.receipt import Entry
from dpadapt.errors import PrivacyError
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import Bounded
from dpadapt.mechanisms.mechanism import Mechanism
from dpadapt.mechanisms.randomness import Random

Fit = Callable[[Any, Ledger], Any]


class PathDiffers(PrivacyError):
    """A fit on neighbouring data made other releases (number, kind, shape or noise), given the same released values."""


@dataclass(frozen=True, eq=False)
class Release:
    """One release.

    Parameters
    ----------
    kind : str
        Class of the mechanism.
    scale : float
        Noise in the units of the value.
    value : ndarray
        The statistic before noise. Private.
    noisy : object
        The released value.
    """

    kind: str
    scale: float
    value: NDArray[Any] = field(repr=False)
    noisy: Any = field(repr=False)

    def same_path(self, other: "Release") -> bool:
        """Return whether kind, noise and shape are the same: all that is visible apart from the noisy value."""
        return (self.kind, self.scale, self.value.shape) == (other.kind, other.scale, other.value.shape)


@dataclass(frozen=True, eq=False)
class Tape:
    """All releases and charges of one fit, and what the fit returned."""

    releases: tuple[Release, ...]
    entries: tuple[Entry, ...]
    result: Any = field(repr=False)


def record(
    fit: Fit, data: Any, *, adjacency: Adjacency = Adjacency.ZERO_OUT, seed: int = 0, noise: float = 1.0
) -> Tape:
    """Run `fit(data, ledger)` and record every release.

    Parameters
    ----------
    fit : callable
        Takes the data and a ledger without a cap; must make its releases through that ledger.
    data : object
    adjacency : Adjacency, default=Adjacency.ZERO_OUT
    seed : int, default=0
        Seeds noise and samples, so that `replay` can draw the same samples.
    noise : float, default=1.0
        Multiplies the noise without changing the claim. Anything but 1 is a planted bug, which an audit must detect.
    """
    return _run(fit, data, Adjacency.of(adjacency), seed, noise, None)


def replay(fit: Fit, data: Any, tape: Tape, *, adjacency: Adjacency = Adjacency.ZERO_OUT, seed: int = 0) -> Tape:
    """Run `fit(data, ledger)` with the noisy values of `tape` in place of new ones; return the tape of this run.

    Raises
    ------
    PathDiffers
        If the fit makes other releases or charges than those on the tape.
    """
    replayed = _run(fit, data, Adjacency.of(adjacency), seed, 1.0, tape)
    if len(replayed.releases) != len(tape.releases):
        raise PathDiffers("the fit made fewer releases on the neighbouring data.")
    if replayed.entries != tape.entries:
        raise PathDiffers("the fit made other charges on the neighbouring data.")
    return replayed


def leaks(
    make_estimator: Callable[[], Any], D: tuple[Any, ...], D_neighbour: tuple[Any, ...], **fit_kwargs: Any
) -> list[str]:
    """Return the names of attributes that depend on the private data other than through releases.

    Parameters
    ----------
    make_estimator : callable
        Returns a new, unfitted estimator.
    D, D_neighbour : tuple
        Positional arguments of `fit`, e.g. ``(X, y)``: two neighbouring data sets under the estimator's adjacency.
    **fit_kwargs : object
        Further arguments of `fit`, the same for both, e.g. ``public=``.

    Returns
    -------
    list of str
        Attributes that are not bit-identical, sorted; "path" if the number, kind, shape, noise or label of the releases
        differ. Empty if nothing leaks on this pair.

    Examples
    --------
    >>> from dpadapt import PrivateLinearRegression
    >>> X, y = np.linspace(-1, 1, 100).reshape(50, 2), np.linspace(0, 1, 50)
    >>> leaks(PrivateLinearRegression, (X, y), (X, np.append(y[:-1], 9.0)))
    []
    """
    adjacency = Adjacency.of(getattr(make_estimator(), "adjacency", Adjacency.ZERO_OUT))
    fit = fit_of(make_estimator, fit_kwargs)
    tape = record(fit, D, adjacency=adjacency)
    try:
        replayed = replay(fit, D_neighbour, tape, adjacency=adjacency)
    except PathDiffers:
        return ["path"]
    return differing(tape.result, replayed.result)


def fit_of(make_estimator: Callable[[], Any], fit_kwargs: dict[str, Any]) -> Fit:
    """Return a `Fit` that fits a new estimator on a tuple of positional arguments."""
    return lambda data, ledger: make_estimator().fit(*data, ledger=ledger, **fit_kwargs)


def differing(first: Any, second: Any) -> list[str]:
    """Return the names of attributes set by `fit` that are not bit-identical in two fitted estimators."""
    known = set(first.get_params(deep=False)) if hasattr(first, "get_params") else set()
    a, b = vars(first), vars(second)
    names = (a.keys() | b.keys()) - known
    return sorted(name for name in names if name not in a or name not in b or not _same(a[name], b[name]))


def _run(fit: Fit, data: Any, adjacency: Adjacency, seed: int, noise: float, tape: Tape | None) -> Tape:
    # No cap; at delta = 0 the ledger then computes no cost.
    ledger = Ledger(math.inf, adjacency=adjacency, random_state=seed)
    original_draw = ledger._draw
    made: list[Release] = []

    def draw(mechanism: Mechanism, bounded: Bounded, scale: float, random: Random) -> Any:
        # Also drawn in a replay, so that the generator gives the same samples to later batches.
        noisy = original_draw(mechanism, bounded, scale * noise, random)
        release = Release(type(mechanism).__name__, scale, np.array(bounded.value), noisy)
        if tape is not None:
            index = len(made)
            if index >= len(tape.releases):
                raise PathDiffers("the fit made more releases on the neighbouring data.")
            if not release.same_path(tape.releases[index]):
                raise PathDiffers(f"release {index + 1} differs in kind, shape or noise on the neighbouring data.")
            release = Release(release.kind, scale, release.value, tape.releases[index].noisy)
        made.append(release)
        return release.noisy.copy() if isinstance(release.noisy, np.ndarray) else release.noisy

    ledger._draw = draw
    result = fit(data, ledger)
    return Tape(tuple(made), tuple(ledger.entries), result)


def _same(a: Any, b: Any) -> bool:
    """Return whether two values are equal bit by bit."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        if a.dtype == object:
            return all(_same(x, y) for x, y in zip(a.ravel(), b.ravel(), strict=True))
        return bool(a.tobytes() == b.tobytes())
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if callable(getattr(a, "state_dict", None)):
        # A network is compared by its parameters and buffers.
        return _same(*({key: np.asarray(value) for key, value in x.state_dict().items()} for x in (a, b)))
    if hasattr(a, "__dict__") and not callable(a):
        return _same(vars(a), vars(b))
    if isinstance(a, str | bytes | int | bool | complex | set | frozenset | np.generic):
        return bool(a == b)
    return pickle.dumps(a) == pickle.dumps(b)
