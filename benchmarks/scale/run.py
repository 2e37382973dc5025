"""More rows than memory: `python -m benchmarks scale`.

Made-up rows, fitted from memory, from a folder of Parquet files, and on two workers of Dask, all with one noise seed.
Each fit has a process of its own. Its CPU time is that of `fit` alone, with the public preparation done before; its
memory is the peak of the whole process. Let nothing else run meanwhile: workers are compared by the time on the clock.
"""

import tempfile
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.running import command, peak_memory
from benchmarks.transfer.common import claim, print_tables, setting_text, versions, write_claims_and_tables
from dpadapt import PrivateTransferClassifier, PrivateTransferRegressor, Public, Source
from dpadapt.tables.reading import MOST_PUBLIC_ROWS

Array = NDArray[Any]
START, END = "<!-- bench scale -->", "<!-- end of bench scale -->"

KINDS = ("regressor", "classifier")
_PUBLIC_ROWS, _FILE_ROWS = 2000, 500_000
# Times the CPU time per row of a fit from memory; gigabytes; growth of CPU time per row; time on the clock over that of
# one process; megabytes of the coordinator.
MOST_CPU, MOST_MEMORY, MOST_GROWTH, MOST_CLOCK, MOST_CLIENT = 1.8, 1.2, 1.1, 0.75, 300.0


@dataclass(frozen=True)
class Size:
    """Numbers of rows, of columns, and of rows that workers get."""

    few: int
    many: int
    on_workers: int
    columns: int


FULL = Size(1_000_000, 10_000_000, 4_000_000, 20)
QUICK = Size(100_000, 400_000, 200_000, 10)


def blocks(n: int, d: int) -> Iterator[tuple[Array, Array]]:
    """Yield private rows and their labels, some at a time."""
    for start in range(0, n, _FILE_ROWS):
        random = np.random.default_rng([start, 1])
        X = random.standard_normal((min(_FILE_ROWS, n - start), d))
        yield X, X @ _coef(d) + 0.3 + 0.5 * random.standard_normal(len(X))


def public_rows(n: int, d: int) -> tuple[Array, Array]:
    """Return public rows, with other coefficients, and their labels."""
    random = np.random.default_rng(5)
    X = random.standard_normal((n, d))
    return X, X @ (_coef(d) + 0.1) + 0.5 * random.standard_normal(n)


def _coef(d: int) -> Array:
    return np.linspace(-1.0, 1.0, d)


def _labels(kind: str, y: Array) -> Array:
    return y if kind == "regressor" else (y > 0).astype(np.int64)


