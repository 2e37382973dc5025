"""Figure 1 of the mirror-descent paper: linear regression, 500 to 6,000 features, 1.5 public rows per feature.

Section 3 of arXiv:2112.00193: epsilon 1, delta 1e-5, 10,000 private rows, noise variance 0.01. A star marks rows whose
settings were chosen by the empirical loss, as in the paper; the others are chosen by public data alone.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from benchmarks.rivals.gradient_descent import PrivateGradientDescentRegressor
from benchmarks.running import cores, in_order
from benchmarks.transfer.common import compared, everywhere, judged, mean_intervals
from dpadapt.accounting.cost import gaussian_mu
from dpadapt.data import Public
from dpadapt.papers.mirror.base import paper_noise_multiplier
from dpadapt.papers.mirror.estimators import PDADPMDRegressor
from dpadapt.transfer.regression import PrivateTransferRegressor

# Descent for linear regression with all settings of a grid at once, one column each. The steps are those of the
# estimators of `dpadapt.papers.mirror` (a test compares them), without a ledger: the best setting is chosen by the
# loss, as in the paper, so nothing here is private.


FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Geometry:
    """How a descent treats gradients: as they are, by the inverse Hessian, or on whitened rows.

    Parameters
    ----------
    lengths : ndarray
        Length of each private row where gradients are clipped.
    move : callable
        Turns clipped mean gradients, given for raw rows, into a step of length 1.
    shake : callable
        Turns isotropic noise into its part of a step of length 1.
    fastest : float
        A step of 1 over this does not diverge.
    """

    lengths: FloatArray
    move: Callable[[FloatArray], FloatArray]
    shake: Callable[[FloatArray], FloatArray]
    fastest: float


def plain(X: Any, hessian: FloatArray, ridge: float = 0.0) -> Geometry:
    """Return gradient descent; `ridge` is ignored."""
    vector = np.ones(len(hessian))
    for _ in range(50):
        vector = hessian @ vector
        vector /= np.linalg.norm(vector)
    top = float(vector @ hessian @ vector)
    return Geometry(row_lengths(X), lambda g: g, lambda b: b, top)


def mirror(X: Any, hessian: FloatArray, ridge: float) -> Geometry:
    """Return exact mirror descent; the ridge is in mean eigenvalues, and a step has length 1 in a mean direction."""
    unit, factor = _ridged(hessian, ridge)

    def inverse(g: FloatArray) -> FloatArray:
        return np.asarray(unit * cho_solve(factor, g, check_finite=False))

    return Geometry(row_lengths(X), inverse, inverse, unit)


def whitened(X: Any, hessian: FloatArray, ridge: float) -> Geometry:
    """Return gradient descent on rows whitened by the Hessian with a ridge of `ridge` mean eigenvalues."""
    _, factor = _ridged(hessian, ridge)
    lower = np.tril(factor[0])
    # |L^-1 x|² = x' H^-1 x, a few rows at a time.
    squares = [
        np.sum(solve_triangular(lower, _dense(X[i : i + 1000]).T, lower=True, check_finite=False) ** 2, axis=0)
        for i in range(0, X.shape[0], 1000)
    ]
    return Geometry(
        np.sqrt(np.concatenate(squares)),
        lambda g: np.asarray(cho_solve(factor, g, check_finite=False)),
        lambda b: np.asarray(solve_triangular(lower, b, lower=True, trans="T", check_finite=False)),
        1.0,
    )


def _ridged(hessian: FloatArray, ridge: float) -> tuple[float, tuple[FloatArray, bool]]:
    unit = float(np.trace(hessian)) / len(hessian)
    ridged = hessian.copy()
    ridged[np.diag_indices_from(ridged)] += ridge * unit
    return unit, cho_factor(ridged, lower=True, overwrite_a=True)


def row_lengths(X: Any) -> FloatArray:
    """Return the length of each row of a dense or sparse matrix."""
    squares = X.multiply(X).sum(axis=1) if hasattr(X, "multiply") else np.einsum("ij,ij->i", X, X)
    return np.sqrt(np.asarray(squares, dtype=np.float64)).ravel()


def _dense(X: Any) -> FloatArray:
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)


@dataclass(frozen=True)
class Setting:
    """One point of a grid: ridge in mean eigenvalues, number of steps, rate in units of 1 / fastest, clipping norm."""

    ridge: float
    steps: int
    rate: float
    clip_norm: float


@dataclass(frozen=True, eq=False)
class Tried:
    """A setting with its solution: the last iterate, or the average of all."""

    setting: Setting
    average: str
    solution: FloatArray


def descend(
    X: Any,
    y: FloatArray,
    start: FloatArray,
    geometry: Geometry,
    settings: Sequence[Setting],
    *,
    noise: float,
    random: np.random.Generator,
) -> list[Tried]:
    """Return the solutions of settings that share one ridge and one number of steps.

    Parameters
    ----------
    X, y : array or sparse array, ndarray
        Private rows and target.
    start : ndarray
    geometry : Geometry
    settings : sequence of Setting
    noise : float
        Noise of one release over its clipping norm, if there were only one.
    random : Generator
    """
    n, steps = X.shape[0], settings[0].steps
    rate = np.array([one.rate for one in settings]) / geometry.fastest
    clip = np.array([one.clip_norm for one in settings])
    limits = clip[None, :] / geometry.lengths[:, None]
    scale = clip * noise * math.sqrt(steps) / n
    current = np.repeat(start[:, None], len(settings), axis=1)
    total = np.zeros_like(current)
    back = X.T.tocsr() if hasattr(X, "tocsr") else X.T
    for _ in range(steps):
        with np.errstate(over="ignore", invalid="ignore"):
            weights = X @ current
            weights -= y[:, None]
            np.minimum(weights, limits, out=weights)
            np.maximum(weights, -limits, out=weights)
            shaken = geometry.shake(random.standard_normal(current.shape) * scale)
            current = current - rate * (geometry.move(back @ weights / n) + shaken)
        total += current
    ends = (("last", current), ("all", total / steps))
    return [Tried(one, name, end[:, i]) for name, end in ends for i, one in enumerate(settings)]


def ranked(tried: Sequence[Tried], loss: Callable[[FloatArray], FloatArray]) -> list[Tried]:
    """Return what was tried, best first; `loss` takes solutions in columns."""
    losses = np.asarray(loss(np.stack([one.solution for one in tried], axis=1)), dtype=np.float64)
    return [tried[i] for i in np.argsort(np.where(np.isfinite(losses), losses, math.inf), kind="stable")]


# The figure.


Array = NDArray[Any]
# Of Section 3: budget, private rows, noise variance, value of a nonzero feature, nonzero features in the two blocks.
EPSILON, DELTA, N_PRIVATE, NOISE, LEVEL = 1.0, 1e-5, 10_000, 0.01, 0.05
ONES = (40, 80)
# Number of features -> seeds of the tuned rows, and of the slower dense estimators.
FULL = {500: (20, 20), 1000: (20, 20), 2000: (20, 20), 4000: (20, 2), 6000: (3, 2)}
QUICK = {500: (3, 3), 1000: (3, 3)}
OURS = "ours, same-population"
# The end of the names of rows with the noise that Algorithm 1 prints.
PRINTED = ", paper's noise"
# Largest excess loss of ours, by number of features.
TARGETS = {2000: 0.0065, 6000: 0.0130}
# Figure 1a, chosen by hand: cold DP-SGD's loss "grows" by more than this share of itself, and warm DP-SGD's "hardly"
# grows if it grows by less than this share of cold's growth.
COLD_GROWTH, WARM_GROWTH = 0.2, 0.2


@dataclass(frozen=True, eq=False)
class Problem:
    """One draw of the setting; features are sparse arrays."""

    X_public: Any
    y_public: Array
    X: Any
    y: Array
    coef: Array

    def empirical(self, solutions: Array) -> Array:
        """Return the private mean squared error of each column."""
        return np.asarray(np.mean((self.X @ solutions - self.y[:, None]) ** 2, axis=0))

    def excess(self, solutions: Array) -> Array:
        """Return the population mean squared error of each column above its optimum, exactly."""
        away = solutions - self.coef[:, None]
        p = len(self.coef)
        cut = p // 5
        total = np.zeros(away.shape[1])
        sums = []
        for part, size, ones in ((away[:cut], cut, ONES[0]), (away[cut:], p - cut, ONES[1])):
            share, pair = ones / size, ones * (ones - 1) / (size * (size - 1))
            sums.append(part.sum(axis=0) * share)
            total += (share - pair) * np.sum(part**2, axis=0) + pair * part.sum(axis=0) ** 2
        return np.asarray(LEVEL**2 * (total + 2 * sums[0] * sums[1]))


def make_problem(p: int, seed: int) -> Problem:
    """Draw the setting of Section 3."""
    from scipy.sparse import csr_array

    random = np.random.default_rng([seed, p])

    def features(n: int) -> Any:
        parts = []
        for low, high, ones in ((0, p // 5, ONES[0]), (p // 5, p, ONES[1])):
            parts.append(low + np.argpartition(random.random((n, high - low)), ones, axis=1)[:, :ones])
        index = np.sort(np.concatenate(parts, axis=1), axis=1)
        values = np.full(index.size, LEVEL)
        return csr_array((values, index.ravel(), np.arange(0, index.size + 1, sum(ONES))), shape=(n, p))

    coef = random.standard_normal(p)
    X_public, X = features(3 * p // 2), features(N_PRIVATE)
    y_public, y = (part @ coef + math.sqrt(NOISE) * random.standard_normal(part.shape[0]) for part in (X_public, X))
    return Problem(X_public, y_public, X, y, coef)


@dataclass(frozen=True)
class Rival:
    """A method of the paper with its grid."""

    name: str
    shape: Callable[..., Geometry]
    rates: tuple[float, ...]
    clips: tuple[float, ...]
    steps: tuple[int, ...] = (20, 100)
    ridges: tuple[float, ...] = (0.0,)
    cold: bool = False
    printed: bool = False

    def grid(self, p: int) -> list[Setting]:
        """Return all settings; more than 100 steps only up to 2,000 features."""
        steps = [t for t in self.steps if t <= 100 or p <= 2000]
        return [Setting(*one) for one in product(self.ridges, steps, self.rates, self.clips)]


_PLAIN, _STEEP, _CLIPS = (0.5, 2.0, 4.0, 8.0, 16.0, 32.0), (0.05, 0.125, 0.3, 0.8, 2.0), (0.01, 0.03, 0.1)
RIVALS = (
    Rival("cold DP-GD*", plain, _PLAIN, (0.1, 0.3), cold=True),
    Rival("warm DP-GD*", plain, _PLAIN, _CLIPS, steps=(20, 100, 400)),
    Rival("PDA-DPMD*", mirror, _STEEP, _CLIPS, ridges=(0.1, 0.3, 1.0)),
    Rival("whiten-then-clip*", whitened, _STEEP, (0.1, 0.5, 2.0), ridges=(0.1, 0.3, 1.0)),
    Rival(f"cold DP-GD*{PRINTED}", plain, _PLAIN, (0.1, 0.3), cold=True, printed=True),
    Rival(f"warm DP-GD*{PRINTED}", plain, _PLAIN, _CLIPS, printed=True),
    Rival(f"PDA-DPMD*{PRINTED}", mirror, _STEEP, _CLIPS, ridges=(0.3, 1.0), printed=True),
)
Shortlist = dict[str, list[Setting]]


def tuned(problem: Problem, seed: int, shortlist: Shortlist | None) -> tuple[dict[str, list[float]], Shortlist]:
    """Return the losses of each rival at its best setting and of the models without noise, and the best settings.

    With a shortlist, which the first draw makes, only its settings are tried; this saves time on the other draws.
    """
    random = np.random.default_rng([seed, 1])
    n_public = len(problem.y_public)
    hessian = (problem.X_public.T @ problem.X_public).toarray() / n_public
    start = _least_squares(hessian, problem.X_public.T @ problem.y_public / n_public)
    joint = hessian * n_public + (problem.X.T @ problem.X).toarray()
    both = _least_squares(joint, problem.X_public.T @ problem.y_public + problem.X.T @ problem.y)
    losses_of = {name: _losses(problem, x[:, None]) for name, x in (("public only", start), ("not private", both))}
    good: Shortlist = {}
    shapes: dict[tuple[Any, float], Geometry] = {}
    for rival in RIVALS:
        settings = rival.grid(len(start)) if shortlist is None else shortlist[rival.name]
        noise = paper_noise_multiplier(EPSILON, DELTA) if rival.printed else 1.0 / gaussian_mu(EPSILON, DELTA)
        tried: list[Tried] = []
        for ridge, steps in sorted({(one.ridge, one.steps) for one in settings}):
            if (rival.shape, ridge) not in shapes:
                shapes[rival.shape, ridge] = rival.shape(problem.X, hessian, ridge)
            group = [one for one in settings if (one.ridge, one.steps) == (ridge, steps)]
            first = np.zeros_like(start) if rival.cold else start
            tried += descend(problem.X, problem.y, first, shapes[rival.shape, ridge], group, noise=noise, random=random)
        by_empirical, by_population = ranked(tried, problem.empirical), ranked(tried, problem.excess)
        # Both losses of the best by empirical loss, as in the paper; last, population loss of the best by that loss.
        losses = _losses(problem, by_empirical[0].solution[:, None])
        losses_of[rival.name] = [*losses, _losses(problem, by_population[0].solution[:, None])[1]]
        good[rival.name] = list(dict.fromkeys(one.setting for one in (*by_empirical[:5], *by_population[:5])))[:6]
    return losses_of, good


def _least_squares(gram: Array, cross: Array) -> Array:
    ridged = gram.copy()
    # Sums over each block of features are constant, so one direction is exactly collinear.
    ridged[np.diag_indices_from(ridged)] += 1e-6 * float(np.trace(gram)) / len(gram)
    return np.asarray(cho_solve(cho_factor(ridged, lower=True, overwrite_a=True), cross))


def _losses(problem: Problem, solution: Array) -> list[float]:
    return [float(problem.empirical(solution)[0]), float(NOISE + problem.excess(solution)[0])]


def untuned(problem: Problem, seed: int) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Return empirical and population loss of the library's estimators with their defaults, and CPU seconds."""
    X, X_public = problem.X.toarray().astype(np.float32), problem.X_public.toarray()
    public = Public(X_public, problem.y_public)
    raw: dict[str, Any] = {"standardise": False, "fit_intercept": False, "random_state": seed}
    makers: dict[str, Callable[[], Any]] = {
        "warm DP-GD": lambda: PrivateGradientDescentRegressor(EPSILON, DELTA, **raw),
        "PDA-DPMD": lambda: PDADPMDRegressor(EPSILON, DELTA, **raw),
        f"PDA-DPMD{PRINTED}": lambda: PDADPMDRegressor(EPSILON, DELTA, noise="paper", **raw),
        "whiten-then-clip": lambda: PrivateGradientDescentRegressor(EPSILON, DELTA, whiten=True, **raw),
        OURS: lambda: PrivateTransferRegressor(EPSILON, DELTA, prior="same-population", random_state=seed),
    }
    losses_of: dict[str, list[float]] = {}
    seconds: dict[str, float] = {}
    for name, make in makers.items():
        begin = time.process_time()
        model = make().fit(X, problem.y, public=public)
        seconds[name] = time.process_time() - begin
        if name == OURS:
            # Its predictions clip long rows, so its loss is measured on rows, not by the formula.
            other = make_problem(len(problem.coef), seed + 10_000).X.toarray()
            excess = float(np.mean((model.predict(other) - other @ problem.coef) ** 2))
            losses = [float(np.mean((model.predict(X) - problem.y) ** 2)), NOISE + excess]
        else:
            losses = _losses(problem, model.coef_[:, None])
        losses_of[name] = losses
    return losses_of, seconds


