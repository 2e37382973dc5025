"""`PrivateDiscrepancyMinimization`: private-DM, a public labelled source reweighed to an unlabelled private target.

After R. Bassily, M. Mohri, A. T. Suresh, "Private Domain Adaptation from a Public Source", 2022 (arXiv:2208.06135), as
far as Bassily, Cortes, Mao and Mohri (ICML 2024) describe it: see *Notes* for what is our reading.
"""

import math
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from dpadapt import _validate
from dpadapt.accounting.ledger import Ledger
from dpadapt.adaptation.matching_weights import discrepancy_weights
from dpadapt.adaptation.preparation import MAX_NORM, Array, target_scale, unit_geometry
from dpadapt.adaptation.private_moments import joint_length, moment_noise, private_moment
from dpadapt.adaptation.weighted import standard, weighted_ridge
from dpadapt.data import Public
from dpadapt.learning.base import Budget, PrivateEstimator, numeric_labels
from dpadapt.learning.geometry import Geometry, declared_geometry, public_geometry
from dpadapt.mechanisms.bounded import clipped_gram
from dpadapt.mechanisms.gaussian import Gaussian


class PrivateDiscrepancyMinimization(RegressorMixin, PrivateEstimator):  # type: ignore[misc]
    """Ridge regression on public source rows weighed towards a private target whose labels are not used.

    For the squared loss and linear models the unlabelled discrepancy of two samples is the spectral norm of the
    difference of their second moments. The private second moment is released once; the weights of the public rows that
    bring theirs closest to it, and the regression on the weighted rows, are post-processing.

    Reweighing helps where source and target differ in their features and not in how the labels follow from them. If the
    labels follow differently, no reweighing that looks at features alone can see it; nothing here protects from that.

    Privacy
    -------
    Protects the features of one private row (see `adjacency`); labels of private rows are not read.
    Releases: the clipped second moment of the private features, once, Gaussian.
    Costs at most `epsilon`, `delta`; see `privacy_`. Public data is not protected.

    Parameters
    ----------
    epsilon : float, default=1.0
        Most this fit may spend. Positive.
    delta : float, default=1e-6
        Between 0 and 1, well below 1 / number of rows.
    tolerance : float, default=0.01
        How far above the least discrepancy to stop, relative to the second moment, where the noise is smaller than
        that; matching noise is pointless.
    ridge : float, default=1e-3
        Strength of the ridge, relative to the average variance of a standardised column. Positive.
    target_bounds : (float, float), optional
        Where the target lies; only used without public labels. Default: (-1, 1).
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
    What [2]_ says of [1]_: a public labelled source, an unlabelled private target, the squared loss, the solution of
    discrepancy minimisation, with a smooth approximation of the discrepancy and private variants of Frank-Wolfe and
    mirror descent on the weights. Our reading differs in one thing: those algorithms touch the private rows in every
    step, through the gradient of the discrepancy, although that depends on them through their second moment alone. It
    is released once here, with noise of spectral norm about sqrt(2 d) / (n mu), and mirror descent runs on it for free.

    Without labelled public data there is nothing to weigh; then `y` is needed, and the model is the ridge regression
    that one private second moment of rows and targets gives (AdaSSP).

    References
    ----------
    .. [1] R. Bassily, M. Mohri, A. T. Suresh. Private Domain Adaptation from a Public Source. 2022. arXiv:2208.06135
    .. [2] R. Bassily, C. Cortes, A. Mao, M. Mohri. Differentially Private Domain Adaptation with Theoretical
       Guarantees. ICML 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import Public
    >>> rng = np.random.default_rng(0)
    >>> X_public, X = rng.uniform(-2, 2, (500, 1)), rng.uniform(1, 2, (1000, 1))
    >>> model = PrivateDiscrepancyMinimization(random_state=0)
    >>> model = model.fit(X, public=Public(X_public, X_public[:, 0] ** 2))
    >>> model.privacy_.epsilon <= 1.0
    True
    >>> bool(model.coef_[0] > 1)  # the slope of the parabola where the target is; over the source it is 0
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        tolerance: float = 0.01,
        ridge: float = 1e-3,
        target_bounds: tuple[float, float] | None = None,
        adjacency: str = "zero-out",
        n_rows: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.tolerance = tolerance
        self.ridge = ridge
        self.target_bounds = target_bounds
        self.adjacency = adjacency
        self.n_rows = n_rows
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any = None, *, public: Public | None = None, ledger: Ledger | None = None
    ) -> "PrivateDiscrepancyMinimization":
        """Fit on private `X` and a labelled public source.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Private features.
        y : array-like of shape (n_rows,), optional
            Private target; not used if the public data has labels.
        public : Public, optional
            Public data with the same columns, with labels.
        ledger : Ledger, optional
            The private data set's ledger; it is charged what this fit spends.
        """
        tolerance = _validate.positive(self.tolerance, "tolerance")
        ridge = _validate.positive(self.ridge, "ridge")
        scale = target_scale(self.target_bounds, None)
        frame, labelled = X, isinstance(public, Public) and public.y is not None
        if y is None and labelled:
            y = np.zeros(np.shape(X)[:1])
        X, y = self._check_rows(X, y, y_numeric=True)
        X_public, y_public = self._check_public(public, frame)
        budget = self._budget(len(X))
        child = self._ledger(ledger)

        assumed = []
        if X_public is not None and y_public is not None:
            labels = numeric_labels(y_public)
            weights = np.full(len(labels), 1.0 / len(labels))
            if budget.worthwhile:
                geometry = unit_geometry(X.shape[1], X_public)
                moment, noise = _feature_moment(child, budget, geometry.transform(X))
                loose = max(tolerance, noise / max(float(np.linalg.norm(moment, 2)), 1e-300))
                weights = discrepancy_weights(_shortened(geometry, X_public), moment, tolerance=loose).weights
            scaling = standard(X_public)
            found = scaling.undo(*weighted_ridge(scaling.apply(X_public), labels, weights, ridge))
        else:
            assumed.append("the bounds of the target")
            geometry = declared_geometry(X.shape[1]) if X_public is None else public_geometry(X_public)
            found = _by_target_alone(child, budget, geometry, X, scale.apply(y))
            found = found[0] * scale.half, found[1] * scale.half + scale.middle
        # The receipt first: an interrupted refit must not leave new coefficients under an old receipt.
        self.privacy_ = self._receipt(child, budget, assumed)
        self.coef_, self.intercept_ = found[0], float(found[1])
        return self

    def predict(self, X: Any) -> Array:
        """Return predictions for rows of `X`."""
        return self._scores(X)


def _feature_moment(ledger: Ledger, budget: Budget, Z: Array) -> tuple[Array, float]:
    """Release the average outer product of private rows; return it and the spectral norm to expect of its noise."""
    # Rows are shortened to MAX_NORM: |zz'|_F <= 1, and sqrt 2 between two rows; `clipped_gram` states both.
    gram = clipped_gram(Z, MAX_NORM)
    released = ledger.release(Gaussian(1.0 / budget.mu), gram, label="second moment of the features")
    values, vectors = np.linalg.eigh((released + released.T) / (2 * budget.n_rows))
    # A second moment has no negative eigenvalue; dropping them brings the release closer to the truth.
    moment = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return moment, moment_noise(budget, MAX_NORM) * math.sqrt(2 * len(values))


def _shortened(geometry: Geometry, X_public: Array) -> Array:
    """Return public rows in the final coordinates, shortened as private ones are."""
    Z = geometry.transform(X_public)
    lengths = np.linalg.norm(Z, axis=1, keepdims=True)
    return np.asarray(Z * np.minimum(1.0, MAX_NORM / np.maximum(lengths, 1e-300)))


def _by_target_alone(ledger: Ledger, budget: Budget, geometry: Geometry, X: Any, e: Array) -> tuple[Array, float]:
    """Return coefficients and intercept from one private second moment of rows and targets."""
    solution = np.zeros(X.shape[1] + 1)
    if budget.worthwhile:
        solution = private_moment(ledger, budget, geometry.transform(X), e, joint_length(geometry)).solution()
    coef, intercept = geometry.coefficients(solution)
    return coef, float(intercept)
