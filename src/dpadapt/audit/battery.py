"""`audit_all`: lower bounds on epsilon for every mechanism and every method, with their own noise and with half of it.

A `Case` is one mechanism or method with a pair of neighbouring data sets that separates its outputs as far as possible.
"""

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dpadapt.accounting.closed_forms import gaussian_epsilon
from dpadapt.accounting.cost import epsilon, tally
from dpadapt.audit.measured_epsilon import LowerBound, lower_bound
from dpadapt.audit.releases import MechanismOutputs, ReleaseScores
from dpadapt.audit.replay import fit_of, record
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

if TYPE_CHECKING:
    from rich.table import Table

# Added to the seed for the runs with half the noise, so that they do not repeat the noise of the others.
_SEED_SHIFT_OF_HALVED_RUNS = 10**6


@dataclass(frozen=True, eq=False)
class Case:
    """One mechanism or method to audit.

    Parameters
    ----------
    name : str
    claimed : float
        Epsilon at `delta`, by the accountant.
    delta : float
    method : str
        The `method` of `lower_bound`.
    fit : callable
        Takes a factor on the noise (1, or less for a planted bug) and a seed; returns the `fit` of `lower_bound`.
    D, D_neighbour : object
        Two neighbouring data sets.
    heavy : bool
        Whether one run is a whole fit.
    tight : bool
        Whether the claim is exact for this pair, so that the measured bound should come close to it.
    """

    name: str
    claimed: float
    delta: float
    method: str
    fit: Callable[[float, int | None], Callable[[Any], Any]]
    D: Any
    D_neighbour: Any
    heavy: bool = False
    tight: bool = False


def mechanism_cases() -> list[Case]:
    """Return a case for every mechanism, with data sets whose outputs differ as much as the claim allows."""
    swap = Adjacency.REPLACE_ONE
    rows = [[0.0, 0.0], [0.6, 0.8]]
    null, opposite = [[0.0, 0.0], [math.nan, math.nan]], [[0.0, 0.0], [-0.6, -0.8]]
    # The leading one of two candidates leads by two votes or by one.
    race = [[1, 0], [1, 0]], [[1, 0], [0, 0]]

    def sums(data: Any) -> Bounded:
        return clipped_sum(data, 1.0)

    def grams(data: Any) -> Bounded:
        return clipped_gram(data, 1.0)

    def bins(data: Any) -> Bounded:
        return histogram(data, 3)

    def answers(data: Any) -> Bounded:
        return responses(data, 3)

    return [
        _case("Gaussian", Gaussian(1.0), sums, rows, null, delta=1e-5, method="gaussian", tight=True),
        _case("Gaussian, any mechanism", Gaussian(1.0), sums, rows, null, delta=0.05),
        _case(
            "Gaussian, replace-one",
            Gaussian(1.0),
            sums,
            rows,
            opposite,
            delta=1e-5,
            method="gaussian",
            adjacency=swap,
            tight=True,
        ),
        _case(
            "Gaussian second moment, replace-one",
            Gaussian(1.0),
            grams,
            rows,
            [[0.0, 0.0], [0.8, -0.6]],
            delta=1e-5,
            method="gaussian",
            adjacency=swap,
            tight=True,
        ),
        _case("Laplace", Laplace(1.0), votes, [[0.5], [1.0]], [[0.5], [math.nan]], tight=True),
        _case("DiscreteLaplace", DiscreteLaplace(1.0), bins, [0, 0, 1], [0, 0, -1], tight=True),
        _case(
            "DiscreteLaplace, replace-one",
            DiscreteLaplace(1.0),
            bins,
            [0, 0, 1],
            [0, 0, 2],
            adjacency=swap,
            tight=False,
        ),
        _case("DiscreteGaussian", DiscreteGaussian(1.0), bins, [0, 0, 1], [0, 0, -1], delta=0.05),
        _case("RandomizedResponse", RandomizedResponse(1.0), answers, [0, 1], [0, 2], score=_second_answer),
        _case("ExponentialMechanism", ExponentialMechanism(1.0), votes, *race),
        _case("PermuteAndFlip", PermuteAndFlip(1.0), votes, [[1, 0]], [[0, 0]], tight=True),
        _sampled_case(),
    ]


def _second_answer(output: Any) -> float:
    """Return a score of the answer that differs: 1 is more likely for `D`, 2 for the neighbour, 0 equally likely."""
    return float((0, -1, 1)[int(output[1])])


def _case(
    name: str,
    mechanism: Mechanism,
    statistic: Callable[[Any], Bounded],
    D: Any,
    D_neighbour: Any,
    *,
    delta: float = 0.0,
    method: str = "any",
    adjacency: Adjacency = Adjacency.ZERO_OUT,
    score: Callable[[Any], float] | None = None,
    tight: bool = False,
) -> Case:
    def fit(noise: float, seed: int | None) -> Callable[[Any], Any]:
        outputs = MechanismOutputs(mechanism, statistic, adjacency=adjacency, noise=noise, seed=seed)
        return outputs if score is None else _Scored(outputs, score)

    claimed = epsilon(mechanism, delta, adjacency=adjacency)
    return Case(name, claimed, delta, method, fit, D, D_neighbour, tight=tight)


@dataclass(frozen=True, eq=False)
class _Scored:
    """Outputs of a mechanism, converted to scores."""

    outputs: MechanismOutputs
    score: Callable[[Any], float]

    def many(self, data: Any, runs: int) -> Any:
        return np.array([self.score(output) for output in self.outputs.many(data, runs)])

    def __call__(self, data: Any) -> float:
        return self.score(self.outputs(data))


