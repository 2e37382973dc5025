"""What is audited: every mechanism and every private estimator of the package, each with two neighbouring data sets.

A `Case` pairs one of them with data sets that separate its outputs as far as possible. `mechanism_cases` and
`estimator_cases` list the cases, `private_classes` finds the classes themselves, and `uncovered` names those that have
neither a case nor a reason in `NOT_AUDITED`.
"""

import importlib
import inspect
import math
import pkgutil
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dpadapt
from benchmarks.rivals.gradient_descent import PrivateGradientDescentClassifier, PrivateGradientDescentRegressor
from benchmarks.rivals.private_clustering import PrivateHistogramSource, PrivateKMeansSource
from benchmarks.rivals.subspace import LeastSquaresProbe, ProjectedDPSGD
from dpadapt.accounting.cost import add_entries, epsilon, gaussian_epsilon
from dpadapt.accounting.ledger import Ledger
from dpadapt.audit.releases import MechanismOutputs, ReleaseScores, weakened
from dpadapt.audit.replay import fit_of, record
from dpadapt.clustering.estimator import PrivateSourceTargetClustering
from dpadapt.data import Public
from dpadapt.hybrid.agents import SimulatedAgents, noisy_bits
from dpadapt.hybrid.classifier import PrivateHybridClassifier
from dpadapt.hybrid.questions import ConstantHypothesis
from dpadapt.learning.base import PrivateEstimator
from dpadapt.mechanisms import (
    Adjacency,
    Bounded,
    DiscreteGaussian,
    DiscreteLaplace,
    ExponentialMechanism,
    Gaussian,
    Laplace,
    Mechanism,
    PermuteAndFlip,
    RandomizedResponse,
    clipped_gram,
    clipped_sum,
    histogram,
    responses,
    votes,
)
from dpadapt.mechanisms.mechanism import Sampled
from dpadapt.methods import PREDICTORS, Method
from dpadapt.papers.adaptation import FeatureMapAdaptation
from dpadapt.papers.mirror import PDADPMDMean
from dpadapt.papers.reweigh import FiniteLearner, SubsampleTestReweigh
from dpadapt.papers.reweigh.parity import RandomParity, equations, pack
from dpadapt.papers.source_target import NAS, NNA
from dpadapt.papers.subspace import DPAMBSSGD, DescentProbe

Data = tuple[Any, ...]

# The budget of a fit under audit: mu of its Gaussian releases, and the delta at which epsilon is claimed. At mu = 2 the
# fewest fits detect half the noise: 100 on each data set do with a probability of 0.9999 (0.998 at 1.5, 0.9997 at 2.5).
_AUDITED_MU, _AUDITED_DELTA = 2.0, 1e-5
# The epsilon of a fit with pure releases. A histogram with three quarters of it needs 300 fits; at 1 or 3 more.
_AUDITED_PURE_EPSILON = 2.0
# Settings of a descent that clips gradients: every step reaches the bound, so few steps are enough. The other two are
# given because choosing them from public rows would take most of the time.
_CLIPPED_STEPS: dict[str, Any] = {"n_steps": 5, "clip_norm": 0.1, "learning_rate": 0.1}
# A row whose squares overflow adds nothing to any statistic: a null row.
_NULL_VALUE = 1e200

# Why a class that could be audited is not.
NOT_AUDITED: dict[str, str] = {
    "NonPrivate": "it adds no noise on purpose; the ledger charges epsilon = inf for it",
    "ProjectedRegressor": "a base class without a solver; the classes derived from it are audited",
    "TableModel": "it encodes rows by public facts and releases nothing itself; the estimator inside is audited",
}


@dataclass(frozen=True, eq=False)
class Case:
    """One mechanism or estimator to audit.

    `subject` is the class that is audited. `claim` returns epsilon at `delta`, by the accountant; it may take seconds.
    `fit` takes a factor on the noise (1, or less for a planted bug) and a seed, and returns the `fit` of `lower_bound`;
    `method` and `threshold` are its options. `heavy`: one run is a whole fit. `effort`: how many runs detect half the
    noise, relative to other cases that are heavy (or not). `tight`: the claim is exact for this pair, so that the
    measured bound should come close to it.
    """

    name: str
    subject: type
    claim: Callable[[], float]
    delta: float
    method: str
    fit: Callable[[float, int | None], Callable[[Any], Any]]
    D: Any
    D_neighbour: Any
    heavy: bool = False
    effort: float = 1.0
    threshold: float | None = None
    tight: bool = False

    @property
    def claimed(self) -> float:
        """Epsilon at `delta`, by the accountant."""
        return self.claim()


