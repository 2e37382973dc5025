"""`check_tables`: all problems of two tables and their schema at once, before any private cell is read.

Of the private table only the names of its columns are read. What is said about them names only columns that the schema
or the public table knows: if a private file has no header, its column names are the values of a private row.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dpadapt.checks import is_missing_text
from dpadapt.tables.cells import (
    distinct_texts,
    has_leading_zeros,
    may_be_unusual,
    parse_days,
    parse_numbers,
)
from dpadapt.tables.encoding import levels_of, mostly_words
from dpadapt.tables.inference import forms_in_words, infer_column
from dpadapt.tables.reading import Table, as_table, read_header
from dpadapt.tables.schema import Category, Column, Date, Encoded, Ignored, Number, Schema, mixed_classes

Kind = Literal["problem", "advice", "note"]


@dataclass(frozen=True)
class Finding:
    """One thing that was found, in words, and the column as it should be in the schema.

    A fit is refused because of a problem; advice makes the model better; a note is only good to know.
    """

    kind: Kind
    words: str
    column: Column | None = None


@dataclass(frozen=True)
class TableCheck:
    """What `check_tables` found.

    Parameters
    ----------
    schema : Schema
        As it was given.
    findings : tuple of Finding

    Examples
    --------
    >>> import pandas as pd
    >>> public = pd.DataFrame({"age": [31, 54, None], "cost": [1.0, 2.0, 3.0]})
    >>> schema = Schema("patients", (Number("age", 18, 99), Number("cost", 0, 500), Number("bmi", 10, 60)))
    >>> check = check_tables(public, schema, private=public[["age", "cost"]], label="cost")
    >>> print(check)
    problem: column 'bmi' of the schema is missing in both tables. Fix: type = "ignore".
    advice: column 'age' has missing cells in public rows. Fix: fill = 42.5, missing = true.
    >>> check.fixed.column("bmi")
    Ignored(name='bmi')
    """

    schema: Schema
    findings: tuple[Finding, ...]

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The findings because of which a fit would be refused."""
        return tuple(finding for finding in self.findings if finding.kind == "problem")

    @property
    def fixed(self) -> Schema:
        """The schema with all columns as they should be."""
        better = {finding.column.name: finding.column for finding in self.findings if finding.column is not None}
        columns = [better.pop(column.name, column) for column in self.schema.columns]
        return replace(self.schema, columns=(*columns, *better.values()))

    @property
    def unfixable(self) -> tuple[Finding, ...]:
        """The problems that another schema does not solve."""
        return tuple(finding for finding in self.problems if finding.column is None)

    def __str__(self) -> str:
        return "\n".join(f"{finding.kind}: {finding.words}" for finding in self.findings) or "no problems were found"


def check_tables(
    public: Any,
    schema: Schema,
    private: Any = None,
    *,
    label: str | None = None,
    task: Literal["regression", "classification"] | None = None,
    encoding: str | None = None,
) -> TableCheck:
    """Compare a public table, a schema and the names of the private table's columns, and list all problems.

    Parameters
    ----------
    public : Public, DataFrame of pandas or polars, pyarrow Table, or path of a file
    schema : Schema
    private : data frame or path, optional
        Only the names of its columns are read. Default: not compared.
    label : str, optional
        The column to predict. Default: no column is checked as a label.
    task : {"regression", "classification"}, optional
        Default: the label must do for one of the two.
    encoding : str, optional
        Of text files. Default: found out.
    """
    table = as_table(public, origin="public", private=False, encoding=encoding)
    header = None if private is None else _header(private, encoding)
    findings = _missing_columns(table, schema, header, label)
    skip = {finding.column.name for finding in findings if finding.column is not None}
    for column in schema.columns:
        if column.name != label and column.name not in skip and column.name in table.frame.columns:
            findings += _check_column(column, table)
    findings += _unknown_columns(table, schema, header, label)
    if label is not None:
        findings += _check_label(table, schema, label, task)
    if len(table.frame) < 2:
        findings.append(Finding("problem", f"{table.origin}: at least two public rows are needed."))
    found = TableCheck(schema, tuple(sorted(findings, key=lambda finding: _ORDER[finding.kind])))
    if not found.fixed.features(label):
        left = Finding("problem", "the schema leaves no column to learn from besides the label. Add at least one.")
        found = TableCheck(schema, (left, *found.findings))
    return found


_ORDER: Mapping[str, int] = {"problem": 0, "advice": 1, "note": 2}