def _sampled_case() -> Case:
    plan = Sampled(Gaussian(1.0), rate=0.5, steps=2)
    rows = np.array([[0.0], [1.0]]), np.array([[0.0], [math.nan]])

    def fit(noise: float, seed: int | None) -> Callable[[Any], Any]:
        return MechanismOutputs(plan, lambda batch: clipped_sum(batch, 1.0), noise=noise, seed=seed)

    return Case("Gaussian on Poisson samples", epsilon(plan, 0.05), 0.05, "any", fit, *rows)


def estimator_cases(sizes: Sequence[int] = (40, 240), *, mu: float = 2.0, delta: float = 1e-5) -> list[Case]:
    """Return cases for every method in the table, on few rows and on many (which may use another solver).

    All rows but the last are equal. The last one contradicts them as strongly as possible, so that it reaches the
    sensitivity in every release. In the neighbouring data set its square overflows, which makes it a null row.
    """
    budget = gaussian_epsilon(mu, delta)
    return [_estimator_case(method, n_rows, budget, delta) for method in PREDICTORS for n_rows in sizes]


def _estimator_case(method: Method, n_rows: int, budget: float, delta: float) -> Case:
    X = np.ones((n_rows, 1))
    y = np.full(n_rows, -1.0) if method.task == "regression" else np.zeros(n_rows, dtype=int)
    y[-1] = 1e6 if method.task == "regression" else 1
    X_null, y_null = X.copy(), y.copy()
    X_null[-1] = 1e200
    # Without clipping, one row reaches the bound on its gradient in a small ball of coefficients (squared loss), or
    # after the other rows have been fitted (log-loss).
    radius, steps = (0.1, 30) if method.task == "regression" else (50.0, 100)
    wanted: dict[str, Any] = {"classes": [0, 1], "adjacency": "zero-out", "radius": radius, "n_steps": steps}
    known = method.estimator().get_params(deep=False)
    params = {name: value for name, value in wanted.items() if name in known}

    def make() -> Any:
        return method.estimator(epsilon=budget, delta=delta, **params)

    D, D_neighbour = (X, y), (X_null, y_null)

    def fit(noise: float, seed: int | None) -> Callable[[Any], Any]:
        return ReleaseScores(make, D, D_neighbour, noise=noise, seed=secrets.randbits(48) if seed is None else seed)

    spent = tally({entry.event: entry.times for entry in record(fit_of(make, {}), D).entries})
    claimed = epsilon(spent, delta)
    return Case(f"{method.name}, {n_rows} rows", claimed, delta, "gaussian", fit, D, D_neighbour, heavy=True)


@dataclass(frozen=True)
class AuditRow:
    """The result of the audit of one mechanism or method.

    Parameters
    ----------
    name : str
    claimed : float
        Epsilon at the bounds' delta, by the accountant.
    measured : LowerBound
        With its own noise.
    halved : LowerBound
        With half the noise: a planted bug, which the same claim does not cover.
    tight : bool
        Whether the claim is exact for the data sets used.
    """

    name: str
    claimed: float
    measured: LowerBound
    halved: LowerBound
    tight: bool

    @property
    def holds(self) -> bool:
        """Whether the measured bound is compatible with the claim."""
        return not self.measured.refutes(self.claimed)

    @property
    def caught(self) -> bool:
        """Whether the planted bug was detected."""
        return self.halved.refutes(self.claimed)


def audit_all(
    runs: int = 20_000,
    fits: int = 300,
    *,
    confidence: float = 0.999,
    seed: int | None = None,
    cases: Sequence[Case] | None = None,
    tick: Callable[[str], None] | None = None,
) -> list[AuditRow]:
    """Audit every mechanism and every method in the table.

    Parameters
    ----------
    runs : int, default=20_000
        Draws of each mechanism on each data set.
    fits : int, default=300
        Fits of each method on each data set.
    confidence : float, default=0.999
        Of each bound: a correct mechanism whose claim is exact fails one audit in 1 / (1 - confidence).
    seed : int, optional
        For tests. Default: mechanisms draw secure noise.
    cases : sequence of Case, optional
        Default: all of them.
    tick : callable, optional
        Called with the name of each case before it starts.

    Returns
    -------
    list of AuditRow
    """
    rows = []
    for case in [*mechanism_cases(), *estimator_cases()] if cases is None else cases:
        if tick is not None:
            tick(case.name)
        measured, halved = (
            lower_bound(
                case.fit(noise, None if seed is None else seed + shift),
                case.D,
                case.D_neighbour,
                delta=case.delta,
                runs=fits if case.heavy else runs,
                confidence=confidence,
                method=case.method,
            )
            for noise, shift in ((1.0, 0), (0.5, _SEED_SHIFT_OF_HALVED_RUNS))
        )
        rows.append(AuditRow(case.name, case.claimed, measured, halved, case.tight))
    return rows


def table(rows: Sequence[AuditRow]) -> "Table":
    """Return `rows` as a table for the terminal."""
    from rich.table import Table

    caption = "halved: the bound with half the noise; if that is not caught (NO), try more runs first"
    shown = Table(title="Measured lower bounds on epsilon", caption=caption)
    for head in ("name", "delta", "claimed", "measured", "share", "holds", "halved", "caught"):
        shown.add_column(head, justify="left" if head == "name" else "right")
    for row in rows:
        shown.add_row(
            row.name,
            f"{row.measured.delta:.3g}",
            f"{row.claimed:.3f}",
            f"{row.measured.epsilon_lower:.3f}",
            f"{row.measured.epsilon_lower / row.claimed:.0%}",
            "yes" if row.holds else "NO",
            f"{row.halved.epsilon_lower:.3f}",
            "yes" if row.caught else "NO",
        )
    return shown
