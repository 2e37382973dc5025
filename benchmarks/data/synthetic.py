"""Synthetic data with known truth: Gaussian pairs, tasks with a shared subspace, and shifted regressions.

`GaussianPair` draws the two populations of the hybrid model, `shared_subspace` the tasks of the public-representations
paper, `shifted_regression` and `shifted_classification` a public and a private sample that differ in one known way.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpadapt.checks import count, one_of, positive, unit
from dpadapt.data import Public
from dpadapt.datasets.domains import Domain, Domains

Array = NDArray[np.float64]
Rows = NDArray[np.float64] | NDArray[np.float32]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class GaussianPair:
    """Two Gaussian populations and the rule that labels both: Appendices C and D of [1]_.

    The curator's population has the same standard deviation in all coordinates. In the target population `n_close` of
    them, which also decide the label, have a smaller one.

    Parameters
    ----------
    n_features : int
    n_close : int
        How many coordinates are close to 0 in the target population; they alone decide the label.
    scale, close_scale : float
        Standard deviation of all coordinates in the curator's population, and of the close ones in the target
        population.
    share : float
        Share of the target population with label 0.
    shape : {"ball", "half-space"}
        Label 0 means inside a ball around the origin (Appendix D), or below a hyperplane (Appendix C).
    spread : float, default=1.0
        The largest weight of a close coordinate's square divided by the smallest: above 1 the ball is an ellipsoid.

    References
    ----------
    .. [1] R. Kohen, O. Sheffet. Transfer Learning In Differential Privacy's Hybrid-Model. ICML 2022.

    Examples
    --------
    >>> X, y = APPENDIX_D_EASY.target(20_000, seed=0)
    >>> round(float(np.mean(y == 0)), 1)
    0.4
    """

    n_features: int
    n_close: int
    scale: float
    close_scale: float
    share: float
    shape: str
    spread: float = 1.0

    @property
    def divergence(self) -> float:
        """The chi-squared divergence of the target from the curator's population."""
        ratio = (self.close_scale / self.scale) ** 2
        return float((1.0 / (ratio * (2.0 - ratio))) ** (self.n_close / 2)) - 1.0

    @property
    def radius(self) -> float:
        """The squared radius of the ball, or the threshold on the sum of the close coordinates."""
        from scipy.stats import chi2, norm

        if self.shape == "ball" and self.spread == 1.0:
            return float(self.close_scale**2 * chi2(self.n_close).ppf(self.share))
        if self.shape == "ball":
            sample = np.random.default_rng(0).standard_normal((400_000, self.n_close))
            return float(self.close_scale**2 * np.quantile(np.square(sample) @ self.weights, self.share))
        return float(self.close_scale * math.sqrt(self.n_close) * norm.ppf(self.share))

    @property
    def weights(self) -> Array:
        """The weights of the close coordinates' squares, in their order."""
        return np.geomspace(self.spread**-0.5, self.spread**0.5, self.n_close)

    def curator(self, n: int, *, seed: int, single: bool = False) -> tuple[Rows, Labels]:
        """Draw `n` rows of the curator's population, in float32 if `single`."""
        return self._draw(n, self.scale, np.random.default_rng([seed, 0]), self.close(seed=seed), single)

    def target(self, n: int, *, seed: int, single: bool = False) -> tuple[Rows, Labels]:
        """Draw `n` rows of the target population, in float32 if `single`."""
        return self._draw(n, self.close_scale, np.random.default_rng([seed, 1]), self.close(seed=seed), single)

    def close(self, *, seed: int) -> NDArray[np.int64]:
        """Return which coordinates are the close ones."""
        chosen = np.random.default_rng([seed, 2]).permutation(self.n_features)[: self.n_close]
        return np.sort(chosen)

    def _draw(
        self, n: int, close_scale: float, random: np.random.Generator, close: NDArray[np.int64], single: bool
    ) -> tuple[Rows, Labels]:
        X: Rows = random.standard_normal((count(n, "n"), self.n_features), dtype=np.float32 if single else np.float64)
        X *= positive(self.scale, "scale")
        X[:, close] *= positive(close_scale, "close_scale") / self.scale
        unit(self.share, "share")
        part = X[:, close]
        total = np.square(part) @ self.weights if self.shape == "ball" else part.sum(axis=1)
        return X, (total > self.radius).astype(np.int64)


APPENDIX_C = GaussianPair(500, 10, 1.0, 0.02, 0.01, "half-space")
APPENDIX_D_EASY = GaussianPair(8, 2, 0.1, 0.07, 0.4, "ball")
APPENDIX_D_HARD = GaussianPair(200, 6, 1.0, 0.4, 0.3, "ball")


