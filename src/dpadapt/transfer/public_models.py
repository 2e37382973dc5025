"""Public models of any kind, used as an offset: what they say of public rows as if these were new, and of private rows.

The transfer estimators correct an offset only as far as private rows show that it is wrong. How wrong a public model is
can be seen only on rows that it was not fitted to. So an unfitted model is cross-fitted: each public row is scored by a
copy that was fitted to the other folds. A fitted model scores the rows that `Public(unseen=...)` marks; if none are
marked, a copy of it is cross-fitted.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.utils.validation import check_is_fitted

from dpadapt.data import Public, Remembered
from dpadapt.inputs.gate import label_codes
from dpadapt.learning.row_by_row import on_private_rows, require_row_by_row, silenced
from dpadapt.transfer.boosting import centred_logs

Vector = NDArray[np.float64]

_NAME = "public_model"
# The one word that `public_model` may be.
LINEAR = "linear"
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


@dataclass(frozen=True, eq=False)
class Offset:
    """A fitted public model, and its scores on public rows that it was not fitted to.

    Parameters
    ----------
    model : estimator
        A copy of its own: what happens to the user's model later does not matter.
    classes : ndarray or None
        All labels, sorted; None for a regression.
    columns : tuple of str or None
        Names of the public columns. If there are any, the model gets data frames.
    rows : ndarray of bool
        The public rows that are scored.
    public_scores : ndarray of shape (n_scored,) or (n_scored, n_classes)
        Predictions, or centred log-probabilities, of rows that the model was not fitted to.
    """

    model: Any
    classes: NDArray[Any] | None = field(repr=False)
    columns: tuple[str, ...] | None = field(repr=False)
    rows: NDArray[np.bool_] = field(repr=False)
    public_scores: Vector = field(repr=False)

    def scores(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return the scores of rows to predict."""
        with silenced():
            return _scores(self.model, X, self.classes, self.columns)

    def private_scores(self, X: NDArray[Any], *, fixed_rows: bool) -> NDArray[np.float64]:
        """Return the scores of private rows, each by itself; a failure is reported without the model's words."""
        try:
            # A copy: a model may keep what it has seen.
            once = copy.deepcopy(self.model)
        except Exception:
            once = None
        if once is None:
            raise ValueError(f"{_NAME} must be a model that copy.deepcopy can copy: it might keep private rows.")
        axes = 1 if self.classes is None else 2
        scores = on_private_rows(lambda rows: _scores(once, rows, self.classes, self.columns), X, _NAME, axes=axes)
        if not np.isfinite(scores).all():
            raise ValueError(
                f"{_NAME} must return finite numbers; for some private rows it does not. Let it clip its input."
            )
        if scores.dtype == np.float32 and not fixed_rows:
            raise ValueError(
                f"{_NAME} must compute in float64 under add-remove and with persons, where the number of rows is "
                f"private: in float32 a further row changes how the results of others are rounded."
            )
        return scores.astype(np.float64)


_OFFSETS: Remembered[Offset] = Remembered()


def remembered_offset(
    model: Any, public: Public, X: NDArray[np.float64], labels: NDArray[Any], classes: NDArray[Any] | None = None
) -> Offset:
    """Return `make_offset(...)`, made once for each `public` while it and the model stay the same."""
    try:
        content = joblib.hash(model)
    except Exception:
        return make_offset(model, public, X, labels, classes)
    marked = None if public.unseen is None else np.asarray(public.unseen)
    parts = [X, labels, classes, marked, np.array([content])]
    return _OFFSETS.get(public, parts, lambda: make_offset(model, public, X, labels, classes))


