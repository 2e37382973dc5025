"""Tables as they come: the error of a model from raw files against that of a careful encoding by hand.

The three tables are raw: missing cells, dates, categories that public rows lack. "As it comes" is what three commands
give without an edit by hand: `Schema.infer` on the public file, `TableModel.fit` on both, `predict` on new rows. "By
hand" is the same estimator on columns that a person encoded with care (`by_hand.py`). Errors are on rows of the private
population that no fit has seen: root mean squared error, or log-loss. Reading is measured as a ratio of CPU times.
"""

import gzip
import os
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import log_loss

from benchmarks.pages import pipes, write_between
from benchmarks.running import command
from benchmarks.tables.by_hand import CHURN, HOTEL, WAGES, ByHand
from benchmarks.transfer.common import versions
from dpadapt import PrivateTransferClassifier, PrivateTransferRegressor, Public, Schema, TableModel
from dpadapt.tables import check_tables, encode_features, read_table

START, END = "<!-- bench tables -->", "<!-- end of bench tables -->"
EPSILON = 1.0
# The largest ratio of errors at which the claim holds.
MOST_LOST = 1.01
# CPU seconds within which 100,000 columns must be checked.
SECONDS_TO_CHECK = 30.0


@dataclass(frozen=True)
class Task:
    """A table, its label, and how a person encodes it."""

    name: str
    label: str
    by_hand: ByHand

    @property
    def regression(self) -> bool:
        return self.by_hand.bounds is not None


TASKS = (
    Task("hotel", "avg_price_per_room", HOTEL),
    Task("churn", "churn", CHURN),
    Task("wages", "ln_wage", WAGES),
)


def folder() -> Path | None:
    """Return the folder of the three tables, if the real data are here."""
    place = Path(os.environ.get("DPADAPT_DATA", "")) / "tables"
    return place if os.environ.get("DPADAPT_DATA") and place.is_dir() else None


def estimator(task: Task, seed: int, **params: Any) -> Any:
    """Return the default estimator of the task, with seeded noise."""
    kind = PrivateTransferRegressor if task.regression else PrivateTransferClassifier
    return kind(epsilon=EPSILON, random_state=seed, **params)


def error(task: Task, model: Any, rows: Any, truth: "pd.Series[Any]") -> float:
    """Return the root mean squared error, or the log-loss."""
    if task.regression:
        return float(np.sqrt(np.mean((model.predict(rows) - truth.to_numpy()) ** 2)))
    return float(log_loss(truth, model.predict_proba(rows), labels=list(model.classes_)))


def measure(task: Task, place: Path, seeds: int) -> dict[str, Any]:
    """Return the errors of both encodings over several draws of the noise."""
    files = {part: place / f"{task.name}-{part}.csv" for part in ("public", "private", "test")}
    schema = Schema.infer(files["public"], dataset=task.name)
    frames = {part: pd.read_csv(file) for part, file in files.items()}
    truth = frames["test"][task.label]
    encode = task.by_hand.encoder(frames["public"])
    rows = {part: encode(frame) for part, frame in frames.items()}
    known: dict[str, Any] = {"target_bounds": task.by_hand.bounds} if task.regression else {}
    as_it_comes, by_hand, public_only = [], [], []
    for seed in range(seeds):
        model = TableModel(estimator(task, seed), schema, label=task.label)
        model.fit(files["private"], public=Public(files["public"]))
        as_it_comes.append(error(task, model, files["test"], truth))
        careful = estimator(task, seed, **known)
        public = Public(rows["public"], frames["public"][task.label].to_numpy())
        careful.fit(rows["private"], frames["private"][task.label].to_numpy(), public=public)
        by_hand.append(error(task, careful, rows["test"], truth))
        public_only.append(error(task, careful.public_only(), rows["test"], truth))
    return {
        "table": task.name,
        "columns": [len(model.get_feature_names_out()), rows["public"].shape[1]],
        "as it comes": as_it_comes,
        "by hand": by_hand,
        "public only": float(np.mean(public_only)),
        "ratio": float(np.mean(as_it_comes) / np.mean(by_hand)),
    }


