"""Sources of randomness: the operating system by default, a seed for tests only.

`SecureRandom` draws from AES in counter mode under a key of 128 bits from the operating system, and its discrete noise
from OpenDP's exact samplers. `SeededRandom` is an ordinary generator: it is reproducible, so there is no guarantee.
"""

import math
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.rows import CACHE_BYTES

# Normal variates that `NormalsAhead` draws at once: half of what stays in the cache. Fewer save less time per release.
_NUMBERS_AHEAD = CACHE_BYTES // 16


class Random(ABC):
    """A source of noise and samples."""

    seeded: bool

    @property
    @abstractmethod
    def generator(self) -> np.random.Generator:
        """The generator behind all continuous draws."""

    @abstractmethod
    def discrete_laplace(self, scale: float, size: int) -> NDArray[np.int64]:
        """Draw integers with P(k) proportional to exp(-|k| / scale)."""

    @abstractmethod
    def discrete_gaussian(self, scale: float, size: int) -> NDArray[np.int64]:
        """Draw integers with P(k) proportional to exp(-k² / (2 scale²))."""

    def normal(self, scale: float, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Draw normal variates of standard deviation `scale`."""
        noise = self.generator.standard_normal(shape)
        noise *= scale
        return noise

    def poisson_sample(self, n: int, rate: float) -> NDArray[np.int64]:
        """Choose each of range(n) with probability `rate`, independently."""
        if rate >= 1.0:
            return np.arange(n)
        # Claim: P(row is drawn) = rate, independently of all others. The gaps between successes of independent
        # Bernoulli trials are geometric, so we draw about n * rate of them instead of n uniforms.
        chunk = int(n * rate + 6 * math.sqrt(n * rate) + 16)
        # A gap that passes the end may be shortened: a longer one could overflow the sum.
        positions = np.cumsum(np.minimum(self.generator.geometric(rate, chunk), n + 1)) - 1
        while positions[-1] < n:
            more = np.cumsum(np.minimum(self.generator.geometric(rate, chunk), n + 1))
            positions = np.concatenate([positions, positions[-1] + more])
        return positions[: int(np.searchsorted(positions, n))]


class SecureRandom(Random):
    """The default: unpredictable bits, different in every process."""

    seeded = False

    def __init__(self) -> None:
        self._generator: np.random.Generator | None = None
        self._pid = -1

    @property
    def generator(self) -> np.random.Generator:
        """A cryptographic stream. It gets a new key after a fork, so that no two processes share noise."""
        if self._generator is None or self._pid != os.getpid():
            # Claim: no two processes share noise, and 2^128 keys are equally probable. The key is drawn by the
            # operating system, anew after a fork.
            # Not proved: that AES in counter mode can't be told from random bits, a standard assumption.
            from randomgen import AESCounter

            self._generator = np.random.Generator(AESCounter(key=secrets.randbits(128)))
            self._pid = os.getpid()
        return self._generator

    def discrete_laplace(self, scale: float, size: int) -> NDArray[np.int64]:
        """Draw exactly, by OpenDP."""
        return _opendp("laplace", scale, size)

    def discrete_gaussian(self, scale: float, size: int) -> NDArray[np.int64]:
        """Draw exactly, by OpenDP."""
        return _opendp("gaussian", scale, size)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the key: the copy draws a new key."""
        return (SecureRandom, ())


class SeededRandom(Random):
    """Reproducible noise for tests: anybody who knows the seed can subtract the noise."""

    seeded = True

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.PCG64(seed))

    @property
    def generator(self) -> np.random.Generator:
        """An ordinary generator."""
        return self._generator

    def discrete_laplace(self, scale: float, size: int) -> NDArray[np.int64]:
        """Draw the difference of two geometric variates, which is discrete Laplace."""
        success = -math.expm1(-1.0 / scale)
        draws = self._generator.geometric(success, (2, size))
        return np.asarray(draws[0] - draws[1], dtype=np.int64)

    def discrete_gaussian(self, scale: float, size: int) -> NDArray[np.int64]:
        """Draw by rejection from discrete Laplace (Canonne, Kamath and Steinke 2020, Algorithm 3)."""
        t = math.floor(scale) + 1.0
        kept = np.empty(0, dtype=np.int64)
        while kept.size < size:
            proposal = self.discrete_laplace(t, 2 * size + 16)
            accept = np.exp(-((np.abs(proposal) - scale**2 / t) ** 2) / (2 * scale**2))
            kept = np.concatenate([kept, proposal[self._generator.random(proposal.size) < accept]])
        return kept[:size]


class NormalsAhead(Random):
    """Another source, whose normal variates are drawn for up to `times` releases at once, which is quicker.

    Variates that were drawn ahead and not used are dropped. It must not be used on two sides of a fork; `Run` sees to
    that.
    """

    def __init__(self, source: Random, times: int) -> None:
        self.seeded = source.seeded
        self._source, self._times = source, times
        self._block: NDArray[np.float64] | None = None
        self._scale, self._next = math.nan, 0

    @property
    def generator(self) -> np.random.Generator:
        """The generator of the source."""
        return self._source.generator

    def normal(self, scale: float, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Draw normal variates of standard deviation `scale`; every answer is a part of the block that is used once."""
        block, place = self._block, self._next
        if block is None or place == len(block) or scale != self._scale or shape != block.shape[1:]:
            times = max(1, min(self._times, _NUMBERS_AHEAD // max(1, math.prod(shape))))
            block, place = self._source.normal(scale, (times, *shape)), 0
            self._block, self._scale, self._times = block, scale, self._times - times
        self._next = place + 1
        drawn: NDArray[np.float64] = block[place]
        return drawn

    def discrete_laplace(self, scale: float, size: int) -> NDArray[np.int64]:
        """Draw by the source."""
        return self._source.discrete_laplace(scale, size)

    def discrete_gaussian(self, scale: float, size: int) -> NDArray[np.int64]:
        """Draw by the source."""
        return self._source.discrete_gaussian(scale, size)

    def poisson_sample(self, n: int, rate: float) -> NDArray[np.int64]:
        """Draw by the source."""
        return self._source.poisson_sample(n, rate)


def random_source(random_state: Any) -> Random:
    """Return the source for an estimator's `random_state`: None is secure, an integer is a seed."""
    if random_state is None:
        return SecureRandom()
    if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer) or random_state < 0:
        raise ValueError(
            f"random_state must be None (secure noise) or a non-negative whole number (tests only), "
            f"got {type(random_state).__name__}."
        )
    return SeededRandom(int(random_state))


def _opendp(kind: str, scale: float, size: int) -> NDArray[np.int64]:
    """Draw discrete noise, "laplace" or "gaussian", by OpenDP's exact samplers."""
    import opendp.prelude as dp

    # Claim: P(k) = c exp(-|k| / scale), or c exp(-k² / (2 scale²)), exactly. OpenDP's samplers (Canonne, Kamath and
    # Steinke 2020) compare rational numbers with random bits of the operating system; the value is added here, in
    # integers. Not proved: OpenDP's code.
    dp.enable_features("contrib")
    make: dict[str, Callable[..., Any]] = {"laplace": dp.m.make_laplace, "gaussian": dp.m.make_gaussian}
    metric = dp.l1_distance(T="i64") if kind == "laplace" else dp.l2_distance(T="f64")
    space = dp.vector_domain(dp.atom_domain(T="i64")), metric
    return np.asarray(make[kind](*space, scale=scale)([0] * size), dtype=np.int64)
