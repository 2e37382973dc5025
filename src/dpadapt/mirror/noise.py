"""How much noise T private steps need: exactly, or as Algorithm 1 of the mirror-descent paper prints it.

.. [1] Public Data-Assisted Mirror Descent for Private Model Training. arXiv:2112.00193, Algorithm 1, line 1.
"""

import math

from dpadapt import _validate
from dpadapt.accounting.calibrate import calibrate
from dpadapt.accounting.gaussian import gaussian_epsilon
from dpadapt.errors import PrivacyError

NOISES = ("exact", "paper")


def paper_noise_multiplier(epsilon: float, delta: float, *, steps: int = 1) -> float:
    """Return the printed noise of each step over the clipping norm: sqrt(8 T ln(1/delta)) / epsilon.

    The claim of (`epsilon`, `delta`) is true up to an epsilon a little above 8 ln(1/delta), and wasteful: at epsilon 1
    and delta 1e-5 the noise is 2.6 times what is needed.

    Raises
    ------
    PrivacyError
        Where the claim is false.

    Examples
    --------
    >>> round(paper_noise_multiplier(1.0, 1e-5), 3)
    9.597
    """
    epsilon, delta = _validate.positive(epsilon, "epsilon"), _validate.delta(delta)
    steps = _validate.count(steps, "steps")
    if delta == 0:
        raise ValueError("delta must be positive for Gaussian noise, got 0. A common choice is 1e-6.")
    once = math.sqrt(8 * math.log(1 / delta)) / epsilon
    # T releases at sqrt(T) times the noise are one release at that noise.
    true = gaussian_epsilon(1 / once, delta)
    if true > epsilon:
        raise PrivacyError(
            f"noise='paper' claims epsilon={epsilon:.4g}, but that noise costs {true:.4g} at delta={delta:.3g}. "
            f"Use noise='exact'."
        )
    return math.sqrt(steps) * once


def noise_multiplier(noise: str, epsilon: float, delta: float, *, steps: int) -> float:
    """Return the noise of each of `steps` full-batch releases over the sensitivity, by the rule called `noise`."""
    if _validate.one_of(noise, NOISES, "noise") == "paper":
        return paper_noise_multiplier(epsilon, delta, steps=steps)
    return calibrate(epsilon, delta, steps=steps)


def paper_note(epsilon: float, spent: float) -> str:
    """Return what the receipt says about the printed noise."""
    return f"the paper's noise was used, which claims epsilon = {epsilon:.4g}; exact accounting finds {spent:.4g}"
