"""Gaussian width of the set in whose norm a public loss is strongly convex: what takes the place of the dimension.

Appendices B and D of "Public Data-Assisted Mirror Descent for Private Model Training", arXiv:2112.00193.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad

from dpadapt import _validate

Vector = NDArray[np.float64]
FORMS = ("smallest", "printed")


def ellipsoid_width(radii: Any) -> float:
    """Return the Gaussian width of an ellipsoid about the origin, exactly: E |diag(radii) g|.

    The paper's sqrt(Σ radii²) is an upper bound of it, close where no few radii dominate.

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
    {x : x' H x <= 1}, an ellipsoid with radii 1 / sqrt(eigenvalue); its width is at most sqrt(Σ radii²), which is what
    is returned. The bounds need no more than that.

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
    squares = ratios if _validate.one_of(form, FORMS, "form") == "smallest" else ratios**2
    return float(np.sqrt(squares.sum()))
