"""Synthetic shifts with known answers: the true coefficients of both populations come with the data."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpadapt._validate import count, one_of, positive
from dpadapt.datasets.domains import Domain, Domains

SHIFTS = ("none", "intercept", "coefficients", "sign", "covariate")
_Vector = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Shifted:
    """A public and a private sample whose laws are known.

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
    public_coef: _Vector
    private_coef: _Vector
    public_intercept: float
    private_intercept: float
    noise: float

    def __repr__(self) -> str:
        """Say what it is, without the data."""
        return f"Shifted({self.domains.description})"


@dataclass(frozen=True, eq=False)
class _Laws:
    """Coefficients, intercepts and scales of the features of both populations."""

    coef: tuple[_Vector, _Vector]
    intercept: tuple[float, float]
    scale: tuple[_Vector, _Vector]


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
        `1 + size` in the first half of them and keeps the law of the label given the features.
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
    laws = _draw_laws(random, n_features, shift, size)
    domains = []
    for side, rows in enumerate((count(n_public, "n_public"), count(n_private, "n_private"))):
        X = random.standard_normal((rows, n_features)) * laws.scale[side]
        y = X @ laws.coef[side] + laws.intercept[side] + noise * random.standard_normal(rows)
        domains.append(Domain(X, y))
    return _shifted(domains, laws, "regression", shift, size, seed, noise)


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
    laws = _draw_laws(random, n_features, shift, size, length=strength)
    domains = []
    for side, rows in enumerate((count(n_public, "n_public"), count(n_private, "n_private"))):
        X = random.standard_normal((rows, n_features)) * laws.scale[side]
        logit = X @ laws.coef[side] + laws.intercept[side]
        y = (random.random(rows) < 1 / (1 + np.exp(-logit))).astype(np.int64)
        domains.append(Domain(X, y))
    return _shifted(domains, laws, "classification", shift, size, seed, 0.0)


def _draw_laws(random: np.random.Generator, n_features: int, shift: str, size: float, *, length: float = 1.0) -> _Laws:
    """Draw the public law, and the private law that differs from it by the shift."""
    one_of(shift, SHIFTS, "shift")
    positive(size, "size")
    n_features = count(n_features, "n_features")
    # Both vectors are always drawn, so that one seed gives the same public law for every kind of shift.
    public = length * _direction(random, n_features)
    change = size * _direction(random, n_features)
    private = {"coefficients": public + change, "sign": -public}.get(shift, public)
    wider = np.ones(n_features)
    wider[: (n_features + 1) // 2] += size
    return _Laws(
        coef=(public, private),
        intercept=(0.0, size if shift == "intercept" else 0.0),
        scale=(np.ones(n_features), wider if shift == "covariate" else np.ones(n_features)),
    )


def _direction(random: np.random.Generator, n_features: int) -> _Vector:
    """A uniform direction."""
    vector = random.standard_normal(n_features)
    return vector / np.linalg.norm(vector)


def _shifted(
    domains: list[Domain], laws: _Laws, kind: str, shift: str, size: float, seed: int, noise: float
) -> Shifted:
    """Put samples and truth together."""
    extent = "" if shift in ("none", "sign") else f" of size {size:g}"
    description = f"{kind}, shift {shift}{extent}, seed {seed}"
    names = tuple(f"x{column}" for column in range(domains[0].X.shape[1]))
    return Shifted(
        domains=Domains(domains[0], domains[1], names, description, f"Synthetic: {description}."),
        public_coef=laws.coef[0],
        private_coef=laws.coef[1],
        public_intercept=laws.intercept[0],
        private_intercept=laws.intercept[1],
        noise=noise,
    )