def all_cases(*, full: bool = False) -> list[Case]:
    """Return the cases of every mechanism and every estimator; with `full`, those that take long too."""
    return [*mechanism_cases(), *estimator_cases(full=full)]


# Which classes there are, and which have a case.


def private_classes() -> list[type]:
    """Return every mechanism and every private estimator of the package that can be used, found by their base classes.

    Modules whose extra (torch, Flower) is not installed are left out.
    """
    for module in pkgutil.walk_packages(dpadapt.__path__, "dpadapt.", onerror=lambda name: None):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError:
            continue
    usable = [cls for base in (Mechanism, PrivateEstimator) for cls in _derived(base) if not inspect.isabstract(cls)]
    # A base class of estimators without a fit is no estimator.
    return sorted(
        (cls for cls in usable if issubclass(cls, Mechanism) or hasattr(cls, "fit")), key=lambda cls: cls.__name__
    )


def _derived(base: type) -> Iterator[type]:
    """Yield the classes of the package that derive from `base`, each once."""
    seen: set[type] = {base}
    todo = [base]
    while todo:
        children: list[type] = type.__subclasses__(todo.pop())
        for cls in children:
            if cls not in seen and cls.__module__.startswith("dpadapt."):
                seen.add(cls)
                todo.append(cls)
                yield cls


def uncovered(cases: Iterable[Case]) -> list[str]:
    """Return the names of mechanisms and estimators that have neither a case nor a reason."""
    covered = {case.subject for case in cases}
    return [cls.__name__ for cls in private_classes() if cls not in covered and cls.__name__ not in NOT_AUDITED]


# Mechanisms.


def mechanism_cases() -> list[Case]:
    """Return cases for every mechanism, with data sets whose outputs differ as much as the claim allows."""
    swap = Adjacency.REPLACE_ONE
    rows = [[0.0, 0.0], [0.6, 0.8]]
    null, opposite = [[0.0, 0.0], [math.nan, math.nan]], [[0.0, 0.0], [-0.6, -0.8]]
    # The leading one of two candidates leads by two votes or by one.
    race = [[1, 0], [1, 0]], [[1, 0], [0, 0]]
    # One equation, which says that the only bit is 1, or none.
    bit, no_bit = np.array([[True]]), np.array([[False]])
    normal: dict[str, Any] = {"delta": 1e-5, "method": "gaussian", "tight": True}

    def sums(data: Any) -> Bounded:
        return clipped_sum(data, 1.0)

    def grams(data: Any) -> Bounded:
        return clipped_gram(data, 1.0)

    def bins(data: Any) -> Bounded:
        return histogram(data, 3)

    def answers(data: Any) -> Bounded:
        return responses(data, 3)

    def one_equation(bits: Any) -> Bounded:
        return equations(pack(bits), bits[:, 0])

    half, sample = Sampled(Gaussian(1.0), rate=0.5, steps=2), np.array([[0.0], [1.0]])
    return [
        _case("Gaussian", Gaussian(1.0), sums, rows, null, **normal),
        _case("Gaussian, any mechanism", Gaussian(1.0), sums, rows, null, delta=0.05),
        _case("Gaussian, replace-one", Gaussian(1.0), sums, rows, opposite, adjacency=swap, **normal),
        _case(
            "Gaussian second moment, replace-one",
            Gaussian(1.0),
            grams,
            rows,
            [[0.0, 0.0], [0.8, -0.6]],
            adjacency=swap,
            **normal,
        ),
        _case("Laplace", Laplace(1.0), votes, [[0.5], [1.0]], [[0.5], [math.nan]], tight=True),
        _case("DiscreteLaplace", DiscreteLaplace(1.0), bins, [0, 0, 1], [0, 0, -1], tight=True),
        _case("DiscreteLaplace, replace-one", DiscreteLaplace(1.0), bins, [0, 0, 1], [0, 0, 2], adjacency=swap),
        _case("DiscreteGaussian", DiscreteGaussian(1.0), bins, [0, 0, 1], [0, 0, -1], delta=0.05),
        _case("RandomizedResponse", RandomizedResponse(1.0), answers, [0, 1], [0, 2], score=_second_answer),
        _people_case(),
        _case("ExponentialMechanism", ExponentialMechanism(1.0), votes, *race),
        _case("PermuteAndFlip", PermuteAndFlip(1.0), votes, [[1, 0]], [[0, 0]], tight=True),
        # Drawn one by one, these take longer, and fewer of them are enough.
        _case("RandomParity", RandomParity(1.0, 1), one_equation, bit, no_bit, score=_parity_answer, effort=0.3),
        _case("Gaussian on Poisson samples", half, sums, sample, sample * [[1.0], [math.nan]], delta=0.05, effort=0.3),
        _case(
            "Gaussian on Poisson samples, replace-one",
            half,
            sums,
            sample,
            -sample,
            delta=0.05,
            adjacency=swap,
            effort=0.3,
        ),
    ]


