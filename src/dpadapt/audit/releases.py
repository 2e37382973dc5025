"""What an attacker sees, as the `fit` of `lower_bound`: the outputs of a mechanism, or all releases of a fit."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from dpadapt.accounting.ledger import Ledger
from dpadapt.audit.replay import Fit, Release, Tape, fit_of, record, replay
from dpadapt.mechanisms import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace, RandomizedResponse
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import Bounded
from dpadapt.mechanisms.events import SampledEvent
from dpadapt.mechanisms.mechanism import Mechanism, Repeated, Sampled
from dpadapt.mechanisms.randomness import Random
from dpadapt.papers.reweigh.parity import RandomParity
from dpadapt.rows import Unit

# They treat coordinates one by one, so many outputs are one with many coordinates. Others may draw one radius for all.
_INDEPENDENT = (Gaussian, DiscreteGaussian, Laplace, DiscreteLaplace, RandomizedResponse)


class MechanismOutputs:
    """The outputs of one mechanism on a statistic of the data, many in one draw where possible.

    Parameters
    ----------
    mechanism : Mechanism or Sampled
        A sampled plan releases on a new Poisson sample in each step; its output is that of all steps.
    statistic : callable
        Takes a data set (for a sampled plan: an array of its rows), returns a `Bounded`.
    adjacency : Adjacency, default=Adjacency.ZERO_OUT
    noise : float, default=1.0
        Multiplies the noise without changing the claim: anything but 1 is a planted bug; see `weakened`.
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
        self._original_draw = self._ledger._draw

    def many(self, data: Any, runs: int) -> NDArray[Any]:
        """Return `runs` outputs, stacked."""
        self._ledger._draw = self._draw
        if isinstance(self._mechanism, Sampled):
            return self._sampled(self._mechanism, data, runs)
        bounded = self._statistic(data)
        if type(self._mechanism) in _INDEPENDENT:
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
        drawn = [run.release(batch.of(lambda index: self._statistic(rows[index]))) for batch in run.batches(len(rows))]
        return np.stack(drawn).reshape(runs, -1)

    def _draw(self, mechanism: Mechanism, bounded: Bounded, scale: float, random: Random) -> Any:
        return self._original_draw(mechanism, bounded, weakened(mechanism, scale, self._noise), random)

    def _draw_tiled(self, runs: int) -> Callable[[Mechanism, Bounded, float, Random], Any]:
        def draw(mechanism: Mechanism, bounded: Bounded, scale: float, random: Random) -> Any:
            tiled = np.repeat(bounded.value[None], runs, axis=0)
            return self._draw(mechanism, dataclasses.replace(bounded, value=tiled), scale, random)

        return draw


def weakened(mechanism: Mechanism, scale: float, noise: float) -> float:
    """Return the scale at which `mechanism` has `noise` times the noise that it claims: a planted bug if not 1.

    Half the noise is that of twice the epsilon for Laplace noise and for choices. The scale of `RandomParity` is the
    probability 1 - e^-epsilon of keeping a record: half the noise is that probability at twice the epsilon.
    """
    return 1.0 - (1.0 - scale) ** (1.0 / noise) if isinstance(mechanism, RandomParity) else scale * noise


