"""The one gate of all input: private and public rows as arrays, classes, and who counts how much.

Every estimator converts and checks its input here, before anything is charged. No refusal shows a private value or a
number of private rows.
"""

import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, validate_data

from dpadapt import checks
from dpadapt.data import Public
from dpadapt.errors import PrivacyError
from dpadapt.inputs.persons import person_shares, weighted
from dpadapt.inputs.sources import Source
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.rows import Blocks, InMemory, Part, Shares, block_slices, row_shares

Array = NDArray[np.float64]


def in_chunks(X: Any) -> bool:
    """Return whether private rows come in chunks: from a `Source`, or from a cluster."""
    return isinstance(X, Source) or is_dask(X)


def is_dask(X: Any) -> bool:
    """Return whether `X` is a collection of Dask; nothing is imported."""
    return type(X).__module__.split(".")[0] in ("dask", "dask_expr") and hasattr(X, "__dask_graph__")


def lazily(method: Callable[..., Any], X: Any, width: int) -> Any:
    """Return what `method` gives for each row of a Dask collection of `width` columns, computed on demand."""
    return _dask().lazily(method, X, width)


def _dask() -> Any:
    """Return the module for collections of Dask, which is imported where one is given."""
    from dpadapt.integrations import dask

    return dask


def regression_rows(
    estimator: Any, X: Any, y: Any, public: Public | None, persons: Any, sample_weight: Any, *, needs_y: bool = True
) -> tuple[Blocks[Part], Part | None, Array | None, Array | None]:
    """Return the private rows in blocks, all in one part if they are in memory, public features and public targets.

    Without `needs_y`, `y` may be None and the targets are 0.
    """
    X_public, y_public = public_rows(public, X)
    targets = None if y_public is None else numeric_labels(y_public)
    inputs = X, y, persons, sample_weight, public, X_public
    rows, whole = _blocks_of(estimator, *inputs, y_numeric=True, needs_y=needs_y)
    return rows, whole, X_public, targets


def classification_rows(
    estimator: Any, X: Any, y: Any, public: Public | None, declared: Any, persons: Any, sample_weight: Any
) -> tuple[Blocks[Part], Part | None, Array | None, NDArray[np.int64] | None, NDArray[Any], str]:
    """Return the same with class codes in place of targets, the sorted classes, and where these come from."""
    X_public, y_public = public_rows(public, X)
    if in_chunks(X) and declared is None and y_public is None:
        raise ValueError("classes must be declared, or public labels given, where private rows are read in chunks.")
    # Chosen before rows are read in chunks, which may happen on another machine.
    label_sets = [label_set(declared, y_public, np.zeros(0))] if in_chunks(X) else []

    def coded(labels: NDArray[Any]) -> NDArray[np.int64]:
        if not label_sets:
            label_sets.append(label_set(declared, y_public, labels))
        return label_codes(labels, label_sets[0][0], "y")

    inputs = X, y, persons, sample_weight, public, X_public
    rows, whole = _blocks_of(estimator, *inputs, y_numeric=False, coded=coded)
    ((classes, source),) = label_sets
    codes_public = None if y_public is None else label_codes(y_public, classes, "public y")
    return rows, whole, X_public, codes_public, classes, source


def _blocks_of(
    estimator: Any,
    X: Any,
    y: Any,
    persons: Any,
    sample_weight: Any,
    public: Public | None,
    X_public: Array | None,
    *,
    y_numeric: bool,
    needs_y: bool = True,
    coded: Callable[[NDArray[Any]], NDArray[Any]] = np.asarray,
) -> tuple[Blocks[Part], Part | None]:
    """Return private rows in blocks; `coded` turns their labels into what is kept of them."""
    if in_chunks(X):
        blocks = _chunks(estimator, X, y, persons, sample_weight, public, y_numeric, needs_y, coded)
        require_width(X_public, estimator.n_features_in_)
        return blocks, None
    rows, labels = private_arrays(estimator, X, y, y_numeric=y_numeric, needs_y=needs_y, fixed_rows=persons is None)
    require_width(X_public, estimator.n_features_in_)
    labels = coded(labels)
    shares = None if persons is None else unit_shares(persons, len(rows), estimator.adjacency)
    if sample_weight is not None:
        shares = row_shares(np.ones(len(rows), dtype=bool)) if shares is None else shares
        bounds = {"max_weight": estimator.max_weight, "mean_weight": estimator.mean_weight}
        shares = weighted(shares, sample_weight, **bounds)
    whole = Part(rows, labels, shares)
    return InMemory([whole.take(own) for own in block_slices(len(rows))], len(rows)), whole