@dataclass(frozen=True, eq=False)
class SharedSubspace:
    """Public rows of many tasks, private rows of another task, and their true coefficients.

    Parameters
    ----------
    public : Public
        Labelled, with tasks.
    X, y : ndarray
        Private rows and labels.
    basis : ndarray of shape (n_features, n_components)
        Orthonormal columns that span all coefficients.
    public_coef : ndarray of shape (n_tasks, n_features)
    private_coef : ndarray of shape (n_features,)
    """

    public: Public
    X: Array = field(repr=False)
    y: Array = field(repr=False)
    basis: Array = field(repr=False)
    public_coef: Array = field(repr=False)
    private_coef: Array = field(repr=False)


def shared_subspace(
    n_public: int,
    n_private: int,
    *,
    n_features: int = 25,
    n_components: int = 5,
    n_tasks: int = 100,
    task_norm: float = 1.0,
    noise: float = 1.0,
    seed: int,
) -> SharedSubspace:
    """Draw public rows of `n_tasks` tasks and private rows of another task of the same subspace.

    This is the simulation of Sections 5.1 and 5.4 of [1]_. Features and noise are Gaussian with mean 0; features have
    variance 1. The subspace and the directions of the tasks are uniform.

    Parameters
    ----------
    n_public, n_private : int
        Numbers of rows. The public rows are divided among the tasks as equally as possible.
    n_features, n_components, n_tasks : int
        Defaults: those of Section 5.4.
    task_norm : float, default=1.0
        Length of each task's coefficients; the paper does not say.
    noise : float, default=1.0
        Standard deviation of labels given features.
    seed : int
        Seed of the generator.

    References
    ----------
    .. [1] "On the Benefits of Public Representations for Private Transfer Learning under Distribution Shift",
       arXiv:2312.15551.

    Examples
    --------
    >>> drawn = shared_subspace(500, 200, seed=0)
    >>> drawn.public, drawn.X.shape, drawn.basis.shape
    (Public(labelled, with tasks), (200, 25), (25, 5))
    """
    d, k, t = count(n_features, "n_features"), count(n_components, "n_components"), count(n_tasks, "n_tasks")
    if k > d:
        raise ValueError(f"n_components must be at most n_features, {d}, got {k}.")
    n_public, n_private = count(n_public, "n_public"), count(n_private, "n_private")
    norm, noise = positive(task_norm, "task_norm"), positive(noise, "noise")
    random = np.random.default_rng(count(seed, "seed", least=0))
    basis = np.linalg.qr(random.standard_normal((d, k)))[0]
    inside = random.standard_normal((t + 1, k))
    coef = norm * inside / np.linalg.norm(inside, axis=1, keepdims=True) @ basis.T
    tasks = np.arange(n_public) % t
    X_public, X = random.standard_normal((n_public, d)), random.standard_normal((n_private, d))
    y_public = np.einsum("nd,nd->n", X_public, coef[tasks]) + noise * random.standard_normal(n_public)
    y = X @ coef[t] + noise * random.standard_normal(n_private)
    return SharedSubspace(Public(X_public, y_public, tasks=tasks), X, y, basis, coef[:t], coef[t])


SHIFTS = ("none", "intercept", "coefficients", "sign", "covariate")


@dataclass(frozen=True, eq=False, repr=False)
class Shifted:
    """A public and a private sample whose distributions are known.

    Parameters
    ----------
    domains : Domains
        The source is public, the target private.
    public_coef, private_coef : ndarray of shape (n_features,)
        True coefficients of each.
    public_intercept, private_intercept : float
        True intercepts of each.
    noise : float
        Standard deviation of the label given the features; 0 for labels that are 0 or 1.

    Examples
    --------
    >>> shifted = shifted_regression(200, 100, n_features=3, shift="sign", seed=0)
    >>> bool((shifted.private_coef == -shifted.public_coef).all())
    True
    """

    domains: Domains
    public_coef: Array
    private_coef: Array
    public_intercept: float
    private_intercept: float
    noise: float

    def __repr__(self) -> str:
        """Return the description, without the data."""
        return f"Shifted({self.domains.description})"


@dataclass(frozen=True, eq=False)
class _Distributions:
    """Coefficients, intercepts and scales of the features of both populations."""

    coef: tuple[Array, Array]
    intercept: tuple[float, float]
    scale: tuple[Array, Array]


