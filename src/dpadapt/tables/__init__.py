"""Tables: CSV and Parquet files, the schema that describes them, and their encoding as numbers.

A schema holds what is known about a private table before it is opened. It is made from public data and edited by a
person. Encoding depends on the schema alone, so no range or category is taken from the private rows.
"""

from dpadapt.tables.encoding import check_columns, encode_features, encode_labels, feature_names
from dpadapt.tables.reading import Table, read_table
from dpadapt.tables.schema import Category, Encoded, Ignored, Number, Schema, infer, read_schema, to_toml
from dpadapt.tables.writing import to_csv

__all__ = [
    "Category",
    "Encoded",
    "Ignored",
    "Number",
    "Schema",
    "Table",
    "check_columns",
    "encode_features",
    "encode_labels",
    "feature_names",
    "infer",
    "read_schema",
    "read_table",
    "to_csv",
    "to_toml",
]
