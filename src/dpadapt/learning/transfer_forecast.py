"""Before anything is spent: would private rows be able to move the public model, and what might that be worth?"""

import math
from dataclasses import dataclass

import numpy as np

from dpadapt import _validate
from dpadapt.accounting.gaussian import gaussian_mu
from dpadapt.data import Public, wrapped
from dpadapt.learning.base import Budget
from dpadapt.learning.transfer_gate import keep
from dpadapt.learning.transfer_geometry import remembered_geometry
from dpadapt.learning.transfer_plan import CORRECTION, choose_directions, dyadic_blocks, plan_stage, shift_prior
from dpadapt.learning.transfer_shifted import RELEASES, planned_steps
from dpadapt.mechanisms.adjacency import Adjacency

# Shift energies, as shares of the public model's error, at which the curve is drawn.
_SHIFTS = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)


@dataclass(frozen=True)
class TransferForecast:
    """What public data alone says about a private fit. A go / no-go signal, not an error bar.

    Parameters
    ----------
    worthwhile : bool
        Whether the budget lets anything through at all; if not, the public model is returned and nothing is spent.
    n_directions : int
        How many coordinates the budget would be spread over.
    shifts : tuple of float
        Assumed energies of the shift: what the best linear model would save on the private population, as a share of
        the public model's leave-one-out error. How large it really is can't be told from public data.
    error_ratios : tuple of float
        Expected error over that of the public model, for each; 1 where the gate stays shut.
    opens_at : float
        Least of these shifts at which the gate is expected to open; inf if it does at none.
    """

    worthwhile: bool
    n_directions: int
    shifts: tuple[float, ...]
    error_ratios: tuple[float, ...]
    opens_at: float

    def __str__(self) -> str:
        """Say it in words."""
        if not self.worthwhile:
            return "The budget is too small for this many rows: the public model would be returned, nothing spent."
        if math.isinf(self.opens_at):
            return "No shift in the range considered would be told from noise; the public model would be kept."
        return (
            f"A shift worth {self.opens_at:.0%} of the public model's error or more would probably be found. "
            f"Whether there is one, public data can't say; this is no forecast of the error."
        )


def forecast(
    public: Public,
    n_private: int,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    *,
    adjacency: str = "zero-out",
) -> TransferForecast:
    """Forecast a fit of `PrivateTransferRegressor` from labelled public data; nothing private is read or spent.

    The shift is taken to be spread as `shift_prior` says and the private rows to look like the public ones. On sixteen
    data sets a prototype of this forecast, told the true size of the shift, had a median error of 0.01 in the ratio and
    was too optimistic by more than 0.1 in a sixth of the cells: use it to decide whether to try.

    Parameters
    ----------
    public : Public
        Labelled public data.
    n_private : int
        Number of private rows.
    epsilon, delta : float
        Budget of the fit.
    adjacency : {"zero-out", "add-remove", "replace-one"}, default="zero-out"

    Returns
    -------
    TransferForecast

    Examples
    --------
    >>> rng = np.random.default_rng(7)
    >>> X = rng.uniform(-1, 1, (300, 3))
    >>> public = Public(X, X @ [1.0, 0.5, -1.0] + 0.3 * rng.standard_normal(300))
    >>> forecast(public, n_private=20, epsilon=0.1).worthwhile
    False
    >>> forecast(public, n_private=5000, epsilon=2.0).opens_at <= 0.3
    True
    """
    if wrapped(public).y is None:
        raise ValueError("a forecast needs public labels: public=Public(X, y).")
    n_rows = float(_validate.count(n_private, "n_private"))
    factor = 2.0 if Adjacency.of(adjacency) is Adjacency.REPLACE_ONE else 1.0
    budget = Budget(gaussian_mu(_validate.positive(epsilon, "epsilon"), _validate.delta(delta)), n_rows, factor)
    nothing = tuple(1.0 for _ in _SHIFTS)
    if not budget.worthwhile:
        return TransferForecast(False, 0, _SHIFTS, nothing, math.inf)
    X, y = (np.asarray(part, dtype=np.float64) for part in (public.X, public.y))
    geometry = remembered_geometry(public, X, y)
    per_clip = factor * math.sqrt(sum(RELEASES.values())) / (budget.mu * n_rows)
    steps, per_step = planned_steps(geometry, n_rows, per_clip)
    chosen, weights = choose_directions(geometry, n_rows=n_rows, noise_per_clip=per_step, n_steps=steps, size=1.0)
    stage = plan_stage(
        geometry,
        np.eye(len(geometry.solution))[:, chosen],
        weights,
        noise_per_clip=per_step,
        n_steps=steps,
        size=1.0,
        kind=CORRECTION,
    )
    curvature = weights * max(stage.unclipped, 0.1)
    sample = geometry.variance / n_rows
    noise = weights * stage.noise_of_average(0.7 * curvature) + sample
    follows = np.minimum(curvature * stage.response(curvature), 1.0)
    spread = shift_prior(len(geometry.solution))
    error, ratios = geometry.variance, []
    for shift in _SHIFTS:
        energy = geometry.variance * shift * spread
        moved = energy[chosen] * follows**2
        kept = keep(np.sqrt(moved + noise), noise, dyadic_blocks(chosen), error=error)
        factors = kept.factors
        left = energy.sum() - energy[chosen].sum()
        left += float(np.sum(energy[chosen] * (1 - factors * follows) ** 2 + factors**2 * noise))
        ratios.append(float((error + left) / (error + energy.sum())))
    opens = [shift for shift, ratio in zip(_SHIFTS, ratios, strict=True) if ratio < 1 - 1e-3]
    return TransferForecast(True, len(chosen), _SHIFTS, tuple(ratios), min(opens, default=math.inf))
