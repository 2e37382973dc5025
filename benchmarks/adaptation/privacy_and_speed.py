"""Privacy costs of paper 1's noise by two accountants, and speed of our Algorithm 1 against a verbatim loop."""

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.theory.adaptation import discrepancy
from benchmarks.theory.adaptation_problems import solve
from benchmarks.transfer.common import claim
from dpadapt.accounting import cost
from dpadapt.accounting.cost import gaussian_delta, gaussian_epsilon
from dpadapt.data import Public
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.events import Event, GaussianEvent, LaplaceEvent
from dpadapt.papers.adaptation.cnvx import CnvxAdap
from dpadapt.papers.adaptation.noise import PAPER_SHARE, largest_valid_claim, paper_mu

# Privacy cost of the printed noise, by two accountants that share no code: privacy-loss distributions, a closed form.
# In the closed form all Gaussian releases are one release with known epsilon and delta; together with the discrepancy's
# Laplace release, delta is an integral of the Gaussian's delta over the privacy loss of the Laplace release.


CLAIMED = (0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 15.0, 20.0, 30.0)


def privacy_rows(delta: float = 0.01, *, grid: float = cost.GRID) -> list[dict[str, float]]:
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

    # The Laplace release's loss is `laplace` with probability 1/2 and `-laplace` with probability exp(-laplace) / 2;
    # between these it has a density.
    inside, _ = quad(lambda loss: rest(loss) * math.exp((loss - laplace) / 2) / 4, -laplace, laplace, epsabs=1e-14)
    return 0.5 * rest(laplace) + 0.5 * math.exp(-laplace) * rest(-laplace) + inside


def mixed_epsilon(mu: float, laplace: float, delta: float) -> float:
    """Return the epsilon of both releases together at `delta`."""
    from scipy.optimize import brentq

    most = laplace + gaussian_epsilon(mu, delta)
    return float(brentq(lambda epsilon: mixed_delta(mu, laplace, epsilon) - delta, 0.0, most + 1e-9, xtol=1e-10))


def _gaussian_delta(mu: float, epsilon: float) -> float:
    """Return delta of a Gaussian release. Epsilon may be negative: the rest after the loss of another release."""
    from scipy.special import ndtr

    return float(ndtr(-epsilon / mu + mu / 2) - math.exp(epsilon) * ndtr(-epsilon / mu - mu / 2))


def _pld(events: dict[Event, int], grid: float) -> Any:
    return cost.pld(events, Adjacency.REPLACE_ONE, grid=grid)


# Speed: CnvxAdap takes d² operations per step, a verbatim loop goes over all rows.


Array = NDArray[np.float64]
# Source rows, target rows and columns of Gas in Table 4.
SIZE = (7297, 613, 133)
STEPS = 15_000
# kappa1, kappa2 and kappa_inf: the smallest value of each in Appendix E.
KAPPAS = (1.0, 5.0, 0.1)


