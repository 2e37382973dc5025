"""Arrays: conversion, finite numbers, columns. No refusal shows a private value or number of rows."""

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_array

from dpadapt import checks
from dpadapt.data import Public


def require_plain(values: Any, name: str) -> None:
    """Refuse dates, spans of time and masked cells: NumPy would take them for numbers without a word."""
    if isinstance(values, np.ma.MaskedArray):
        raise Refused(f"{name} must not be a masked array: fill the masked cells, or leave those rows out.")
    types = getattr(values, "dtypes", None)  # of a data frame
    if not isinstance(types, Iterable):
        types = [values.dtype if hasattr(values, "dtype") else np.asarray(values).dtype]
    kinds = {getattr(each, "kind", "") for each in types}
    if "O" in kinds:
        # Such a cell would be converted too.
        cells = np.asarray(values, dtype=object).flat
        kinds |= {"M"} if any(isinstance(cell, np.datetime64 | np.timedelta64) for cell in cells) else set()
    if kinds & {"m", "M"}:
        raise Refused(f"{name} must not hold dates or times. Turn them into numbers, such as days since a fixed day.")
    if "V" in kinds:
        raise Refused(f"{name} must not be a structured array. Make a table with one column for each of its fields.")


class Refused(ValueError):
    """A refusal whose text shows no value."""


# What scikit-learn says about shapes, types and column names, up to where a value or a number of rows may follow. All
# its other messages may quote a cell.
_HARMLESS = re.compile(
    r"Feature names are only supported if all input features have string names|Sparse data was passed[^.]*|"
    r"Expected 2D array, got (scalar|1D) array instead|Expected a 2-dimensional container|Found array with dim \d+|"
    r"Found input variables with inconsistent numbers of samples|Complex data not supported|y should be a 1d array|"
    r"Input [Xy] contains (NaN|infinity or a value too large for dtype\('float\d+'\))|"
    r"(float\(\) )?argument must be a string or a (real )?number|"
    r"This \w+ estimator requires y to be passed, but the target y is None"
)
_TOO_FEW = re.compile(r"Found array with \d+ (sample|feature)")


def without_private_values(error: Exception) -> ValueError | TypeError:
    """Return the error without any private value and without the number of private rows."""
    kind = TypeError if isinstance(error, TypeError) else ValueError
    text = str(error)
    if isinstance(error, Refused):
        return ValueError(text)
    few = _TOO_FEW.match(text)
    if few is not None and few[1] == "sample":
        return ValueError("X must have at least two rows: one sample, or none, is not enough.")
    if few is not None:
        # The wording that scikit-learn's checks expect, without the number of rows.
        return ValueError("X must have columns: 0 feature(s) (shape=(, 0)) while a minimum of 1 is required.")
    harmless = _HARMLESS.match(text)
    if harmless is not None:
        which = "X and y must hold only numbers; " if "argument must be" in text else ""
        return kind(f"{which}{harmless[0]}.")
    return kind(
        "X must hold only numbers, in rows of equal length, and y one number or label for each row, without missing "
        "values. What came instead is private and not shown."
    )


def require_same_columns(public: Public, X: Any) -> None:
    """Refuse public data whose column names differ from those of the private data, if both have names."""
    theirs, ours = getattr(public.X, "columns", None), getattr(X, "columns", None)
    if theirs is None or ours is None or list(theirs) == list(ours):
        return
    # Claim: no name of a private column is shown: in a file without a header, they are the cells of a private row.
    raise ValueError("public and private columns must be the same, in the same order.")


def public_table(values: Any, **options: Any) -> NDArray[np.float64]:
    """Return public features as an array of finite numbers; `options` are those of scikit-learn's `check_array`."""
    try:
        require_plain(values, "public X")
        names = {"input_name": "public X", "estimator": "public X"}
        table = check_array(values, dtype=np.float64, order="C", **names, **options)
    except Exception as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        text = str(error).strip().partition("\n")[0].rstrip(":. ")
        refusal = f"public X must be a table of finite numbers. {text}."
        refusal = str(error) if isinstance(error, Refused) else refusal
    else:
        return moderate(np.asarray(table, dtype=np.float64), "public X")
    raise kind(refusal)


def public_labels(values: Any, n_rows: int, *, multi_output: bool = False) -> NDArray[Any]:
    """Return public labels as an array with one entry per public row; with `multi_output`, entries may be arrays."""
    labels, refusal = None, "public y must have one label per public row."
    try:
        require_plain(values, "public y")
        labels = np.asarray(values)
    except ValueError as error:
        refusal = str(error) if isinstance(error, Refused) else refusal
    if labels is None:
        raise ValueError(refusal)
    if not multi_output and labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels.ravel()
    if labels.shape[:1] != (n_rows,) or (labels.ndim != 1 and not multi_output):
        raise ValueError(
            f"public y must have one label per public row, shape ({n_rows},), got an array of shape {labels.shape}."
        )
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise ValueError("public y must be finite; remove the rows where it is not.")
    return labels


def numeric_labels(y_public: NDArray[Any]) -> NDArray[np.float64]:
    """Return public labels as finite numbers, or refuse them."""
    try:
        labels = finite_numbers(y_public, "public y")
    except Refused as error:
        text = str(error)
    except Exception:
        text = "public y must hold numbers for a regression; it holds text or something else."
    else:
        return moderate(labels, "public y")
    raise ValueError(text)


def finite_numbers(labels: NDArray[Any], name: str) -> NDArray[np.float64]:
    """Return labels as float64; None and text such as "nan" are found only by the conversion."""
    if np.iscomplexobj(labels):
        raise Refused(f"{name} must hold real numbers. Complex data not supported.")
    numbers = np.asarray(labels, dtype=np.float64)
    if not np.isfinite(numbers).all():
        raise Refused(f"{name} must be finite; remove the rows where it is not.")
    return numbers


def moderate(values: NDArray[np.float64], name: str, largest: float = checks.LARGEST) -> NDArray[np.float64]:
    """Refuse numbers so large that their powers overflow. Private ones may be: every statistic of them is bounded."""
    if values.size and not max(values.max(), -values.min()) <= largest:
        raise ValueError(f"{name} must hold numbers up to {largest:g}. Choose a larger unit.")
    return values