class ReleaseScores:
    """The log-likelihood ratio of all releases of a fit: the most powerful score for whole fits.

    The attacker knows both data sets and sees every release of the fit, not only its result. Each call fits once,
    records the releases, and replays them on the other data set. The difference of log-likelihoods under the claimed
    noise is the most powerful score by the Neyman–Pearson lemma, and 0 its best threshold.

    Releases on Poisson samples must be sums over rows, all with one sampling rate, and the row in which the data sets
    differ must add nothing in `D_neighbour`. The attacker knows the samples of all other rows. Without that row a
    release r has density f(r - b), with b the sum over the sample; with it the density is (1 - rate) f(r - b) +
    rate f(r - b - v), with v what the row adds.

    Parameters
    ----------
    make_estimator : callable
        Returns a new, unfitted estimator.
    D, D_neighbour : tuple
        Positional arguments of its `fit`; pass the same objects to `lower_bound`.
    fit_kwargs : dict, optional
        Further arguments of `fit`, e.g. ``{"public": Public(...)}``.
    noise : float, default=1.0
        Multiplies the noise without changing the claim: anything but 1 is a planted bug.
    seed : int, default=0
        Seed of the first run; each further run takes the next.
    unit : {"row", "person"}, default="row"
        The unit of the ledger.
    """

    # The score is positive where the neighbour is likelier.
    threshold = 0.0

    def __init__(
        self,
        make_estimator: Callable[[], Any],
        D: tuple[Any, ...],
        D_neighbour: tuple[Any, ...],
        *,
        fit_kwargs: dict[str, Any] | None = None,
        noise: float = 1.0,
        seed: int = 0,
        unit: Unit = "row",
    ) -> None:
        self._data_sets = (D, D_neighbour)
        self._fit = fit_of(make_estimator, fit_kwargs or {})
        self._adjacency = Adjacency.of(getattr(make_estimator(), "adjacency", Adjacency.ZERO_OUT))
        self._noise = noise
        self._seed = seed
        self._unit: Unit = unit

    def __call__(self, data: Any) -> float:
        """Return the log-likelihood of one run's releases under the neighbour minus that under `D`."""
        here = 0 if data is self._data_sets[0] else 1
        if data is not self._data_sets[here]:
            raise ValueError("data must be one of the two data sets given to ReleaseScores, the same object.")
        seed, self._seed = self._seed, self._seed + 1
        options: dict[str, Any] = {"adjacency": self._adjacency, "seed": seed, "unit": self._unit}
        tape = record(self._fit, data, noise=self._noise, **options)
        sampled = [entry.event for entry in tape.entries if isinstance(entry.event, SampledEvent)]
        if sampled:
            return self._mixture_score(tape, self._one_rate(tape, sampled), options)
        other = replay(self._fit, self._data_sets[1 - here], tape, **options)
        ratio = sum(
            _log_ratio(own, alternative) for own, alternative in zip(tape.releases, other.releases, strict=True)
        )
        return ratio if here == 1 else -ratio

    def _one_rate(self, tape: Tape, sampled: Sequence[SampledEvent]) -> float:
        rates = {event.rate for event in sampled}
        if len(rates) > 1 or len(sampled) < len(tape.entries):
            raise TypeError("releases on samples of several rates can't be scored together; audit the result instead.")
        if self._adjacency is Adjacency.REPLACE_ONE:
            raise TypeError("releases on samples are scored for a row that is missing or null, not for a replaced one.")
        return rates.pop()

    def _mixture_score(self, tape: Tape, rate: float, options: dict[str, Any]) -> float:
        # Which rows are in a sample follows from the seed and the row's number: this is the sample without the row.
        without = replay(self._fit, self._data_sets[1], tape, **options)
        whole, rest = (replay(_on_all_rows(self._fit), data, tape, **options) for data in self._data_sets)
        score = 0.0
        for own, base, all_rows, others in zip(
            tape.releases, without.releases, whole.releases, rest.releases, strict=True
        ):
            # How much likelier the release is if the row was sampled than if it was not.
            added = dataclasses.replace(base, value=base.value + (all_rows.value - others.value))
            likelier = _log_ratio(dataclasses.replace(added, noisy=own.noisy), base)
            score -= float(np.logaddexp(math.log1p(-rate), math.log(rate) + likelier))
        return score


def _on_all_rows(fit: Fit) -> Fit:
    """Return `fit` with samples that hold all rows."""

    def whole(data: Any, ledger: Ledger) -> Any:
        return fit(data, _without_sampling(ledger))

    return whole


def _without_sampling(ledger: Ledger) -> Ledger:
    """Let the ledger and its children sample all rows; return the ledger."""
    original_child = ledger.child
    ledger._random.poisson_sample = lambda n, rate: np.arange(n)  # type: ignore[method-assign]
    ledger.child = lambda *args, **kwargs: _without_sampling(original_child(*args, **kwargs))  # type: ignore[method-assign]
    return ledger


def _log_ratio(own: Release, alternative: Release) -> float:
    """Return the log-likelihood of a release under its own value minus that under the value of the other data set."""
    if own.kind == "ExponentialMechanism":
        # P(j) is proportional to exp(score_j / scale).
        mine, theirs = (release.value / own.scale for release in (own, alternative))
        chosen = int(own.noisy)
        return float((mine[chosen] - logsumexp(mine)) - (theirs[chosen] - logsumexp(theirs)))
    near, far = np.asarray(own.noisy) - own.value, np.asarray(own.noisy) - alternative.value
    if own.kind in ("Gaussian", "DiscreteGaussian"):
        return float(((far - near) * (far + near)).sum()) / (2 * own.scale**2)
    if own.kind in ("Laplace", "DiscreteLaplace"):
        return float((np.abs(far) - np.abs(near)).sum()) / own.scale
    raise TypeError(f"releases by {own.kind} have no likelihood here; audit the result of the fit instead.")