def _second_answer(output: Any) -> float:
    """Return a score of the answer that differs: 1 is more likely for `D`, 2 for the neighbour, 0 equally likely."""
    return float((0, -1, 1)[int(output[1])])


def _parity_answer(output: Any) -> float:
    """Return a score of a parity of one bit: 1 is more likely with its equation, 0 without it, none equally likely."""
    return float({1: -1, 0: 1}.get(int(output[0, 0]), 0))


def _case(
    name: str,
    mechanism: Mechanism | Sampled,
    statistic: Callable[[Any], Bounded],
    D: Any,
    D_neighbour: Any,
    *,
    delta: float = 0.0,
    method: str = "any",
    adjacency: Adjacency = Adjacency.ZERO_OUT,
    score: Callable[[Any], float] | None = None,
    effort: float = 1.0,
    tight: bool = False,
) -> Case:
    def fit(noise: float, seed: int | None) -> Callable[[Any], Any]:
        outputs = MechanismOutputs(mechanism, statistic, adjacency=adjacency, noise=noise, seed=seed)
        return outputs if score is None else _Scored(outputs, score)

    claim = partial(epsilon, mechanism, delta, adjacency=adjacency)
    subject = type(mechanism.mechanism if isinstance(mechanism, Sampled) else mechanism)
    return Case(name, subject, claim, delta, method, fit, D, D_neighbour, effort=effort, tight=tight)


@dataclass(frozen=True, eq=False)
class _Scored:
    """Outputs of a mechanism, converted to scores."""

    outputs: MechanismOutputs
    score: Callable[[Any], float]

    def many(self, data: Any, runs: int) -> Any:
        return np.array([self.score(output) for output in self.outputs.many(data, runs)])

    def __call__(self, data: Any) -> float:
        return self.score(self.outputs(data))


def _people_case() -> Case:
    """Return the case of one person's noisy bit: a value of 1, or of -1."""
    claimed = 1.0

    def fit(noise: float, seed: int | None) -> Callable[[Any], Any]:
        return _PersonBits(claimed, noise, seed)

    return Case("one person's noisy bit", RandomizedResponse, lambda: claimed, 0.0, "any", fit, 1.0, -1.0)


class _PersonBits:
    """The bits of people who all have the same value, drawn as devices and simulated people draw them."""

    def __init__(self, claimed: float, noise: float, seed: int | None) -> None:
        self._epsilon = claimed
        self._noise = noise
        self._seeds = np.random.default_rng(seed)

    def many(self, value: float, runs: int) -> NDArray[np.int8]:
        ledger = Ledger(self._epsilon, adjacency=Adjacency.REPLACE_ONE, random_state=int(self._seeds.integers(2**62)))
        original = ledger._draw
        ledger._draw = lambda mechanism, bounded, scale, random: original(
            mechanism, bounded, weakened(mechanism, scale, self._noise), random
        )
        return noisy_bits(np.full(runs, value), self._epsilon, ledger, self._seeds)

    def __call__(self, value: float) -> float:
        return float(self.many(value, 1)[0])


