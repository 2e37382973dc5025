"""Functions that must treat each row by itself: models, feature maps, hypotheses and losses that a user brings.

The bounds of all releases hold for one record's own term. If a function mixes rows (centres, sorts, normalises or
accumulates them), one record changes the terms of all others, and no clipping bounds that. `require_row_by_row` tries a
function on made-up or public rows, where its own error messages may be shown. `on_private_rows` applies it to private
rows, where they must not be shown.
"""

import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

import numpy as np
from numpy.typing import NDArray

RowFunction = Callable[[NDArray[Any]], Any]

# Rows that are also passed alone, in a trial and of the private rows. More rows find rarer kinds of mixing and take
# longer. Chosen by hand.
ROWS_TRIED_ALONE = 6
# Rows that keep the tried ones company in the largest batch of a trial. Chosen by hand.
_LARGEST_COMPANY = 300
# Relative difference up to which two results count as equal: products of matrices are rounded differently in batches of
# other sizes. Chosen by hand.
_ROUNDING = {"float32": 1e-4, "float64": 1e-6}
# Size of the rows that keep the tried ones company, in standard deviations of the tried ones: mixing by as little as
# what may be rounding is found, because it is as large as the tried rows themselves.
_COMPANY_SIZE = 1.0 / _ROUNDING["float64"]
# Cells are clipped to this size before a model gets them: many models compute in float32 and fail beyond 3e38, and an
# error would tell of an extreme private row. Real data lie far inside.
_LARGEST_MODEL_CELL = 1e30


class FailsOnPrivateRows(ValueError):
    """A function failed on private rows; the text shows nothing of them."""


def clipped_cells(X: NDArray[Any]) -> NDArray[Any]:
    """Return rows for a model that a user brings, with extreme cells clipped."""
    return np.asarray(np.clip(X, -_LARGEST_MODEL_CELL, _LARGEST_MODEL_CELL))


def require_row_by_row(
    function: RowFunction,
    n_columns: int,
    dtype: Any,
    name: str,
    *,
    axes: int = 1,
    public: NDArray[Any] | None = None,
) -> None:
    """Raise a ValueError unless `function` computes each row's result from that row alone, on rows that aren't private.

    A row alone must have the same result as in any batch, in any place, beside any other rows, and again later.

    Parameters
    ----------
    function : callable
        Takes rows, returns one result per row.
    n_columns : int
        Number of columns of a row.
    dtype : numpy dtype
        Of the rows.
    name : str
        What error messages call the function.
    axes : int, default=1
        Number of axes of the results: 2 for a table of features.
    public : ndarray, optional
        Rows to try, and to keep them company. Default: made-up rows. A function may refuse other company than these.
    """
    # Claim: a function that mixes the rows tried, in the company tried, is refused before anything is charged.
    # Not proved: that a function which passes never mixes rows. No trial finds every kind.
    random = np.random.default_rng(5)
    tried = random.standard_normal((ROWS_TRIED_ALONE, n_columns)).astype(dtype)
    company = random.standard_normal((_LARGEST_COMPANY, n_columns)).astype(dtype)
    if public is not None:
        # Spread over all rows: neighbours in a file may be equal, and equal rows show no mixing.
        tried, company = (
            public[np.linspace(0, len(public) - 1, n).astype(int)] for n in (ROWS_TRIED_ALONE, _LARGEST_COMPANY)
        )

    def one_by_one() -> NDArray[Any]:
        parts = [try_on_made_up_rows(function, row[None], name, axes) for row in tried]
        if len({part.shape for part in parts}) > 1:
            raise ValueError(f"{name} must return equally many numbers for every row.")
        return np.concatenate(parts)

    alone = one_by_one()
    for before, after, likely in (
        (company[:0], company[:0], True),
        (company[:1], company[:0], True),
        (company[:0], _COMPANY_SIZE * company[:2], False),
        (-_COMPANY_SIZE * np.abs(company[:5]), np.ones_like(company[:2]), False),
        (np.zeros_like(company[:3]), np.zeros_like(company[:3]), False),
        (company, company[:0], True),
    ):
        for order in (slice(None), slice(None, None, -1)):
            batch = np.concatenate([before, tried[order], after])
            try:
                together = try_on_made_up_rows(function, batch, name, axes)[len(before) :][: len(tried)]
            except ValueError:
                if public is None or likely:
                    raise
                continue
            if not _same(together[order], alone):
                raise ValueError(_mixes(name))
    # What it has seen since must not change it.
    if not _same(one_by_one(), alone):
        raise ValueError(_mixes(name))