@dataclass(frozen=True)
class Piece:
    """One piece of work: the tuned rivals on one draw, with a shortlist or the whole grid, or the library's estimators.

    `settings` is the shortlist with the name of a rival in each pair; None stands for the grid.
    """

    p: int
    seed: int
    methods: str
    settings: tuple[tuple[str, tuple[Setting, ...]], ...] | None = None


def measure(piece: Piece) -> dict[str, Any]:
    """Run the methods of one piece and return losses, CPU seconds, and the settings of a shortlist."""
    problem = make_problem(piece.p, piece.seed)
    if piece.methods == "untuned":
        losses, seconds = untuned(problem, piece.seed)
        return {"losses": losses, "seconds": seconds}
    shortlist = None if piece.settings is None else {name: list(some) for name, some in piece.settings}
    losses, good = tuned(problem, piece.seed, shortlist)
    return {"losses": losses, "settings": tuple((name, tuple(some)) for name, some in good.items())}


def run_draws(sizes: dict[int, tuple[int, int]]) -> list[dict[str, Any]]:
    """Run all methods on all draws: losses and CPU seconds of each, the first draws before the others."""
    # The largest first, so that no core waits for them at the end.
    order = sorted(sizes, reverse=True)
    first = [Piece(p, 0, "tuned") for p in order]
    dense = [Piece(p, seed, "untuned") for p in order for seed in range(sizes[p][1])]
    begin = sorted([*first, *dense], key=lambda piece: -piece.p)
    results = dict(zip(begin, in_order(measure, begin, cores(), name=_spoken), strict=True))
    # The first draw of each size makes the shortlist of the others.
    lists = {piece.p: results[piece]["settings"] for piece in first}
    rest = [Piece(p, seed, "tuned", lists[p]) for p in order for seed in range(1, sizes[p][0])]
    results |= zip(rest, in_order(measure, rest, cores(), name=_spoken), strict=True)
    draws = []
    for piece in (*first, *rest):
        more = results.get(Piece(piece.p, piece.seed, "untuned"), {"losses": {}, "seconds": {}})
        losses = results[piece]["losses"] | more["losses"]
        draws.append({"p": piece.p, "seed": piece.seed, "losses": losses, "seconds": more["seconds"]})
    return draws