def write_files(folder: Path, n: int, d: int) -> None:
    """Write the private rows as Parquet files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for k, (X, y) in enumerate(blocks(n, d)):
        table = pa.table({**{f"x{j}": X[:, j] for j in range(d)}, "y": y, "named": _labels("classifier", y)})
        pq.write_table(table, folder / f"{k:05d}.parquet", row_group_size=2**16)


def fitted(kind: str, mode: str, n: int, d: int, folder: Path) -> dict[str, Any]:
    """Fit in this process; return time, memory and coefficients."""
    warnings.simplefilter("ignore")
    model = (PrivateTransferRegressor if kind == "regressor" else PrivateTransferClassifier)(random_state=0)
    X_public, y_public = public_rows(_PUBLIC_ROWS, d)
    public = Public(X_public, _labels(kind, y_public))
    # The public preparation is remembered.
    model.fit(X_public[:500], public.y[:500], public=public)
    if mode == "workers":
        return _on_workers(model, kind, n, d, folder, public)
    if mode == "memory":
        X, y = np.empty((n, d)), np.empty(n)
        for k, (rows, labels) in enumerate(blocks(n, d)):
            own = slice(k * _FILE_ROWS, k * _FILE_ROWS + len(rows))
            X[own], y[own] = rows, labels
        given: tuple[Any, ...] = (X, _labels(kind, y))
    else:
        given = (_source(kind, folder),)
    clock, cpu = time.perf_counter(), time.process_time()
    model.fit(*given, public=public)
    return _facts(model, clock, cpu)


def _source(kind: str, folder: Path) -> Source:
    """Return the features and one of the two labels of the files."""
    files = Source.from_files(folder, label="named" if kind == "classifier" else "y")
    # The other label is among the columns.
    return Source(lambda: ((X.filter(like="x").to_numpy(), y) for X, y in files.chunks()))


def _on_workers(model: Any, kind: str, n: int, d: int, folder: Path, public: Public) -> dict[str, Any]:
    import dask
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    with (
        dask.config.set({"distributed.worker.memory.target": False, "distributed.worker.memory.spill": False}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        frame = dd.read_parquet(folder)
        X, y = frame[[f"x{j}" for j in range(d)]], frame["named" if kind == "classifier" else "y"]
        named = Public(_named(public.X), public.y)
        model.fit(public.X[:500], public.y[:500], public=public)
        clock, cpu = time.perf_counter(), time.process_time()
        model.fit(X, y, public=named)
        return _facts(model, clock, cpu)


def _named(X: Array) -> Any:
    import pandas as pd

    return pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])


def _facts(model: Any, clock: float, cpu: float) -> dict[str, Any]:
    return {
        "clock": time.perf_counter() - clock,
        "cpu": time.process_time() - cpu,
        "memory": peak_memory(),
        "coef": np.ravel(model.coef_).tolist(),
        "adopted": model.adopted_,
        "entries": [str(entry) for entry in model.privacy_.entries],
    }


def sampled_public(d: int, n: int) -> dict[str, float]:
    """Return the squared error of the regressor with many public rows, and with the sample that stands for them."""
    warnings.simplefilter("ignore")
    X, y = next(blocks(20_000, d))
    X_public, y_public = public_rows(n, d)
    some = np.sort(np.random.default_rng(0).choice(n, min(n, MOST_PUBLIC_ROWS), replace=False))
    errors = {}
    for name, rows in (("all", slice(None)), ("sample", some)):
        model = PrivateTransferRegressor(random_state=0).fit(X, y, public=Public(X_public[rows], y_public[rows]))
        new = np.random.default_rng(9).standard_normal((20_000, d))
        errors[name] = float(np.mean((model.predict(new) - new @ _coef(d) - 0.3) ** 2)) + 0.25
    return errors


def _alone(function: Any, *arguments: Any) -> Any:
    """Return what a function gives in a new process."""
    # This process stays small: on Linux its memory counts towards that of the process that it starts.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        return pool.submit(function, *arguments).result()


def run(*, quick: bool) -> dict[str, Any]:
    """Measure all modes at all sizes."""
    size, began = QUICK if quick else FULL, time.perf_counter()
    results: dict[str, Any] = {"quick": quick, "size": asdict(size), "versions": versions(), "fits": []}
    with tempfile.TemporaryDirectory() as place:
        for n in (size.few, size.on_workers, size.many):
            folder = Path(place, str(n))
            folder.mkdir()
            _alone(write_files, folder, n, size.columns)
            modes = ["files"] if n == size.many else ["memory", "files"]
            if n == size.on_workers and find_spec("distributed") is not None:
                modes.append("workers")
            for kind in KINDS:
                for mode in modes:
                    facts = _alone(fitted, kind, mode, n, size.columns, folder)
                    results["fits"].append({"kind": kind, "mode": mode, "n": n, **facts})
                    print(f"{kind}, {mode}, {n:,} rows: {facts['cpu']:.1f} s CPU, {facts['memory'] / 1e6:.0f} MB")
    results["public"] = _alone(sampled_public, size.columns, 5 * MOST_PUBLIC_ROWS if not quick else MOST_PUBLIC_ROWS)
    results["minutes"] = (time.perf_counter() - began) / 60
    return results


def claims(results: dict[str, Any]) -> list[dict[str, str]]:
    """Return the targets, what was measured, and the verdicts."""
    size, found = results["size"], []
    for kind in KINDS:
        at = {(fit["mode"], fit["n"]): fit for fit in results["fits"] if fit["kind"] == kind}
        memory, few, many = (
            at["memory", size["few"]],
            at["files", size["few"]],
            at["files", size["many"]],
        )
        per_row = [fit["cpu"] / n for fit, n in ((memory, size["few"]), (few, size["few"]), (many, size["many"]))]
        name = f"{kind}, {size['columns']} columns"
        shown = f"{size['many']:,} rows"
        ratio = round(per_row[2] / per_row[0], 2)
        text = f"{name}, {shown} from Parquet: CPU time per row at most {MOST_CPU} times that from memory"
        found.append(claim(text, f"{ratio:.2f}", ratio <= MOST_CPU))
        gigabytes = round(many["memory"] / 1e9, 2)
        text = f"{name}, {shown} from Parquet: at most {MOST_MEMORY} GB"
        found.append(claim(text, f"{gigabytes:.2f} GB", gigabytes <= MOST_MEMORY))
        growth = round(per_row[2] / per_row[1], 2)
        text = f"{name}, Parquet, {size['few']:,} to {size['many']:,} rows: CPU time per row grows by at most 10%"
        found.append(claim(text, f"{growth:.2f} times", growth <= MOST_GROWTH))
        growth = round(many["memory"] / few["memory"], 2)
        text = f"{name}, Parquet, {size['few']:,} to {size['many']:,} rows: memory does not grow (by over 10%)"
        found.append(claim(text, f"{growth:.2f} times", growth <= MOST_GROWTH))
        found.append(_same(f"{name}, {size['few']:,} rows: the same model and receipt from Parquet", memory, few))
        if ("workers", size["on_workers"]) in at:
            one, same, two = (at[mode, size["on_workers"]] for mode in ("memory", "files", "workers"))
            shown = f"{size['on_workers']:,} rows"
            # Like with like: both read the same files.
            ratio = round(two["clock"] / same["clock"], 2)
            text = (
                f"{name}, {shown} from Parquet, two workers of Dask: at most {MOST_CLOCK} times the time of one process"
            )
            beside = f"{ratio:.2f} ({two['clock'] / one['clock']:.2f} times one process that has its rows in memory)"
            found.append(claim(text, beside, ratio <= MOST_CLOCK))
            client = round(two["memory"] / 1e6)
            text = f"{name}, {shown}, two workers of Dask: the coordinator takes at most {MOST_CLIENT:.0f} MB"
            found.append(claim(text, f"{client} MB", client <= MOST_CLIENT))
            found.append(_same(f"{name}, {shown}, two workers of Dask: the same model and receipt", one, two))
    ratio = round(results["public"]["sample"] / results["public"]["all"], 4)
    text = f"a sample of {MOST_PUBLIC_ROWS:,} public rows: at most 1% more error than with five times as many"
    if not results["quick"]:
        found.append(claim(text, f"{ratio:.4f} times", ratio <= 1.01))
    return found


def _same(text: str, one: dict[str, Any], other: dict[str, Any]) -> dict[str, str]:
    same = one["coef"] == other["coef"] and one["entries"] == other["entries"]
    return claim(text, "yes, bit for bit" if same else "no", same)


def tables(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tables to print."""
    names = {"memory": "memory", "files": "Parquet", "workers": "two workers of Dask"}
    rows = [
        {
            "cells": [
                fit["kind"],
                f"{fit['n']:,}",
                names[fit["mode"]],
                f"{fit['cpu']:.1f}",
                f"{fit['clock']:.1f}",
                f"{fit['memory'] / 1e6:.0f}",
            ],
            "bad": False,
        }
        for fit in results["fits"]
    ]
    size = results["size"]
    words = (
        f"{size['columns']} columns, {_PUBLIC_ROWS:,} public rows. Where workers hold the rows, CPU time and memory "
        f"are those of the coordinator. {results['minutes']:.0f} minutes in all."
    )
    header = ["model", "rows", "from", "CPU s", "clock s", "peak MB"]
    return [{"title": "Time and memory of one fit", "words": words, "header": header, "rows": rows}]


def show(results: dict[str, Any]) -> None:
    """Print the tables."""
    print_tables(tables(results), claims(results), [setting_text(results)])


def write_markdown(results: dict[str, Any], path: Path) -> None:
    """Write the tables between the markers of a page."""
    text = "python -m benchmarks scale"
    write_claims_and_tables(path, (START, END), text, results, claims(results), tables(results))


if __name__ == "__main__":
    writers = {"markdown": ("write the tables between this page's markers", write_markdown)}
    command(__spec__.name, __doc__, run, show, writers=writers)