def _header(private: Any, encoding: str | None) -> list[str]:
    """Return the names of the private table's columns; no cell is read."""
    if isinstance(private, str | Path):
        return read_header(private, origin=f"private {private}", encoding=encoding)
    if isinstance(private, Table):
        private = private.frame
    names = getattr(private, "column_names", None)  # of pyarrow
    names = getattr(private, "columns", None) if names is None else names
    if names is None:
        raise TypeError(f"private must be a data frame or the path of a file, got {type(private).__name__}.")
    return [str(name).strip() for name in names]


def _missing_columns(table: Table, schema: Schema, header: list[str] | None, label: str | None) -> list[Finding]:
    in_public, in_private = set(table.frame.columns), None if header is None else set(header)
    known = {column.name for column in schema.columns}
    if in_private is not None and not known & in_private:
        return [
            Finding(
                "problem",
                "the private table has none of the schema's columns. Check that its first line holds the names of the "
                "columns, and that the schema belongs to it.",
            )
        ]
    findings = []
    for column in schema.columns:
        lacking = [] if column.name in in_public else ["public"]
        lacking += [] if in_private is None or column.name in in_private else ["private"]
        if not lacking or isinstance(column, Ignored):
            continue
        where = "both tables" if len(lacking) == 2 else f"the {lacking[0]} table"
        if column.name != label:
            words = f'column {column.name!r} of the schema is missing in {where}. Fix: type = "ignore".'
            findings.append(Finding("problem", words, Ignored(column.name)))
        elif "private" in lacking:
            findings.append(Finding("problem", f"the label {label!r} is missing in the private table. Add it there."))
        else:
            words = f"the public table has no label {label!r}: its rows give only the scales and coordinates"
            findings.append(Finding("note", words))
    return findings


def _unknown_columns(table: Table, schema: Schema, header: list[str] | None, label: str | None) -> list[Finding]:
    known = {column.name for column in schema.columns}
    in_private = None if header is None else set(header)
    findings = []
    for name in table.frame.columns:
        if name in known or name == label or (in_private is not None and name not in in_private):
            continue
        proposed = infer_column(str(name), table.frame[name])
        if not isinstance(proposed, Ignored):
            where = "the public table" if in_private is None else "both tables"
            words = f"column {name!r} is in {where}, and the schema does not know it. Fix: {_kind(proposed)}."
            findings.append(Finding("advice", words, proposed))
    if in_private is not None and not in_private <= known | set(table.frame.columns):
        words = "the private table has columns that neither the schema nor the public table has: they are not used"
        findings.append(Finding("note", words))
    return findings


def _check_column(column: Column, table: Table) -> list[Finding]:
    if isinstance(column, Ignored | Encoded):
        return []
    series = table.frame[column.name]
    if isinstance(column, Category):
        return _check_category(column, series)
    forms = []
    if isinstance(column, Number):
        unread = np.isnan(parse_numbers(series, column.decimal))
        forms = _forms(column, series)
    else:
        unread = np.isnan(parse_days(series, column.format))
    if not unread.any():
        return forms
    codes, texts = distinct_texts(series)
    gaps = np.array([is_missing_text(text) for text in texts], dtype=np.bool_)[codes]
    if gaps.all():
        return [_empty(column)]
    proposed = infer_column(column.name, series)
    if mostly_words([texts[code] for code in codes.tolist()], unread & ~gaps, ~unread):
        row = int(np.argmax(unread & ~gaps))
        words = (
            f"column {column.name!r} is {texts[codes[row]][:60]!r} in row {row + 1} of the public table, and most "
            f"cells are no {_kind(column)}. Fix: {_kind(proposed)}."
        )
        return [Finding("problem", words, proposed)]
    return [*forms, *_missing_cells(column, proposed)]


def _forms(column: Number, series: Any) -> list[Finding]:
    """Return how cells are read that are not plain numbers, and a code that is taken for a number."""
    if not may_be_unusual(series):
        return []
    texts = [text for text in distinct_texts(series)[1] if not is_missing_text(text)]
    findings = []
    if has_leading_zeros(series):
        proposed = infer_column(column.name, series)
        words = f"column {column.name!r} has leading zeros in public rows: codes, not numbers. Fix: {_kind(proposed)}."
        findings.append(Finding("advice", words, proposed))
    said = forms_in_words(texts, column.decimal)
    return [*findings, *([Finding("note", f"column {column.name!r}: {said}")] if said else [])]


