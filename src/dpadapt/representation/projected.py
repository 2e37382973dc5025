"""What the paper's two private solvers share: rows projected on a subspace, isotropic there, without a level."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from dpadapt import _validate
from dpadapt.accounting.ledger import Ledger
from dpadapt.data import Public
from dpadapt.learning.base import Budget, PrivateEstimator
from dpadapt.representation.angles import orthonormal
from dpadapt.representation.subspace import PublicSubspace
from dpadapt.representation.task_model import METHODS
from dpadapt.rows import Rows

Vector = NDArray[np.float64]


class ProjectedRegressor(RegressorMixin, PrivateEstimator):  # type: ignore[misc]
    """Base: private regression on rows projected on a given subspace, a public one, or not at all."""

    n_components: int | None
    method: str
    basis: Any
    batch_size: int

    def fit(self, X: Any, y: Any, *, public: Public | None = None, ledger: Ledger | None = None) -> Any:
        """Fit on private `X`, `y`.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Private features.
        y : array-like of shape (n_rows,)
            Private target.
        public : Public, optional
            Public data with the same columns, with labels and tasks, to learn the subspace from.
        ledger : Ledger, optional
            The private data set's ledger; it is charged what this fit spends.
        """
        _validate.one_of(self.method, METHODS, "method")
        _validate.count(self.batch_size, "batch_size")
        self._check_parameters()
        frame = X
        X, y = self._check_rows(X, y, y_numeric=True)
        self._check_public(public, frame)
        basis = self._subspace(public, X.shape[1])
        budget = self._budget(len(X))
        child = self._ledger(ledger)
        solution: Vector = np.zeros(basis.shape[1])
        notes: list[str] = []
        if budget.worthwhile:
            with np.errstate(over="ignore", invalid="ignore"):
                rows = Rows(np.asarray(X @ basis, dtype=np.float64), np.asarray(y, dtype=np.float64))
            solution, notes = self._solve(child, rows, budget)
        # The receipt first: an interrupted refit must not leave new coefficients under an old receipt.
        assumed = ["rows and target are of about unit variance", *assumed_of(self.basis)]
        self.privacy_ = self._receipt(child, budget, assumed, notes=notes)
        self.n_components_ = basis.shape[1]
        self.coef_, self.intercept_ = basis @ solution, 0.0
        return self

    def _subspace(self, public: Public | None, n_features: int) -> Vector:
        """Return orthonormal columns: `basis`, or what public tasks share, or all features."""
        if self.basis is not None:
            return checked_basis(self.basis, n_features)
        if public is None:
            return np.eye(n_features)
        # Rows as they come, as in the paper's model.
        learned = PublicSubspace(self.n_components, method=self.method, whiten=False, fit_intercept=False)
        return np.asarray(learned.fit(public).components_.T)

    def _check_parameters(self) -> None:
        """Check what can be checked before data is read."""
        raise NotImplementedError

    def _solve(self, ledger: Ledger, rows: Rows, budget: Budget) -> tuple[Vector, list[str]]:
        """Return the coefficients along the subspace, and notes for the receipt."""
        raise NotImplementedError

    def predict(self, X: Any) -> Vector:
        """Return predictions for rows of `X`."""
        return self._scores(X)


def checked_basis(basis: Any, n_features: int) -> Vector:
    """Return orthonormal columns with one row per feature."""
    columns = orthonormal(basis, "basis")
    if len(columns) != n_features:
        raise ValueError(f"basis must have one row per feature, {n_features}, got {len(columns)}.")
    return columns


def assumed_of(basis: Any) -> list[str]:
    """Return what a receipt says of a subspace that was given."""
    return [] if basis is None else ["the basis: it was made without the private rows"]
