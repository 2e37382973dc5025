"""Two raw tables for the first part of `dpadapt demo`: a survey, as a statistician gets it.

The rows are those of the Redbook survey of 1974 as they ship in statsmodels. What makes a table awkward is made up:
dates, words for codes, cells that are missing, a record number, columns in another order and another separator.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

# Women up to this age are private. Of these, so many are held back: half to evaluate the model on, half to predict.
_PRIVATE_UP_TO, _HELD_BACK = 27.0, 1_200

_MARRIAGE = {1: "very poor", 2: "poor", 3: "fair", 4: "good", 5: "very good"}
_WORK = {1: "student", 2: "farm", 3: "office", 4: "teaching", 5: "business", 6: "profession"}


def raw_tables() -> "dict[str, pd.DataFrame]":
    """Return the tables: women over 27 (public), younger ones (private), and rows of these to evaluate and predict."""
    import pandas as pd

    from dpadapt.datasets.bundled import fair

    rng = np.random.default_rng(1974)
    rows = fair().frame
    n = len(rows)
    table = pd.DataFrame(
        {
            "record": [f"R{k:06d}" for k in rng.permutation(n)],
            "answered": (pd.Timestamp("1974-08-01") + pd.to_timedelta(rng.integers(0, 60, n), "D")).strftime(
                "%d.%m.%Y"
            ),
            "marriage": rows["rate_marriage"].map(_MARRIAGE),
            "age": rows["age"],
            "years married": rows["yrs_married"],
            "children": rows["children"],
            "religious": rows["religious"],
            "education": rows["educ"],
            "work": rows["occupation"].map(_WORK),
            "work of husband": rows["occupation_husb"].map(_WORK),
            "affair": np.where(rows["affairs"] > 0, "yes", "no"),
        }
    )
    for column in ("answered", "marriage", "education", "work"):
        table.loc[rng.random(n) < 0.06, column] = None
    young = rng.permutation(np.flatnonzero(rows["age"] <= _PRIVATE_UP_TO))
    test, new, private = np.split(young, [_HELD_BACK // 2, _HELD_BACK])
    return {
        "public": table[(rows["age"] > _PRIVATE_UP_TO).to_numpy()],
        "private": table.iloc[private],
        "test": table.iloc[test],
        "new": table.iloc[new].drop(columns="affair"),
    }


def write_raw_tables(folder: Path) -> dict[str, Path]:
    """Write the tables as files: all but the public one with semicolons, and with their columns in another order."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    for name, table in raw_tables().items():
        paths[name] = folder / f"{name}.csv"
        if name == "public":
            table.to_csv(paths[name], index=False)
        else:
            table[list(table.columns[::-1])].to_csv(paths[name], index=False, sep=";")
    return paths