def _spoken(piece: Piece) -> str:
    return f"p={piece.p:,}, draw {piece.seed}, {piece.methods}"


def figure1(*, quick: bool) -> dict[str, Any]:
    """Measure Figure 1."""
    draws = run_draws(QUICK if quick else FULL)
    return {**present({"draws": draws}), "draws": draws}


def present(part: dict[str, Any]) -> dict[str, Any]:
    """Return the tables, claims and figures of the draws."""
    draws = part["draws"]
    sizes = sorted({draw["p"] for draw in draws})
    cells: dict[tuple[str, int], list[list[float]]] = {}
    for draw in draws:
        for name, losses in draw["losses"].items():
            cells.setdefault((name, draw["p"]), []).append(losses)
    summary = {key: _summary(values) for key, values in cells.items()}
    names = list(dict.fromkeys(name for name, _ in summary))
    table = {
        "title": "Figure 1: empirical / population loss (optimum 0.01), mean +- 95% interval (seeds)",
        "columns": ["method", *(f"p={p:,}" for p in sizes)],
        "rows": [[name, *(_text(summary.get((name, p))) for p in sizes)] for name in names],
    }
    timed = {p: [draw["seconds"] for draw in draws if draw["p"] == p and draw["seconds"]] for p in sizes}
    times = {
        "title": "CPU seconds of a fit, public part included",
        "columns": ["method", *(f"p={p:,}" for p in sizes)],
        "rows": [
            [name, *(f"{float(np.mean([one[name] for one in timed[p]])):.1f}" for p in sizes)]
            for name in timed[sizes[0]][0]
        ],
    }
    return {
        "tables": [table, times],
        "claims": _claims(summary, draws, sizes),
        "figures": [_figure(summary, sizes)],
    }