def make_offset(
    model: Any, public: Public, X: NDArray[np.float64], labels: NDArray[Any], classes: NDArray[Any] | None = None
) -> Offset:
    """Return the offset of a model that a user gave.

    Parameters
    ----------
    model : estimator
        With `predict` (regression) or `predict_proba`; fitted or not. It is not changed.
    public : Public
        May mark the rows that a fitted model has not seen, and name the columns.
    X, labels : ndarray
        The public rows: numbers, or labels among `classes`.
    classes : ndarray, optional
        All labels, sorted; None for a regression.
    """
    method = "predict" if classes is None else "predict_proba"
    if isinstance(model, type) or not (hasattr(model, "fit") or callable(getattr(model, method, None))):
        raise TypeError(
            f"{_NAME} must be a model with {method}, such as a scikit-learn estimator, got {_shown(model)}."
        )
    columns = _columns(public)
    fitted = _is_fitted(model)
    if fitted:
        _require_same_columns(model, columns)
    if public.unseen is not None:
        if not fitted:
            raise ValueError(
                f"unseen of public is for a fitted {_NAME}, and this one is not fitted. scikit-learn's clone forgets "
                f"what a model has learned, unless it is wrapped in sklearn.frozen.FrozenEstimator."
            )
        unseen = _unseen(public, len(X))
        kept = copy.deepcopy(model)
        return Offset(kept, classes, columns, unseen, _public_scores(kept, X[unseen], classes, columns))
    copied = _unfitted_copy(model)
    if len(X) < FEWEST_ROWS:
        raise ValueError(f"{_NAME} needs at least {FEWEST_ROWS} public rows, got {len(X)}. Leave it out.")
    scores = np.empty(len(X) if classes is None else (len(X), len(classes)))
    for train, test in _folds(X, labels, classes):
        part = _fit(clone(copied), X[train], labels[train], columns)
        scores[test] = _public_scores(part, X[test], classes, columns)
    whole = copy.deepcopy(model) if fitted else _fit(copied, X, labels, columns)
    # Tried on all public rows: what mixes rows or changes their number is refused before it gets a private row.
    _public_scores(whole, X, classes, columns)
    return Offset(whole, classes, columns, np.ones(len(X), dtype=bool), scores)


def require_shifted_labelled(model: Any, prior: str, labelled: Any) -> None:
    """Refuse a `public_model` without public labels, or with a prior under which only linear models are known."""
    if isinstance(model, str) and model != LINEAR:
        raise ValueError(f"{_NAME} must be {LINEAR!r}, a model with predict, or left out, got {model!r}.")
    if model is None or isinstance(model, str):
        return
    if labelled is None:
        raise ValueError(f"{_NAME} needs labelled public data: public=Public(X, y). Leave it out otherwise.")
    if prior != "shifted":
        raise ValueError(f"{_NAME} needs prior='shifted'; another prior is for the linear public model. Leave one out.")


def _columns(public: Public) -> tuple[str, ...] | None:
    """Return the names of the public columns, if there are any."""
    names = getattr(public.X, "columns", None)
    return tuple(names) if names is not None and all(isinstance(name, str) for name in names) else None


def _require_same_columns(model: Any, columns: tuple[str, ...] | None) -> None:
    names = getattr(model, "feature_names_in_", None)
    if names is not None and columns is not None and list(names) != list(columns):
        raise ValueError(
            f"{_NAME} was fitted to other columns than those of public, or in another order. Make them agree."
        )


def _unseen(public: Public, n_rows: int) -> NDArray[np.bool_]:
    """Return which public rows a fitted model has not seen."""
    marked = np.broadcast_to(np.asarray(public.unseen), n_rows)
    if marked.sum() < FEWEST_ROWS:
        raise ValueError(f"unseen of public must mark at least {FEWEST_ROWS} rows, got {int(marked.sum())}.")
    return marked


def _is_fitted(model: Any) -> bool:
    """Return whether a model is fitted; one that can't be fitted, or is no estimator of scikit-learn, is."""
    if not hasattr(model, "fit"):
        return True
    try:
        check_is_fitted(model)
    except NotFittedError:
        return False
    except (TypeError, AttributeError):
        return True
    # Of models that predict unfitted, too, scikit-learn does not know.
    learned = any(name.endswith("_") and not name.startswith("_") for name in vars(model))
    return learned or hasattr(model, "__sklearn_is_fitted__")


