"""How many records, rounds and people the paper's theorems ask for, and what its Algorithm 4 costs.

R. Kohen, O. Sheffet. Transfer Learning In Differential Privacy's Hybrid-Model. ICML 2022: Algorithms 1, 2, 3, 4,
Theorem A.3 and Corollary B.3. Everything here is arithmetic on public numbers.
"""

import math
from dataclasses import dataclass

from dpadapt import checks
from dpadapt.accounting import cost
from dpadapt.mechanisms.events import GaussianEvent, SampledEvent
from dpadapt.papers.reweigh.deciding import people_needed
from dpadapt.papers.reweigh.learners import Descent, paper_noise_variance
from dpadapt.papers.reweigh.reweigh import check_divergence, paper_rounds


@dataclass(frozen=True)
class StrPlan:
    """The sizes that the theorems ask for.

    Parameters
    ----------
    rounds : int
        T: the largest number of rounds.
    density : float
        kappa: no record has more than 1 / density times the average weight.
    people : int
        N0: people in a test of one round, with the paper's Gaussian answers.
    people_exact : int
        The same with one randomized bit per person and exact binomial errors.
    rows : int or None
        n: the curator's records; None if a learner's sample size is needed and was not given.
    steps : int or None
        R: steps of descent in a round (Algorithm 4 only).
    noise : float or None
        Standard deviation of a step's noise over the Lipschitz constant (Algorithm 4 only).
    """

    rounds: int
    density: float
    people: int
    people_exact: int
    rows: int | None = None
    steps: int | None = None
    noise: float | None = None

    def __str__(self) -> str:
        """Return one line per number."""
        lines = [
            f"rounds                       {self.rounds:,}",
            f"density of the weights       {self.density:.4g}",
            f"people a test, paper         {self.people:,}",
            f"people a test, one bit each  {self.people_exact:,}",
        ]
        if self.rows is not None:
            lines.append(f"the curator's records        {self.rows:,}")
        if self.steps is not None:
            lines.append(f"steps a round                {self.steps:,}")
        return "\n".join(lines)


def plan(
    alpha: float,
    epsilon: float,
    delta: float,
    divergence: float,
    *,
    beta: float = 1e-6,
    sample_size: int | None = None,
    descent: Descent | None = None,
    n_rounds: int | None = None,
    n_steps: int | None = None,
    density: float | None = None,
) -> StrPlan:
    """Return the sizes that the paper asks for: those of Algorithm 2, or of Algorithm 4 if `descent` is given.

    Parameters
    ----------
    alpha, beta : float
        The target: an error of at most 4 alpha with probability 1 - 3 beta. Below 1/8.
    epsilon, delta : float
        For the curator's records and for each person alike, as in the paper.
    divergence : float
        The chi-squared divergence of the target from the curator's population.
    sample_size : int, optional
        How many records the learner needs for error alpha at epsilon = 1 (Algorithm 2).
    descent : Descent, optional
        Lipschitz constant, diameter, dimension and strong convexity (Algorithm 4).
    n_rounds, n_steps, density : optional
        Used instead of the paper's T, R and kappa.

    Examples
    --------
    >>> divergence = 0.3515339910798756  # of the easier populations in Appendix D
    >>> sizes = plan(0.08, 0.5, 1e-4, divergence, descent=Descent(0.1, 0.006, 9), n_rounds=997, n_steps=50_000_000,
    ...              density=0.08 / (4 * (divergence + 1)))
    >>> sizes.rows  # the paper: 324,700,000
    324691646
    >>> sizes.people, sizes.people_exact  # in one test: Gaussian answers, one bit each
    (564492, 25626)
    """
    alpha, beta = _small(alpha, "alpha"), _small(beta, "beta")
    epsilon, delta = checks.positive(epsilon, "epsilon"), checks.delta(delta)
    if delta == 0:
        raise ValueError("delta must be positive: the paper's answers are Gaussian, got 0.")
    divergence = check_divergence(divergence)
    kappa = alpha / (8 * (divergence + 1)) if density is None else checks.unit(density, "density")
    reach = 1.0 if descent is None else descent.lipschitz * descent.diameter
    rounds = paper_rounds(alpha, divergence, reach=reach) if n_rounds is None else checks.count(n_rounds, "n_rounds")
    people = paper_people(alpha, beta / (2 * rounds), epsilon, delta)
    # Both errors of a test are beta / (8 T), as the logarithm in N0 implies.
    exact = people_needed(2 * alpha, 4 * alpha, beta / (8 * rounds), epsilon)
    if descent is None:
        rows = None
        if sample_size is not None:
            size = checks.count(sample_size, "sample_size")
            rows = math.ceil(size * math.sqrt(288 * rounds * math.log(2 / delta)) / (epsilon * kappa))
        return StrPlan(rounds, kappa, people, exact, rows)
    # sigma depends on n, n on R, and R on sigma. sigma falls as n grows, so that the iteration converges.
    steps, square, rows = 1, 20.0, 1
    for _ in range(100):
        steps = descent.steps(alpha, beta, square) if n_steps is None else checks.count(n_steps, "n_steps")
        inner = 52 * steps * rounds / (8 * kappa**2 * epsilon)
        needed = math.ceil(math.sqrt(inner * math.log(inner)))
        if needed == rows:
            break
        rows = needed
        square = paper_noise_variance(epsilon, delta, kappa * rows)
    return StrPlan(rounds, kappa, people, exact, rows, steps, math.sqrt(square))