def verbatim(
    X_source: Array, y_source: Array, X: Array, y: Array, *, alpha: float, radius: float, epsilon: float, n_steps: int
) -> tuple[Array, Array]:
    """Return the result of Algorithm 1, line by line as printed: every step goes over all rows and all weights.

    For rows of length at most 1 and labels in [-1, 1]; delta = 0.01, a discrepancy of 0, the penalties of `KAPPAS`.
    """
    (m, d), n, T = X_source.shape, len(X), n_steps
    one, two, top = KAPPAS
    G, B, share = 2 * (radius + 1), (radius + 1) ** 2, 1 - alpha
    bar = B + one + two + top
    noise = 2 * math.sqrt(T * math.log(3 / 0.01)) / epsilon
    sigma_w, sigma_u = noise * 2 * share * G / n, noise * share**2 * B / n**2
    step = radius / math.sqrt(T * (G**2 + d * sigma_w**2))
    step_source = m**1.5 / (math.sqrt(T) * alpha**2 * (B + bar))
    step_target = n**1.5 / math.sqrt(T * (share**4 * bar**2 + n**4 * sigma_u**2))
    random = np.random.default_rng(0)
    w, u_source, u_target = np.zeros(d), np.full(m, m / alpha), np.full(n, n / share)
    mean_w, mean_u = np.zeros(d), np.zeros(m + n)
    for _ in range(T):
        residual_source, residual = X_source @ w - y_source, X @ w - y
        slope = X_source.T @ (2 * residual_source / u_source) + X.T @ (2 * residual / u_target)
        length = math.sqrt(float(np.sum(u_source**-2.0) + np.sum(u_target**-2.0)))
        least = min(float(u_source.min()), float(u_target.min()))
        slope_source, slope_target = (
            one * p**2 - (r**2 + top * (u == least)) / u**2 - two / (length * u**3)
            for r, u, p in ((residual_source, u_source, alpha / m), (residual, u_target, share / n))
        )
        w = w - step * (slope + sigma_w * random.standard_normal(d))
        norm = float(np.linalg.norm(w))
        w = radius * w / norm if norm > radius else w
        u_source = np.maximum(u_source - step_source * slope_source, m / alpha)
        u_target = u_target - step_target * (slope_target + sigma_u * random.standard_normal(n))
        u_target = np.maximum(u_target, n / share)
        mean_w += w / T
        mean_u += np.concatenate([u_source, u_target]) / T
    return mean_w, mean_u


def speed_claims(*, quick: bool) -> Iterator[dict[str, str]]:
    """Yield the claims on CPU time: medians of three runs, interleaved in one process."""
    m, n, d = SIZE
    random = np.random.default_rng(0)
    X_source, X = (_unit(random.standard_normal((rows, d))) for rows in (m, n))
    coef = random.standard_normal(d)
    y_source, y = (np.clip(part @ coef / 3, -1, 1) for part in (X_source, X))
    public = Public(X_source, y_source)
    part = STEPS // 50 if quick else STEPS // 15
    ours: dict[str, list[float]] = {"paper": [], "exact": []}
    loop = []
    for _ in range(3):
        loop.append(
            _seconds(lambda: verbatim(X_source, y_source, X, y, alpha=0.5, radius=3.0, epsilon=4.0, n_steps=part))
        )
        for noise, seconds in ours.items():
            params: dict[str, Any] = dict(zip(("kappa1", "kappa2", "kappa_inf"), KAPPAS, strict=True))
            model = CnvxAdap(4.0, 0.01, n_steps=STEPS, noise=noise, target_bounds=(-1, 1), random_state=0, **params)
            seconds.append(_seconds(lambda model=model: model.fit(X, y, public=public)))  # type: ignore[misc]
    whole = float(np.median(loop)) * STEPS / part
    for noise, seconds in ours.items():
        taken = float(np.median(seconds))
        what = f"CnvxAdap(noise={noise!r}), {STEPS:,} steps at {SIZE}: 50 x faster than a verbatim loop"
        text = f"{whole / taken:.0f} x: {taken:.2f} s, loop {whole:.1f} s (from {part:,} steps)"
        yield claim(what, text, round(whole / taken) >= 50)
    wide, wide_target = (_unit(random.standard_normal((rows, 384))) for rows in (7803, 1077))
    labels, labels_target = random.uniform(-1, 1, len(wide)), random.uniform(-1, 1, len(wide_target))
    taken = _median(lambda: discrepancy(wide, labels, wide_target, labels_target, radius=3.0))
    yield claim("discrepancy at d = 384: 0.15 s of CPU", f"{taken:.3f} s", round(taken, 3) <= 0.15)
    taken = _median(lambda: solve(X_source, y_source, X, y, alpha=0.5, radius=3.0))
    yield claim(f"exact minimiser of (6) at {SIZE}: 0.5 s of CPU", f"{taken:.3f} s", round(taken, 3) <= 0.5)


def _unit(X: Array) -> Array:
    return np.asarray(X / np.linalg.norm(X, axis=1, keepdims=True))


def _seconds(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _median(work: Callable[[], Any]) -> float:
    return float(np.median([_seconds(work) for _ in range(4)][1:]))
