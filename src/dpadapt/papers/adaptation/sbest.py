"""`SBest` and `SBestClassifier`: best-effort adaptation, which chooses weights and model together. Not private.

P. Awasthi, C. Cortes, M. Mohri, 2024. Bassily, Cortes, Mao and Mohri (ICML 2024) state it as their problems (3) and
(5); the exact minimiser of their convex problem (6) is offered too.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpadapt import checks
from dpadapt.papers.adaptation.bounds import discrepancy as exact_discrepancy
from dpadapt.papers.adaptation.preparation import Array, weighted_logistic, weighted_ridge
from dpadapt.papers.adaptation.problem import (
    FORMS,
    CrossEntropy,
    Penalties,
    best_weights,
    mixture_share,
    objective,
    solve,
)
from dpadapt.papers.adaptation.unprotected import TwoSamples, UnprotectedClassifier, UnprotectedRegressor

# Radius of the ball around the mixture's own coefficients over which the default discrepancy is taken, for standardised
# rows and labels. A larger ball gives a larger discrepancy, so that fewer source rows keep their weight; over the whole
# ball of coefficients the source rows are all in or all out. Chosen by hand.
_LOCAL_DISCREPANCY_RADIUS = 0.5
# Most alternations of logistic fits and weights. Each lowers the objective, and a few are enough; this is a safeguard.
_MOST_ALTERNATIONS = 30


class SBest(UnprotectedRegressor):
    """Linear regression with a weight for each source and target row, chosen together with the model. Not private.

    Every row's weight lies between 0 and its share of the mixture. A row is left out if its loss, plus the discrepancy
    for a source row, costs more than the penalty on leaving the mixture.

    **Privacy.** None: a baseline for comparison. The receipt says epsilon = inf, and a ledger with a finite cap refuses
    it.

    Parameters
    ----------
    alpha : float, default=0.5
        The source's share of the reference weights, from 0 (target only) to 1. Without labelled public data 0.
    lambda1, lambda2, lambda_inf : float, default=10.0, 0.0, 0.0
        Penalties on the distance of the weights from the reference, on their length, and on the largest of them, in
        units of the variance of the labels.
    radius : float, default=3.0
        Largest length of the coefficients, for standardised rows and labels.
    discrepancy : float, optional
        Added to the loss of each source row, in units of the variance of the labels. Default: the exact local
        discrepancy, over coefficients within 0.5 of the mixture's own; over the whole ball it is so large that source
        rows are all in or all out.
    form : {"original", "convex"}, default="original"
        Problem (5), by alternation to a point that neither weights nor coefficients alone can improve, or the minimiser
        of problem (6), certified to 1e-10.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float
    n_features_in_ : int
    privacy_ : Receipt
        States that nothing is protected.

    See Also
    --------
    benchmarks.adaptation.nonprivate.best_of : picks among `sbest_grid()` by validation rows.

    References
    ----------
    .. [1] P. Awasthi, C. Cortes, M. Mohri. Best-effort adaptation. Annals of Mathematics and Artificial Intelligence
       92, 2024.
    .. [2] R. Bassily, C. Cortes, A. Mao, M. Mohri. Differentially Private Domain Adaptation with Theoretical
       Guarantees. ICML 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import Public
    >>> rng = np.random.default_rng(0)
    >>> X, X_public = rng.uniform(-1, 1, (20, 1)), rng.uniform(-1, 1, (200, 1))
    >>> y, y_public = X[:, 0], np.where(np.arange(200) % 4 == 0, 9.0, X_public[:, 0])  # every fourth label is wrong
    >>> SBest(lambda1=1.0, discrepancy=0.0).fit(X, y, public=Public(X_public, y_public)).coef_.round(2)
    array([1.])
    """

    def __init__(
        self,
        alpha: float = 0.5,
        *,
        lambda1: float = 10.0,
        lambda2: float = 0.0,
        lambda_inf: float = 0.0,
        radius: float = 3.0,
        discrepancy: float | None = None,
        form: str = "original",
    ) -> None:
        self.alpha = alpha
        self.lambda1 = lambda1
        self.lambda2 = lambda2
        self.lambda_inf = lambda_inf
        self.radius = radius
        self.discrepancy = discrepancy
        self.form = form

    def _check_parameters(self) -> None:
        mixture_share(self.alpha)
        Penalties(self.lambda1, self.lambda2, self.lambda_inf)
        checks.scale(self.radius, "radius")
        checks.one_of(self.form, FORMS, "form")
        if self.discrepancy is not None:
            checks.penalty(self.discrepancy, "discrepancy")

    def _solve(self, samples: TwoSamples) -> tuple[Array, float]:
        middle, unit = float(samples.labels.mean()), max(float(samples.labels.std()), 1e-300)
        y = (samples.y - middle) / unit
        target = np.column_stack([samples.Z, np.ones(len(samples.Z))])
        source: Array | None = None
        y_source: Array | None = None
        extra = 0.0
        if len(samples.Z_public) and self.alpha > 0:
            source = np.column_stack([samples.Z_public, np.ones(len(samples.Z_public))])
            y_source = (samples.y_public - middle) / unit
            if self.discrepancy is None:
                rows, labels = samples.rows, np.concatenate([y_source, y])
                near = np.append(*weighted_ridge(rows, labels, samples.reference(self.alpha), 1e-6))
                extra = exact_discrepancy(source, y_source, target, y, radius=_LOCAL_DISCREPANCY_RADIUS, center=near)
            else:
                extra = self.discrepancy
        solution = solve(
            source,
            y_source,
            target,
            y,
            alpha=self.alpha,
            radius=self.radius,
            discrepancy=extra,
            penalties=Penalties(self.lambda1, self.lambda2, self.lambda_inf),
            form="convex" if self.form == "convex" else "original",
        )
        return solution.coef[:-1] * unit, float(solution.coef[-1]) * unit + middle


class SBestClassifier(UnprotectedClassifier):
    """Logistic regression with a weight for each source and target row, chosen together with the model. Not private.

    Problem (5) of [2]_ with the logistic loss, by alternation: the best weights for the model, then the best model for
    the weights, until neither improves.

    **Privacy.** None: a baseline for comparison. The receipt says epsilon = inf, and a ledger with a finite cap refuses
    it.

    Parameters
    ----------
    alpha : float, default=0.5
        The source's share of the reference weights, from 0 (target only) to 1. Without labelled public data 0.
    lambda1, lambda2, lambda_inf : float, default=10.0, 0.0, 0.0
        Penalties on the distance of the weights from the reference, on their length, and on the largest of them.
    discrepancy : float, default=0.0
        Added to the loss of each source row.
    ridge : float, default=1e-3
        Strength of the ridge, relative to the average variance of a standardised column. Positive.
    classes : array-like, optional
        All labels that can occur. Default: those that do occur.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
    intercept_ : ndarray of shape (1,) or (n_classes,)
    classes_ : ndarray of shape (n_classes,)
    n_features_in_ : int
    privacy_ : Receipt
        States that nothing is protected.

    References
    ----------
    .. [1] P. Awasthi, C. Cortes, M. Mohri. Best-effort adaptation. Annals of Mathematics and Artificial Intelligence
       92, 2024.
    .. [2] R. Bassily, C. Cortes, A. Mao, M. Mohri. Differentially Private Domain Adaptation with Theoretical
       Guarantees. ICML 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import Public
    >>> rng = np.random.default_rng(0)
    >>> X, X_public = rng.uniform(-1, 1, (40, 2)), rng.uniform(-1, 1, (200, 2))
    >>> y, y_public = X[:, 0] > 0, X_public[:, 0] > 0
    >>> SBestClassifier().fit(X, y, public=Public(X_public, y_public)).score(X, y) > 0.9
    True
    """

    def __init__(
        self,
        alpha: float = 0.5,
        *,
        lambda1: float = 10.0,
        lambda2: float = 0.0,
        lambda_inf: float = 0.0,
        discrepancy: float = 0.0,
        ridge: float = 1e-3,
        classes: Any = None,
    ) -> None:
        self.alpha = alpha
        self.lambda1 = lambda1
        self.lambda2 = lambda2
        self.lambda_inf = lambda_inf
        self.discrepancy = discrepancy
        self.ridge = ridge
        self.classes = classes

    def _check_parameters(self) -> None:
        mixture_share(self.alpha)
        Penalties(self.lambda1, self.lambda2, self.lambda_inf)
        checks.penalty(self.discrepancy, "discrepancy")
        checks.scale(self.ridge, "ridge")

    def _solve(self, samples: TwoSamples, n_classes: int) -> tuple[Array, Array]:
        penalties = Penalties(self.lambda1, self.lambda2, self.lambda_inf)
        reference, rows, codes = samples.reference(self.alpha), samples.rows, samples.labels
        extra = np.where(np.arange(len(rows)) < len(samples.Z_public), float(self.discrepancy), 0.0)
        weights, best = reference, math.inf
        coef, intercept = weighted_logistic(rows, codes, weights, self.ridge, n_classes)
        for _ in range(_MOST_ALTERNATIONS):
            scores = rows @ coef.T + intercept
            losses = CrossEntropy().losses(scores[:, 0] if n_classes == 2 else scores, codes) + extra
            weights = best_weights(losses, reference, penalties, "original")
            value = objective(losses, weights, reference, penalties, "original")
            if not value < best - 1e-9 * abs(value) or not weights.any():
                break
            best = value
            coef, intercept = weighted_logistic(rows, codes, weights, self.ridge, n_classes)
        return coef, intercept


def sbest_grid(
    *,
    alphas: Sequence[float] = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9),
    lambdas: Sequence[float] = (0.5, 1.0, 10.0, 100.0),
    form: str = "original",
) -> list[SBest]:
    """Return the settings to choose among by validation rows; alpha = 0 is always one of them.

    Without it a harmful source could not be rejected. The alphas are those of Appendix E of the paper.

    Examples
    --------
    >>> len(sbest_grid(alphas=(0.5,), lambdas=(1.0, 10.0)))
    4
    """
    return [
        SBest(alpha, lambda1=lambda1, form=form) for alpha in sorted({0.0, *map(float, alphas)}) for lambda1 in lambdas
    ]