def paper_rows(alpha: float, beta: float, divergence: float, dimension: int) -> int:
    """Return n of Algorithm 1, for a class of pseudo-dimension `dimension`."""
    each = dimension * math.log(400 * dimension / alpha**3) + math.log(8 / beta)
    return math.ceil(800 * (check_divergence(divergence) + 1) * math.log(1 / alpha) / alpha**2 * each)


def paper_people(alpha: float, beta: float, epsilon: float, delta: float) -> int:
    """Return N(alpha, beta) of section 2: how many Gaussian answers give a mean to within alpha.

    The closed form holds for epsilon <= 1 only; for larger epsilon its noise is too small.
    """
    return math.ceil(4 * math.log(2 / delta) * math.log(4 / beta) / (epsilon * alpha) ** 2)


def parity_rows(n_features: int, beta: float, epsilon: float, divergence: float) -> tuple[int, int]:
    """Return the number of batches, and of records in each, that Corollary B.3 asks for.

    Examples
    --------
    >>> parity_rows(128, 1e-3, 0.5, 1.0)
    (27, 204029)
    """
    batches = math.ceil(math.log(2 / beta) / math.log(4 / 3))
    each = 32 * (check_divergence(divergence) + 1) * n_features * math.log(2 * n_features / beta) / epsilon
    return batches, math.ceil(each)


@dataclass(frozen=True)
class Cost:
    """The epsilon of Algorithm 4 at one delta: by truncated concentrated privacy (the paper), by Rényi divergences."""

    truncated: float
    renyi: float


def algorithm_4_cost(n_rows: int, density: float, n_rounds: int, n_steps: int, noise: float, delta: float) -> Cost:
    """Return the epsilon of Algorithm 4 at `delta`, by the paper's Theorem A.3 and by Rényi divergences.

    Parameters
    ----------
    n_rows, density, n_rounds, n_steps
        The n, kappa, T and R of the paper.
    noise : float
        Standard deviation of a step's noise over the Lipschitz constant.
    delta : float

    Notes
    -----
    Both are upper bounds. Why the second is one: a step draws one record. In two neighbouring runs the draws differ
    with probability s <= 1 / (density n), and only then may the two gradients differ, by at most twice the Lipschitz
    constant. By the convexity of every hockey-stick divergence, a step is no worse than Gaussian noise with sensitivity
    2 L on a sample of rate s. Rényi divergences of all orders, converted to epsilon, bound the composition from above.
    """
    size = density * n_rows
    if size <= 1:
        raise ValueError(f"density times n_rows must exceed 1, got {size:.3g}. Bring more rows or raise density.")
    square = noise**2
    log = math.log(size)
    # The theorem's conditions: eq. (4) and 2 L² / sigma² <= 0.1.
    valid = square >= 20 * (1 - 1e-12) and log >= 6 * (2 + math.log(square / 2)) / square and square * log > 8
    truncated = math.inf
    if valid:
        rho = 26 * n_steps * n_rounds / (square * size**2)
        omega = square * log / 8
        truncated = rho * omega + math.log(1 / delta) / (omega - 1)
    event = SampledEvent(GaussianEvent(noise / 2), 1 / size)
    return Cost(truncated, float(cost.rdp({event: n_rounds * n_steps}).get_epsilon(delta)))


def _small(value: float, name: str) -> float:
    """Return the value if it lies between 0 and 1/8."""
    if not 0 < value < 0.125:
        raise ValueError(f"{name} must lie between 0 and 1/8, as in the paper, got {value!r}.")
    return float(value)
