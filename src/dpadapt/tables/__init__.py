"""Tables: data frames and files, the schema that describes them, their encoding as numbers, and models of them.

A schema holds what is known about a private table before it is opened. It is made from public data and edited by a
person. Encoding depends on the schema alone, so no range or category is taken from the private rows.
"""

from dpadapt.tables.cells import parse_days, parse_numbers, parse_text
from dpadapt.tables.checking import TableCheck, check_tables
from dpadapt.tables.encoding import (
    category_columns,
    check_columns,
    encode_features,
    encode_labels,
    feature_names,
    has_unknown_columns,
)
from dpadapt.tables.inference import infer
from dpadapt.tables.model import EncodedRows, TableModel, same_table
from dpadapt.tables.reading import Table, TableChunks, as_table, read_header, read_table, sampled_table, table_chunks
from dpadapt.tables.schema import Category, Date, Encoded, Ignored, Number, Schema, read_schema, to_toml
from dpadapt.tables.writing import to_csv

__all__ = [
    "Category",
    "Date",
    "Encoded",
    "EncodedRows",
    "Ignored",
    "Number",
    "Schema",
    "Table",
    "TableCheck",
    "TableChunks",
    "TableModel",
    "as_table",
    "category_columns",
    "check_columns",
    "check_tables",
    "encode_features",
    "encode_labels",
    "feature_names",
    "has_unknown_columns",
    "infer",
    "parse_days",
    "parse_numbers",
    "parse_text",
    "read_header",
    "read_schema",
    "read_table",
    "same_table",
    "sampled_table",
    "table_chunks",
    "to_csv",
    "to_toml",
]
