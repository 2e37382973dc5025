"""A hundred million rows of ten columns in two gigabytes: `python -m benchmarks scale-huge`.

Both transfer estimators, each fitted once from a folder of Parquet files of single precision, in a process of its own.
Needs about 60 GB of disk for files and kept rows together, and about an hour. With `--quick`: a million rows; with
`--only regressor`: one of the two.
"""

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.running import command
from benchmarks.scale.run import KINDS, _alone, _labels, blocks, fitted
from benchmarks.transfer.common import claim, print_tables, setting_text, versions, write_claims_and_tables

START, END = "<!-- bench scale-huge -->", "<!-- end of bench scale-huge -->"
# Gigabytes.
MOST_HUGE_MEMORY = 2.0
_COLUMNS = 10


def write_single_files(folder: Path, n: int) -> None:
    """Write the private rows as Parquet files of single precision."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for k, (X, y) in enumerate(blocks(n, _COLUMNS)):
        single = {f"x{j}": X[:, j].astype(np.float32) for j in range(_COLUMNS)}
        table = pa.table({**single, "y": y.astype(np.float32), "named": _labels("classifier", y).astype(np.int8)})
        pq.write_table(table, folder / f"{k:05d}.parquet", row_group_size=2**16)


def measured(n: int, kinds: Sequence[str] = KINDS) -> Iterator[dict[str, Any]]:
    """Yield the facts of one fit of each kind."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        _alone(write_single_files, folder, n)
        for kind in kinds:
            yield {"kind": kind, "n": n, **_alone(fitted, kind, "files", n, _COLUMNS, folder)}


def run(*, quick: bool, only: Sequence[str] = KINDS) -> dict[str, Any]:
    """Fit each of the models `only` once."""
    began, fits = time.perf_counter(), []
    for fit in measured(1_000_000 if quick else 100_000_000, only):
        fits.append(fit)
        print(f"{fit['kind']}: {fit['cpu']:.0f} s CPU, {fit['memory'] / 1e9:.2f} GB", flush=True)
    minutes = (time.perf_counter() - began) / 60
    return {"quick": quick, "versions": versions(), "fits": fits, "minutes": minutes}


def claims(results: dict[str, Any]) -> list[dict[str, str]]:
    """Return the target, what was measured, and the verdicts."""
    found = []
    for fit in results["fits"]:
        gigabytes = round(fit["memory"] / 1e9, 2)
        text = f"{fit['kind']}, {fit['n']:,} rows of {_COLUMNS} columns from Parquet: at most {MOST_HUGE_MEMORY:g} GB"
        found.append(claim(text, f"{gigabytes:.2f} GB", gigabytes <= MOST_HUGE_MEMORY))
    return found


def tables(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the table to print."""
    rows = [
        {
            "cells": [
                fit["kind"],
                f"{fit['n']:,}",
                f"{fit['cpu']:.0f}",
                f"{fit['clock']:.0f}",
                f"{fit['memory'] / 1e6:.0f}",
                f"{fit['adopted']:.3f}",
            ],
            "bad": False,
        }
        for fit in results["fits"]
    ]
    header = ["model", "rows", "CPU s", "clock s", "peak MB", "adopted"]
    words = f"{_COLUMNS} columns, kept rows in memory up to 512 MB. {results['minutes']:.0f} minutes in all."
    return [{"title": "One fit each", "words": words, "header": header, "rows": rows}]


def show(results: dict[str, Any]) -> None:
    """Print the tables."""
    print_tables(tables(results), claims(results), [setting_text(results)])


def write_markdown(results: dict[str, Any], path: Path) -> None:
    """Write the tables between the markers of a page."""
    text = "python -m benchmarks scale-huge"
    write_claims_and_tables(path, (START, END), text, results, claims(results), tables(results))


if __name__ == "__main__":
    writers = {"markdown": ("write the tables between this page's markers", write_markdown)}
    command(__spec__.name, __doc__, run, show, writers=writers, parts=KINDS)
