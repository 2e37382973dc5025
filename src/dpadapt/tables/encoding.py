"""Encoding of tables as numbers by the schema alone: features as a matrix, labels as a vector."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpadapt.tables.reading import Table
from dpadapt.tables.schema import Encoded, Number, Schema, Values, parse_numbers, parse_text


def feature_names(schema: Schema, label: str | None) -> list[str]:
    """Return one name per column of the matrix that `encode_features` makes.

    Examples
    --------
    >>> from dpadapt.tables import Category
    >>> feature_names(Schema("d", (Number("age", 0, 99), Category("plan", ("free", "paid")))), None)
    ['age', 'plan = free', 'plan = paid']
    """
    from dpadapt.representation.encoders import find_encoder

    names: list[str] = []
    for column in schema.features(label):
        if isinstance(column, Number):
            names.append(column.name)
        elif isinstance(column, Encoded):
            names.extend(f"{column.name} [{i}]" for i in range(find_encoder(column.encoder).n_features))
        else:
            names.extend(f"{column.name} = {value}" for value in column.values)
    return names


def check_columns(table: Table, schema: Schema, *, label: str | None = None, optional: str | None = None) -> None:
    """Refuse a table whose columns are not those of the schema; `optional` and ignored columns may be missing.

    Examples
    --------
    >>> import pandas as pd
    >>> table = Table(pd.DataFrame({"age": ["31"], "shoe": ["44"]}), "--private a.csv", private=True)
    >>> check_columns(table, Schema("d", (Number("age", 0, 99),)))
    Traceback (most recent call last):
    ValueError: --private a.csv: column 'shoe' is not in the schema. Remove it, or add it to the schema.
    """
    known = {column.name for column in schema.columns}
    needed = [column.name for column in schema.features(label)] + ([label] if label else [])
    # A dictionary keeps the order of the file.
    present = dict.fromkeys(str(name) for name in table.frame.columns)
    missing = [name for name in needed if name not in present and name != optional]
    if missing:
        raise ValueError(
            f"{table.origin}: {_named(missing)} of the schema {'is' if len(missing) == 1 else 'are'} missing. Add "
            f'{"it" if len(missing) == 1 else "them"} to the file, or set type = "ignore" in the schema and '
            f"fit with that."
        )
    extra = [name for name in present if name not in known]
    if extra:
        raise ValueError(
            f"{table.origin}: {_named(extra)} {'is' if len(extra) == 1 else 'are'} not in the schema. Remove "
            f"{'it' if len(extra) == 1 else 'them'}, or add {'it' if len(extra) == 1 else 'them'} to the schema."
        )


def encode_features(table: Table, schema: Schema, *, label: str | None = None) -> NDArray[np.float64]:
    """Return the feature columns as numbers: ranges scaled to [-1, 1] and clipped, categories as 0 or 1.

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
    >>> from dpadapt.tables import Category
    >>> frame = pd.DataFrame({"age": ["0", "150"], "plan": ["paid", "free"]})
    >>> schema = Schema("d", (Number("age", 0, 100), Category("plan", ("free", "paid"))))
    >>> encode_features(Table(frame, "a.csv", private=True), schema)
    array([[-1.,  0.,  1.],
           [ 1.,  1.,  0.]])
    """
    blocks: list[NDArray[np.float64]] = []
    for column in schema.features(label):
        if isinstance(column, Number):
            numbers = np.clip(_numbers(table, column.name), column.low, column.high)
            # Divide by 2 first: high - low may overflow. Half of the smallest number is 0, hence the maximum.
            centre = column.low / 2 + column.high / 2
            half = max(column.high / 2 - column.low / 2, float(np.finfo(np.float64).tiny))
            blocks.append(np.clip((numbers - centre) / half, -1.0, 1.0)[:, None])
        elif isinstance(column, Encoded):
            blocks.append(_features(table, column))
        else:
            codes = _codes(table, column.name, column.values)
            blocks.append((codes[:, None] == np.arange(len(column.values))).astype(np.float64))
    if not blocks:
        raise ValueError("the schema leaves no feature columns besides the label. Add at least one.")
    return np.hstack(blocks)


def encode_labels(
    table: Table, schema: Schema, *, label: str, task: Literal["regression", "classification"]
) -> NDArray[Any]:
    """Return the labels: numbers clipped to the range in the schema, or values that the schema lists.

    Parameters
    ----------
    table : Table
    schema : Schema
    label : str
        The column of the labels.
    task : {"regression", "classification"}

    Examples
    --------
    >>> import pandas as pd
    >>> table = Table(pd.DataFrame({"cost": ["12", "900"]}), "a.csv", private=True)
    >>> encode_labels(table, Schema("d", (Number("cost", 0, 500),)), label="cost", task="regression")
    array([ 12., 500.])
    """
    if task == "regression":
        low, high = schema.bounds(label)
        return np.clip(_numbers(table, label), low, high)
    values = schema.classes(label)
    return np.asarray(values)[_codes(table, label, values)]


def _features(table: Table, column: Encoded) -> NDArray[np.float64]:
    """Return the features of a column's encoder, divided by their known bound so that they lie in [-1, 1]."""
    from dpadapt.representation.encoders import as_encoder, features_of, find_encoder

    try:
        ready = find_encoder(column.encoder)
        if ready.missing is not None:
            raise ValueError(f"{ready.missing}.")
        cells: list[str] = parse_text(table.frame[column.name])
        if ready.kind == "image":
            cells = [str(table.folder / cell) for cell in cells]
        features = features_of(as_encoder(ready.name), cells, name=f"column {column.name!r}", private=table.private)
    except ValueError as error:
        raise ValueError(f"{table.origin}: {error}") from None
    return np.clip(features.astype(np.float64) / ready.bound, -1.0, 1.0)


def _numbers(table: Table, name: str) -> NDArray[np.float64]:
    numbers = parse_numbers(table.frame[name])
    _check_cells(
        table,
        name,
        bad=~np.isfinite(numbers),
        private="missing, infinite or non-numeric values, and its type in the schema is number",
        public="which is not a finite number",
        remedy="Fill in a value chosen without private rows, remove such rows, or change the type in the schema.",
    )
    return numbers


def _codes(table: Table, name: str, values: Values) -> NDArray[np.int64]:
    """Return each cell's position in `values`."""
    import pandas as pd

    series = table.frame[name]
    if isinstance(values[0], int):
        codes = pd.Index(np.asarray(values, dtype=np.float64)).get_indexer(pd.Index(parse_numbers(series)))
    else:
        codes = pd.Index(list(values), dtype=object).get_indexer(pd.Index(parse_text(series), dtype=object))
    _check_cells(
        table,
        name,
        bad=codes < 0,
        private="missing values, or values that are not in the schema's list",
        public="which is not in the schema's list of values",
        remedy="Correct the file, or add every possible value to the schema.",
    )
    return np.asarray(codes, dtype=np.int64)


def _check_cells(table: Table, name: str, *, bad: NDArray[np.bool_], private: str, public: str, remedy: str) -> None:
    """Refuse a column with bad cells; the message shows a cell of a public table only."""
    if not bad.any():
        return
    row = int(np.argmax(bad))
    what = private if table.private else f"{str(table.frame[name].iloc[row])!r} in row {row + 1}, {public}"
    raise ValueError(f"{table.origin}: column {name!r} holds {what}. {remedy}")


def _named(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:5]) + (", ..." if len(names) > 5 else "")
    return f"column {shown}" if len(names) == 1 else f"columns {shown}"
