"""Encoding of tables as numbers by the schema alone: features as a matrix, labels as a vector.

What a row becomes depends on that row and the schema, for public, private and new rows alike. Cells that are missing,
out of range or not listed are encoded without a message, so that nothing is said about private rows.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.checks import is_missing_text
from dpadapt.inputs.files import named_columns
from dpadapt.tables.cells import (
    MOST_WORDS_FOR_MISSING,
    distinct_texts,
    parse_days,
    parse_numbers,
    parse_text,
)
from dpadapt.tables.reading import Table
from dpadapt.tables.schema import DATE_PARTS, Category, Column, Date, Encoded, Feature, Number, Schema, Values, days_of

# How the features of a cell that is not listed, and of one that is missing, are called.
_OTHER_LEVEL, _MISSING_LEVEL = "(other)", "(missing)"


def feature_names(schema: Schema, label: str | None) -> list[str]:
    """Return one name per column of the matrix that `encode_features` makes.

    Examples
    --------
    >>> columns = Number("age", 0, 99, missing=True), Category("plan", ("free", "paid"), other=True)
    >>> feature_names(Schema("d", columns), None)
    ['age', 'age (missing)', 'plan = free', 'plan = paid', 'plan (other)']
    """
    return [name for column in schema.features(label) for name in _names(column)]


def _names(column: Feature) -> list[str]:
    name = column.name
    missing = [] if isinstance(column, Encoded) or not column.missing else [f"{name} {_MISSING_LEVEL}"]
    match column:
        case Number():
            return [name, *missing]
        case Date():
            parts = [f"{name}: {part} = {value}" for part in column.parts for value in DATE_PARTS[part]]
            return [name, *parts, *missing]
        case Category():
            listed = [f"{name} = {value}" for value in column.values]
            return [*listed, *([f"{name} {_OTHER_LEVEL}"] if column.other else []), *missing]
    from dpadapt.representation.encoders import find_encoder

    return [f"{name} [{i}]" for i in range(find_encoder(column.encoder).n_features)]


def category_columns(schema: Schema, label: str | None) -> list[list[int]]:
    """Return, for each category, the columns of the encoded rows that are its indicators.

    Examples
    --------
    >>> category_columns(Schema("d", (Number("age", 0, 99), Category("plan", ("free", "paid")))), None)
    [[1, 2]]
    """
    groups, start = [], 0
    for column in schema.features(label):
        width = len(_names(column))
        if isinstance(column, Category) and width > 1:
            groups.append(list(range(start, start + width)))
        start += width
    return groups


def check_columns(table: Table, schema: Schema, *, label: str | None = None, optional: str | None = None) -> None:
    """Refuse a table that lacks columns of the schema; `optional` and ignored columns may be missing.

    Examples
    --------
    >>> import pandas as pd
    >>> table = Table(pd.DataFrame({"shoe": ["44"]}), "--private a.csv", private=True)
    >>> from dpadapt.tables import Ignored
    >>> check_columns(table, Schema("d", (Ignored("shoe"), Number("age", 0, 99))))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: --private a.csv: column 'age' of the schema is missing. Add it to the table, or ...
    """
    needed = [column.name for column in schema.features(label)] + ([label] if label else [])
    present = set(table.frame.columns)
    missing = [name for name in needed if name not in present and name != optional]
    if not missing:
        return
    if len(missing) == len(needed) and not any(column.name in present for column in schema.columns):
        raise ValueError(
            f"{table.origin}: none of the schema's columns is there. Check that the first line holds the names of the "
            f"columns, and that the schema belongs to this table."
        )
    it = "it" if len(missing) == 1 else "them"
    raise ValueError(
        f"{table.origin}: {named_columns(missing)} of the schema {'is' if len(missing) == 1 else 'are'} missing. Add "
        f'{it} to the table, or set type = "ignore" for {it} in the schema and fit with that.'
    )


def has_unknown_columns(table: Table, schema: Schema) -> bool:
    """Return whether a table has columns that the schema does not know; they are not used.

    Their names are not returned: if a private file has no header, its column names are the values of a private row.
    """
    known = {column.name for column in schema.columns}
    return any(str(name) not in known for name in table.frame.columns)


def encode_features(table: Table, schema: Schema, *, label: str | None = None) -> NDArray[np.float64]:
    """Return the feature columns as numbers in [-1, 1].

    Numbers and dates are scaled by their range and clipped; categories, parts of dates and missing cells are 0 or 1.

    Parameters
    ----------
    table : Table
    schema : Schema
        Its columns determine the columns of the matrix and their order.
    label : str, optional
        The column to leave out.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"age": ["0", "150", "?"], "plan": ["paid", "free", "gold"]})
    >>> columns = Number("age", 0, 100, fill=50, missing=True), Category("plan", ("free", "paid"), other=True)
    >>> encode_features(Table(frame, "a.csv", private=True), Schema("d", columns))
    array([[-1.,  0.,  0.,  1.,  0.],
           [ 1.,  0.,  1.,  0.,  0.],
           [ 0.,  1.,  0.,  0.,  1.]])
    """
    features = schema.features(label)
    widths = [len(_names(column)) for column in features]
    if not widths:
        raise ValueError("the schema leaves no feature columns besides the label. Add at least one.")
    encoded = np.zeros((len(table.frame), sum(widths)))
    start = 0
    for column, width in zip(features, widths, strict=True):
        block = encoded[:, start : start + width]
        match column:
            case Number():
                _encode_number(table, column, block)
            case Date():
                _encode_date(table, column, block)
            case Category():
                _encode_category(table, column, block)
            case Encoded():
                block[:] = _encoder_features(table, column)
        start += width
    return encoded


def _encode_number(table: Table, column: Number, block: NDArray[np.float64]) -> None:
    numbers = parse_numbers(table.frame[column.name], column.decimal)
    missing = np.isnan(numbers)
    if not table.private:
        _check_public_cells(table, column, missing, "number")
    # Divide by 2 first: high - low may overflow. Half of the smallest number is 0, hence the maximum.
    centre = column.low / 2 + column.high / 2
    half = max(column.high / 2 - column.low / 2, float(np.finfo(np.float64).tiny))
    numbers[missing] = centre if column.fill is None else column.fill
    block[:, 0] = np.clip((np.clip(numbers, column.low, column.high) - centre) / half, -1.0, 1.0)
    if column.missing:
        block[:, 1] = missing


def _encode_date(table: Table, column: Date, block: NDArray[np.float64]) -> None:
    days = parse_days(table.frame[column.name], column.format)
    missing = np.isnan(days)
    if not table.private:
        _check_public_cells(table, column, missing, "date")
    low, high = days_of(column.low), days_of(column.high)
    days[missing] = (low + high) / 2 if column.fill is None else days_of(column.fill)
    block[:, 0] = np.clip((np.clip(days, low, high) - low) / (high - low) * 2.0 - 1.0, -1.0, 1.0)
    start = 1
    for part in column.parts:
        values = DATE_PARTS[part]
        block[:, start : start + len(values)] = date_part(days, part)[:, None] == np.asarray(values, dtype=np.int64)
        # The part of the date that stands for a missing one means nothing.
        block[missing, start : start + len(values)] = 0.0
        start += len(values)
    if column.missing:
        block[:, start] = missing


def date_part(days: NDArray[np.float64], part: str) -> NDArray[np.int64]:
    """Return the month (1 to 12) or the weekday (1: Monday) of days since 1970-01-01."""
    whole = np.floor(days).astype(np.int64)
    if part == "weekday":
        return np.asarray((whole + 3) % 7 + 1, dtype=np.int64)  # 1970-01-01 was a Thursday
    months = whole.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    return np.asarray(months % 12 + 1, dtype=np.int64)


def _encode_category(table: Table, column: Category, block: NDArray[np.float64]) -> None:
    codes, texts = distinct_texts(table.frame[column.name])
    listed, missing = levels_of(texts, column.values)
    if not table.private and missing[codes].all():
        _refuse_empty_column(table, column)
    other = len(column.values) if column.other else -1
    levels = np.where(listed >= 0, listed, other)
    if column.missing:
        levels[missing] = block.shape[1] - 1
    level = levels[codes]
    has_level = level >= 0
    block[np.flatnonzero(has_level), level[has_level]] = 1.0


def levels_of(texts: list[str], values: Values) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return each text's position in `values` or -1, and whether it stands for a missing cell."""
    import pandas as pd

    if isinstance(values[0], int):
        positions: dict[Any, int] = {float(value): k for k, value in enumerate(values)}
        keys: list[Any] = parse_numbers(pd.Series(texts, dtype=object)).tolist()
    else:
        positions, keys = {value: k for k, value in enumerate(values)}, texts
    listed = np.array([positions.get(key, -1) for key in keys], dtype=np.int64)
    missing = np.array([is_missing_text(text) for text in texts], dtype=np.bool_) & (listed < 0)
    return listed, missing