def _figure(summary: dict[tuple[str, int], dict[str, float]], sizes: list[int]) -> dict[str, Any]:
    """Return Figures 1a and 1b: empirical loss as in the paper, then population loss, with exact and printed noise."""
    panels = []
    for loss, noise in product(("empirical", "population"), ("", PRINTED)):
        for title, names in (("1a", ("cold DP-GD*", "warm DP-GD*")), ("1b", ("warm DP-GD*", "PDA-DPMD*"))):
            lines = [_line(summary, sizes, name + noise, loss) for name in names]
            if title == "1b" and not noise:
                more = (OURS, "whiten-then-clip*", "public only", "not private")
                lines += [_line(summary, sizes, name, loss) for name in more]
            words = f"{title}, {loss} loss, {'printed' if noise else 'exact'} noise"
            levels = [{"name": "optimum", "value": NOISE}]
            panels.append({"title": words, "x_label": "features", "lines": lines, "levels": levels})
    words = (
        "Loss by the number of features. A star: tuned on the private rows' loss, as in the paper; bands are 95% "
        "intervals over draws."
    )
    return {"title": "Figure 1: linear regression", "words": words, "y_label": "loss", "panels": panels}


def _line(summary: dict[tuple[str, int], dict[str, float]], sizes: list[int], name: str, loss: str) -> dict[str, Any]:
    points = []
    for p, cell in ((p, summary[name, p]) for p in sizes if (name, p) in summary):
        half = cell["half" if loss == "population" else "empirical half"]
        points.append({"x": p, "mean": cell[loss], "spread": 0.0 if math.isinf(half) else half})
    return {"name": name, "points": points}


