"""Convert zip files of the UCI archive to our columns. Tested on made-up files only; see docs/papers/data.md."""

import io
import zipfile
from collections.abc import Iterable
from pathlib import PurePosixPath

import numpy as np
import pandas as pd

from dpadapt.datasets.domains import Data

ADULT_COLUMNS = (
    "age workclass fnlwgt education education_num marital_status occupation relationship race sex "
    "capital_gain capital_loss hours_per_week native_country income"
).split()
ADULT_NUMBERS = ("age", "fnlwgt", "education_num", "capital_gain", "capital_loss", "hours_per_week")

# Column names of SouthGermanCredit.asc and their English names in its code table, in file order.
SOUTH_GERMAN_COLUMNS = {
    "laufkont": "status",
    "laufzeit": "duration",
    "moral": "credit_history",
    "verw": "purpose",
    "hoehe": "amount",
    "sparkont": "savings",
    "beszeit": "employment_duration",
    "rate": "installment_rate",
    "famges": "personal_status_sex",
    "buerge": "other_debtors",
    "wohnzeit": "present_residence",
    "verm": "property",
    "alter": "age",
    "weitkred": "other_installment_plans",
    "wohn": "housing",
    "bishkred": "number_credits",
    "beruf": "job",
    "pers": "people_liable",
    "telef": "telephone",
    "gastarb": "foreign_worker",
    "kredit": "credit_risk",
}


def members(archive: bytes) -> dict[str, bytes]:
    """Return every file of a zip by its lower-case base name; zips inside the zip are opened too."""
    contents: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            for info in opened.infolist():
                name = PurePosixPath(info.filename).name.lower()
                if info.is_dir() or info.filename.startswith("__MACOSX"):
                    continue
                content = opened.read(info)
                contents |= members(content) if name.endswith(".zip") else {name: content}
    except zipfile.BadZipFile as error:
        raise ValueError(f"the download is not a zip file ({error})") from error
    return contents


def member(archive: bytes, name: str) -> bytes:
    """Return one file of a zip, by its base name."""
    contents = members(archive)
    if name.lower() not in contents:
        raise ValueError(f"the zip has no file {name!r}, only {', '.join(sorted(contents)) or 'nothing'}")
    return contents[name.lower()]


def require(frame: pd.DataFrame, columns: Iterable[str]) -> pd.DataFrame:
    """Return these columns in this order; raise an error that names missing ones."""
    wanted = list(columns)
    missing = [column for column in wanted if column not in frame.columns]
    if missing:
        raise ValueError(f"the download lacks the columns {', '.join(missing)}")
    return frame[wanted]


def gas(archive: bytes) -> Data:
    """Convert UCI 270: batch1.dat .. batch10.dat, lines such as `1;10.0 1:15596.16 2:1.87 ... 128:-2.27`."""
    contents = members(archive)
    rows: list[list[float]] = []
    for batch in range(1, 11):
        content = contents.get(f"batch{batch}.dat")
        if content is None:
            raise ValueError(f"the zip has no file 'batch{batch}.dat'")
        for line in content.decode("ascii").splitlines():
            if not line.strip():
                continue
            label, *pairs = line.split()
            kind, concentration = label.split(";")
            features = [np.nan] * 128
            for pair in pairs:
                index, value = pair.split(":")
                features[int(index) - 1] = float(value)
            rows.append([batch, int(kind), float(concentration), *features])
    columns = ["batch", "gas", "concentration", *(f"f{index}" for index in range(1, 129))]
    types = {"batch": "int8", "gas": "int8"}
    frame = pd.DataFrame(rows, columns=columns)
    return frame.astype({column: types.get(column, "float32") for column in columns})