def _unfitted_copy(model: Any) -> Any:
    """Return an unfitted copy to cross-fit; refuse a model that has none, or has parts that are fitted for good."""
    try:
        copied = clone(model)
        parts = [copied, *copied.get_params(deep=True).values()]
        fresh = not _is_fitted(copied) and not any(map(_is_fixed, parts))
    except Exception:
        fresh = False
    if not fresh:
        raise ValueError(
            f"{_NAME} is fitted, or has a part that is, and can't be fitted anew, so that its errors on rows that it "
            f"has seen say nothing about new rows. Fit it whole and mark public rows that it has not seen: "
            f"Public(X, y, unseen=...)."
        )
    return copied


def _is_fixed(part: Any) -> bool:
    """Return whether a parameter of a model is a part that was fitted before, or says that there is one."""
    return isinstance(part, FrozenEstimator) or (isinstance(part, str) and part == "prefit")


def _folds(
    X: NDArray[Any], labels: NDArray[Any], classes: NDArray[Any] | None
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    if classes is not None:
        codes = np.searchsorted(classes, labels)
        counts = np.bincount(codes)
        # Every class in every fold, if each has enough rows; a class that a fold lacks gets the least probability.
        if counts[counts > 0].min() >= _FOLDS:
            yield from StratifiedKFold(_FOLDS, shuffle=True, random_state=0).split(X, codes)
            return
    yield from KFold(_FOLDS, shuffle=True, random_state=0).split(X)


def _fit(model: Any, X: NDArray[Any], labels: NDArray[Any], columns: tuple[str, ...] | None) -> Any:
    try:
        with silenced():
            # Copies: some models work in place.
            return model.fit(_table(X.copy(), columns), labels.copy())
    except Exception as error:
        raise ValueError(f"{_NAME} can't be fitted to the public rows: {_first_line(error)}") from None


def _public_scores(
    model: Any, X: NDArray[Any], classes: NDArray[Any] | None, columns: tuple[str, ...] | None
) -> Vector:
    """Return the scores of public rows; here the model's own words may be shown."""

    def scored(rows: NDArray[Any]) -> NDArray[Any]:
        return _scores(model, rows, classes, columns)

    try:
        with silenced():
            scores = scored(X)
    except Exception as error:
        raise ValueError(f"{_NAME} fails on public rows: {_first_line(error)}") from None
    if scores.shape[:1] != (len(X),) or scores.ndim != 1 + (classes is not None):
        raise ValueError(f"{_NAME} must return one prediction for each row; for {len(X)} rows it gave {scores.shape}.")
    if not np.isfinite(scores).all():
        raise ValueError(f"{_NAME} must return finite numbers; for some public rows it does not.")
    require_row_by_row(scored, X.shape[1], X.dtype, _NAME, axes=scores.ndim, public=X)
    return np.asarray(scores, dtype=np.float64)


def _scores(model: Any, X: NDArray[Any], classes: NDArray[Any] | None, columns: tuple[str, ...] | None) -> NDArray[Any]:
    """Return predictions, or centred log-probabilities of all classes, in the precision of the model."""
    rows = _table(np.clip(X, -_LARGEST_CELL, _LARGEST_CELL), columns)
    if classes is None:
        given = _floats(model.predict(rows))
        return given[:, 0] if given.ndim == 2 and given.shape[1] == 1 else given
    given = _floats(model.predict_proba(rows))
    codes = label_codes(getattr(model, "classes_", classes), classes, f"classes_ of {_NAME}")
    if given.shape != (len(X), len(codes)):
        raise ValueError(f"{_NAME} must return a probability for each of its {len(codes)} classes and each row.")
    probabilities = np.zeros((len(given), len(classes)), dtype=given.dtype)
    probabilities[:, codes] = given
    known = np.isfinite(probabilities).all(axis=1, keepdims=True)
    return np.asarray(np.where(known, centred_logs(probabilities), given.dtype.type(np.nan)))


def _floats(values: Any) -> NDArray[Any]:
    array = np.asarray(values)
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def _table(X: NDArray[Any], columns: tuple[str, ...] | None) -> Any:
    """Return rows as a data frame if the columns have names."""
    if columns is None:
        return X
    import pandas as pd

    return pd.DataFrame(X, columns=list(columns))


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def _shown(model: Any) -> str:
    return f"the class {model.__name__}; give an instance" if isinstance(model, type) else type(model).__name__
