"""What an attacker may look at, in a form for `lower_bound`: a mechanism's outputs, or all releases of a fit."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.accounting.ledger import Ledger
from dpadapt.audit.replay import Release, fit_of, record, replay
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import Bounded
from dpadapt.mechanisms.choices import RandomizedResponse
from dpadapt.mechanisms.mechanism import Mechanism, NoiseMechanism, Repeated, Sampled, SampledEvent
from dpadapt.mechanisms.randomness import Random


class MechanismOutputs:
    """The outputs of one mechanism on a statistic of the data, drawn many at once where that is possible.

    Parameters
    ----------
    mechanism : Mechanism or Sampled
        A sampled plan releases on a new Poisson sample in each step; its output is all of the steps'.
    statistic : callable
        Takes a data set (for a sampled plan: an array of its rows), returns a `Bounded`.
    adjacency : Adjacency, default=Adjacency.ZERO_OUT
    noise : float, default=1.0
        Multiplies the noise without anyone being told: a planted bug.
    seed : int, optional
        Default: secure noise.
    """

    def __init__(
        self,
        mechanism: Mechanism | Sampled,
        statistic: Callable[[Any], Bounded],
        *,
        adjacency: Adjacency = Adjacency.ZERO_OUT,
        noise: float = 1.0,
        seed: int | None = None,
    ) -> None:
        self._mechanism = mechanism
        self._statistic = statistic
        self._noise = noise
        self._ledger = Ledger(float("inf"), adjacency=adjacency, random_state=seed)
        self._really = self._ledger._draw

    def many(self, data: Any, runs: int) -> NDArray[Any]:
        """Return `runs` outputs, stacked."""
        self._ledger._draw = self._draw
        if isinstance(self._mechanism, Sampled):
            return self._sampled(self._mechanism, data, runs)
        bounded = self._statistic(data)
        if isinstance(self._mechanism, NoiseMechanism | RandomizedResponse):
            # These treat every coordinate alike, so many outputs are one output of many coordinates.
            self._ledger._draw = self._draw_tiled(runs)
            drawn = self._ledger.start(Repeated(self._mechanism, runs), label="audit").release(bounded)
            return np.asarray(drawn)
        run = self._ledger.start(Repeated(self._mechanism, runs), label="audit")
        return np.stack([np.asarray(run.release(bounded)) for _ in range(runs)])

    def __call__(self, data: Any) -> Any:
        """Return one output."""
        return self.many(data, 1)[0]

    def _sampled(self, plan: Sampled, rows: NDArray[Any], runs: int) -> NDArray[Any]:
        run = self._ledger.start(dataclasses.replace(plan, steps=runs * plan.steps), label="audit")
        drawn = np.stack([run.release(self._statistic(rows[batch])) for batch in run.batches(len(rows))])
        return drawn.reshape(runs, -1)

    def _draw(self, mechanism: Mechanism, bounded: Bounded, scale: float, random: Random) -> Any:
        return self._really(mechanism, bounded, scale * self._noise, random)

    def _draw_tiled(self, runs: int) -> Callable[[Mechanism, Bounded, float, Random], Any]:
        def draw(mechanism: Mechanism, bounded: Bounded, scale: float, random: Random) -> Any:
            tiled = np.repeat(bounded.value[None], runs, axis=0)
            return self._draw(mechanism, dataclasses.replace(bounded, value=tiled), scale, random)

        return draw


class ReleaseScores:
    """How much likelier one world's releases are than the other's: the strongest score there is, for whole fits.

    The attacker knows both data sets and sees every release of the fit, not only its result. Each call fits once,
    taping the releases, and replays them on the other data set: the difference of log-likelihoods under the claimed
    noise is what the Neyman–Pearson lemma says to look at. Only for fits without sampling: with it, the claim is about
    an attacker who does not know the samples.

    Parameters
    ----------
    make_estimator : callable
        Returns a new, unfitted estimator.
    D, D_neighbour : tuple
        Positional arguments of its `fit`; pass the same objects to `lower_bound`.
    fit_kwargs : dict, optional
        Further arguments of `fit`, e.g. ``{"public": Public(...)}``.
    noise : float, default=1.0
        Multiplies the noise without anyone being told: a planted bug.
    seed : int, default=0
        Seed of the first run; each further run takes the next.
    """

    def __init__(
        self,
        make_estimator: Callable[[], Any],
        D: tuple[Any, ...],
        D_neighbour: tuple[Any, ...],
        *,
        fit_kwargs: dict[str, Any] | None = None,
        noise: float = 1.0,
        seed: int = 0,
    ) -> None:
        self._worlds = (D, D_neighbour)
        self._fit = fit_of(make_estimator, fit_kwargs or {})
        self._adjacency = Adjacency.of(getattr(make_estimator(), "adjacency", Adjacency.ZERO_OUT))
        self._noise = noise
        self._seed = seed

    def __call__(self, data: Any) -> float:
        """Return the log-likelihood of one run's releases under the neighbour less that under `D`."""
        here = 0 if data is self._worlds[0] else 1
        if data is not self._worlds[here]:
            raise ValueError("data must be one of the two data sets that these scores were made for.")
        seed, self._seed = self._seed, self._seed + 1
        options: dict[str, Any] = {"adjacency": self._adjacency, "seed": seed}
        tape = record(self._fit, data, noise=self._noise, **options)
        if any(isinstance(entry.event, SampledEvent) for entry in tape.entries):
            raise TypeError("a fit on Poisson samples can't be scored by its releases; audit its result instead.")
        other = replay(self._fit, self._worlds[1 - here], tape, **options)
        ratio = sum(_log_ratio(mine, theirs) for mine, theirs in zip(tape.releases, other.releases, strict=True))
        return ratio if here == 1 else -ratio


def _log_ratio(mine: Release, theirs: Release) -> float:
    """Return the log-likelihood of a release under its own value less that under the other value."""
    near, far = np.asarray(mine.noisy) - mine.value, np.asarray(mine.noisy) - theirs.value
    if mine.kind in ("Gaussian", "DiscreteGaussian"):
        return float(((far - near) * (far + near)).sum()) / (2 * mine.scale**2)
    if mine.kind in ("Laplace", "DiscreteLaplace"):
        return float((np.abs(far) - np.abs(near)).sum()) / mine.scale
    raise TypeError(f"releases by {mine.kind} have no likelihood here; audit the result of the fit instead.")