def news_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Give the columns of OnlineNewsPopularity.csv our names (theirs have blanks) and types; drop the address."""
    frame = frame.rename(columns=lambda name: str(name).strip())
    frame = require(frame, [name for name in frame.columns if name != "url"])
    require(frame, ["timedelta", "n_tokens_title", "weekday_is_sunday", "is_weekend", "shares"])
    types = {
        name: "uint8" if name.startswith(("data_channel_is_", "weekday_is_", "is_weekend")) else "float32"
        for name in frame.columns
    }
    frame = frame.astype({**types, "shares": "int32"})
    # The compact file marks the rows of its random sample; a complete set consists of such rows.
    return frame.assign(random_sample=True, contiguous_head=False)


def news(archive: bytes) -> Data:
    """Convert UCI 332: OnlineNewsPopularity.csv."""
    content = member(archive, "OnlineNewsPopularity.csv")
    return news_columns(pd.read_csv(io.BytesIO(content), skipinitialspace=True))


def slices(archive: bytes) -> Data:
    """Convert UCI 206: slice_localization_data.csv."""
    frame = pd.read_csv(io.BytesIO(member(archive, "slice_localization_data.csv")))
    values = [f"value{index}" for index in range(384)]
    frame = require(frame, ["patientId", *values, "reference"])
    types = dict.fromkeys(frame.columns, "float32")
    return frame.astype({**types, "patientId": "int16"})


def adult_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Give the columns of Adult our types; categories in alphabetical order, "?" for missing."""
    words = [name for name in frame.columns if name not in ADULT_NUMBERS]
    frame = frame.astype(dict.fromkeys(ADULT_NUMBERS, "int32"))
    return frame.assign(
        **{name: pd.Categorical(frame[name].astype("object").fillna("?").astype("str")) for name in words}
    )


def adult(archive: bytes) -> Data:
    """Convert UCI 2: adult.data (train) and adult.test, which starts with a remark and whose labels end in a dot."""
    parts = []
    for split, file in (("train", "adult.data"), ("test", "adult.test")):
        lines = io.BytesIO(member(archive, file))
        part = pd.read_csv(lines, names=ADULT_COLUMNS, skipinitialspace=True, comment="|", keep_default_na=False)
        parts.append(part.assign(income=part["income"].str.rstrip("."), split=split))
    return adult_columns(pd.concat(parts, ignore_index=True))


def south_german(archive: bytes) -> Data:
    """Convert UCI 573 and 522: SouthGermanCredit.asc, codes separated by blanks, German column names."""
    frame = pd.read_csv(io.BytesIO(member(archive, "SouthGermanCredit.asc")), sep=r"\s+")
    return require(frame, SOUTH_GERMAN_COLUMNS).rename(columns=SOUTH_GERMAN_COLUMNS).astype("int32")


def accent(archive: bytes) -> Data:
    """Convert UCI 518: accent-mfcc-data-1.csv."""
    frame = pd.read_csv(io.BytesIO(member(archive, "accent-mfcc-data-1.csv")))
    return require(frame, ["language", *(f"X{index}" for index in range(1, 13))])


def superconductivity_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Give the columns of train.csv our names and types, and add the quarter of critical_temp.

    The number of elements is given there, not derived as in the compact file.
    """
    require(frame, ["number_of_elements", "critical_temp"])
    features = [name for name in frame.columns if name not in ("number_of_elements", "critical_temp")]
    frame = frame[["number_of_elements", *sorted(features), "critical_temp"]]
    frame = frame.rename(columns={"number_of_elements": "number_of_elements_derived"}).astype("float32")
    return frame.assign(
        number_of_elements_derived=frame["number_of_elements_derived"].astype("int8"),
        quarter=quarters(frame["critical_temp"].to_numpy()).astype("int8"),
    )


def quarters(values: "np.ndarray[tuple[int], np.dtype[np.floating]]") -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Return the quarter, 0 to 3, of each value by rank; ties keep their order, so the quarters are equally large."""
    ranks = np.empty(len(values), dtype=np.int64)
    ranks[np.argsort(values, kind="stable")] = np.arange(len(values))
    return ranks * 4 // max(len(values), 1)


def superconductivity(archive: bytes) -> Data:
    """Convert UCI 464: train.csv (81 features); unique_m.csv is not used."""
    return superconductivity_columns(pd.read_csv(io.BytesIO(member(archive, "train.csv"))))