def shifted_regression(
    n_public: int,
    n_private: int,
    *,
    n_features: int,
    shift: str,
    seed: int,
    size: float = 1.0,
    noise: float = 0.5,
) -> Shifted:
    """Draw a public and a private sample of linear regression that differ in one known way.

    Features are Gaussian with mean 0 and variance 1, the true public coefficients are a random direction of length 1,
    and the label is `x @ coef + intercept + noise * N(0, 1)`.

    Parameters
    ----------
    n_public, n_private : int
        Numbers of rows.
    n_features : int
        Number of features.
    shift : {"none", "intercept", "coefficients", "sign", "covariate"}
        What differs in the private population: nothing; the intercept, by `size`; the coefficients, by a random
        vector of length `size`; the sign of all coefficients; or the scale of the features, which grows by the factor
        `1 + size` in the first half of them while the label given the features keeps its distribution.
    seed : int
        Seed of the generator.
    size : float, default=1.0
        How large the shift is; "none" and "sign" ignore it. Positive.
    noise : float, default=0.5
        Standard deviation of the label given the features. Positive.

    Returns
    -------
    shifted : Shifted

    Examples
    --------
    >>> shifted = shifted_regression(500, 300, n_features=5, shift="intercept", seed=0, size=2.0)
    >>> shifted
    Shifted(regression, shift intercept of size 2, seed 0)
    >>> shifted.private_intercept - shifted.public_intercept
    2.0
    >>> X, y = shifted.domains.target
    >>> X.shape, y.shape
    ((300, 5), (300,))
    """
    positive(noise, "noise")
    random = np.random.default_rng(count(seed, "seed", least=0))
    distributions = _draw_distributions(random, n_features, shift, size)
    domains = []
    for side, rows in enumerate((count(n_public, "n_public"), count(n_private, "n_private"))):
        X = random.standard_normal((rows, n_features)) * distributions.scale[side]
        y = X @ distributions.coef[side] + distributions.intercept[side] + noise * random.standard_normal(rows)
        domains.append(Domain(X, y))
    return _shifted(domains, distributions, "regression", shift, size, seed, noise)


def shifted_classification(
    n_public: int,
    n_private: int,
    *,
    n_features: int,
    shift: str,
    seed: int,
    size: float = 1.0,
    strength: float = 3.0,
) -> Shifted:
    """Draw a public and a private sample of logistic regression that differ in one known way.

    As `shifted_regression`, but the label is 1 with probability `1 / (1 + exp(-(x @ coef + intercept)))`, else 0.

    Parameters
    ----------
    n_public, n_private : int
        Numbers of rows.
    n_features : int
        Number of features.
    shift : {"none", "intercept", "coefficients", "sign", "covariate"}
        What differs in the private population, as in `shifted_regression`.
    seed : int
        Seed of the generator.
    size : float, default=1.0
        How large the shift is, on the scale of the logit. Positive.
    strength : float, default=3.0
        Length of the public coefficients: the larger, the more certain the labels. Positive.

    Returns
    -------
    shifted : Shifted

    Examples
    --------
    >>> shifted = shifted_classification(500, 300, n_features=5, shift="none", seed=0)
    >>> bool((shifted.private_coef == shifted.public_coef).all())
    True
    >>> sorted(set(shifted.domains.source.y.tolist()))
    [0, 1]
    """
    positive(strength, "strength")
    random = np.random.default_rng(count(seed, "seed", least=0))
    distributions = _draw_distributions(random, n_features, shift, size, length=strength)
    domains = []
    for side, rows in enumerate((count(n_public, "n_public"), count(n_private, "n_private"))):
        X = random.standard_normal((rows, n_features)) * distributions.scale[side]
        logit = X @ distributions.coef[side] + distributions.intercept[side]
        y = (random.random(rows) < 1 / (1 + np.exp(-logit))).astype(np.int64)
        domains.append(Domain(X, y))
    return _shifted(domains, distributions, "classification", shift, size, seed, 0.0)


def _draw_distributions(
    random: np.random.Generator, n_features: int, shift: str, size: float, *, length: float = 1.0
) -> _Distributions:
    """Draw the public distribution, and the private one that differs from it by the shift."""
    one_of(shift, SHIFTS, "shift")
    positive(size, "size")
    n_features = count(n_features, "n_features")
    # Both vectors are always drawn, so that one seed gives the same public distribution for every kind of shift.
    public = length * _direction(random, n_features)
    change = size * _direction(random, n_features)
    private = {"coefficients": public + change, "sign": -public}.get(shift, public)
    wider = np.ones(n_features)
    wider[: (n_features + 1) // 2] += size
    return _Distributions(
        coef=(public, private),
        intercept=(0.0, size if shift == "intercept" else 0.0),
        scale=(np.ones(n_features), wider if shift == "covariate" else np.ones(n_features)),
    )


def _direction(random: np.random.Generator, n_features: int) -> Array:
    """Return a uniformly distributed unit vector."""
    vector = random.standard_normal(n_features)
    return vector / np.linalg.norm(vector)


def _shifted(
    domains: list[Domain], distributions: _Distributions, kind: str, shift: str, size: float, seed: int, noise: float
) -> Shifted:
    """Return the samples together with the true coefficients."""
    extent = "" if shift in ("none", "sign") else f" of size {size:g}"
    description = f"{kind}, shift {shift}{extent}, seed {seed}"
    names = tuple(f"x{column}" for column in range(domains[0].X.shape[1]))
    return Shifted(
        domains=Domains(domains[0], domains[1], names, description, f"Synthetic: {description}."),
        public_coef=distributions.coef[0],
        private_coef=distributions.coef[1],
        public_intercept=distributions.intercept[0],
        private_intercept=distributions.intercept[1],
        noise=noise,
    )
