"""`PublicSubspace`: the low-dimensional subspace that the coefficients of public tasks share.

Step 1 of Algorithm 1 of "On the Benefits of Public Representations for Private Transfer Learning under Distribution
Shift", arXiv:2312.15551, with more accurate estimators beside the paper's.
"""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dpadapt import checks
from dpadapt.data import Public
from dpadapt.inputs.gate import numeric_labels, public_labels, public_table
from dpadapt.representation.task_model import (
    SUBSPACE_METHODS,
    Diversity,
    Scale,
    TaskModel,
    TaskRows,
    by_task,
    identity_scale,
    learn_tasks,
    orthonormal,
    task_diversity,
    whitened_scale,
)

Vector = NDArray[np.float64]


class PublicSubspace(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """The subspace that the regression coefficients of public tasks share.

    Public rows belong to tasks. Each task is a linear regression, and the coefficients of all tasks lie in or near a
    subspace of few dimensions. Only public data is used: freeze the fitted transformer in a pipeline, or use
    `PrivateSubspaceRegressor`, which fits one itself.

    Parameters
    ----------
    n_components : int, optional
        Dimension k of the subspace. Default: the dimension with the largest likelihood of held-out public tasks
        (five-fold cross-validation).
    method : {"em", "pairs", "moments"}, default="em"
        "moments" is the paper's estimator: the leading eigenvectors of the mean of y² x x'. "pairs" uses the mean of
        y_i y_j x_i x_j' over pairs of rows of one task, which is unbiased and has far less noise. "em" is the
        maximum-likelihood subspace, started from "pairs"; it is the most accurate.
    whiten : bool, default=True
        Whether rows are first whitened to second moment 1. "pairs" and "moments" assume second moment 1, which the
        paper's rows have.
    fit_intercept : bool, default=True
        Whether each task has its own intercept. Then rows and labels are centred within tasks.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Orthonormal rows that span the subspace, in the units of the features.
    n_components_ : int
    task_coef_ : ndarray of shape (n_tasks, n_components)
        Posterior mean of each task's coefficients along `components_`; tasks in sorted order of their names.
    diversity_ : Diversity
        ν and condition numbers of `task_coef_`: how well tasks span the subspace.
    noise_ : float
        Variance of the labels around their task's regression.
    outside_ : float
        Expected squared length of a new task's coefficients outside the estimated subspace, because the estimate has an
        error; in the coordinates in which rows have second moment 1.
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import Public
    >>> from dpadapt.representation import PublicSubspace, subspace_distance
    >>> rng = np.random.default_rng(7)
    >>> X, tasks = rng.standard_normal((2000, 6)), np.arange(2000) % 40
    >>> coef = rng.standard_normal((40, 2)) @ [[1.0, 0, 0, 0, 0, 0], [0, 1.0, 0, 0, 0, 0]]
    >>> y = np.sum(X * coef[tasks], axis=1) + 0.5 * rng.standard_normal(2000)
    >>> subspace = PublicSubspace().fit(Public(X, y, tasks=tasks))
    >>> subspace.n_components_
    2
    >>> subspace_distance(subspace.components_.T, np.eye(6)[:, :2]) < 0.1
    True
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        method: str = "em",
        whiten: bool = True,
        fit_intercept: bool = True,
    ) -> None:
        self.n_components = n_components
        self.method = method
        self.whiten = whiten
        self.fit_intercept = fit_intercept

    @np.errstate(all="ignore")
    def fit(self, public: Public, y: None = None) -> "PublicSubspace":
        """Learn the subspace from labelled public rows with tasks: `Public(X, y, tasks=...)`."""
        if not isinstance(public, Public):
            raise TypeError(f"public must be wrapped: Public(X, y, tasks=tasks), got {type(public).__name__}.")
        checks.one_of(self.method, SUBSPACE_METHODS, "method")
        for name in ("whiten", "fit_intercept"):
            checks.flag(getattr(self, name), name)
        X = public_table(public.X, ensure_min_samples=2)
        model = task_model(
            X, public, method=self.method, k=self.n_components, whiten=self.whiten, intercept=self.fit_intercept
        )
        left, singular_values, right = np.linalg.svd(model.scale.raw(model.basis), full_matrices=False)
        self.n_features_in_ = X.shape[1]
        self.components_: Vector = left.T
        self.n_components_ = left.shape[1]
        self.task_coef_: Vector = model.coef @ right.T * singular_values
        self.diversity_: Diversity = task_diversity(self.task_coef_)
        self.noise_ = model.noise
        self.outside_ = model.outside * (X.shape[1] - self.n_components_)
        return self

    def transform(self, X: Any) -> Vector:
        """Return rows projected on the subspace: shape (n_rows, n_components)."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return np.asarray(X @ self.components_.T)


def task_model(
    X: Vector,
    public: Public,
    *,
    method: str,
    k: int | None,
    whiten: bool = True,
    intercept: bool = True,
    basis: Vector | None = None,
) -> TaskModel:
    """Return the model of the tasks of `public`, whose checked rows are `X`.

    `basis` is the subspace in raw features, if it is known; otherwise it is estimated.
    """
    scale = whitened_scale(X, centred=intercept) if whiten else identity_scale(X.shape[1])
    tasks = _rows_by_task(scale, X, public, intercept=intercept)
    span = None if basis is None else np.asarray(np.linalg.lstsq(scale.turn, basis, rcond=None)[0], dtype=np.float64)
    if basis is None and k is not None:
        _check_dimension(k, X.shape[1], len(tasks.counts))
    try:
        model = learn_tasks(tasks, scale, method=method, k=k, span=span)
    except np.linalg.LinAlgError:
        model = None
    if model is None or not (np.isfinite(model.coef).all() and np.isfinite(model.residuals).all()):
        raise ValueError("public columns differ so much in size that no subspace can be computed. Scale them first.")
    return model


def _rows_by_task(scale: Scale, X: Vector, public: Public, *, intercept: bool) -> TaskRows:
    """Check labels and tasks; return rows sorted by task, without tasks that carry no information."""
    if public.y is None or public.tasks is None:
        lacking = " and ".join(name for name in ("y", "tasks") if getattr(public, name) is None)
        raise ValueError(
            f"public must have labels and tasks to learn a subspace from, but has no {lacking}: "
            f"Public(X, y, tasks=tasks). With one task only, use PrivateTransferRegressor."
        )
    names = np.asarray(public.tasks)
    if names.ndim != 1:
        raise ValueError(f"public tasks must be one name or number per row, got {names.ndim} axes.")
    try:
        missing = bool(pd.isna(names).any()) or (names.dtype.kind == "f" and not np.isfinite(names).all())
    except ArithmeticError:  # a signalling NaN among decimals
        missing = True
    if missing:
        raise ValueError("public tasks must be known for every row; remove rows without one.")
    if names.dtype.kind == "O":
        names = names.astype(str)
    tasks = by_task(scale.transform(X), numeric_labels(public_labels(public.y, len(X))), names, centred=intercept)
    if len(tasks.counts) < 2:
        raise ValueError(
            "public must have at least 2 tasks to learn what they share, got 1. With one task, use "
            "PrivateTransferRegressor."
        )
    informative = tasks.counts > intercept
    if informative.sum() < 2:
        raise ValueError(
            "all public tasks but one have a single row, and a task with its own intercept learns nothing from a "
            "single row. Give more rows per task, or fit_intercept=False."
        )
    tasks = tasks.take(informative)
    if not np.any(tasks.y):
        raise ValueError("public labels do not vary within any task, so no subspace can be learned from them.")
    return tasks


def _check_dimension(k: Any, n_features: int, n_tasks: int) -> None:
    """Refuse a dimension above the number of features or of tasks."""
    if checks.count(k, "n_components") > n_features:
        raise ValueError(f"n_components must be at most the number of features, {n_features}, got {k}.")
    if k > n_tasks:
        raise ValueError(
            f"n_components must be at most the number of public tasks with enough rows, {n_tasks}, got {k}: fewer "
            f"tasks can't span the subspace. Lower it, or leave it out."
        )


def checked_basis(basis: Any, n_features: int) -> Vector:
    """Return an orthonormal basis of a given subspace, or refuse one without a row per feature."""
    columns = orthonormal(basis, "basis")
    if len(columns) != n_features:
        raise ValueError(f"basis must have one row per feature, {n_features}, got {len(columns)}.")
    return columns


def basis_assumptions(basis: Any) -> list[str]:
    """Return the assumptions about a given subspace, for the receipt."""
    return [] if basis is None else ["the basis: it was made without the private rows"]
