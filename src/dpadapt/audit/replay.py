"""Replay: fit on one data set and record all releases, then refit on another with the recorded releases.

Given the released values, nothing that a fit shows may depend on private rows, on the Poisson samples that were drawn,
or on the exact values behind the releases. A replay therefore changes all three: other rows, other samples, and exact
values that are overwritten as soon as they were released. A difference between the two fits did not come through the
ledger: it is a leak. Everything here reads private values; use it with made-up data only.
"""

import itertools
import math
import pickle
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.accounting.ledger import Ledger
from dpadapt.errors import PrivacyError
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import Bounded
from dpadapt.mechanisms.events import Entry, Event
from dpadapt.mechanisms.mechanism import Mechanism
from dpadapt.mechanisms.randomness import Random
from dpadapt.papers.reweigh.parity import RandomParity
from dpadapt.rows import Unit

Fit = Callable[[Any, Ledger], Any]

# Added to the seed of the recorded fit for the samples of its replay in `leaks`.
_SEED_SHIFT_OF_OTHER_SAMPLES = 1


class PathDiffers(PrivacyError):
    """A fit on neighbouring data made other releases (number, kind, shape or noise), given the same released values."""


@dataclass(frozen=True, eq=False)
class Release:
    """One release.

    Parameters
    ----------
    kind : str
        Class of the mechanism.
    event : Event
        What the release costs if it uses all rows. On a Poisson sample it costs less.
    scale : float
        Noise in the units of the value.
    value : ndarray
        The statistic before noise. Private.
    noisy : object
        The released value.
    """

    kind: str
    event: Event
    scale: float
    value: NDArray[Any] = field(repr=False)
    noisy: Any = field(repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the statistic as far as the release shows it."""
        # A parity is released from one equation per record; how many there were is not shown.
        return self.value.shape[1:] if self.kind == RandomParity.__name__ else self.value.shape

    def same_path(self, other: "Release") -> bool:
        """Return whether kind, noise and shape are the same: all that is visible apart from the noisy value."""
        return (self.kind, self.event, self.scale, self.shape) == (other.kind, other.event, other.scale, other.shape)


@dataclass(frozen=True, eq=False)
class Tape:
    """All releases and charges of one fit, and what the fit returned.

    Parameters
    ----------
    releases : tuple of Release
        In the order in which they were drawn.
    charges : tuple of tuple of Entry
        What each charge to the ledger consisted of, oldest first.
    result : object
    """

    releases: tuple[Release, ...]
    charges: tuple[tuple[Entry, ...], ...]
    result: Any = field(repr=False)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries of all charges."""
        return tuple(itertools.chain.from_iterable(self.charges))


def record(
    fit: Fit,
    data: Any,
    *,
    adjacency: Adjacency = Adjacency.ZERO_OUT,
    seed: int = 0,
    samples: int | None = None,
    noise: float = 1.0,
    unit: Unit = "row",
) -> Tape:
    """Run `fit(data, ledger)` and record every release.

    Parameters
    ----------
    fit : callable
        Takes the data and a ledger without a cap; must make its releases through that ledger.
    data : object
    adjacency : Adjacency, default=Adjacency.ZERO_OUT
    seed : int, default=0
        Seeds the noise.
    samples : int, optional
        Seeds the Poisson samples. Whether a row is in a sample depends on this seed and on the row's number alone, so
        that a row added at the end changes no other row's part. Default: `seed`.
    noise : float, default=1.0
        Multiplies the noise without changing the claim. Anything but 1 is a planted bug, which an audit must detect.
    unit : {"row", "person"}, default="row"
        The unit of the ledger.
    """
    return _run(fit, data, Adjacency.of(adjacency), seed, seed if samples is None else samples, noise=noise, unit=unit)


def replay(
    fit: Fit,
    data: Any,
    tape: Tape,
    *,
    adjacency: Adjacency = Adjacency.ZERO_OUT,
    seed: int = 0,
    samples: int | None = None,
    poison: float | None = None,
    unit: Unit = "row",
) -> Tape:
    """Run `fit(data, ledger)` with the noisy values of `tape` in place of new ones; return the tape of this run.

    Parameters
    ----------
    fit, data, adjacency, unit : as in `record`
    tape : Tape
    seed : int, default=0
        The seed of the recorded fit.
    samples : int, optional
        Seeds the Poisson samples. Default: `seed`, which gives the samples of the recorded fit.
    poison : float, optional
        What the exact value behind each release is overwritten with, in place, after the release; an array that may be
        part of `data` is replaced instead. Default: it stays as it is.

    Raises
    ------
    PathDiffers
        If the fit makes other releases or charges than those on the tape.
    """
    samples = seed if samples is None else samples
    replayed = _run(fit, data, Adjacency.of(adjacency), seed, samples, tape=tape, poison=poison, unit=unit)
    if len(replayed.releases) != len(tape.releases):
        raise PathDiffers("the fit made fewer releases on the neighbouring data.")
    if replayed.charges != tape.charges:
        raise PathDiffers("the fit made other charges on the neighbouring data.")
    return replayed


def leaks(
    make_estimator: Callable[[], Any],
    D: tuple[Any, ...],
    D_neighbour: tuple[Any, ...],
    *,
    unit: Unit = "row",
    **fit_kwargs: Any,
) -> list[str]:
    """Return the names of attributes that depend on the private data other than through releases.

    The estimator is fitted on `D` and then, with the released values of that fit, on `D_neighbour`, with other Poisson
    samples and with exact values that are overwritten after their release.

    Parameters
    ----------
    make_estimator : callable
        Returns a new, unfitted estimator.
    D, D_neighbour : tuple
        Positional arguments of `fit`, e.g. ``(X, y)``: two data sets that agree in what is public, such as the number
        of rows. Neighbours are the least that must pass; data sets that differ in every row find more.
    unit : {"row", "person"}, default="row"
        The unit of the ledger.
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
    tape = record(fit, D, adjacency=adjacency, unit=unit)
    return leaked(fit, D_neighbour, tape, adjacency=adjacency, unit=unit)


def leaked(
    fit: Fit,
    data: Any,
    tape: Tape,
    *,
    adjacency: Adjacency,
    seed: int = 0,
    poison: float = math.nan,
    unit: Unit = "row",
) -> list[str]:
    """Return what `leaks` returns, for a fit on `data` after that of `tape`, which was recorded with `seed`."""
    samples = seed + _SEED_SHIFT_OF_OTHER_SAMPLES
    try:
        replayed = replay(fit, data, tape, adjacency=adjacency, seed=seed, samples=samples, poison=poison, unit=unit)
    except PathDiffers:
        return ["path"]
    return differing(tape.result, replayed.result)


def fit_of(make_estimator: Callable[[], Any], fit_kwargs: dict[str, Any]) -> Fit:
    """Return a `Fit` that fits a new estimator on a tuple of positional arguments."""
    return lambda data, ledger: make_estimator().fit(*data, ledger=ledger, **fit_kwargs)


def differing(first: Any, second: Any) -> list[str]:
    """Return the names of attributes that are not bit-identical in two fitted estimators, parameters included."""
    a, b = vars(first), vars(second)
    names = a.keys() | b.keys()
    return sorted(name for name in names if name not in a or name not in b or not _same(a[name], b[name]))


def _run(
    fit: Fit,
    data: Any,
    adjacency: Adjacency,
    seed: int,
    samples: int,
    *,
    noise: float = 1.0,
    tape: Tape | None = None,
    poison: float | None = None,
    unit: Unit = "row",
) -> Tape:
    # No cap; at delta = 0 the ledger then computes no cost.
    ledger = Ledger(math.inf, adjacency=adjacency, unit=unit, random_state=seed)
    original_draw, original_charge = ledger._draw, ledger._charge
    made: list[Release] = []
    charges: list[tuple[Entry, ...]] = []

    def charge(entries: Sequence[Entry], **kwargs: Any) -> Any:
        charged = original_charge(entries, **kwargs)
        charges.append(tuple(entries))
        return charged

    def draw(mechanism: Mechanism, bounded: Bounded, scale: float, random: Random) -> Any:
        description = type(mechanism).__name__, mechanism.event(), scale, np.array(bounded.value)
        if tape is None:
            release = Release(*description, original_draw(mechanism, bounded, scale * noise, random))
        else:
            index = len(made)
            if index >= len(tape.releases):
                raise PathDiffers("the fit made more releases on the neighbouring data.")
            release = Release(*description, tape.releases[index].noisy)
            if not release.same_path(tape.releases[index]):
                raise PathDiffers(f"release {index + 1} differs in kind, shape or noise on the neighbouring data.")
        made.append(release)
        if poison is not None:
            _overwrite(bounded, poison, data)
        return release.noisy.copy() if isinstance(release.noisy, np.ndarray) else release.noisy

    ledger._draw = draw
    ledger._charge = charge  # type: ignore[method-assign]
    _sample_apart(ledger, (np.random.default_rng([samples, number]) for number in itertools.count()))
    result = fit(data, ledger)
    return Tape(tuple(made), tuple(charges), result)


class _SampledApart(Random):
    """Noise of one source, and Poisson samples of streams of their own, one stream per sample."""

    def __init__(self, noise: Random, streams: Iterator[np.random.Generator]) -> None:
        self.seeded = noise.seeded
        self._noise = noise
        self._streams = streams

    @property
    def generator(self) -> np.random.Generator:
        return self._noise.generator

    def discrete_laplace(self, scale: float, size: int) -> NDArray[np.int64]:
        return self._noise.discrete_laplace(scale, size)

    def discrete_gaussian(self, scale: float, size: int) -> NDArray[np.int64]:
        return self._noise.discrete_gaussian(scale, size)

    def poisson_sample(self, n: int, rate: float) -> NDArray[np.int64]:
        """Draw one number per row, so that the samples of n and of n + 1 rows differ in the last row alone."""
        return np.flatnonzero(next(self._streams).random(n) < rate)


def _sample_apart(ledger: Ledger, streams: Iterator[np.random.Generator]) -> Ledger:
    """Let the ledger and all its children draw Poisson samples from `streams`; return the ledger."""
    original_child = ledger.child

    def child(*args: Any, **kwargs: Any) -> Ledger:
        return _sample_apart(original_child(*args, **kwargs), streams)

    ledger._random = _SampledApart(ledger._random, streams)
    ledger.child = child  # type: ignore[method-assign]
    return ledger


def _overwrite(bounded: Bounded, poison: float, data: Any) -> None:
    """Overwrite the exact value of a statistic wherever it is kept; `data` is left as it is."""
    value = bounded.value
    with np.errstate(all="ignore"):
        # Integers can't hold NaN or 1e300: half of the largest one stands for any number.
        poisoned = np.full_like(value, poison if value.dtype.kind == "f" else np.iinfo(value.dtype).max // 2)
    if value.flags.writeable and not any(np.may_share_memory(value, array) for array in _arrays(data)):
        # Also reaches statistics and variables that share this array.
        value[...] = poisoned
    object.__setattr__(bounded, "value", poisoned)


def _arrays(data: Any) -> Iterator[NDArray[Any]]:
    """Yield the arrays of the data that a fit is given."""
    if isinstance(data, list | tuple):
        for part in data:
            yield from _arrays(part)
    elif isinstance(data, dict):
        yield from _arrays(list(data.values()))
    elif hasattr(data, "__array__"):
        yield np.asarray(data)


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
