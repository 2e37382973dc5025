"""What the printed noise of paper 1 costs, by two accountants that share no code.

The closed form: all Gaussian releases are one, with known epsilon and delta; with the discrepancy's Laplace release, an
integral of the Gaussian's delta over the Laplace release's privacy loss. And privacy-loss distributions.
"""

import math
from typing import Any

from dpadapt.accounting import oracles
from dpadapt.accounting.gaussian import gaussian_delta, gaussian_epsilon
from dpadapt.adaptation.noise import PAPER_SHARE, largest_valid_claim, paper_mu
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.events import Event, GaussianEvent, LaplaceEvent

CLAIMED = (0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 15.0, 20.0, 30.0)


def privacy_rows(delta: float = 0.01, *, grid: float = oracles.GRID) -> list[dict[str, float]]:
    """Return one row per epsilon that the paper might claim: true costs of Algorithm 1 or 2 and of the whole method.

    `grid` is that of the privacy-loss distributions.
    """
    rows = []
    for claimed in CLAIMED:
        mu = paper_mu(claimed, delta)
        gaussian: dict[Event, int] = {GaussianEvent(1 / mu): 1}
        part, rest = PAPER_SHARE * claimed, paper_mu((1 - PAPER_SHARE) * claimed, delta)
        whole: dict[Event, int] = {GaussianEvent(1 / rest): 1, LaplaceEvent(1 / part): 1}
        rows.append(
            {
                "claimed": claimed,
                "algorithm": gaussian_epsilon(mu, delta),
                "algorithm, pld": _pld(gaussian, grid).get_epsilon_for_delta(delta),
                "delta": gaussian_delta(mu, claimed),
                "delta, pld": _pld(gaussian, grid).get_delta_for_epsilon(claimed),
                "method": mixed_epsilon(rest, part, delta),
                "method, pld": _pld(whole, grid).get_epsilon_for_delta(delta),
            }
        )
    return rows


def valid_up_to(delta: float = 0.01) -> dict[str, float]:
    """Return the largest epsilon at which the claim holds: the algorithm alone, and the whole method."""
    return {"algorithm": largest_valid_claim(delta, share=0.0), "method": largest_valid_claim(delta)}


def mixed_delta(mu: float, laplace: float, epsilon: float) -> float:
    """Return the delta of a Gaussian release of `mu` together with a Laplace release of epsilon `laplace`.

    Examples
    --------
    >>> round(mixed_delta(1.0, 1e-9, 1.0), 6) == round(gaussian_delta(1.0, 1.0), 6)
    True
    """
    from scipy.integrate import quad

    def rest(loss: float) -> float:
        return _gaussian_delta(mu, epsilon - loss)

    # The Laplace release's loss is laplace with chance 1/2, -laplace with exp(-laplace) / 2, else it has a density.
    inside, _ = quad(lambda loss: rest(loss) * math.exp((loss - laplace) / 2) / 4, -laplace, laplace, epsabs=1e-14)
    return 0.5 * rest(laplace) + 0.5 * math.exp(-laplace) * rest(-laplace) + inside


def mixed_epsilon(mu: float, laplace: float, delta: float) -> float:
    """Return the epsilon of both releases together at `delta`."""
    from scipy.optimize import brentq

    most = laplace + gaussian_epsilon(mu, delta)
    return float(brentq(lambda epsilon: mixed_delta(mu, laplace, epsilon) - delta, 0.0, most + 1e-9, xtol=1e-10))


def _gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the formula for delta; with a negative epsilon too, as a loss elsewhere may leave it."""
    from scipy.special import ndtr

    return float(ndtr(-epsilon / mu + mu / 2) - math.exp(epsilon) * ndtr(-epsilon / mu - mu / 2))


def _pld(events: dict[Event, int], grid: float) -> Any:
    return oracles.pld(events, Adjacency.REPLACE_ONE, grid=grid)