def _summary(values: list[list[float]]) -> dict[str, float]:
    """Return the mean of each loss and half its 95% interval, as they are shown."""
    (empirical, empirical_half), (population, half) = (
        mean_intervals([[value[index] for value in values]], 4)[0] for index in (0, 1)
    )
    return {
        "seeds": len(values),
        "empirical": empirical,
        "population": population,
        "empirical half": empirical_half,
        "half": half,
    }


def _text(cell: dict[str, float] | None) -> str:
    if cell is None:
        return "-"
    spread = "" if math.isinf(cell["half"]) else f" +-{cell['half']:.4f}"
    return f"{cell['empirical']:.4f} / {cell['population']:.4f}{spread} ({cell['seeds']})"


def _claims(
    summary: dict[tuple[str, int], dict[str, float]], draws: list[dict[str, Any]], sizes: list[int]
) -> list[dict[str, str]]:
    low, high = sizes[0], sizes[-1]
    paper_claims = []
    for noise, (index, loss) in product(("", PRINTED), enumerate(("empirical", "population"))):
        how = f"{loss} loss, {'printed' if noise else 'exact'} noise"
        paper_claims.append(_growth(summary, noise, loss, how, low, high))
        leads = {p: _lead(draws, p, noise, index) for p in sizes}
        shown = ", ".join(f"{mean:.1f}% ± {half:.1f}" for mean, half in leads.values())
        what = f"Figure 1b, {how}: PDA-DPMD never worse than warm DP-SGD (its lead at p={', '.join(_thousands(sizes))})"
        paper_claims.append(everywhere(what, shown, list(leads.values())))
        (first, first_half), (last, last_half) = leads[low], leads[high]
        what = f"Figure 1b, {how}: its lead is larger for p={low:,} than for p={high:,}"
        lead, half = round(first - last, 1), round(math.hypot(first_half, last_half), 1)
        text = f"{first:.1f}% against {last:.1f}%: by {lead:.1f} ± {half:.1f}"
        paper_claims.append(judged(what, text, lead, half))
    return [*paper_claims, *_our_claims(draws, sizes)]