def unit_shares(persons: Any, n_rows: int, adjacency: str) -> Shares:
    """Return the shares of rows, given the ids of their persons, or the shares themselves."""
    shares = persons if isinstance(persons, Shares) else person_shares(persons, n_rows)
    if not shares.n_units and Adjacency.of(adjacency) is not Adjacency.ADD_REMOVE:
        raise ValueError("persons must hold an id for some rows: rows without one count nothing.")
    return shares


def _chunks(
    estimator: Any,
    X: Any,
    y: Any,
    persons: Any,
    sample_weight: Any,
    public: Public | None,
    y_numeric: bool,
    needs_y: bool,
    coded: Callable[[NDArray[Any]], NDArray[Any]],
) -> Blocks[Part]:
    """Return private rows that are read in chunks."""
    for name, given in (("persons", persons), ("sample_weight", sample_weight)):
        if given is not None:
            raise ValueError(
                f"{name} can't be given where private rows are read in chunks: the rows of one person may be far "
                f"apart. Give X and y in memory."
            )
    if y is not None and not is_dask(X):
        raise ValueError("y must be left out: a Source holds the labels too.")
    first, reader = True, estimator.without_seed()
    # Not the public rows themselves: this goes to the workers.
    names = getattr(getattr(public, "X", None), "columns", None)
    named = None if names is None else list(names)

    def checked(some: Any, labels: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        nonlocal first
        if named is not None and named != list(getattr(some, "columns", named)):
            # Names are not shown: in a file without a header, they are the cells of a private row.
            raise ValueError("public and private columns must be the same, in the same order.")
        rows, labels = private_arrays(
            reader, some, labels, y_numeric=y_numeric, needs_y=needs_y, fixed_rows=False, least_rows=1, reset=first
        )
        first = False
        return rows, coded(labels)

    blocks: Blocks[Part] = (_dask().OnCluster(X, y) if is_dask(X) else X).blocks(checked)
    for name in ("n_features_in_", "feature_names_in_"):
        vars(estimator).pop(name, None)
        vars(estimator).update({name: vars(reader)[name]} if name in vars(reader) else {})
    if blocks.n_rows < 2:
        raise ValueError("X must have at least two rows: one sample, or none, is not enough.")
    return blocks


def private_arrays(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    y_numeric: bool,
    needs_y: bool = True,
    allow_nd: bool = False,
    multi_output: bool = False,
    fixed_rows: bool = True,
    least_rows: int = 2,
    reset: bool = True,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return private features and labels as arrays, or refuse them without showing a value or a number of rows.

    `y_numeric` asks for labels that are finite numbers. Without `needs_y`, None stands for labels that are 0.
    Without `fixed_rows`, neighbours may have different numbers of rows whatever the adjacency is. Without `reset`,
    these are further rows of a table whose columns are known.
    """
    shapes: dict[str, Any] = {"allow_nd": allow_nd, "ensure_min_samples": least_rows, "reset": reset}
    # One order of cells: products of matrices round differently in another, and data frames come in any.
    shapes |= {"order": "C"}
    # Sums in float32 are bounded only while the number of rows is fixed (see `Bounded.fixed_rows`).
    fixed_rows = fixed_rows and Adjacency.of(estimator.adjacency) is not Adjacency.ADD_REMOVE
    types = [np.float64, np.float32] if fixed_rows else np.float64
    try:
        X = checks.cells(X)
        require_plain(X, "X")
        if y is None and not needs_y:
            X = validate_data(estimator, X, dtype=types, **shapes)
            y = np.zeros(len(X))
        else:
            # The targets of a custom loss are numbers of one type.
            y = y if multi_output or y is None else checks.cells(y)
            require_plain(y, "y")
            shapes |= {"multi_output": multi_output}
            X, y = validate_data(estimator, X, y, dtype=types, y_numeric=y_numeric, **shapes)
            y = finite_numbers(y, "y") if y_numeric else y
    except Exception as error:
        refusal = without_private_values(error)
    else:
        return X, y
    # Outside the handler: the original error may quote a cell and would stay attached as the context of this one.
    raise refusal


# Largest coordinate of a target: solvers keep distances in float32, and sum them.
_LARGEST_TARGET = 1e30


def sources_and_targets(S: Any, public: Public | None, *, blocks: bool = False) -> tuple[Public, Any, Array]:
    """Return `public`, private points and public targets. With `blocks`, `S` may be an iterator of blocks of points."""
    if public is None:
        raise ValueError("public must hold the targets to choose from: public=Public(T).")
    if declared_public(public).X is S:
        raise PrivacyError("public holds the private sources themselves, which would not be protected.")
    T = moderate(public_table(public.X), "public X", _LARGEST_TARGET)
    return public, S if blocks and isinstance(S, Iterator) else private_points(S, "S", T.shape[1], public), T


def private_points(rows: Any, name: str, width: int, public: Public) -> Array:
    """Return private points as a table of numbers with the columns of the public ones; cells need not be finite."""
    if issparse(rows):
        raise TypeError(f"{name} must be dense: sparse data is not supported. Use .toarray(), or blocks of it.")
    require_same_columns(public, rows)
    refusal = f"{name} must be a table of numbers, one row for each source. Complex data not supported."
    points: Array = np.empty(0)
    try:
        require_plain(rows, name)
        if not np.iscomplexobj(rows):
            # A warning would reveal that some private value does not fit.
            with np.errstate(all="ignore"):
                points = np.asarray(rows, dtype=np.float64)
    except Exception:
        # Raised below, outside of the handler: the original error may quote a cell and would be the context of ours.
        points = np.empty(0)
    if points.ndim != 2:
        raise ValueError(refusal)
    if points.shape[1] != width:
        raise ValueError(f"{name} must have the targets' {width} columns, got {points.shape[1]}.")
    return points


def public_rows(
    public: Public | None,
    X: Any,
    *,
    allow_nd: bool = False,
    multi_output: bool = False,
    same_columns: bool = True,
) -> tuple[Array | None, Any]:
    """Return public features and labels as arrays; `X` are the private rows, with the same names of columns if any."""
    if public is None:
        return None, None
    if declared_public(public).X is X:
        raise PrivacyError("public holds the private X itself, which would not be protected. Give other rows.")
    if same_columns:
        require_same_columns(public, X)
    X_public = public_table(public.X, allow_nd=allow_nd, ensure_min_samples=2)
    return X_public, None if public.y is None else public_labels(public.y, len(X_public), multi_output=multi_output)


def declared_public(value: Any) -> Public:
    """Return `value` if it is a `Public`; anything else, such as an array, is refused."""
    if not isinstance(value, Public):
        raise TypeError(f"public must be wrapped: public=Public(X_public, y_public), got {type(value).__name__}.")
    return value


def require_width(X_public: Array | None, n_features: int) -> None:
    """Refuse public rows with another number of columns than the private ones."""
    if X_public is not None and X_public.shape[1] != n_features:
        raise ValueError(f"public must have the private data's {n_features} columns, got {X_public.shape[1]}.")


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


def label_set(declared: Any, y_public: Any, y: NDArray[Any]) -> tuple[NDArray[Any], str]:
    """Return the sorted classes, and for the receipt where they come from."""
    if declared is not None:
        classes, source = _distinct(declared, "classes"), "the label set (declared)"
    elif y_public is not None:
        classes, source = _distinct(y_public, "public y"), "the label set (that of the public labels)"
    else:
        classes, source = _distinct(y, "y"), "the label set: it was taken from y; declare it with classes="
    if len(classes) < 2:
        raise ValueError("there must be at least two classes, got one class. Declare all of them with classes=.")
    return classes, source


def _distinct(labels: Any, name: str) -> NDArray[Any]:
    """Return the sorted distinct labels, or refuse labels that can't be sorted; no label is shown."""
    refusal = f"{name} must hold labels of one kind, all numbers or all text. Declare them with classes=."
    with warnings.catch_warnings():
        # A warning about many or huge labels would reveal something about private labels.
        warnings.simplefilter("ignore")
        try:
            labels = checks.cells(labels)
            require_plain(labels, name)
            classes = np.unique(labels)
            # The classes are public, so they may have one type, unless it changes them.
            typed = np.asarray(classes.tolist())
            classes = typed if typed.tolist() == classes.tolist() and typed.dtype.kind != "S" else classes
            kind = classes.dtype.kind
            whole = all(label == label for label in classes.tolist())  # NaN differs from itself
            if whole and labels.ndim == 1 and (kind in "biuOSU" or (kind == "f" and np.isfinite(classes).all())):
                if name == "y":
                    check_classification_targets(classes)
                return classes
        except Refused as error:
            refusal = str(error)
        except ValueError as error:
            # scikit-learn says of which type the labels are, as a whole.
            refusal = str(error) if str(error).startswith("Unknown label type") else refusal
        except Exception:
            pass
    # Outside the handler: the original error may quote a label and would stay attached as the context of this one.
    raise ValueError(refusal)


def label_codes(labels: Any, classes: NDArray[Any], name: str) -> NDArray[np.int64]:
    """Return the index of each label in the sorted `classes`; an unknown label is refused and not shown."""
    # Each label by itself, and equal numbers are one class, whatever their types.
    positions = {label: code for code, label in enumerate(classes.tolist())}
    try:
        codes = [positions.get(label, -1) for label in np.asarray(checks.cells(labels)).tolist()]
    except TypeError:  # a list is no label
        codes = [-1]
    if -1 in codes:
        raise ValueError(f"{name} holds a label that is not among the classes. Declare all of them with classes=.")
    return np.asarray(codes, dtype=np.int64)