def on_private_rows(
    function: RowFunction, X: NDArray[Any], name: str, *, axes: int = 1, like: NDArray[Any] | None = None
) -> NDArray[Any]:
    """Return `function(X)` for private rows, or refuse it by a ValueError that shows nothing of them.

    Some of the rows are also passed alone, because a function may mix rows only in large batches. What the function
    prints is not shown. The results must have the type and the columns of `like`, which are results for rows that
    aren't private. Without `like`, they must have the type of each of the rows that are passed alone.
    """
    # Writing into it fails.
    rows = X.view()
    rows.flags.writeable = False
    few = np.unique(np.linspace(0, len(X) - 1, ROWS_TRIED_ALONE).astype(int))
    refusal: ValueError = FailsOnPrivateRows(f"{name} must return one result per row.")
    try:
        with _unheard():
            results = np.asarray(function(rows))
            alone = [np.asarray(function(rows[i : i + 1])) for i in few]
    except (Exception, SystemExit) as error:
        refusal = FailsOnPrivateRows(
            f"{name} fails on private rows ({type(error).__name__}). Its own message is not shown, as it may quote "
            f"private values. It must accept any finite numbers and must not change its argument. Try it on made-up "
            f"rows."
        )
    else:
        if all(_fits(part, n, axes) for part, n in ((results, len(X)), *((part, 1) for part in alone))):
            same_width = {part.shape[1:] for part in alone} == {results.shape[1:]}
            # Claim: no row decides on the type of the results of others. Results of another type than `like`, or than
            # one of the rows alone, are refused: in an array with a text or NaN, whole numbers become other labels.
            # Not proved: without `like`, that a row which is not among the few has no other type than the batch.
            types = {_type_of(results), *({_type_of(part) for part in alone} if like is None else {_type_of(like)})}
            if len(types) > 1 or (like is not None and not (same_width and _joins(alone, results))):
                refusal = FailsOnPrivateRows(f"{name} returns results of another type for some private rows.")
            elif same_width and _same(results[few], np.concatenate([results[:0], *alone])):
                return results
            else:
                refusal = ValueError(_mixes(name))
    # Raised outside the handler: the original error may quote a row, and would be kept as the context of this one.
    raise refusal


def answers_alone(function: RowFunction, X: NDArray[Any], *, like: NDArray[Any]) -> NDArray[np.bool_]:
    """Return for each private row whether `function` answers: by one result that joins those for null rows, `like`."""
    rows = X.view()
    rows.flags.writeable = False

    def answers(row: NDArray[Any]) -> bool:
        try:
            with _unheard():
                alone = np.asarray(function(row))
                # What type a result has in a batch is up to the function: it is asked for a batch of two.
                beside = np.asarray(function(np.concatenate([np.zeros_like(row), row])))
        except (Exception, SystemExit):
            return False
        fits = _fits(alone, 1, like.ndim) and _fits(beside, 2, like.ndim) and beside.shape[1:] == like.shape[1:]
        return fits and _type_of(beside) == _type_of(like) and _joins([alone], beside)

    return np.array([answers(rows[i : i + 1]) for i in range(len(rows))], dtype=bool)


@contextmanager
def _unheard() -> Iterator[None]:
    """Suppress warnings and what is printed."""
    with silenced(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        yield


def try_on_made_up_rows(function: RowFunction, rows: NDArray[Any], name: str, axes: int) -> NDArray[Any]:
    """Return the results for made-up rows."""
    given, refusal = rows.copy(), ""
    try:
        with silenced():
            results = np.asarray(function(given))
    except Exception as error:
        refusal = (
            f"{name} fails on made-up rows of {rows.shape[1]} numbers: {type(error).__name__}: {error}. It must accept "
            f"any finite numbers: clip them inside."
        )
    if refusal:
        raise ValueError(refusal)
    if not np.array_equal(given, rows):
        raise ValueError(f"{name} changes its argument: it would change the private rows. Let it work on a copy.")
    if not _fits(results, len(rows), axes):
        wanted = "a table with one row of numbers" if axes == 2 else "one result"
        raise ValueError(f"{name} must return {wanted} for each row; for {len(rows)} rows it gave {results.shape}.")
    return results


def _fits(results: NDArray[Any], n_rows: int, axes: int) -> bool:
    """Return whether there is one result per row; a table must hold numbers, in at least one column."""
    if results.ndim != axes or len(results) != n_rows:
        return False
    return axes == 1 or (results.dtype.kind in "biuf" and results.shape[1] > 0)


def _type_of(results: NDArray[Any]) -> np.dtype[Any]:
    """Return the type of results; texts of all widths have one."""
    return np.dtype(results.dtype.kind) if results.dtype.kind in "SU" else results.dtype


def _joins(parts: list[NDArray[Any]], results: NDArray[Any]) -> bool:
    """Return whether an array of `results` and `parts` has the type of `results`."""
    try:
        return _type_of(np.concatenate([results[:0], *parts])) == _type_of(results)
    except Exception:
        return False


def _alike(first: Any, second: Any) -> bool:
    """Return whether two labels are equal, both missing, or of one type that can't be compared."""
    try:
        return first is second or bool(first == second) or bool(first != first and second != second)
    except Exception:
        return type(first) is type(second)


def _same(first: NDArray[Any], second: NDArray[Any]) -> bool:
    """Return whether results are equal: labels exactly, numbers up to rounding."""
    if first.shape != second.shape or first.dtype.kind != second.dtype.kind:
        return False
    if first.dtype.kind == "O":
        return all(_alike(*pair) for pair in zip(first.ravel(), second.ravel(), strict=True))
    if first.dtype.kind != "f":
        return bool(np.all((first == second) | ((first != first) & (second != second))))
    tolerance = _ROUNDING.get(first.dtype.name, _ROUNDING["float32"])
    with np.errstate(all="ignore"):
        # The median: one extreme row must not hide what happens to the others.
        sizes = np.abs(second[np.isfinite(second)])
        size = float(np.median(sizes)) if len(sizes) else 0.0
        return bool(np.allclose(first, second, rtol=tolerance, atol=tolerance * size, equal_nan=True))


def _mixes(name: str) -> str:
    return (
        f"{name} mixes rows, keeps something between calls or draws at random: a row alone has another result than in "
        f"a batch, so that one private row would change what others contribute. Treat each row by itself, with "
        f"constants chosen beforehand from public data."
    )


@contextmanager
def silenced() -> Iterator[None]:
    """Suppress warnings: a warning about an overflow would reveal an extreme row."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield
