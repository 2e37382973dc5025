"""Convert frames of OpenML and scikit-learn to our columns. Tested on made-up frames; see docs/papers/data.md."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from benchmarks.data.convert_uci import ADULT_COLUMNS, adult_columns, require
from dpadapt.datasets.domains import Data

WIND_STATIONS = ("RPT", "VAL", "ROS", "KIL", "SHA", "BIR", "DUB", "CLA", "MUL", "CLO", "BEL", "MAL")
CIFAR10_CLASSES = "airplane automobile bird cat deer dog frog horse ship truck".split()

# credit-g spells out the codes of german.data: our column, its column, and its values in the order of the codes.
_STATLOG_WORDS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "status": ("checking_status", "A1", ("<0", "0<=X<200", ">=200", "no checking")),
    "savings": ("savings_status", "A6", ("<100", "100<=X<500", "500<=X<1000", ">=1000", "no known savings")),
    "employment_duration": ("employment", "A7", ("unemployed", "<1", "1<=X<4", "4<=X<7", ">=7")),
    "personal_status_sex": (
        "personal_status",
        "A9",
        ("male div/sep", "female div/dep/mar", "male single", "male mar/wid", "female single"),
    ),
    "other_debtors": ("other_parties", "A10", ("none", "co applicant", "guarantor")),
    "property": ("property_magnitude", "A12", ("real estate", "life insurance", "car", "no known property")),
    "other_installment_plans": ("other_payment_plans", "A14", ("bank", "stores", "none")),
    "housing": ("housing", "A15", ("rent", "own", "for free")),
    "job": (
        "job",
        "A17",
        ("unemp/unskilled non res", "unskilled resident", "skilled", "high qualif/self emp/mgmt"),
    ),
    "telephone": ("own_telephone", "A19", ("none", "yes")),
    "foreign_worker": ("foreign_worker", "A20", ("yes", "no")),
}
_STATLOG_HISTORY = (
    "no credits/all paid",
    "all paid",
    "existing paid",
    "delayed previously",
    "critical/other existing credit",
)
_STATLOG_PURPOSE = (
    "new car",
    "used car",
    "furniture/equipment",
    "radio/tv",
    "domestic appliance",
    "repairs",
    "education",
    "vacation",
    "retraining",
    "business",
    "other",
)
_STATLOG_NUMBERS = {
    "duration": "duration",
    "credit_amount": "amount",
    "installment_commitment": "installment_rate",
    "residence_since": "present_residence",
    "age": "age",
    "existing_credits": "number_credits",
    "num_dependents": "people_liable",
}
_STATLOG_ORDER = (
    "status duration credit_history purpose amount savings employment_duration installment_rate "
    "personal_status_sex other_debtors present_residence property age other_installment_plans housing "
    "number_credits job people_liable telephone foreign_worker credit_class"
).split()


def wind(frame: pd.DataFrame) -> Data:
    """Convert OpenML 503, where the year has two digits and dates may be categories."""
    frame = require(frame, ["year", "month", "day", *WIND_STATIONS])
    dates = {name: frame[name].astype("float64").astype("int16") for name in ("year", "month", "day")}
    dates["year"] = dates["year"].where(dates["year"] >= 1900, dates["year"] + 1900).astype("int16")
    return frame.astype(dict.fromkeys(WIND_STATIONS, "float32")).assign(**dates)


def adult(frame: pd.DataFrame) -> Data:
    """Convert OpenML 1590: hyphens in the names, missing values as NaN, train and test rows not marked."""
    frame = frame.rename(columns=lambda name: str(name).replace("-", "_"))
    frame = frame.rename(
        columns={"class": "income", "capitalgain": "capital_gain", "capitalloss": "capital_loss"}
    ).rename(columns={"hoursperweek": "hours_per_week"})
    return adult_columns(require(frame, ADULT_COLUMNS).assign(split="unknown"))


def statlog_german(frame: pd.DataFrame) -> Data:
    """Convert OpenML 31, credit-g: words back to the codes A11 .. A202 of german.data."""
    columns: dict[str, Any] = {ours: frame[theirs].astype("int64") for theirs, ours in _STATLOG_NUMBERS.items()}
    for ours, (theirs, prefix, words) in _STATLOG_WORDS.items():
        columns[ours] = _codes(frame, theirs, {word: f"{prefix}{code}" for code, word in enumerate(words, 1)})
    # These two count from zero, and the eleventh purpose is A410.
    history = {word: f"A3{code}" for code, word in enumerate(_STATLOG_HISTORY)}
    purpose = {word: f"A4{code}" for code, word in enumerate(_STATLOG_PURPOSE)}
    columns["credit_history"] = _codes(frame, "credit_history", history)
    columns["purpose"] = _codes(frame, "purpose", purpose)
    columns["credit_class"] = _codes(frame, "class", {"good": 1, "bad": 2}).astype("int64")
    return pd.DataFrame(columns)[_STATLOG_ORDER]


def _codes(frame: pd.DataFrame, column: str, table: dict[str, Any]) -> "pd.Series[Any]":
    """Return a column's words as codes; an unknown word is an error."""
    words = require(frame, [column])[column].astype("object")
    unknown = sorted({str(word) for word in words} - set(table))
    if unknown:
        raise ValueError(f"column {column!r} has unexpected values {', '.join(unknown)}")
    return words.map(table).infer_objects()