def reading(n_rows: int) -> dict[str, float]:
    """Return CPU seconds to read and encode a CSV file, over those of pandas to read it alone."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(n_rows, 8)).round(4), columns=[f"x{k}" for k in range(8)])
    frame["plan"], frame["region"] = random.choice(["free", "paid"], n_rows), random.choice(list("abcdef"), n_rows)
    schema = Schema.infer(frame.head(1000), dataset="d")
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "rows.csv")
        frame.to_csv(path, index=False)
        packed = Path(place, "rows.csv.gz")
        packed.write_bytes(gzip.compress(path.read_bytes(), 1))
        start = time.process_time()
        pd.read_csv(path, dtype=str, keep_default_na=False)
        alone = time.process_time() - start
        seconds = {}
        for name, file in (("plain", path), ("gzip", packed)):
            start = time.process_time()
            encode_features(read_table(file, private=True), schema)
            seconds[name] = (time.process_time() - start) / alone
    return {"rows": n_rows, "pandas alone, seconds": alone, **seconds}


def checking(n_columns: int) -> dict[str, float]:
    """Return CPU seconds to make a schema of a table of many columns, and to check it."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(20, n_columns)).round(3), columns=[f"c{k}" for k in range(n_columns)])
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "wide.csv")
        frame.to_csv(path, index=False)
        start = time.process_time()
        table = read_table(path, private=False)
        schema = Schema.infer(table, dataset="d")
        made = time.process_time() - start
        start = time.process_time()
        check_tables(read_table(path, private=False), schema, path, label="c0")
        return {"columns": n_columns, "schema": made, "check": time.process_time() - start}


def claims(rows: list[dict[str, Any]], wide: dict[str, float]) -> list[dict[str, str]]:
    """Return what is claimed, with the figure and the verdict."""
    worst = max((row["ratio"] for row in rows), default=float("nan"))
    found = [
        (
            "raw files give an error within 1% of a careful encoding by hand",
            f"worst ratio {worst:.3f}" if rows else "not measured: DPADAPT_DATA is not set",
            bool(rows) and worst <= MOST_LOST,
        ),
        (
            "100,000 columns are checked within 30 seconds",
            f"{wide['columns']:,} columns in {wide['check']:.1f} s",
            wide["check"] * 100_000 / wide["columns"] <= SECONDS_TO_CHECK,
        ),
    ]
    return [{"claim": claim, "figure": figure, "verdict": "holds" if ok else "missed"} for claim, figure, ok in found]


def run(quick: bool = False) -> dict[str, Any]:
    """Measure; `quick` takes fewer seeds, rows and columns."""
    place = folder()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = [] if place is None else [measure(task, place, 2 if quick else 10) for task in TASKS]
        wide = checking(10_000 if quick else 100_000)
        return {
            "versions": versions(),
            "rows": rows,
            "reading": reading(30_000 if quick else 300_000),
            "wide": wide,
            "claims": claims(rows, wide),
        }


def lines(results: dict[str, Any]) -> list[str]:
    """Return the table, the speed of reading and checking, and the claims, as lines of Markdown."""
    header = ["table", "as it comes", "by hand", "public rows alone", "ratio", "columns"]
    cells = [
        [
            row["table"],
            *(f"{np.mean(row[name]):.4g} ± {np.std(row[name]):.2g}" for name in ("as it comes", "by hand")),
            f"{row['public only']:.4g}",
            f"{row['ratio']:.3f}",
            " and ".join(map(str, row["columns"])),
        ]
        for row in results["rows"]
    ]
    read, wide = results["reading"], results["wide"]
    return [
        pipes(header, cells),
        f"Reading and encoding {read['rows']:,} rows of CSV takes {read['plain']:.2f} times the CPU time of pandas to "
        f"read them as text; compressed, {read['gzip']:.2f} times. {wide['columns']:,} columns: {wide['schema']:.1f} s "
        f"of CPU time for a schema, {wide['check']:.1f} s to check.",
        "\n".join(f"- {one['claim']}: {one['figure']} ({one['verdict']})" for one in results["claims"]),
    ]


def show(results: dict[str, Any]) -> None:
    """Print the tables."""
    print("\n\n".join(lines(results)))


def write_markdown(results: dict[str, Any], path: Path) -> None:
    """Write the table between the markers of a page."""
    parts = ["Printed by `python -m benchmarks tables`.", *lines(results)]
    write_between(path, "\n\n".join(parts) + "\n", START, END)


if __name__ == "__main__":
    writers = {"markdown": ("write the table between this page's markers", write_markdown)}
    command("benchmarks.tables.run", __doc__, run, show, writers=writers)
