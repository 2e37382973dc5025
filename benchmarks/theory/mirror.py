"""The paper's bounds as functions: excess risk, noise stability, and the Gaussian width that replaces the dimension.

Section 3 (Theorems 3.2, 3.5 and 3.6) and Appendices B and D of "Public Data-Assisted Mirror Descent for Private Model
Training", arXiv:2112.00193.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.integrate import quad

from dpadapt import checks

_WIDTH_FORMS = ("smallest", "printed")


@dataclass(frozen=True)
class RiskBound:
    """A bound and its terms, in the order of the theorem.

    Parameters
    ----------
    terms : dict of str to float
        The size of each term, by name.
    """

    terms: dict[str, float]

    @property
    def total(self) -> float:
        """The sum of all terms."""
        return math.fsum(self.terms.values())


def empirical_risk_bound(
    *,
    gradient_spread: float,
    strong_convexity: float,
    learning_rate: float,
    n_steps: int,
    n_public: int,
    lipschitz: float,
    set_radius: float,
    width: float,
    scale: float,
    constant: float = 1.0,
) -> RiskBound:
    """Return Theorem 3.2's bound on the private empirical loss above that of the population's best solution.

    The bound is ``V² / (2 α η T n_pub) + η c (L² |Q|² + σ² (G_Q² + |Q|²))``.

    Parameters
    ----------
    gradient_spread : float
        V: root of the variance of a public gradient at the best solution (Assumption 3.1).
    strong_convexity : float
        α of the public loss.
    learning_rate, n_steps : float, int
        η and T.
    n_public : int
    lipschitz : float
        L: bound on private gradients, the clipping norm.
    set_radius : float
        ``|Q|``: the longest vector of the set Q in whose norm the public loss is 1-strongly convex; 1 if scaled so.
    width : float
        G_Q, see `gaussian_width`.
    scale : float
        σ: standard deviation of the noise in the mean gradient.
    constant : float, default=1.0
        c: the theorem does not state it.

    Returns
    -------
    RiskBound
        "start": what remains of the error of the public start; it falls with more public rows and with more or longer
        steps. "step": the cost of finite steps. "noise": the cost of privacy, where G_Q takes the place of the
        dimension.

    Examples
    --------
    >>> bound = empirical_risk_bound(
    ...     gradient_spread=1.0, strong_convexity=1.0, learning_rate=0.1, n_steps=100, n_public=500,
    ...     lipschitz=1.0, set_radius=1.0, width=10.0, scale=0.01,
    ... )
    >>> round(bound.total, 4)
    0.1011
    """
    rate, steps = checks.positive(learning_rate, "learning_rate"), checks.count(n_steps, "n_steps")
    alpha = checks.positive(strong_convexity, "strong_convexity")
    square = set_radius**2
    return RiskBound(
        {
            "start": gradient_spread**2 / (2 * alpha * rate * steps * checks.count(n_public, "n_public")),
            "step": rate * constant * lipschitz**2 * square,
            "noise": rate * constant * scale**2 * (width**2 + square),
        }
    )


def population_risk_bound(
    *,
    gradient_spread: float,
    lipschitz: float,
    diameter: float,
    width: float,
    delta: float,
    n_private: int,
    n_public: int,
    constant: float = 1.0,
) -> RiskBound:
    """Return Theorem 3.5's bound on the excess population loss, at the learning rate, T and epsilon it prescribes.

    The bound is ``c L |C| sqrt(V G_Q) ln(1/δ)^¼ / (sqrt(n_priv) n_pub^¼) + L |C| / sqrt(n_priv) + |C|² δ``.

    Parameters
    ----------
    gradient_spread : float
        V, as in `empirical_risk_bound`.
    lipschitz : float
        L.
    diameter : float
        ``|C|``: size of the constraint set.
    width : float
        G_Q, with the public loss scaled to be 1-strongly convex.
    delta : float
    n_private, n_public : int
    constant : float, default=1.0
        c: the theorem does not state it.

    Returns
    -------
    RiskBound
        "privacy": the first term as printed; once n_pub >= G_Q² it no longer depends on the dimension. "sample":
        empirical against population minimiser (Lemma 3.3). "stability": what delta adds when the bound on the empirical
        loss is turned into one on the population loss (Lemma 3.4).

    Notes
    -----
    The theorem does not hold at an epsilon of the user's choice: it sets epsilon itself (`prescribed_epsilon`), so that
    ``L |C| epsilon`` of Lemma 3.4 balances the other terms. Term by term the printed choice gives ``1 + |C|`` where the
    theorem has ``|C|``, so it is meant for ``|C| >= 1``; dividing by ``sqrt(|C|)`` instead of ``|C|`` would balance and
    leave ``sqrt(|C|)``.

    Examples
    --------
    >>> few, many = (
    ...     population_risk_bound(gradient_spread=1.0, lipschitz=1.0, diameter=1.0, width=20.0, delta=1e-5,
    ...                           n_private=10_000, n_public=n).total for n in (100, 1600)
    ... )
    >>> many < few
    True
    """
    delta = checks.delta(delta)
    if delta == 0:
        raise ValueError("delta must be positive: the bound is for Gaussian noise.")
    private, public = checks.count(n_private, "n_private"), checks.count(n_public, "n_public")
    root = math.sqrt(gradient_spread * width) * math.log(1 / delta) ** 0.25
    return RiskBound(
        {
            "privacy": constant * lipschitz * diameter * root / (math.sqrt(private) * public**0.25),
            "sample": lipschitz * diameter / math.sqrt(private),
            "stability": diameter**2 * delta,
        }
    )


def prescribed_epsilon(
    *, gradient_spread: float, diameter: float, width: float, delta: float, n_private: int, n_public: int
) -> float:
    """Return the epsilon that Theorem 3.5 sets: sqrt(V G_Q) ln(1/δ)^¼ / (sqrt(n_priv) n_pub^¼ |C|)."""
    root = math.sqrt(gradient_spread * width) * math.log(1 / checks.delta(delta)) ** 0.25
    return float(root / (math.sqrt(n_private) * n_public**0.25 * diameter))


def noise_stability_bound(
    direction: Any,
    curvature: Any,
    *,
    learning_rate: float,
    scale: float,
    least_curvature: float | None = None,
    margin: float = math.inf,
) -> float:
    """Return Theorem 3.6's bound on how far noise moves one mirror step along direction v.

    ``E |<θ̂ - θ*, v>|`` is at most ``η σ [sqrt(2/π) sqrt(Σ (a_i / w_i)²) + 3 (1 + c)² / (2 α) e^{-c² p / 2}]``.

    Parameters
    ----------
    direction : array-like of shape (n_columns,)
        a: the unit direction v in the basis of the Hessian's fixed eigenvectors.
    curvature : array-like of shape (n_columns,)
        w: least eigenvalues of the public Hessian within reach of the noise, η (1 + c) sqrt(p) σ / w along each.
    learning_rate, scale : float
        η, and σ: the standard deviation of the noise in the gradient.
    least_curvature : float, optional
        α: least eigenvalue anywhere. Default: the least of `curvature`.
    margin : float, default=inf
        c. Infinite for a quadratic loss, whose curvature is the same everywhere: the bound is then an equality.

    Returns
    -------
    float
        The first term is for noise that stays within reach: along an eigenvector it moves the step by σ over that
        curvature. The second is for the rare noise beyond, at the least curvature. Gradient descent moves by
        sqrt(2/π) η σ in every direction.

    Examples
    --------
    >>> steep, flat = (noise_stability_bound(v, [4.0, 1.0], learning_rate=1.0, scale=1.0) for v in ([1, 0], [0, 1]))
    >>> flat / steep
    4.0
    """
    weights, values = np.asarray(direction, dtype=np.float64), np.asarray(curvature, dtype=np.float64)
    if weights.shape != values.shape or not math.isclose(float(weights @ weights), 1.0, rel_tol=1e-6):
        raise ValueError("direction must be a unit vector with one entry per eigenvalue of curvature.")
    if not np.all(values > 0):
        raise ValueError("curvature must be positive in every direction. Add a ridge to the public loss.")
    least = float(values.min()) if least_curvature is None else checks.positive(least_curvature, "least_curvature")
    near = math.sqrt(2 / math.pi) * float(np.linalg.norm(weights / values))
    far = 0.0
    if math.isfinite(margin):
        far = 3 * (1 + margin) ** 2 / (2 * least) * math.exp(-(margin**2) * len(values) / 2)
    return learning_rate * scale * (near + far)


def ellipsoid_width(radii: Any) -> float:
    """Return the Gaussian width of an ellipsoid about the origin, exactly: ``E |diag(radii) g|``.

    The paper's sqrt(Σ radii²) is an upper bound, which is close unless a few radii dominate.

    Parameters
    ----------
    radii : array-like of shape (n_dimensions,)
        Half lengths of the axes, not negative.

    Examples
    --------
    >>> round(ellipsoid_width([1.0, 0.0]), 4)  # E |g|, one dimension: sqrt(2 / π)
    0.7979
    """
    squares = np.square(np.asarray(radii, dtype=np.float64).ravel())
    top = float(squares.max(initial=0.0))
    if not np.all(np.isfinite(squares)):
        raise ValueError("radii must be finite.")
    if top == 0.0:
        return 0.0
    squares = squares / top

    # E sqrt(S) = 1 / (2 sqrt(π)) ∫ (1 - E e^{-sS}) s^{-3/2} ds, and E e^{-sS} = Π (1 + 2 s r²)^{-1/2}; s = e^u.
    def integrand(u: float) -> float:
        return -math.expm1(-0.5 * float(np.sum(np.log1p(2.0 * math.exp(u) * squares)))) * math.exp(-u / 2)

    middle = -math.log(float(squares.sum()))
    parts = [
        quad(integrand, low, high, limit=200, epsabs=0.0, epsrel=1e-10)[0]
        for low, high in ((middle - 60.0, middle), (middle, middle + 60.0))
    ]
    return math.sqrt(top) * sum(parts) / (2.0 * math.sqrt(math.pi))


def gaussian_width(hessian: Any, *, form: str = "smallest") -> float:
    """Return G_Q of a quadratic public loss, scaled so that its smallest curvature is 1.

    Q is the smallest convex set in whose norm the loss is 1-strongly convex. For a Hessian H that is
    {x : x' H x <= 1}, an ellipsoid with radii 1 / sqrt(eigenvalue). Its width is at most sqrt(Σ radii²); this is
    returned, and it is enough for the bounds.

    Parameters
    ----------
    hessian : array-like of shape (n_columns, n_columns) or (n_columns,)
        Positive definite, or its eigenvalues.
    form : {"smallest", "printed"}, default="smallest"
        "printed" takes 1 / eigenvalue for a radius, as Appendix D does. That set is smaller than the smallest one in
        whose norm the loss is 1-strongly convex (radii below 1 are squared), so the bounds do not hold with it.

    Returns
    -------
    float
        Between 1 and the root of the number of columns.

    Examples
    --------
    >>> gaussian_width([1.0, 4.0, 4.0])
    1.224744871391589
    >>> gaussian_width([1.0, 4.0, 4.0], form="printed")
    1.0606601717798212
    """
    array = np.asarray(hessian, dtype=np.float64)
    values = np.linalg.eigvalsh(array) if array.ndim == 2 else np.sort(array)
    if not (len(values) and values[0] > 0 and np.isfinite(values[-1])):
        raise ValueError("hessian must be positive definite. Add a ridge to its diagonal.")
    ratios = values[0] / values
    squares = ratios if checks.one_of(form, _WIDTH_FORMS, "form") == "smallest" else ratios**2
    return float(np.sqrt(squares.sum()))
