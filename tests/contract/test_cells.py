"""No private cell changes how another one is read: alone and in any company, each gives the same, bit for bit.

Pools of cells of every kind are drawn. `differences` reads each of them alone, and then in columns with others, most of
which are of one kind: a column of dates with one odd cell is where a type would be inferred.
"""

import csv
import datetime
import decimal
import fractions
import functools
import inspect
import itertools
import math
import shutil
import struct
import warnings

import numpy as np
import openpyxl
import pandas as pd
import pyarrow
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet
import pytest
from sklearn.base import BaseEstimator

from dpadapt import (
    Ledger,
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivateTransferClassifier,
    PrivateTransferRegressor,
    Source,
    evaluation,
)
from dpadapt.evaluation import EVALUATION_METRICS
from dpadapt.inputs import persons
from dpadapt.inputs.files import FORMATS
from dpadapt.inputs.gate import label_codes, private_arrays
from dpadapt.integrations import dask as workers
from dpadapt.representation import encoders
from dpadapt.tables import Category, Date, Encoded, Ignored, Number, Schema, TableModel, cells, table_chunks

# Cells of a pool, and cells that are read in company, in the default run and in the slow one.
SIZES = [
    pytest.param(4, 300, id="few"),
    pytest.param(120, 50_000, id="many", marks=pytest.mark.slow),
]


# Cells of every kind


class Refusing:
    """A cell that refuses whatever it is asked."""

    def _refuse(self, *others):
        raise RuntimeError("ZEBRA7731")

    __str__ = __repr__ = __float__ = __eq__ = __hash__ = __bool__ = _refuse


class RefusingNumber(fractions.Fraction):
    """A number that refuses to be one."""

    __float__ = __str__ = __eq__ = __hash__ = Refusing._refuse


SCALARS = sorted(
    {kind for kind in np.sctypeDict.values() if np.dtype(kind).kind in "biufc"}, key=lambda kind: kind.__name__
)
# How dates are written, and fractions of a second after them.
DATE_FORMATS = "%Y-%m-%d|%d.%m.%Y|%m/%d/%Y|%d %B %Y|%Y%m%d|%Y-%m|%Y-%m-%dT%H:%M:%S|%Y-%m-%d %H:%M:%S|%H:%M".split("|")
FRACTIONS_AND_ZONES = ["", ".5", ".123456", ".1234567", ".123456789", "Z", ".1234567Z", "+02:00", "-0330", ".5+14:00"]
BORDERS = [
    datetime.datetime(*day)
    for day in [(1, 1, 1), (1677, 9, 21), (1677, 9, 22), (2262, 4, 11), (2262, 4, 12), (9999, 12, 31), (1970, 1, 1)]
]
NUMBER_WORDS = (
    "1|01|1.50|1,5|1.250,75|1,250|$12|3 %|1 000|1'000|12 €|1e5|1e400|-0|+3|<5|>= 1,000|one|twelve|1_000|0x1A|1-2|%|e"
    "|9007199254740993|12345678901234567|18446744073709551615|0.1000000000000000055511151231257827|2.2250738585072011e-308"
).split("|")
WORDS = [
    *"free paid gold True None none NA NaN nan inf ? . today now a,b a;b Ünï ٣ 1j 2+0j {} [1] b'7'".split(),
    "", " ", " a ", 'in "quotes"', "two\nlines", "a\0b", "a", "\ud800", "e\u0301", "\u200b1", "1\u00a0000", "x" * 5000,
]  # fmt: skip
WORDS_OF_FILES = [word for word in [*NUMBER_WORDS, *WORDS] if word.isprintable() or word == "two\nlines"]


def quietly(make):
    """Return a function that makes cells without a warning."""

    @functools.wraps(make)
    def quiet(*args, **kwargs):
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return make(*args, **kwargs)

    return quiet


def moments(rng):
    """Return a moment at a border of what some type can hold, or any."""
    seconds = int(rng.integers(-62_135_596_800, 253_402_300_799))
    drawn = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds, microseconds=int(rng.integers(10**6)))
    return BORDERS[rng.integers(len(BORDERS))] if rng.random() < 0.3 else drawn


def dates_as_text(rng):
    form = DATE_FORMATS[rng.integers(len(DATE_FORMATS))]
    text = moments(rng).strftime(form)
    return text + (FRACTIONS_AND_ZONES[rng.integers(len(FRACTIONS_AND_ZONES))] if "S" in form else "")


def numbers_as_text(rng):
    number = float(rng.normal() * 10.0 ** rng.integers(-3, 9))
    return [repr(number), f"{number:,.2f}", f"{number:.0f}", f"{number:.3e}", f"{number:.2f}".replace(".", ",")][
        rng.integers(5)
    ]