def _thousands(sizes: Sequence[int]) -> list[str]:
    return [f"{p:,}" for p in sizes]


def _growth(
    summary: dict[tuple[str, int], dict[str, float]], noise: str, loss: str, how: str, low: int, high: int
) -> dict[str, str]:
    """Return the claim of Figure 1a, judged by the growth of both losses and its interval."""
    half = "half" if loss == "population" else "empirical half"
    (cold, more), (warm, warmer) = (
        [summary[f"{name} DP-GD*{noise}", p] for p in (low, high)] for name in ("cold", "warm")
    )
    growth, warm_growth = more[loss] - cold[loss], warmer[loss] - warm[loss]
    what = (
        f"Figure 1a, {how}: from p={low:,} to {high:,} cold DP-SGD's loss grows (by over {COLD_GROWTH:.0%}), "
        f"warm's hardly (by less than {WARM_GROWTH:.0%} of cold's growth)"
    )
    text = f"{cold[loss]:.4f} to {more[loss]:.4f}; warm {warm[loss]:.4f} to {warmer[loss]:.4f}"
    share = f", {warm_growth / growth:.0%} of cold's growth" if growth > 0 else ""
    leads = [
        (growth - COLD_GROWTH * cold[loss], math.hypot(more[half], (1 + COLD_GROWTH) * cold[half])),
        (
            WARM_GROWTH * growth - warm_growth,
            math.hypot(WARM_GROWTH * more[half], WARM_GROWTH * cold[half], warmer[half], warm[half]),
        ),
    ]
    return everywhere(what, text + share, leads)


