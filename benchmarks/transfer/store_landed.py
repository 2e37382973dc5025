"""Store the results of the present transfer estimators: `python -m benchmarks.transfer.store_landed --out FILE`.

`python -m benchmarks transfer` compares later versions of the estimators with `benchmarks/transfer/landed.json`. Write
that file before an engine is replaced, with `DPADAPT_DATA` set.
"""

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.running import command
from benchmarks.transfer.common import Row, error, versions
from benchmarks.transfer.fits import OURS, RIVAL_SEEDS, measured_fits, setting

_ROOT = Path(__file__).parents[2]


def run(*, quick: bool) -> dict[str, Any]:
    """Return the results of the public model and of ours: means, and the error of every single fit of ours."""
    commit = committed()
    fits, skipped = measured_fits(quick=quick)
    by_cell: dict[tuple[str, int, float], list[Row]] = {}
    for fit in fits:
        by_cell.setdefault((fit["task"], fit["size"], fit["epsilon"]), []).append(fit)
    rows = []
    for same in by_cell.values():
        row = {name: same[0][name] for name in ("task", "size", "n", "epsilon")}
        row |= {name: np.mean([fit[name] for fit in same], axis=0).tolist() for name in OURS}
        rows.append(row | {"fits": [error(fit["ours"]) for fit in same]})
    facts = {"commit": commit, "date": datetime.now(UTC).date().isoformat(), "seeds": RIVAL_SEEDS[0 if quick else 1]}
    return facts | {**setting(), "versions": versions(), "skipped": skipped, "rows": rows}


def committed() -> str:
    """Return the commit of the sources; sources that were changed since can't be named by it."""
    if _git("status", "--porcelain", "--", "src"):
        raise SystemExit("src has changes that are not committed. Commit them, so that the results name their sources.")
    return _git("rev-parse", "HEAD")


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=_ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def write(results: dict[str, Any], path: Path) -> None:
    """Write one line per row, numbers with five significant digits."""
    facts = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in results.items() if name != "rows"]
    rows = ",\n".join(json.dumps(rounded(row)) for row in results["rows"])
    path.write_text("{\n" + ",\n".join([*facts, f'"rows": [\n{rows}\n]']) + "\n}\n", encoding="utf-8")


def rounded(value: Any) -> Any:
    """Return the value with every number in it rounded to five significant digits.

    Examples
    --------
    >>> rounded({"n": 48369, "ours": [91.2345678, 0.00123456789]})
    {'n': 48369, 'ours': [91.235, 0.0012346]}
    """
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def show(results: dict[str, Any]) -> None:
    """Print how much was stored."""
    tasks = {row["task"] for row in results["rows"]}
    print(f"{len(results['rows'])} cells of {len(tasks)} tasks, {results['seeds']} seeds, commit {results['commit']}.")
    print(*(f"Left out, {reason}" for reason in results["skipped"]), sep="\n", end="")


if __name__ == "__main__":
    command(__spec__.name, __doc__, run, show, writers={"out": ("write the results", write)})
