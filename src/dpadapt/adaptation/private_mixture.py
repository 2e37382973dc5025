"""`PrivateMixture`: private sufficient statistics of the target mixed with the public source's.

The private form of the fixed mixture of Bassily, Cortes, Mao and Mohri (ICML 2024): a baseline for their algorithms.
"""

import math
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from dpadapt.accounting.ledger import Ledger
from dpadapt.adaptation.preparation import Array, target_scale
from dpadapt.adaptation.private_moments import joint_length, kept_share, private_moment, public_moment
from dpadapt.adaptation.problem import mixture_share
from dpadapt.data import Public
from dpadapt.learning.base import PrivateEstimator, numeric_labels
from dpadapt.learning.geometry import declared_geometry, public_geometry, ridge_by_leave_one_out


class PrivateMixture(RegressorMixin, PrivateEstimator):  # type: ignore[misc]
    """Linear regression on alpha parts of the public source and 1 - alpha parts of the private target.

    The second moment of the private rows is released once and mixed with the public one: `alpha` stays what one says it
    is, however wrong the source may be. Without labelled public data alpha is taken as 0, which is AdaSSP.

    Privacy
    -------
    Protects one private row (see `adjacency`).
    Releases: the clipped second moment of private rows and targets, once, Gaussian; nothing at alpha = 1.
    Costs at most `epsilon`, `delta`; see `privacy_`. Public data is not protected.

    Parameters
    ----------
    epsilon : float, default=1.0
        Most this fit may spend. Positive.
    delta : float, default=1e-6
        Between 0 and 1, well below 1 / number of rows.
    alpha : float, default=0.5
        Weight of the source, from 0 (private target only) to 1 (public source only). Choose it without looking at the
        private data.
    target_bounds : (float, float), optional
        Where the target lies, known without looking at it; used unless public labels are given. Default: (-1, 1).
    adjacency : {"zero-out", "add-remove", "replace-one"}, default="zero-out"
        Which data sets count as neighbours.
    n_rows : int, optional
        Under "add-remove" only: a public estimate of the number of rows, used in place of the true one.
    random_state : int, optional
        For tests only: seeds the noise, so that there is no guarantee. Default: secure noise.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float
    n_features_in_ : int
    privacy_ : Receipt
        What was released and what it cost.

    Notes
    -----
    Targets are replaced by what the public model leaves of them. Where that model is the exact minimiser on the source,
    the mixture's minimiser is the same, and shorter residuals need less noise.

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import Public
    >>> rng = np.random.default_rng(7)
    >>> X, X_public = rng.uniform(-1, 1, (2000, 3)), rng.uniform(-1, 1, (200, 3))
    >>> y, y_public = X @ [1.0, 0.0, -1.0], X_public @ [1.0, 0.4, -1.0]
    >>> model = PrivateMixture(alpha=0.5, random_state=0).fit(X, y, public=Public(X_public, y_public))
    >>> model.privacy_.epsilon <= 1.0
    True
    >>> model.coef_.round(1)  # half way between the two
    array([ 1. ,  0.2, -1. ])
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        alpha: float = 0.5,
        target_bounds: tuple[float, float] | None = None,
        adjacency: str = "zero-out",
        n_rows: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.alpha = alpha
        self.target_bounds = target_bounds
        self.adjacency = adjacency
        self.n_rows = n_rows
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *, public: Public | None = None, ledger: Ledger | None = None) -> "PrivateMixture":
        """Fit on private `X`, `y`.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Private features.
        y : array-like of shape (n_rows,)
            Private target.
        public : Public, optional
            Public data with the same columns, with or without labels.
        ledger : Ledger, optional
            The private data set's ledger; it is charged what this fit spends.
        """
        alpha = mixture_share(self.alpha)
        scale = target_scale(self.target_bounds, None)
        frame = X
        X, y = self._check_rows(X, y, y_numeric=True)
        X_public, y_public = self._check_public(public, frame)
        budget = self._budget(len(X))
        child = self._ledger(ledger)

        geometry = declared_geometry(X.shape[1]) if X_public is None else public_geometry(X_public)
        start = geometry.solution_for(np.append(np.zeros(X.shape[1]), scale.middle))
        change, source, clip_norm, kept = np.zeros_like(start), None, joint_length(geometry), 1.0
        # Half the range is two typical residuals: on the scale of a feature, see `joint_length`.
        unit = scale.half
        if X_public is not None and y_public is not None:
            labels, Z_public = numeric_labels(y_public), geometry.transform(X_public)
            prior = ridge_by_leave_one_out(Z_public, labels)
            start, unit = prior.solution, _unit(prior.residuals, labels)
            e_public = (labels - Z_public @ start) / unit
            source = public_moment(Z_public, e_public)
            # Shortened rows count less. Undone by what it costs public rows, so that alpha stays what it says.
            kept = kept_share(Z_public, e_public, clip_norm)
        else:
            alpha = 0.0
        if budget.worthwhile and alpha < 1:
            Z = geometry.transform(X)
            with np.errstate(over="ignore", invalid="ignore"):
                e = np.asarray((y - Z @ start) / unit, dtype=np.float64)
            moment = private_moment(child, budget, Z, e, clip_norm).scaled(1.0 / kept)
            change = (moment if source is None else source.mixed(moment, alpha)).solution() * unit
        bounds = [] if y_public is not None else ["the bounds of the target"]
        # The receipt first: an interrupted refit must not leave new coefficients under an old receipt.
        self.privacy_ = self._receipt(child, budget, [*bounds, "alpha, which was chosen without the private data"])
        coef, intercept = geometry.coefficients(start + change)
        self.coef_, self.intercept_ = coef, float(intercept)
        return self

    def predict(self, X: Any) -> Array:
        """Return predictions for rows of `X`."""
        return self._scores(X)


def _unit(residuals: Array, labels: Array) -> float:
    """Return two typical residuals of the public model, and no less than half the labels' spread.

    A target that the public model gets wrong has longer residuals; they must not be cut off, or the source's share
    would be larger than alpha says.
    """
    return max(2 * math.sqrt(float(np.mean(residuals**2))), 0.5 * float(np.std(labels)), 1e-300)