def _check_category(column: Category, series: Any) -> list[Finding]:
    codes, texts = distinct_texts(series)
    listed, gap = levels_of(texts, column.values)
    if gap[codes].all():
        return [_empty(column)]
    missing, unlisted = bool(gap[codes].any()), bool(((listed < 0) & ~gap)[codes].any())
    better = replace(column, missing=column.missing or missing, other=column.other or unlisted)
    if better == column:
        return []
    words = " and ".join(
        ["missing cells"] * (missing and not column.missing)
        + ["values that are not listed"] * (unlisted and not column.other)
    )
    fix = ", ".join(f"{key} = true" for key in ("other", "missing") if getattr(better, key))
    return [Finding("advice", f"column {column.name!r} has {words} in public rows. Fix: {fix}.", better)]


def _missing_cells(column: Number | Date, proposed: Column) -> list[Finding]:
    if column.missing and column.fill is not None:
        return []
    better = replace(column, missing=True)
    if column.fill is None and type(proposed) is type(column):
        better = replace(better, fill=proposed.fill)  # type: ignore[arg-type]
    if better == column:
        return []
    filled = "" if better.fill == column.fill else f"fill = {better.fill}, "
    words = f"column {column.name!r} has missing cells in public rows. Fix: {filled}missing = true."
    return [Finding("advice", words, better)]


def _empty(column: Column) -> Finding:
    words = f'column {column.name!r} has no value in any public row. Fix: type = "ignore".'
    return Finding("problem", words, Ignored(column.name))


def _kind(column: Column) -> str:
    kinds = {Number: "number", Category: "category", Date: "date", Encoded: "encoded", Ignored: "ignore"}
    return kinds[type(column)]


def _check_label(table: Table, schema: Schema, label: str, task: str | None) -> list[Finding]:
    column = next((column for column in schema.columns if column.name == label), None)
    series = table.frame[label] if label in table.frame.columns else None
    if column is None:
        if series is None:
            return [Finding("problem", f"the label {label!r} is neither in the schema nor in the public table.")]
        column = _as_label(label, series)
        words = f"the label {label!r} is not in the schema. Fix: {_kind(column)}."
        return [Finding("problem", words, column), *_check_public_labels(series, column, task)]
    if isinstance(column, Ignored | Encoded | Date):
        if series is None:
            return [Finding("problem", f"the label {label!r} is {_kind(column)} in the schema. Describe it there.")]
        better = _as_label(label, series)
        words = f"the label {label!r} is {_kind(column)} in the schema. Fix: {_kind(better)}."
        return [Finding("problem", words, better), *_check_public_labels(series, better, task)]
    findings = []
    if task == "regression" and not isinstance(column, Number):
        findings.append(Finding("problem", f"the label {label!r} is no number in the schema: use classification."))
    if (task == "classification" or isinstance(column, Category)) and len(column.values) < 2:
        words = f"the schema lists fewer than two classes in values of the label {label!r}. List every class."
        findings.append(Finding("problem", words))
    if task != "regression" and isinstance(column, Category) and (mixed := mixed_classes(column.values)):
        findings.append(Finding("problem", f"the label {label!r} {mixed}"))
    return findings + ([] if series is None else _check_public_labels(series, column, task))


def _as_label(label: str, series: Any) -> Column:
    """Return a description of a public column as a label: never ignored."""
    column = infer_column(label, series)
    if isinstance(column, Number | Category):
        return column
    numbers = parse_numbers(series)
    finite = numbers[np.isfinite(numbers)]
    if len(finite) and finite.min() < finite.max():
        return Number(label, float(finite.min()), float(finite.max()))
    return infer_column(label, series, category=True)


def _check_public_labels(series: Any, column: Column, task: str | None) -> list[Finding]:
    label, (codes, texts) = column.name, distinct_texts(series)
    gaps = np.array([is_missing_text(text) for text in texts], dtype=np.bool_)[codes]
    if gaps.all():
        words = (
            f"the label {label!r} has no value in any public row. Remove the column, or give public rows with labels."
        )
        return [Finding("problem", words)]
    findings = []
    if isinstance(column, Category) or (task == "classification" and isinstance(column, Number) and column.values):
        wrong = (levels_of(texts, column.values)[0] < 0)[codes] & ~gaps
        expected = "among the classes that the schema lists"
    else:
        wrong = np.isnan(parse_numbers(series, column.decimal if isinstance(column, Number) else ".")) & ~gaps
        expected = "a number"
    if wrong.any():
        row = int(np.argmax(wrong))
        words = (
            f"the label {label!r} is {texts[codes[row]][:60]!r} in row {row + 1} of the public table, which is not "
            f"{expected}. Correct the table, or the type and the values in the schema."
        )
        findings.append(Finding("problem", words))
    if gaps.any():
        findings.append(Finding("note", f"{int(gaps.sum())} public rows without a label are left out"))
    return findings
