"""`PrivateSubspaceRegressor`: private linear regression in the subspace that public tasks share.

Algorithm 1 of "On the Benefits of Public Representations for Private Transfer Learning under Distribution Shift",
arXiv:2312.15551, with a closer subspace and a better private solver.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from dpadapt import _validate
from dpadapt.accounting.ledger import Ledger
from dpadapt.data import Public
from dpadapt.learning.base import Budget, PrivateEstimator
from dpadapt.learning.linear import PrivateLinearRegression
from dpadapt.representation.projected import assumed_of, checked_basis
from dpadapt.representation.subspace import task_model
from dpadapt.representation.task_descent import descend, plan_descent
from dpadapt.representation.task_model import METHODS
from dpadapt.representation.task_prior import TaskPrior, task_prior

Vector = NDArray[np.float64]
_PROJECTIONS = ("soft", "hard")


class PrivateSubspaceRegressor(RegressorMixin, PrivateEstimator):  # type: ignore[misc]
    """Linear regression on private rows, in the subspace that many public tasks share.

    Public rows belong to tasks, each a linear regression of its own (`Public(X, y, tasks=...)`). None of them need
    predict the private labels; what is carried over is where tasks' coefficients lie. Public tasks give a subspace, how
    far tasks lie along and outside of it, and the sizes of residuals; the private rows then pay for the coefficients of
    one more task: clipped full-batch gradient steps in those coordinates, averaged, and shrunk by what the known noise
    explains. Nothing is to be tuned.

    Privacy
    -------
    Protects one private row (see `adjacency`).
    Releases: clipped gradient sums, Gaussian.
    Costs at most `epsilon`, `delta`; see `privacy_`. Public data is not protected.

    Parameters
    ----------
    epsilon : float, default=1.0
        Most this fit may spend. Positive.
    delta : float, default=1e-6
        Between 0 and 1, well below 1 / number of rows.
    n_components : int, optional
        Dimension of the subspace. Default: by cross-validation over public tasks.
    method : {"em", "pairs", "moments"}, default="em"
        How the subspace is estimated; see `PublicSubspace`.
    projection : {"soft", "hard"}, default="soft"
        "hard" stays within the subspace, as Algorithm 1 does. "soft" also leaves it, as far as its expected error and
        the budget make that worthwhile: with few private rows it is "hard", with many it is regression on all features.
    basis : array-like of shape (n_features, k), optional
        The subspace itself, where it is known without looking at the private data; public tasks then only tell sizes.
    fit_intercept : bool, default=True
        Whether tasks have levels of their own; the paper's have none. Without public tasks there always is one.
    target_bounds : (float, float), optional
        Where the target lies, known without looking at it; used unless public tasks are given. Default: (-1, 1).
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
    n_components_ : int
        Dimension of the subspace; the number of features where there is none.
    predicted_excess_ : float
        Mean squared error above that of the best linear model that public data foretells: noise, sampling, and what
        the subspace misses. NaN without public tasks.
    n_features_in_ : int
    privacy_ : Receipt
        What was released and what it cost.

    Notes
    -----
    Differences from the paper: tasks are told apart when the subspace is estimated; rows are whitened by public ones;
    full-batch steps with exact accounting take the place of DP-AMBSSGD (`DPAMBSSGD` is that); coefficients are shrunk;
    and the solution may leave the subspace. Theorem 5.5 bounds from below what is possible inside a given subspace, so
    "soft" can be better than it. See `dpadapt.representation.upper_bound` for planning.

    The paper's neighbours replace one row; its experiment accounts for adding or removing one. Set `adjacency`.

    Without public labels this is `PrivateLinearRegression` on all features (or along `basis`). Labels without tasks are
    refused: one task tells nothing about what tasks share.

    References
    ----------
    .. [1] P. Thaker, A. Setlur, Z. S. Wu, V. Smith. On the Benefits of Public Representations for Private Transfer
       Learning under Distribution Shift. 2023. arXiv:2312.15551

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import Public
    >>> from dpadapt.representation import PrivateSubspaceRegressor
    >>> rng = np.random.default_rng(7)
    >>> shared = rng.standard_normal((2, 10)) / 2
    >>> X_public, tasks = rng.standard_normal((2000, 10)), np.arange(2000) % 40
    >>> coef = rng.standard_normal((40, 2)) @ shared
    >>> y_public = np.sum(X_public * coef[tasks], axis=1) + 0.5 * rng.standard_normal(2000)
    >>> X = rng.standard_normal((1000, 10))
    >>> y = X @ ([1.0, -1.0] @ shared) + 0.5 * rng.standard_normal(1000)
    >>> model = PrivateSubspaceRegressor(random_state=0).fit(X, y, public=Public(X_public, y_public, tasks=tasks))
    >>> model.privacy_.epsilon <= 1.0
    True
    >>> model.score(X, y) > 0.7
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        n_components: int | None = None,
        method: str = "em",
        projection: str = "soft",
        basis: Any = None,
        fit_intercept: bool = True,
        target_bounds: tuple[float, float] | None = None,
        adjacency: str = "zero-out",
        n_rows: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.n_components = n_components
        self.method = method
        self.projection = projection
        self.basis = basis
        self.fit_intercept = fit_intercept
        self.target_bounds = target_bounds
        self.adjacency = adjacency
        self.n_rows = n_rows
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any, *, public: Public | None = None, ledger: Ledger | None = None
    ) -> "PrivateSubspaceRegressor":
        """Fit on private `X`, `y`.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Private features.
        y : array-like of shape (n_rows,)
            Private target.
        public : Public, optional
            Public data with the same columns, with labels and tasks.
        ledger : Ledger, optional
            The private data set's ledger; it is charged what this fit spends.
        """
        _validate.one_of(self.method, METHODS, "method")
        soft = _validate.one_of(self.projection, _PROJECTIONS, "projection") == "soft"
        if self.n_components is not None:
            _validate.count(self.n_components, "n_components")
        frame = X
        X, y = self._check_rows(X, y, y_numeric=True)
        X_public, y_public = self._check_public(public, frame)
        basis = None if self.basis is None else checked_basis(self.basis, X.shape[1])
        budget = self._budget(len(X))
        child = self._ledger(ledger)
        if public is None or X_public is None or y_public is None:
            return self._fit_plain(X, y, X_public, basis, budget, child)
        model = task_model(
            X_public, public, method=self.method, k=self.n_components, intercept=self.fit_intercept, basis=basis
        )
        prior = task_prior(model, intercept=self.fit_intercept, soft=soft)
        solution, predicted = prior.mean, float(prior.variance.sum())
        if budget.worthwhile:
            plan = plan_descent(prior, budget)
            solution, predicted = descend(child, prior, plan, X, y, budget), plan.predicted
        # The receipt first: an interrupted refit must not leave new coefficients under an old receipt.
        self.privacy_ = self._receipt(child, budget, assumed_of(self.basis))
        self.n_components_ = model.basis.shape[1]
        self.predicted_excess_ = predicted + _missed(prior)
        self.coef_, self.intercept_ = prior.coefficients(solution)
        return self

    def _fit_plain(
        self,
        X: NDArray[Any],
        y: NDArray[Any],
        X_public: Vector | None,
        basis: Vector | None,
        budget: Budget,
        child: Ledger,
    ) -> "PrivateSubspaceRegressor":
        """Fit without public tasks: on all features, or along a subspace that is known."""
        plain = PrivateLinearRegression(
            self.epsilon,
            self.delta,
            target_bounds=self.target_bounds,
            adjacency=self.adjacency,
            n_rows=self.n_rows,
            random_state=self.random_state,
        )
        with np.errstate(over="ignore", invalid="ignore"):
            rows = X if basis is None else np.nan_to_num(X @ basis, nan=0.0)
        geometry = X_public if X_public is None or basis is None else X_public @ basis
        plain.fit(rows, y, public=None if geometry is None else Public(geometry), ledger=child)
        self.privacy_ = self._receipt(child, budget, ["the bounds of the target", *assumed_of(self.basis)])
        self.n_components_ = rows.shape[1]
        self.predicted_excess_ = float("nan")
        self.coef_ = plain.coef_ if basis is None else basis @ plain.coef_
        self.intercept_ = plain.intercept_
        return self

    def predict(self, X: Any) -> Vector:
        """Return predictions for rows of `X`."""
        return self._scores(X)


def _missed(prior: TaskPrior) -> float:
    """Return the expected squared length of coefficients in directions that the prior has not got."""
    d, m = prior.turn.shape
    return float(prior.model.outside * (d - m))
