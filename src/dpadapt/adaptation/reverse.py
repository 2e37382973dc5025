"""`ReverseAdaptation`: a private labelled source, a public target with some labels or none.

The reverse scenario of section 7 of Bassily, Cortes, Mao and Mohri (ICML 2024), which names it and gives no algorithm.
"""

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from dpadapt.accounting.ledger import Ledger
from dpadapt.adaptation.preparation import Array, target_scale
from dpadapt.adaptation.private_moments import Moment, joint_length, kept_share, private_moment, public_moment
from dpadapt.adaptation.problem import mixture_share
from dpadapt.data import Public
from dpadapt.learning.base import PrivateEstimator, numeric_labels
from dpadapt.learning.geometry import declared_geometry, public_geometry

# Shares of the source that are tried: none, all, and a few between.
_SHARES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 1.0)
_FOLDS = 5


class ReverseAdaptation(RegressorMixin, PrivateEstimator):  # type: ignore[misc]
    """Linear regression for a public target from a private labelled source and what public labels there are.

    Minimises alpha times the mean squared error on the private source plus 1 - alpha times that on the labelled public
    target. The source enters through its second moment, released once, so that everything else is post-processing; in
    particular alpha may be chosen by cross-validation on the public target, free of charge.

    Privacy
    -------
    Protects one row of the private *source* `X`, `y` (see `adjacency`).
    Releases: the clipped second moment of private rows and labels, once, Gaussian.
    Costs at most `epsilon`, `delta`; see `privacy_`. The public target is not protected.

    Parameters
    ----------
    epsilon : float, default=1.0
        Most this fit may spend. Positive.
    delta : float, default=1e-6
        Between 0 and 1, well below 1 / number of rows.
    alpha : float, optional
        Weight of the private source, from 0 to 1. Default: chosen by five-fold cross-validation on the public target;
        1 if that has fewer than ten labelled rows.
    target_bounds : (float, float), optional
        Where labels lie, known without looking at private ones; used unless public labels are given. Default: (-1, 1).
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
    With an unlabelled target only its scales and directions are used: rows of the source count less the farther they
    lie from the target's rows. If labels follow from the features differently in source and target, an unlabelled
    target can't show it, and nothing here guards against it.

    Not offered, because it would not be sound: weights of single source rows that are fitted to both samples, as
    kernel mean matching and discrepancy minimisation do. Each of them depends on every private row, so that a bound on
    one row's term does not bound what that row changes. The weights of problem (6) of [1]_ depend on their own row and
    on released coefficients only: `CnvxAdap` with the target as its public data is sound, but adds the discrepancy to
    the losses of the public rows, which here are the target's.

    References
    ----------
    .. [1] R. Bassily, C. Cortes, A. Mao, M. Mohri. Differentially Private Domain Adaptation with Theoretical
       Guarantees. ICML 2024. Section 7.

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import Public
    >>> rng = np.random.default_rng(7)
    >>> X_source, X_target = rng.uniform(-1, 1, (3000, 3)), rng.uniform(-1, 1, (30, 3))
    >>> y_source, y_target = X_source @ [1.0, 0.1, -1.0], X_target @ [1.0, 0.0, -1.0]
    >>> model = ReverseAdaptation(random_state=0).fit(X_source, y_source, public=Public(X_target, y_target))
    >>> model.privacy_.epsilon <= 1.0
    True
    >>> model.score(X_target, y_target) > 0.95
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        alpha: float | None = None,
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

    def fit(self, X: Any, y: Any, *, public: Public | None = None, ledger: Ledger | None = None) -> "ReverseAdaptation":
        """Fit on the private source `X`, `y`.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Private features of the source.
        y : array-like of shape (n_rows,)
            Private labels of the source.
        public : Public, optional
            The public target, with the same columns, with or without labels.
        ledger : Ledger, optional
            The private data set's ledger; it is charged what this fit spends.
        """
        alpha = None if self.alpha is None else mixture_share(self.alpha)
        scale = target_scale(self.target_bounds, None)
        frame = X
        X, y = self._check_rows(X, y, y_numeric=True)
        X_public, y_public = self._check_public(public, frame)
        budget = self._budget(len(X))
        child = self._ledger(ledger)

        geometry = declared_geometry(X.shape[1]) if X_public is None else public_geometry(X_public)
        clip_norm, labelled = joint_length(geometry), X_public is not None and y_public is not None
        middle, unit = scale.middle, scale.half
        e_public, Z_public = np.empty(0), np.empty((0, X.shape[1] + 1))
        if X_public is not None and y_public is not None:
            labels, Z_public = numeric_labels(y_public), geometry.transform(X_public)
            middle, unit = float(labels.mean()), max(2 * float(labels.std()), 1e-300)
            e_public = (labels - middle) / unit
        solution = np.zeros(X.shape[1] + 1)
        if budget.worthwhile and (alpha is None or alpha > 0 or not labelled):
            with np.errstate(over="ignore", invalid="ignore"):
                e = np.asarray((y - middle) / unit, dtype=np.float64)
            source = private_moment(child, budget, geometry.transform(X), e, clip_norm)
            solution = source.solution()
            if labelled:
                # Shortened rows count less. Undone by what it costs public rows, so that alpha stays what it says.
                source = source.scaled(1.0 / kept_share(Z_public, e_public, clip_norm))
                solution = _mixed_solution(source, Z_public, e_public, alpha)
        elif labelled:
            solution = public_moment(Z_public, e_public).solution()
        assumed = [] if labelled else ["the bounds of the target"]
        if alpha is not None:
            assumed.append("alpha, which was chosen without the private data")
        # The receipt first: an interrupted refit must not leave new coefficients under an old receipt.
        self.privacy_ = self._receipt(child, budget, assumed)
        coef, intercept = geometry.coefficients(solution)
        self.coef_, self.intercept_ = coef * unit, float(intercept) * unit + middle
        return self

    def predict(self, X: Any) -> Array:
        """Return predictions for rows of `X`."""
        return self._scores(X)


def _mixed_solution(source: Moment, Z: Array, e: Array, alpha: float | None) -> Array:
    """Return the mixture's coefficients; a share that is not given is the one that predicts left-out rows best."""
    if alpha is None:
        alpha = 1.0 if len(e) < 2 * _FOLDS else _best_share(source, Z, e)
    return source.mixed(public_moment(Z, e), alpha).solution()


def _best_share(source: Moment, Z: Array, e: Array) -> float:
    """Return the share of the source with the least error on public rows that were left out."""
    fold = np.arange(len(e)) % _FOLDS
    errors = np.zeros(len(_SHARES))
    for left_out in range(_FOLDS):
        kept, tested = fold != left_out, fold == left_out
        target = public_moment(Z[kept], e[kept])
        found = np.stack([source.mixed(target, share).solution() for share in _SHARES], axis=1)
        errors += np.sum((Z[tested] @ found - e[tested, None]) ** 2, axis=0)
    return _SHARES[int(np.argmin(errors))]