def _lead(draws: list[dict[str, Any]], p: int, noise: str, index: int) -> tuple[float, float]:
    """Return by how many percent PDA-DPMD's loss is below that of warm DP-SGD on the same draws, and its interval."""
    pairs = [
        [draw["losses"][name + noise][index] for name in ("warm DP-GD*", "PDA-DPMD*")]
        for draw in draws
        if draw["p"] == p
    ]
    return mean_intervals([[100 * (warm - pda) / warm for warm, pda in pairs]], 1)[0]


def _our_claims(draws: list[dict[str, Any]], sizes: list[int]) -> Iterator[dict[str, str]]:
    """Yield the claims on ours, over the draws that all methods share; rivals are tuned on the population loss."""
    for p in sizes:
        shared = [draw["losses"] for draw in draws if draw["p"] == p and OURS in draw["losses"]]
        if not shared:
            continue
        ours = [losses[OURS][1] - NOISE for losses in shared]
        seeds = f"{len(shared)} seed{'s' if len(shared) > 1 else ''}"
        for name in ("PDA-DPMD*", "whiten-then-clip*"):
            rival = [losses[name][2] - NOISE for losses in shared]
            text = f"{np.mean(ours):.5f} against {np.mean(rival):.5f} ({seeds})"
            what = f"p={p:,}: ours, untuned, has less excess loss than {name}"
            yield compared(what, text, list(np.subtract(rival, ours)), digits=5)
        if p in TARGETS:
            what = f"p={p:,}: ours, untuned, excess below {TARGETS[p]}"
            yield compared(what, f"{np.mean(ours):.5f} ({seeds})", list(np.subtract(TARGETS[p], ours)), digits=5)