def dates_as_objects(rng):
    moment = moments(rng)
    unit = ["D", "s", "ms", "us", "M", "Y", "ns", "h"][rng.integers(8)]
    zone = datetime.timezone(datetime.timedelta(hours=int(rng.integers(-12, 14))))
    return [
        lambda: moment,
        lambda: moment.replace(tzinfo=zone),
        moment.date,
        moment.time,
        lambda: np.datetime64(int(rng.integers(-(10**6), 10**6)), unit),
        lambda: np.datetime64(moment, "s"),
        lambda: pd.Timestamp(moment),
        lambda: pd.Timestamp(moment.replace(tzinfo=zone)),
        lambda: pd.Timestamp(1_600_000_000_123_456_789, tz="Europe/Berlin"),
        lambda: np.datetime64(2**61, "s"),
        lambda: np.datetime64("NaT"),
        lambda: pd.Period("2024-05"),
        lambda: pd.Interval(0, int(rng.integers(1, 9))),
    ][rng.integers(13)]()


def spans(rng):
    days = int(rng.integers(-5, 5))
    return [
        lambda: pd.Timedelta(days=days),
        lambda: datetime.timedelta(days=days),
        lambda: datetime.timedelta.max,
        lambda: np.timedelta64(days, "D"),
        lambda: np.timedelta64(2**62, "s"),
        lambda: np.timedelta64("NaT"),
    ][rng.integers(6)]()


def numpy_scalars(rng):
    with np.errstate(all="ignore"):
        return SCALARS[rng.integers(len(SCALARS))](rng.choice([0.0, 1.0, 2.0, 0.1, 100.0, 2.0**53]))


# Functions draw a cell; lists are all there.
KINDS = {
    "int": lambda rng: int(rng.integers(-9, 99)) * 10 ** int(rng.integers(0, 20)) + int(rng.integers(3)),
    "huge int": (2**53 + 1, -(2**63), 2**63, 2**64, 10**30, 10**400, -(10**5000)),
    "float": lambda rng: struct.unpack("d", rng.bytes(8))[0],
    "usual float": lambda rng: round(float(rng.normal()), int(rng.integers(9))),
    "odd float": (0.0, -0.0, 1e308, 5e-324, math.nan, math.inf, -math.inf, 2.0**53),
    "scalar of NumPy": numpy_scalars,
    "other scalar of NumPy": (np.str_("3"), np.bytes_(b"3"), np.void(b"ab"), np.str_("2024-05-31")),
    "number as text": numbers_as_text,
    "number in words": NUMBER_WORDS,
    "word": WORDS,
    "date as text": dates_as_text,
    "date": dates_as_objects,
    "span": spans,
    "exact": (
        *map(decimal.Decimal, ["2.50", "1E+3", "sNaN", "NaN", "-Infinity", "1e999999", "0.1000"]),
        fractions.Fraction(1, 3),
        fractions.Fraction(10**400, 3),
    ),
    "complex": (1j, 2 + 0j, complex(math.nan, 0), np.complex64(3), complex("nan+nanj")),
    "bytes": (b"7", b"", bytearray(b"7"), b"\xff"),
    "missing": (None, pd.NA, pd.NaT, math.nan, ""),
    "bool": (True, False, np.True_, "True"),
    "nested": ([1, 2], [], (1,), {}, {"a": 1}, {1}, [None], [[1], 2], ["a", "b"], np.arange(3), np.array(3)),
    "refusing": (Refusing(), RefusingNumber(1, 2), object()),
}


class Objects:
    """Cells of any kind, in a column of objects."""

    def __init__(self, rng, n_each, make, kinds=KINDS):
        drawn = {kind: [draw(rng) for _ in range(n_each)] if callable(draw) else draw for kind, draw in kinds.items()}
        self.kinds = [kind for kind, some in drawn.items() for _ in some]
        self.cells = [cell for some in drawn.values() for cell in some]
        self._make = make

    def __len__(self):
        return len(self.cells)

    def take(self, places):
        return self._make([self.cells[place] for place in places])

    def only(self, accepted):
        self.kinds = [kind for kind, good in zip(self.kinds, accepted, strict=True) if good]
        self.cells = [cell for cell, good in zip(self.cells, accepted, strict=True) if good]


class Typed:
    """Cells of one type, in a column of that type: of pandas or Arrow."""

    def __init__(self, column, make=lambda part: part):
        self.column, self._make = column, make
        self.kinds = ["one"] * len(column)

    def __len__(self):
        return len(self.column)

    def take(self, places):
        if isinstance(self.column, pd.Series):
            return self._make(self.column.iloc[places].reset_index(drop=True))
        return self._make(self.column.take(pyarrow.array(places, pyarrow.int64())))

    def only(self, accepted):
        self.column = (
            self.column[np.array(accepted)]
            if isinstance(self.column, pd.Series)
            else self.column.filter(pyarrow.array(accepted))
        )
        self.kinds = self.kinds[: len(self.column)]


def series_of(chosen):
    array = np.empty(len(chosen), dtype=object)
    for place, cell in enumerate(chosen):
        array[place] = cell
    return pd.Series(array, dtype=object)


def array_of(chosen):
    return series_of(chosen).to_numpy()


def companies(rng, pool, n_cells):
    """Yield columns, as places in the pool, until they hold `n_cells`: cells of one kind, and few of another one."""
    kinds = np.array(pool.kinds)
    own = [np.flatnonzero(kinds == name) for name in sorted(set(pool.kinds))]
    pairs = [(one, other) for one in own for other in own]
    while n_cells > 0:
        for pair in [None, *rng.permutation(len(pairs)).tolist()]:
            places = np.arange(len(pool))
            if pair is not None:
                one, other = pairs[pair]
                chosen = rng.choice(one, rng.choice([1, 3, 20])), rng.choice(other, rng.choice([1, 2]))
                places = np.concatenate(chosen)
            n_cells -= len(places)
            yield rng.permutation(places)
            if n_cells <= 0:
                return


def bits(value):
    """Return a value so that two are equal if they are the same bit for bit, or both NaN."""
    if isinstance(value, float | np.floating):
        return "nan" if value != value else (type(value), float(value).hex())
    if isinstance(value, str | int):
        return type(value), value
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, *map(bits, value.ravel().tolist())
    if isinstance(value, list | tuple):
        return type(value), *map(bits, value)
    try:
        return type(value), repr(value)
    except RuntimeError:
        return type(value), "refuses"


REFUSED = "refused"


def read_alone(read, pool):
    """Return what each cell gives alone; `REFUSED` for one that is refused."""
    return [outcome(read, pool.take([place]))[0] for place in range(len(pool))]


def outcome(read, column):
    try:
        return [bits(result) for result in read(column)]
    except Exception:
        return [REFUSED] * len(column)


def differences(read, pool, n_cells, *, refuses=False, alone=None):
    """Return the kinds of cells that give something else in company than alone, each as often as that happens.

    With `refuses`, cells that are refused alone are left out. Otherwise none may be. `alone` is what `read_alone`
    returns, if there is another way to read them.
    """
    results = alone or read_alone(read, pool)
    if refuses:
        pool.only([result != REFUSED for result in results])
        results = [result for result in results if result != REFUSED]
        assert len(pool) > 1
    refused = {pool.kinds[place] for place, result in enumerate(results) if result == REFUSED}
    assert refused == set()
    different, count = [], 0
    for places in companies(np.random.default_rng(1), pool, n_cells):
        together = outcome(read, pool.take(places))
        assert len(together) == len(places)
        count += len(places)
        different += [
            (pool.kinds[place], results[place], result)
            for place, result in zip(places, together, strict=True)
            if result != results[place]
        ]
    COUNTED.append((count, len(different)))
    return different


# Cells that were read in company, and differences, for the report of a slow run.
COUNTED = []


@pytest.fixture(autouse=True)
def _no_warning_because_of_a_cell():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@quietly
def drawn(n_each, make=series_of, kinds=KINDS):
    return Objects(np.random.default_rng(0), n_each, make, kinds)


# Columns with a type


@quietly
def typed_columns(n):
    """Return the types of pandas, each with a column of cells at random and at the borders of the type."""
    rng = np.random.default_rng(0)
    whole = [*rng.integers(-(2**62), 2**62, n).tolist(), 0, 1, 2**53 + 1, -(2**63) + 1, 2**63 - 1]
    gaps = [None if k % 5 == 0 else value for k, value in enumerate(whole)]
    real = [*rng.normal(size=n).tolist(), 0.1, -0.0, math.nan, math.inf, 1e30, 1e-30]
    texts = [
        *rng.choice([word for word in [*NUMBER_WORDS, *WORDS] if word != "\ud800"], n).tolist(),
        None,
        "2024-05-31",
    ]
    texts += [dates_as_text(rng) for _ in range(n)]
    columns = {
        **{kind: pd.Series(np.array(real).astype(kind)) for kind in ("float16", "float32", "float64")},
        **{kind: pd.Series(np.array(whole).astype(kind)) for kind in ("int8", "int32", "int64", "uint64", "bool")},
        **{kind: pd.Series(gaps, dtype=kind) for kind in ("Int64", "object")},
        "Float32": pd.Series([None, 0.1, 2.5, 1e30], dtype="Float32"),
        "boolean": pd.Series([True, None, False], dtype="boolean"),
        "str": pd.Series(texts, dtype="str"),
        "string": pd.Series(texts, dtype="string"),
        "string[python]": pd.Series(texts, dtype="string[python]"),
        "period": pd.Series(pd.period_range("2024-01", periods=5, freq="M")),
        "interval": pd.Series(pd.interval_range(0, 5)),
    }
    for unit, seconds in {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}.items():
        # Also years after 9999 and before 1, where the type has them.
        most = min(2**62, 10**12 * seconds)
        ticks = np.array([*rng.integers(-most, most, n), 0, 253_402_300_799 * min(seconds, 10**6), -(2**63)])
        moment = pd.Series(ticks.view(f"M8[{unit}]"))
        columns[f"datetime64[{unit}]"] = moment
        columns[f"timedelta64[{unit}]"] = pd.Series(ticks.view(f"m8[{unit}]"))
        columns[f"datetime64[{unit}, UTC]"] = moment.dt.tz_localize("UTC")
    columns["datetime64[us, Berlin]"] = pd.Series(pd.date_range("2024-03-30", periods=30, freq="h", tz="Europe/Berlin"))
    made = {name: Typed(column) for name, column in columns.items()}
    for name in ("Int64", "float64", "str", "datetime64[s]", "object"):
        values = columns[name].drop_duplicates()
        made[f"category of {name}"] = Typed(values, categories)
    return made


def categories(column):
    """Return a column as categories of its own cells."""
    known = column.dropna().unique()
    kind = {"Int64": "int64"}.get(str(column.dtype), column.dtype)
    return column.astype(pd.CategoricalDtype(pd.Index(known, dtype=kind)))


@quietly
def arrow_columns(n):
    """Return the types of Arrow, each with a column of cells at random and at the borders of the type."""
    rng = np.random.default_rng(0)
    whole = pyarrow.array([*rng.integers(-(10**6), 10**6, n).tolist(), 0, None, 1])
    days = pyarrow.array([*rng.integers(-(10**6), 10**6, n).tolist(), None, 2**31 - 1, 2_932_896], pyarrow.int32())
    large = pyarrow.array([*rng.integers(-(2**62), 2**62, n).tolist(), None, 2**53 + 1, 2**63 - 1])
    real = pyarrow.array([*rng.normal(size=n).tolist(), None, math.nan, math.inf, -0.0])
    words = [word for word in [*NUMBER_WORDS, *WORDS] if word != "\ud800"]
    texts = pyarrow.array([*words, *[dates_as_text(rng) for _ in range(n)], None])
    exact = [decimal.Decimal(int(k)) / 100 for k in rng.integers(-(10**6), 10**6, n)]
    moments_of = {unit: large.filter(large.is_valid()).view(pyarrow.timestamp(unit)) for unit in ("ms", "us", "ns")}
    seconds = pyarrow.array([*rng.integers(-(10**12), 10**12, n).tolist(), None, 253_402_300_799])
    small = pyarrow.array([None if k % 7 == 0 else k % 120 for k in range(n)], pyarrow.int8())
    nested = [[1, None], [2**60], None, [], [3, 4]]
    columns = [
        small, whole, large, real, texts, days.view(pyarrow.date32()), seconds.view(pyarrow.timestamp("s")),
        days.view(pyarrow.date32()).cast(pyarrow.date64()), seconds.view(pyarrow.timestamp("s", "UTC")),
        *moments_of.values(), moments_of["us"].cast(pyarrow.timestamp("us", "UTC")),
        moments_of["ns"].cast(pyarrow.timestamp("ns", "Asia/Kolkata")),
        *[large.view(pyarrow.duration(unit)) for unit in ("s", "ms", "us", "ns")],
        real.cast(pyarrow.float32()), real.cast(pyarrow.float16()), small.cast(pyarrow.uint64()),
        pyarrow.array([k % 86_400 for k in range(n)], pyarrow.time32("s")),
        pyarrow.array([*range(n), 86_399_999_999_999], pyarrow.time64("ns")),
        pyarrow.array([True, False, None]), pyarrow.array([b"7", b"\xff", None]), pyarrow.nulls(3),
        *[pyarrow.array([*exact, None], kind) for kind in (pyarrow.decimal128(20, 4), pyarrow.decimal256(50, 2))],
        texts.cast(pyarrow.large_string()), pyarrow.array(nested), pyarrow.array([[True], [None, False], None]),
        pyarrow.array([[2**31 - 1], [0, None]], pyarrow.list_(pyarrow.int32())).cast(pyarrow.list_(pyarrow.date32())),
        pyarrow.array([[0.5, None], [1.0], None]), pyarrow.array([["a"], ["b", None]]),
        pyarrow.array([{"a": 1, "b": None}, {"a": None, "b": "x"}, None]),
        pyarrow.array([[("a", 1)], [], None], pyarrow.map_(pyarrow.string(), pyarrow.int64())),
    ]  # fmt: skip
    made = {str(column.type): Typed(column) for column in columns}
    for column in (texts, large, days.view(pyarrow.date32()), seconds.view(pyarrow.timestamp("s")), real):
        made[f"dictionary of {column.type}"] = Typed(column, lambda part: part.dictionary_encode())
    return made


# Parsers of columns


def first_parameter(function):
    return str(next(iter(inspect.signature(function).parameters.values()), inspect.Parameter("x", 1)).annotation)


COLUMN_FUNCTIONS = [
    function
    for name, function in inspect.getmembers(cells, inspect.isfunction)
    if not name.startswith("_") and function.__module__ == cells.__name__ and "Series" in first_parameter(function)
]
# A function that answers with one bool says something about the whole column, and is for public ones.
PARSERS = [f for f in COLUMN_FUNCTIONS if inspect.signature(f).return_annotation is not bool]
OPTIONS = {
    "decimal_mark": (".", ","),
    "form": (cells.ISO, "%d.%m.%Y", "%m/%d/%Y", "%d %B %Y", "%Y%m%d", "%Y-%m-%d %H:%M:%S.%f", "%H:%M", "mixed"),
}


def calls(parser):
    """Return the ways in which a parser can be called, each giving one result per cell."""
    option = [name for name in inspect.signature(parser).parameters if name in OPTIONS]
    choices = [{}] if not option else [{option[0]: value} for value in OPTIONS[option[0]]]
    return [lambda column, given=given: by_cell(parser(column, **given)) for given in choices]


def by_cell(result):
    """Return one result per cell; codes stand for the texts beside them."""
    return [result[1][code] for code in result[0]] if isinstance(result, tuple) else list(result)


def test_parsers_are_found():
    assert {f.__name__ for f in PARSERS} >= {"parse_numbers", "parse_text", "parse_days", "distinct_texts"}


@pytest.mark.parametrize(("n_each", "n_cells"), SIZES)
@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.__name__)
def test_every_parser_reads_each_cell_by_itself(parser, n_each, n_cells):
    for call in calls(parser):
        assert differences(call, drawn(n_each), min(4 * n_cells, 50_000)) == []


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.__name__)
def test_every_parser_reads_each_cell_of_every_type_by_itself(parser):
    for name, pool in typed_columns(20).items():
        for call in calls(parser)[:2]:
            assert differences(call, pool, 200) == [], name


# Whole tables

NAMES = "number", "comma", "day", "moment", "german", "word", "code", "note", "other"
COLUMNS = (
    Number("number", -100, 100, missing=True),
    Number("comma", -1e6, 1e6, decimal=",", missing=True),
    Date("day", datetime.date(1, 1, 1), datetime.date(9999, 12, 31), ("month", "weekday"), missing=True),
    Date("moment", datetime.date(1, 1, 1), datetime.date(9999, 12, 31), missing=True, format="%Y-%m-%d %H:%M:%S.%f"),
    Date("german", datetime.date(1, 1, 1), datetime.date(9999, 12, 31), missing=True, format="%d.%m.%Y"),
    Category("word", ("free", "paid", "1", "2024-05-31T00:00:00", "True", "b'7'"), other=True, missing=True),
    Category("code", (0, 1, 2, 7, 100), other=True, missing=True),
    Encoded("note", "wordllama"),
    Ignored("other"),
)
LABELS = {
    "number label": Number("label", -1e300, 1e300),
    "label with decimal comma": Number("label", -1e300, 1e300, decimal=","),
    "text label": Category("label", ("free", "paid", "1", "2024-05-31T00:00:00", "True", "a")),
    "code label": Category("label", (0, 1, 2, 7, 100)),
}


class ByText:
    """An encoder that gives each text numbers of its own."""

    def transform(self, texts):
        return np.array([[len(text) % 7, sum(map(ord, text)) % 101] for text in texts], dtype=np.float64)


@pytest.fixture
def encoder(monkeypatch):
    ready = encoders.ReadyEncoder("wordllama", "text", "", (), 2, 101.0, "")
    monkeypatch.setattr(encoders, "find_encoder", lambda name: ready)
    monkeypatch.setattr(encoders, "as_encoder", lambda name: ByText())


def table_model(label):
    estimator = PrivateTransferRegressor() if isinstance(LABELS[label], Number) else PrivateTransferClassifier()
    return TableModel(estimator, Schema("d", (*COLUMNS, LABELS[label])), label="label")


def rows_for_a_fit(model, table, labels=None):
    """Return each row as a fit reads it: features, label, and whether the row counts."""
    private = model.encode_private(table, labels)
    if private.stream is not None:
        return rows_of_stream(private)
    return list(zip(private.X, private.y, private.shares.values > 0, strict=True))


def rows_of_stream(encoded):
    parts = encoded.stream.blocks(lambda X, y: (X, y)).results(lambda part: part)
    return [row for part in parts for row in zip(part.X, part.y, part.shares.values > 0, strict=True)]


def rows_for_an_evaluation(model, table):
    X, y, labelled, _ = model.encode_for_evaluation(table)
    return list(zip(X, y, labelled, strict=True))


def rows_in_chunks(model, data, rows):
    return rows_of_stream(model.encode_chunks(table_chunks(data, origin="X", private=True, rows=rows)))


def frame_of(column):
    return pd.DataFrame(dict.fromkeys((*NAMES, "label"), column))


def arrow_of(column):
    return pyarrow.table(dict.fromkeys((*NAMES, "label"), column))


@pytest.mark.parametrize(("n_each", "n_cells"), SIZES)
@pytest.mark.parametrize("label", LABELS)
def test_tables_are_encoded_cell_by_cell(label, n_each, n_cells, encoder):
    model = table_model(label)
    assert differences(lambda column: rows_for_an_evaluation(model, frame_of(column)), drawn(n_each), n_cells) == []


@pytest.mark.parametrize("label", ["number label", "code label"])
def test_labels_beside_a_table_are_encoded_cell_by_cell(label):
    model = TableModel(table_model(label).estimator, Schema("d", (COLUMNS[0], LABELS[label])), label="label")

    def read(labels):
        return rows_for_a_fit(model, pd.DataFrame({"number": np.zeros(len(labels))}), labels)

    for make in (list, array_of, series_of):
        assert differences(read, drawn(1, make), 300) == []
    for name, pool in typed_columns(3).items():
        assert differences(read, pool, 20) == [], name


@pytest.mark.parametrize("label", ["number label", "text label"])
def test_tables_of_every_type_are_encoded_cell_by_cell(label, encoder):
    model = table_model(label)
    columns = [*((frame_of, *one) for one in typed_columns(4).items())]
    columns += [(arrow_of, *one) for one in arrow_columns(4).items()]
    for make, name, pool in columns:
        assert differences(lambda column, make=make: rows_for_an_evaluation(model, make(column)), pool, 30) == [], name


def write_csv(folder, column, name="a.csv"):
    with open(folder / name, "w", newline="", encoding="utf-8", errors="surrogateescape") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([(*NAMES, "label"), *([cell] * 10 for cell in column)])
    return folder / name


def write_excel(folder, column):
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet()
    for row in ((*NAMES, "label"), *([a_cell_of_excel(cell)] * 10 for cell in column)):
        sheet.append(row)
    book.save(folder / "a.xlsx")
    return folder / "a.xlsx"


def write_parquet(folder, column, name="a.parquet"):
    pyarrow.parquet.write_table(arrow_of(column), folder / name)
    return folder / name


def write_arrow(folder, column):
    pyarrow.feather.write_feather(arrow_of(column), str(folder / "a.arrow"), compression="uncompressed")
    return pyarrow.dataset.dataset(str(folder / "a.arrow"), format="arrow")


def write_dataset(folder, column):
    return pyarrow.dataset.dataset(write_parquet(folder, column))


def in_folder(folder, column, write):
    """Write up to three files; in the order of their names, their rows are those of the column."""
    inside = folder / "files"
    shutil.rmtree(inside, ignore_errors=True)
    inside.mkdir()
    size = -(-len(column) // 3)
    for number, start in enumerate(range(0, len(column), size)):
        file = write(inside, column[start : start + size])
        file.rename(inside / f"{number}{file.suffix}")
    return inside


def ways(model, folder, write):
    """Return the ways in which files are read."""
    found = [
        lambda column: rows_for_a_fit(model, write(folder, column)),
        lambda column: rows_in_chunks(model, write(folder, column), 4),
    ]
    if write in (write_arrow, write_dataset):
        return found
    return [
        *found,
        lambda column: rows_for_an_evaluation(model, write(folder, column)),
        lambda column: rows_for_an_evaluation(model, in_folder(folder, column, write)),
        lambda column: rows_in_chunks(model, in_folder(folder, column, write), 3),
    ]


KINDS_OF_TEXT_FILES = {
    "number": numbers_as_text,
    "date": dates_as_text,
    "word": WORDS_OF_FILES,
    "bytes that are not UTF-8": ["\udce9t\udce9", "\udc81", "\udcff"],
}


def a_cell_of_excel(cell):
    """Return a cell that a workbook can hold."""
    if isinstance(cell, str):
        return "".join(sign for sign in cell if sign.isprintable() or sign == "\n").removeprefix("=")
    if isinstance(cell, datetime.datetime | datetime.date) and not 1900 <= cell.year <= 9998:
        return datetime.date(2024, 2, 29)
    return cell.replace(tzinfo=None) if isinstance(cell, datetime.datetime | datetime.time) else cell


KINDS_OF_EXCEL = {
    **{kind: KINDS[kind] for kind in ("int", "usual float", "odd float", "number as text", "date as text")},
    "word": [*WORDS_OF_FILES, "#N/A", "#DIV/0!", "#VALUE!"],
    "date": lambda rng: [moments(rng), moments(rng).date(), moments(rng).time()][rng.integers(3)],
    "span": lambda rng: datetime.timedelta(hours=int(rng.integers(0, 99))),
    "bool or missing": (True, False, None),
}


# The writer of each format, and the cells that its files hold: of any kind, or (None) of the types of Arrow.
WRITERS = {
    "CSV": (write_csv, KINDS_OF_TEXT_FILES),
    "Excel": (write_excel, KINDS_OF_EXCEL),
    "Parquet": (write_parquet, None),
}
TYPED_WRITERS = [*(write for write, kinds in WRITERS.values() if kinds is None), write_arrow, write_dataset]


def test_every_format_of_files_has_a_writer():
    assert {form.name for form in FORMATS} == WRITERS.keys()


@pytest.mark.parametrize(("n_each", "n_cells"), SIZES)
@pytest.mark.parametrize("form", [form for form, (_, kinds) in WRITERS.items() if kinds is not None])
def test_untyped_files_are_read_cell_by_cell_in_chunks_and_folders_too(form, n_each, n_cells, encoder, tmp_path):
    write, kinds = WRITERS[form]
    reads, pool = ways(table_model("number label"), tmp_path, write), drawn(n_each, list, kinds)
    alone = read_alone(reads[0], pool)
    for read in reads:
        assert differences(read, pool, n_cells // 5, alone=alone) == []


@pytest.mark.parametrize(("n_each", "n_cells"), SIZES)
@pytest.mark.parametrize("write", TYPED_WRITERS)
def test_typed_files_are_read_cell_by_cell_in_chunks_and_folders_too(write, n_each, n_cells, encoder, tmp_path):
    model = table_model("number label")
    for name, pool in arrow_columns(n_each).items():
        try:
            write(tmp_path, pool.take([0]))
        except Exception:  # a type that such a file can't hold
            continue
        alone = read_alone(lambda column: rows_for_an_evaluation(model, arrow_of(column)), pool)
        for read in ways(model, tmp_path, write):
            assert differences(read, pool, n_cells // 300, alone=alone) == [], name


# Rows without a schema: fits, evaluations, weights and persons


class Answers(BaseEstimator):
    """A model that predicts for each row by itself, from public rows or from nothing."""

    def __init__(self, classes=None):
        if classes is not None:
            self.classes_ = np.array(classes, dtype=object)

    def _scores(self, X):
        return 1 / (1 + np.exp(-np.clip(np.asarray(X, dtype=np.float64)[:, 0], -9, 9)))

    def predict(self, X):
        scores = self._scores(X)
        return self.classes_[(scores > 0.6).astype(int)] if hasattr(self, "classes_") else scores

    def predict_proba(self, X):
        scores = self._scores(X)
        return np.column_stack([1 - scores, scores])


@pytest.fixture
def contributions(monkeypatch):
    """Collect what each row adds to the histogram of an evaluation."""
    found = []

    def collecting(make, parts, *others):
        found[:] = list(parts)
        return make(parts, *others)

    for name in ("histogram", "soft_histogram"):
        monkeypatch.setattr(evaluation, name, functools.partial(collecting, getattr(evaluation, name)))
    return found


def evaluated(contributions, metric, model, X, y):
    """Return what each row adds to the histogram."""
    ledger = Ledger(epsilon=1.0, adjacency="add-remove", random_state=0)
    bound = {"error_bound": 2.0} if metric == "squared-error" else {}
    evaluation.evaluate(model, X, y, epsilon=0.5, metric=metric, ledger=ledger, **bound)
    return list(contributions)


CLASSES = [["free", "paid"], [0, 1], [False, True], [1, 2**53 + 1], ["a", pd.Timestamp("9999-12-31")]]


@pytest.mark.parametrize(("n_each", "n_cells"), SIZES)
@pytest.mark.parametrize("metric", EVALUATION_METRICS)
def test_evaluations_read_each_label_and_cell_by_itself(metric, n_each, n_cells, contributions):
    models = [Answers()] if metric == "squared-error" else [Answers(classes) for classes in CLASSES]
    for model, make in zip(models, itertools.cycle([list, array_of, series_of])):

        def of_labels(y, model=model):
            return evaluated(contributions, metric, model, np.full((len(y), 1), 2.0), y)

        assert differences(of_labels, drawn(n_each, make), n_cells // len(models)) == []

    def of_cells(column):
        return evaluated(contributions, metric, models[-1], pd.DataFrame({"x": column, "z": 0.0}), [1] * len(column))

    def of_lists(rows):
        return evaluated(contributions, metric, models[-1], [[cell, 0.0] for cell in rows], [1] * len(rows))

    assert differences(of_cells, drawn(n_each), n_cells // 2) == []
    assert differences(of_lists, drawn(n_each, list), n_cells // 2) == []
    for name, pool in typed_columns(3).items():
        for read in (of_labels, of_cells):
            assert differences(read, pool, 20) == [], name


@pytest.mark.parametrize(("n_each", "n_cells"), SIZES)
def test_fits_read_each_label_cell_and_weight_by_itself(n_each, n_cells):
    """What a fit refuses alone, it refuses in company."""
    number, classes = PrivateLinearRegression(), np.array([0, 1, 2, 7, 100])

    def features(column):
        X = pd.DataFrame({"x": column}) if isinstance(column, pd.Series) else [[cell] for cell in column]
        return private_arrays(number, X, np.zeros(len(column)), y_numeric=True, least_rows=1)[0].ravel()

    def targets(y):
        return private_arrays(number, np.zeros((len(y), 1)), y, y_numeric=True, least_rows=1)[1]

    def codes(y):
        y = private_arrays(number, np.zeros((len(y), 1)), y, y_numeric=False, least_rows=1)[1]
        return label_codes(y, classes, "y")

    for read in (features, targets, codes, lambda column: persons._numbers(column, len(column))):
        for make in (list, array_of, series_of):
            assert differences(read, drawn(n_each, make), min(8 * n_cells, 50_000), refuses=True) == []
        for name in (
            "int64",
            "uint64",
            "Int64",
            "float32",
            "bool",
            "object",
            "category of Int64",
            "category of float64",
        ):
            pool = typed_columns(5)[name]
            if REFUSED not in set(read_alone(read, pool)) or read is not codes:
                assert differences(read, pool, 50, refuses=True) == [], name


@pytest.mark.parametrize(("n_each", "n_cells"), SIZES)
def test_ids_are_equal_in_company_if_and_only_if_they_are_alone(n_each, n_cells):
    def texts(ids):
        return persons._texts(ids)

    pools = [drawn(n_each, make) for make in (list, array_of, series_of)]
    names = (
        "int64",
        "uint64",
        "Int64",
        "str",
        "string",
        "object",
        "datetime64[s]",
        "category of Int64",
        "category of str",
    )
    pools += [typed_columns(5)[name] for name in names]
    for pool in pools:
        assert differences(texts, pool, min(8 * n_cells, 50_000), refuses=True) == []
        alone = [texts(pool.take([place]))[0] for place in range(len(pool))]
        codes = persons._codes(pool.take(list(range(len(pool)))), len(pool))
        assert np.array_equal(codes < 0, [not text for text in alone])
        filled = [(text, code) for text, code in zip(alone, codes, strict=True) if text]
        assert len(set(filled)) == len({text for text, _ in filled}) == len({code for _, code in filled})


# Rows in chunks


def source_rows(model, data, classes):
    """Return features and labels, or their codes, as a fit reads them from files."""
    source = Source.from_files(data, label="label")
    public = (
        model._read_regression(source, None, None, None)
        if classes is None
        else model._read_classification(source, None, None, None, classes)
    )
    return [row for part in public.rows.results(lambda part: part) for row in zip(part.X, part.y, strict=True)]


@pytest.mark.parametrize(("n_each", "n_cells"), SIZES)
@pytest.mark.parametrize("classes", [None, ["free", "paid", "a", "nan", "1,5"], [0, 1, 3, 7]], ids=str)
def test_sources_read_each_cell_of_files_by_itself(classes, n_each, n_cells, tmp_path):
    model = PrivateLinearRegression() if classes is None else PrivateLogisticRegression()

    def text(column):
        with open(tmp_path / "a.csv", "w", newline="", encoding="utf-8", errors="surrogateescape") as file:
            rows = [(1.5, cell) for cell in column] if classes else [(cell, cell) for cell in column]
            csv.writer(file).writerows([("x", "label"), *rows, rows[0]])
        return source_rows(model, tmp_path / "a.csv", classes)[:-1]

    def typed(column):
        table = pyarrow.table({"x": column, "label": column} if classes is None else {"label": column})
        whole = pyarrow.concat_tables([table, table.slice(0, 1)])
        pyarrow.parquet.write_table(
            whole.append_column("z", pyarrow.array(np.zeros(len(whole)))), tmp_path / "a.parquet"
        )
        return source_rows(model, tmp_path / "a.parquet", classes)[:-1]

    assert differences(text, drawn(n_each, list, KINDS_OF_TEXT_FILES), n_cells // 2, refuses=True) == []
    numbers = "int8", "int64", "uint64", "float", "halffloat", "double", "bool"
    kinds = ("string", "large_string") if classes and classes[0] == "free" else numbers
    for kind in kinds:
        known = [*(classes or [0, 1, 3, 7]), None]
        assert differences(typed, Typed(pyarrow.array(known).cast(kind, safe=False)), 30, refuses=True) == [], kind


def of_a_cluster(X, pieces, checked):
    group = workers._raised(workers._checked_group(X, pieces, checked))
    return [code for part in group.parts for code in part.y]


def of_a_source(X, pieces, checked):
    source = Source(lambda: zip(X, pieces, strict=True))
    source.read()
    return [code for part in source.blocks(checked).results(lambda part: part) for code in part.y]


@pytest.mark.parametrize(
    "read", [pytest.param(of_a_cluster, id="of a cluster"), pytest.param(of_a_source, id="of a source")]
)
def test_pieces_of_labels_are_joined_cell_by_cell(read):
    """Each partition, and each chunk, has a type of its own."""

    def checked(X, y):
        X, y = private_arrays(PrivateLinearRegression(), X, y, y_numeric=False, least_rows=1)
        return X, label_codes(y, np.array([0, 1, 2, 2**53 + 1]), "y")

    def codes(column):
        pieces = [column.iloc[[place]].infer_objects() for place in range(len(column))]
        return read([pd.DataFrame({"x": np.zeros(len(piece))}) for piece in pieces], pieces, checked)

    assert differences(codes, drawn(4), 300, refuses=True) == []