def mnist(frame: pd.DataFrame) -> Data:
    """Convert OpenML 554 and 40996: 784 pixels and a class; the first 60,000 rows are the training set."""
    pixels, labels = _pixels(frame, 784)
    return _train_test(pixels.reshape(-1, 28, 28), labels, n_test=10_000)


def cifar10(frame: pd.DataFrame) -> Data:
    """Convert OpenML 40927: 3,072 values, channel by channel; the first 50,000 rows are taken as the training set."""
    pixels, labels = _pixels(frame, 3072)
    images = np.ascontiguousarray(np.moveaxis(pixels.reshape(-1, 3, 32, 32), 1, -1))
    return {**_train_test(images, labels, n_test=10_000), "classes": np.array(CIFAR10_CLASSES)}


def _pixels(frame: pd.DataFrame, n_pixels: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Return all columns except the class, and the class."""
    require(frame, ["class"])
    pixels = frame.drop(columns="class")
    if pixels.shape[1] != n_pixels:
        raise ValueError(f"the download has {pixels.shape[1]} pixel columns, not {n_pixels}")
    labels = frame["class"].astype("float64").to_numpy()
    return pixels.to_numpy(dtype=np.uint8), labels.astype(np.uint8)


def _train_test(
    images: npt.NDArray[np.uint8], labels: npt.NDArray[np.uint8], *, n_test: int
) -> dict[str, npt.NDArray[Any]]:
    """Split images and labels; the last `n_test` rows are the test set."""
    if len(images) <= n_test:
        raise ValueError(f"the download has {len(images)} rows, too few to hold {n_test} test rows")
    n_train = len(images) - n_test
    return {
        "X_train": images[:n_train],
        "y_train": labels[:n_train],
        "X_test": images[n_train:],
        "y_test": labels[n_train:],
    }


def airline(frame: pd.DataFrame) -> Data:
    """Convert OpenML 42728 to those of our columns that it has; times are hhmm, Monday is day 0."""
    theirs = "DepDelay Month DayofMonth DayOfWeek CRSDepTime CRSArrTime UniqueCarrier Origin Dest Distance".split()
    frame = require(frame, theirs)
    departure, arrival = _whole(frame["CRSDepTime"]), _whole(frame["CRSArrTime"])
    return pd.DataFrame(
        {
            "month": _whole(frame["Month"]),
            "day": _whole(frame["DayofMonth"]),
            "sched_dep_time": departure,
            "dep_delay": frame["DepDelay"].astype("float32"),
            "sched_arr_time": arrival,
            "carrier": frame["UniqueCarrier"].astype("category"),
            "origin": frame["Origin"].astype("category"),
            "dest": frame["Dest"].astype("category"),
            "distance": _whole(frame["Distance"]),
            "hour": (departure // 100).astype("int16"),
            "minute": (departure % 100).astype("int16"),
            "dow": (_whole(frame["DayOfWeek"]) - 1).astype("int8"),
        }
    )


def _whole(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return whole numbers, which may be spelt as categories such as `c-8`."""
    if pd.api.types.is_numeric_dtype(column):
        return column.astype("int16")
    return column.astype("str").str.extract(r"(\d+)(?:\.0+)?$", expand=False).astype("int16")


def california(frame: pd.DataFrame) -> Data:
    """Convert scikit-learn's frame, which has averages per household and no ocean_proximity."""
    names = "MedInc HouseAge AveRooms AveBedrms Population AveOccup Latitude Longitude MedHouseVal".split()
    frame = require(frame, names)
    households = (frame["Population"] / frame["AveOccup"]).round()
    totals = pd.DataFrame(
        {
            "longitude": frame["Longitude"],
            "latitude": frame["Latitude"],
            "housing_median_age": frame["HouseAge"],
            "total_rooms": (frame["AveRooms"] * households).round(),
            "total_bedrooms": (frame["AveBedrms"] * households).round(),
            "population": frame["Population"],
            "households": households,
            "median_income": frame["MedInc"],
            "median_house_value": frame["MedHouseVal"] * 100_000,
        }
    ).astype("float32")
    return totals.assign(ocean_proximity=pd.Series([None] * len(totals), dtype="object"))
