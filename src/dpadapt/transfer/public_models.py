"""Public models of any kind, used as an offset: what they say of public rows as if these were new, and of private rows.

The transfer estimators correct an offset only as far as private rows show that it is wrong. How wrong a public model is
can be seen only on rows that it was not fitted to. So an unfitted model is cross-fitted: each public row is scored by a
copy that was fitted to the other folds. A fitted model scores the rows that `Public(unseen=...)` marks; if none are
marked, a copy of it is cross-fitted.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.utils.validation import check_is_fitted

from dpadapt.data import Public
from dpadapt.learning.estimator import label_codes
from dpadapt.learning.preparation import Remembered
from dpadapt.learning.row_by_row import on_private_rows, silenced

Vector = NDArray[np.float64]

_NAME = "public_model"
# For receipts. A model that fails on a private row is refused, so that a fit tells this much about the rows.
OFFSET_ASSUMPTION = (
    "that public_model was made without the private rows, treats each row by itself and gives every private row a "
    "finite prediction"
)
# Number of folds. More of them fit each copy to more rows, so that its errors are closer to those of the whole model,
# and take longer. Chosen by hand.
_FOLDS = 4
# Fewest rows that a model is judged by: below, its errors are not known well enough to correct it. Chosen by hand.
FEWEST_ROWS = 20
# Cells are clipped to this size before a model gets them: many models compute in float32 and fail beyond 3e38, and an
# error would tell of an extreme private row. Real data lie far inside.
_LARGEST_CELL = 1e30
# Least probability of a class, times the number of classes. Boosting and trees may give a class no probability at all,
# which no correction could mend. Chosen by hand.
_LEAST_CLASS_PROBABILITY = 1e-3


@dataclass(frozen=True, eq=False)
class Offset:
    """A fitted public model, and its scores on public rows that it was not fitted to.

    Parameters
    ----------
    model : estimator
        Fitted.
    given : estimator
        The model as the user gave it.
    classes : ndarray or None
        All labels, sorted; None for a regression.
    rows : ndarray of bool
        The public rows that are scored.
    scores : ndarray of shape (n_scored,) or (n_scored, n_classes)
        Predictions, or centred log-probabilities.
    """

    model: Any
    given: Any = field(repr=False)
    classes: NDArray[Any] | None = field(repr=False)
    rows: NDArray[np.bool_] = field(repr=False)
    scores: Vector = field(repr=False)

    def beside(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return rows to predict, with their scores as further columns."""
        with silenced():
            return np.column_stack([X, _scores(self.model, X, self.classes)])

    def beside_private(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return private rows with their scores, each by itself; a failure is reported without the model's words."""
        axes = 1 if self.classes is None else 2
        scores = on_private_rows(lambda rows: _scores(self.model, rows, self.classes), X, _NAME, axes=axes)
        if not np.isfinite(scores).all():
            raise ValueError(
                f"{_NAME} must return finite numbers; for some private rows it does not. Let it clip its input."
            )
        return np.column_stack([X, scores])

    def beside_public(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the scored public rows, with their scores as further columns."""
        return np.column_stack([X[self.rows], self.scores])


_OFFSETS: Remembered["Offset"] = Remembered()


def remembered_offset(
    model: Any, public: Public, X: NDArray[np.float64], labels: NDArray[Any], classes: NDArray[Any] | None = None
) -> Offset:
    """Return `make_offset(...)`, made once for each `public` and unfitted model while both stay the same."""
    if _is_fitted(model):
        return make_offset(model, public, X, labels, classes)
    settings = model.get_params() if hasattr(model, "get_params") else {}
    # An offset keeps the model that was given, so that no other model has its address while the offset is known.
    key = np.array([f"{id(model)} {settings!r}"])
    return _OFFSETS.get(public, [X, labels, classes, key], lambda: make_offset(model, public, X, labels, classes))


def make_offset(
    model: Any, public: Public, X: NDArray[np.float64], labels: NDArray[Any], classes: NDArray[Any] | None = None
) -> Offset:
    """Return the offset of a model that a user gave.

    Parameters
    ----------
    model : estimator
        With `predict` (regression) or `predict_proba`; fitted or not. It is not changed.
    public : Public
        May mark the rows that a fitted model has not seen.
    X, labels : ndarray
        The public rows: numbers, or labels among `classes`.
    classes : ndarray, optional
        All labels, sorted; None for a regression.
    """
    method = "predict" if classes is None else "predict_proba"
    if isinstance(model, type) or not callable(getattr(model, method, None)):
        raise TypeError(
            f"{_NAME} must be a model with {method}, such as a scikit-learn estimator, got {_shown(model)}."
        )
    unseen = _unseen(public, len(X))
    fitted = _is_fitted(model)
    if fitted and unseen is not None:
        return Offset(model, model, classes, unseen, _public_scores(model, X[unseen], classes))
    copied = _unfitted_copy(model)
    if len(X) < FEWEST_ROWS:
        raise ValueError(f"{_NAME} needs at least {FEWEST_ROWS} public rows, got {len(X)}. Leave it out.")
    scores = np.empty(len(X) if classes is None else (len(X), len(classes)))
    for train, test in _folds(X, labels, stratify=classes is not None):
        scores[test] = _public_scores(_fit(clone(copied), X[train], labels[train]), X[test], classes)
    whole = model if fitted else _fit(copied, X, labels)
    # Tried on all public rows: what mixes rows or changes their number is refused before it gets a private row.
    _public_scores(whole, X, classes)
    return Offset(whole, model, classes, np.ones(len(X), dtype=bool), scores)


def require_shifted_labelled(model: Any, prior: str, labelled: Any) -> None:
    """Refuse a `public_model` without public labels, or with a prior under which only linear models are known."""
    if model is None:
        return
    if labelled is None:
        raise ValueError(f"{_NAME} needs labelled public data: public=Public(X, y). Leave it out otherwise.")
    if prior != "shifted":
        raise ValueError(f"{_NAME} needs prior='shifted'; another prior is for the linear public model. Leave one out.")


def _unseen(public: Public, n_rows: int) -> NDArray[np.bool_] | None:
    """Return which public rows a fitted model has not seen, or None if none are marked."""
    if public.unseen is None or public.unseen is False:
        return None
    marked = np.ones(n_rows, dtype=bool) if public.unseen is True else np.asarray(public.unseen)
    if marked.dtype != bool or marked.shape != (n_rows,):
        raise ValueError("unseen of public must be True or hold True or False for each public row.")
    if marked.sum() < FEWEST_ROWS:
        raise ValueError(f"unseen of public must mark at least {FEWEST_ROWS} rows, got {int(marked.sum())}.")
    return marked


def _is_fitted(model: Any) -> bool:
    if not hasattr(model, "fit"):
        return True
    try:
        check_is_fitted(model)
    except NotFittedError:
        return False
    except TypeError:
        # No scikit-learn estimator: whether it is fitted can't be known. It predicts, so it is taken as it is.
        return True
    return True


def _unfitted_copy(model: Any) -> Any:
    """Return an unfitted copy to cross-fit; refuse a model that has none."""
    try:
        copied = clone(model)
    except Exception:
        copied = model
    if not hasattr(copied, "fit") or _is_fitted(copied):
        raise ValueError(
            f"{_NAME} is fitted and can't be fitted again, so its errors on rows that it has seen say nothing about "
            f"new rows. Mark public rows that it has not seen: Public(X, y, unseen=...)."
        )
    return copied


def _folds(X: NDArray[Any], labels: NDArray[Any], *, stratify: bool) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    if stratify:
        # Every class in every fold, if each has enough rows; a class that a fold lacks gets the least probability.
        stratify = int(np.unique(labels, return_counts=True)[1].min()) >= _FOLDS
    kind = StratifiedKFold if stratify else KFold
    yield from kind(_FOLDS, shuffle=True, random_state=0).split(X, labels)


def _fit(model: Any, X: NDArray[Any], labels: NDArray[Any]) -> Any:
    try:
        with silenced():
            return model.fit(X, labels)
    except Exception as error:
        raise ValueError(
            f"{_NAME} can't be fitted to the public rows: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
        ) from None


def _public_scores(model: Any, X: NDArray[Any], classes: NDArray[Any] | None) -> Vector:
    """Return the scores of public rows; here the model's own words may be shown."""
    try:
        with silenced():
            few = _scores(model, X[:2], classes)
    except Exception as error:
        raise ValueError(
            f"{_NAME} fails on public rows: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
        ) from None
    if few.shape[:1] != (2,) or few.ndim != 1 + (classes is not None):
        raise ValueError(f"{_NAME} must return one prediction for each row; for 2 rows it gave the shape {few.shape}.")
    scores = on_private_rows(lambda rows: _scores(model, rows, classes), X, _NAME, axes=few.ndim)
    if not np.isfinite(scores).all():
        raise ValueError(f"{_NAME} must return finite numbers; for some public rows it does not.")
    return np.asarray(scores, dtype=np.float64)


def _scores(model: Any, X: NDArray[Any], classes: NDArray[Any] | None) -> Vector:
    """Return predictions, or centred log-probabilities of all classes."""
    X = np.clip(X, -_LARGEST_CELL, _LARGEST_CELL)
    if classes is None:
        return np.asarray(model.predict(X), dtype=np.float64)
    given = np.asarray(model.predict_proba(X), dtype=np.float64)
    columns = label_codes(getattr(model, "classes_", classes), classes, f"classes_ of {_NAME}")
    if given.ndim != 2 or given.shape[1] != len(columns):
        return given
    probabilities = np.zeros((len(given), len(classes)))
    probabilities[:, columns] = given
    logs = np.log(np.maximum(probabilities, _LEAST_CLASS_PROBABILITY / len(classes)))
    known = np.isfinite(probabilities).all(axis=1, keepdims=True)
    return np.asarray(np.where(known, logs - logs.mean(axis=1, keepdims=True), np.nan))


def _shown(model: Any) -> str:
    return f"the class {model.__name__}; give an instance" if isinstance(model, type) else type(model).__name__