def encode_labels(table: Table, schema: Schema, *, label: str, task: str) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return the labels of the rows that have one, and which rows these are.

    Parameters
    ----------
    table : Table
    schema : Schema
    label : str
        The column of the labels.
    task : str
        "regression", or else labels are classes.

    Returns
    -------
    labels : ndarray
        Numbers clipped to the range in the schema, or values that the schema lists.
    labelled : ndarray of bool
        For each row of the table, whether it is used.

    Examples
    --------
    >>> import pandas as pd
    >>> table = Table(pd.DataFrame({"cost": ["12", "?", "900"]}), "public.csv", private=False)
    >>> encode_labels(table, Schema("d", (Number("cost", 0, 500),)), label="cost", task="regression")
    (array([ 12., 500.]), array([ True, False,  True]))
    """
    if task == "regression":
        low, high = schema.bounds(label)
        column = schema.column(label)
        numbers = parse_numbers(table.frame[label], column.decimal if isinstance(column, Number) else ".")
        labelled = _rows_with_a_label(table, label, ~np.isnan(numbers), "a number")
        return np.clip(numbers[labelled], low, high), labelled
    values = schema.classes(label)
    codes, texts = distinct_texts(table.frame[label])
    listed = levels_of(texts, values)[0][codes]
    labelled = _rows_with_a_label(table, label, listed >= 0, "among the classes that the schema lists in values")
    return np.asarray(values)[listed[labelled]], labelled


def _rows_with_a_label(table: Table, label: str, usable: NDArray[np.bool_], expected: str) -> NDArray[np.bool_]:
    """Return which rows have a label of the kind that the schema states; public labels of another kind are refused.

    Public rows without a label are then left out. A private label that is missing or can't be read makes a null row,
    without a message: one would tell that such a row exists.
    """
    if table.private or usable.all():
        return usable
    texts = parse_text(table.frame[label])
    wrong = np.array([not is_missing_text(text) for text in texts], dtype=np.bool_) & ~usable
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"{table.origin}: the label {label!r} is {texts[row][:60]!r} in row {row + 1}, which is not {expected}. "
            f"Correct the table or the schema."
        )
    if not usable.any():
        raise ValueError(
            f"{table.origin}: the label {label!r} has no value in any row. Remove the column, which leaves scales and "
            f"coordinates to learn from, or give public rows with labels."
        )
    return usable


def _check_public_cells(table: Table, column: Number | Date, missing: NDArray[np.bool_], kind: str) -> None:
    """Refuse a public column without values, or one that mostly holds something else than the schema says."""
    if not missing.any():
        return
    if missing.all() or missing.sum() > 0.5 * len(missing):
        texts = parse_text(table.frame[column.name])
        wrong = np.array([not is_missing_text(text) for text in texts], dtype=np.bool_) & missing
        if mostly_words(texts, wrong, ~missing):
            row = int(np.argmax(wrong))
            raise ValueError(
                f"{table.origin}: column {column.name!r} holds {texts[row][:60]!r} in row {row + 1}, and most of its "
                f"cells are no {kind}, which is its type in the schema. Correct the type: dpadapt check --fix does."
            )
    if missing.all():
        _refuse_empty_column(table, column)


def mostly_words(texts: list[str], wrong: NDArray[np.bool_], right: NDArray[np.bool_]) -> bool:
    """Return whether most filled cells are no numbers (dates), and not always the same words for missing ones."""
    if wrong.sum() <= right.sum():
        return False
    return not right.any() or len({texts[row] for row in np.flatnonzero(wrong)}) > MOST_WORDS_FOR_MISSING


def _refuse_empty_column(table: Table, column: Column) -> None:
    raise ValueError(
        f'{table.origin}: column {column.name!r} has no value in any row. Set type = "ignore" for it in the schema '
        f"(dpadapt check --fix does), or give public rows with values."
    )


def _encoder_features(table: Table, column: Encoded) -> NDArray[np.float64]:
    """Return the features of a column's encoder, divided by their known bound so that they lie in [-1, 1]."""
    from dpadapt.representation.encoders import as_encoder, features_of, features_of_cells, find_encoder

    try:
        ready = find_encoder(column.encoder)
        if ready.missing is not None:
            raise ValueError(f"{ready.missing}.")
        cells: list[str] = parse_text(table.frame[column.name])
        if ready.kind == "image":
            cells = [str(table.folder / cell) for cell in cells]
        name = f"column {column.name!r}"
        if table.private:
            features = features_of_cells(ready, cells, name=name)
        else:
            features = features_of(as_encoder(ready.name), cells, name=name, private=False)
    except ValueError as error:
        raise ValueError(f"{table.origin}: {error}") from None
    return np.clip(features.astype(np.float64) / ready.bound, -1.0, 1.0)