# Estimators.


def estimator_cases(*, full: bool = False) -> list[Case]:
    """Return cases for every private estimator that can be imported here; with `full`, those that take long too.

    All private rows but the last are equal. The last one contradicts them as strongly as possible, so that it reaches
    the sensitivity in every release. In the neighbouring data set it is a null row, or missing.
    """
    cases = [_predictor_case(method, 40, public=True) for method in PREDICTORS if method.beside == "public"]
    cases += [_predictor_case(method, 40) for method in PREDICTORS if method.beside == "agents"]
    if full:
        # Without public rows, and with more rows, some methods use another solver.
        cases += [_predictor_case(method, n) for method in PREDICTORS for n in (40, 240) if method.beside == "public"]
        cases += [_choice_case(), *_pure_clustering_cases()]
    return [
        *cases,
        *_paper_cases(),
        *_sampled_cases(),
        *_clustering_cases(),
        _curator_case(),
        *_network_cases(),
    ]


def _budget(*, pure: bool = False) -> dict[str, Any]:
    """Return epsilon and delta of a fit under audit."""
    if pure:
        return {"epsilon": _AUDITED_PURE_EPSILON, "delta": 0.0}
    return {"epsilon": gaussian_epsilon(_AUDITED_MU, _AUDITED_DELTA), "delta": _AUDITED_DELTA}


def _fit_case(
    make: Callable[[], Any],
    pair: tuple[Data, Data],
    note: str = "",
    *,
    beside: Public | None = None,
    delta: float = _AUDITED_DELTA,
    method: str = "gaussian",
    effort: float = 1.0,
    threshold: float | None = ReleaseScores.threshold,
) -> Case:
    """Return the case of an estimator, attacked through all of its releases; its claim is what one fit is charged."""
    fit_kwargs = {} if beside is None else {"public": beside}

    def fit(noise: float, seed: int | None) -> Callable[[Any], Any]:
        start = secrets.randbits(48) if seed is None else seed
        return ReleaseScores(make, *pair, fit_kwargs=fit_kwargs or None, noise=noise, seed=start)

    @cache
    def claim() -> float:
        adjacency = Adjacency.of(make().adjacency)
        charged = add_entries({}, record(fit_of(make, fit_kwargs), pair[0], adjacency=adjacency).entries)
        return epsilon(charged, delta, adjacency=adjacency)

    made = make()
    cls = type(made.estimator if isinstance(made, _Subject) else made)
    return Case(
        f"{cls.__name__}{note}", cls, claim, delta, method, fit, *pair, heavy=True, effort=effort, threshold=threshold
    )


def _rows(task: str, n_rows: int, *, missing: bool = False) -> tuple[Data, Data]:
    """Return private rows, and the same rows with the last one null or missing."""
    X = np.full((n_rows, 1), -1.0)
    y = np.full(n_rows, -1.0) if task == "regression" else np.zeros(n_rows, dtype=int)
    y[-1] = 1e6 if task == "regression" else 1
    if missing:
        return (X, y), (X[:-1], y[:-1])
    X_null = X.copy()
    X_null[-1] = _NULL_VALUE
    return (X, y), (X_null, y.copy())


def _public_rows(task: str) -> Public:
    """Return public rows of five tasks, whose labels no linear model fits exactly."""
    X = np.linspace(-1.0, 1.0, 60)[:, None]
    y = X[:, 0] + 0.1 * np.sin(7 * X[:, 0])
    return Public(X, y if task == "regression" else (np.sin(9 * X[:, 0]) + y > 0).astype(int), tasks=np.arange(60) % 5)


def _predictor_case(method: Method, n_rows: int, *, public: bool = False) -> Case:
    """Return the case of a method of the table."""
    # Without clipping, one row reaches the bound on its gradient in a small ball of coefficients (squared loss), or
    # after the other rows have been fitted (log-loss).
    radius, steps = (0.1, 10) if method.task == "regression" else (50.0, 40)
    known = method.estimator().get_params(deep=False)
    wanted: dict[str, Any] = {"classes": [0, 1], "adjacency": "zero-out", "radius": radius, "n_steps": steps}
    if "clip_norm" in known:
        wanted |= _CLIPPED_STEPS
    params = {**{name: value for name, value in wanted.items() if name in known}, **_budget()}
    return _fit_case(
        lambda: method.estimator(**params),
        _rows(method.task, n_rows),
        f", {n_rows} rows{', with public rows' if public else ''}",
        beside=_public_rows(method.task) if public else None,
        # Without clipping, a row does not quite reach the bound.
        effort=1.5 if "radius" in known and "clip_norm" not in known else 1.0,
    )


def _paper_cases() -> list[Case]:
    """Return cases of published algorithms that are not in the table of methods, and of their private baselines."""
    rivals = [
        Method(cls, "regression", f"benchmarks.rivals.private_adaptation.{cls}", "a baseline")
        for cls in ("NoisySGD", "PrivateMixture", "PrivateDiscrepancyMinimization")
    ]
    regression, classes = _rows("regression", 40), _rows("classification", 40)
    known, known_classes = _public_rows("regression"), _public_rows("classification")
    far = regression[0][0].copy()
    far[-1] = 1e6
    # Two classes out of ten: the indicator of a class, centred, is then nearly as long as its bound.
    ten, both = {"classes": list(range(10)), **_budget()}, {"classes": [0, 1], **_budget()}
    missing: dict[str, Any] = {"adjacency": "add-remove", "n_rows": 40}
    without_last = _rows("classification", 40, missing=True)
    descent = _CLIPPED_STEPS
    return [
        *(_predictor_case(method, 40, public=True) for method in rivals),
        _fit_case(lambda: PDADPMDMean(**_budget()), ((far,), (regression[1][0],))),
        # One row is about half as long as its bound allows, so that half the noise takes many fits to detect.
        _fit_case(
            lambda: FeatureMapAdaptation(n_steps=40, radius=1.0, **_budget()), regression, beside=known, effort=8.0
        ),
        _fit_case(lambda: PrivateGradientDescentRegressor(**descent, **_budget()), regression, beside=known),
        _fit_case(lambda: PrivateGradientDescentClassifier(**descent, **both), classes),
        _fit_case(lambda: DescentProbe(**descent, **both, **missing), without_last),
        _fit_case(lambda: LeastSquaresProbe(**ten, **missing), without_last, beside=known_classes),
        _fit_case(lambda: ProjectedDPSGD(n_epochs=5, **_budget()), regression),
        _fit_case(lambda: SubsampleTestReweigh(**both), classes),
    ]


def _choice_case() -> Case:
    """Return the case of a learner that chooses from a list: each row votes for its class, the last makes it a tie."""
    choose = FiniteLearner([ConstantHypothesis(0), ConstantHypothesis(1)])
    params: dict[str, Any] = {"classes": [0, 1], "adjacency": "add-remove", "n_rows": 4, **_budget(pure=True)}
    X, y = np.zeros((4, 1)), np.array([0, 0, 1, 1])
    pure: dict[str, Any] = {"delta": 0.0, "method": "any", "effort": 15.0, "threshold": None}
    pair = (X, y), (X[:-1], y[:-1])
    return _fit_case(lambda: SubsampleTestReweigh(choose, **params), pair, ", choice from a list", **pure)


def _sampled_cases() -> list[Case]:
    """Return cases of fits on Poisson samples: the claim is that of an attacker who does not know who was sampled."""
    # At a large delta the fewest fits detect half the noise: 500 on each data set, and over 1,200 at 0.01.
    # Both make four releases at rate 1/2, so that noise is calibrated once.
    params: dict[str, Any] = {"epsilon": 1.0, "delta": 0.2, "batch_size": 20}
    sampled: dict[str, Any] = {"delta": 0.2, "method": "any", "effort": 7.0, "threshold": None}
    descent = {**_CLIPPED_STEPS, "n_steps": 4}
    return [
        _fit_case(make, _rows("regression", 40), ", on Poisson samples", **sampled)
        for make in (
            lambda: DPAMBSSGD(**params, adjacency="zero-out"),
            lambda: PrivateGradientDescentRegressor(**params, **descent),
        )
    ]


# One private source, or none. One of two targets moves as far as it can where the source is at an end.
_IN_THE_MIDDLE, _AT_AN_END = (((np.array([[place]]),), (np.empty((0, 1)),)) for place in (0.5, 1.0))
_LINE, _ENDS = Public(np.linspace(0.0, 1.0, 8)[:, None]), Public(np.array([[0.0], [1.0]]))


def _clustering_cases() -> list[Case]:
    """Return cases of source-target clustering."""
    pure: dict[str, Any] = {"delta": 0.0, "method": "any", "effort": 4.0}
    budget = {"random_state": 0, **_budget()}
    return [
        _fit_case(lambda: PrivateSourceTargetClustering(2, **_budget(pure=True)), _IN_THE_MIDDLE, beside=_LINE, **pure),
        _fit_case(lambda: NNA(1, **_budget()), _AT_AN_END, beside=_ENDS),
        # The sensitivity allows for both targets.
        _fit_case(lambda: NAS(1, n_neighbours=1, **_budget()), _AT_AN_END, beside=_ENDS, effort=4.0),
        _fit_case(lambda: _Subject(PrivateKMeansSource(1, n_proxies=2, n_steps=2, **budget)), _AT_AN_END, beside=_ENDS),
        _fit_case(lambda: _Subject(PrivateHistogramSource(1, n_splits=2, **budget)), _AT_AN_END, beside=_ENDS),
    ]


def _pure_clustering_cases() -> list[Case]:
    """Return cases of clustering with Laplace noise; no pair makes their claims exact, so they need many fits."""
    pure: dict[str, Any] = {"delta": 0.0, "method": "any", "effort": 18.0, "threshold": None}
    certified = partial(PrivateSourceTargetClustering, 2, epsilon=1.0, certificate_share=0.8)
    return [
        _fit_case(certified, _IN_THE_MIDDLE, ", with a bound on the cost", beside=_LINE, **pure),
        _fit_case(lambda: NNA(1, epsilon=1.0), _AT_AN_END, ", Laplace noise", beside=_ENDS, **pure),
    ]


def _curator_case() -> Case:
    """Return the case of a curator whose rows are weighted to look like people who were asked."""
    (X, y), neighbour = _rows("classification", 240)
    # The last row looks like the people, so that it keeps its weight when the others lose theirs.
    X[-1] = 1.0

    def people() -> dict[str, Any]:
        coins = np.random.default_rng(0).random(20_000)
        return {"agents": SimulatedAgents(np.ones((20_000, 1)), (coins < 0.7).astype(int), 1.0, random_state=0)}

    params: dict[str, Any] = {"mode": "hybrid", "classes": [0, 1], **_budget()}
    pair = (X, y), neighbour
    return _fit_case(lambda: _Subject(PrivateHybridClassifier(**params), people), pair, ", with people", effort=1.5)


def _network_cases() -> list[Case]:
    """Return the case of a network, if torch is installed."""
    try:
        from dpadapt.networks import PrivateNetwork
    except ModuleNotFoundError:
        return []
    params: dict[str, Any] = {"n_steps": 5, "batch_size": 40, "clip_norm": 0.1, "classes": [0, 1], **_budget()}
    make = lambda: _Subject(PrivateNetwork(transfer="cold", random_state=0, **params))  # noqa: E731
    return [_fit_case(make, _rows("classification", 40))]


class _Subject:
    """An estimator whose public choices come from its own seed, while its noise comes from the caller's ledger.

    A replay must make the same public choices as the recorded fit, with other noise in every run.
    """

    def __init__(self, estimator: Any, beside: Callable[[], dict[str, Any]] = dict) -> None:
        self.adjacency = estimator.adjacency
        self.estimator = estimator
        self._beside = beside

    def fit(self, *data: Any, ledger: Ledger, **beside: Any) -> Any:
        """Fit on `data`, with people or other arguments that must be made anew for each fit."""
        estimator = self.estimator
        estimator._ledger = lambda caller: caller.child(
            estimator.epsilon, estimator.delta, label=type(estimator).__name__
        )
        return estimator.fit(*data, ledger=ledger, **beside, **self._beside())
