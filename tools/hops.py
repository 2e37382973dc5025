"""Count the files that one small fit visits, and how often it changes from one file to another.

    python tools/hops.py [--list]

Each function counts once, at its first call, so loops don't matter: this is the way of a reader who follows the fit
from its first line. Lambdas, comprehensions and the bodies of classes and
modules are left out. `--list` prints the way itself.
"""

import argparse
import contextlib
import inspect
import io
import sys
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pandas as pd

import dpadapt
from dpadapt.mechanisms import Gaussian, clipped_sum

SOURCE = Path(dpadapt.__file__).parent
DELTA = 1e-5


def trace(job: Callable[[], Any]) -> list[tuple[str, str]]:
    """Return the file and the name of each function of the package that `job` calls, in the order of first calls."""
    seen: set[CodeType] = set()
    way: list[tuple[str, str]] = []

    def profile(frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        caller = frame.f_back
        if caller is not None and "importlib" in caller.f_code.co_filename:
            return  # the import machinery, not the fit
        # Bodies of modules and classes are no functions; templates are compiled to Python, but read as HTML.
        function = code.co_flags & inspect.CO_OPTIMIZED and code.co_filename.endswith(".py")
        if event != "call" or code in seen or not function or not code.co_filename.startswith(str(SOURCE)):
            return
        seen.add(code)
        if not code.co_name.startswith("<"):
            way.append((str(Path(code.co_filename).relative_to(SOURCE)), code.co_name))

    sys.setprofile(profile)
    try:
        job()
    finally:
        sys.setprofile(None)
    return way


def hops(way: list[tuple[str, str]]) -> tuple[int, int]:
    """Return the number of files on the way, and of changes of file."""
    files = [file for file, _ in way]
    return len(set(files)), sum(a != b for a, b in pairwise(files))


def jobs() -> dict[str, Callable[[], Any]]:
    """Return the fits that are counted, by name. Data is made up; imports are done before."""
    random = np.random.default_rng(7)
    X, X_public = random.uniform(-1, 1, (800, 5)), random.uniform(-1, 1, (300, 5))
    w = np.array([1.0, 0.5, -1.0, 0.2, 0.0])
    y, y_public = X @ w + 0.3, X_public @ w
    public, classes = dpadapt.Public(X_public, y_public), dpadapt.Public(X_public, y_public > 0)
    targets = dpadapt.Public(X_public)
    from dpadapt.clustering import PrivateSourceTargetClustering
    from dpadapt.hybrid import PrivateHybridClassifier, SimulatedAgents

    people = SimulatedAgents(X, y > 0, 2.0, n_people=30_000, random_state=1)
    regressor = dpadapt.PrivateTransferRegressor(2.0, DELTA, random_state=0)
    classifier = dpadapt.PrivateTransferClassifier(2.0, DELTA, random_state=0)
    hybrid = PrivateHybridClassifier(2.0, DELTA, bounds=(-1, 1), classes=[False, True], random_state=0)
    clustering = PrivateSourceTargetClustering(5, epsilon=1.0, random_state=0)
    ledger, noise, statistic = dpadapt.Ledger(3.0, DELTA), Gaussian(7.3), clipped_sum(X, 1.0)
    return {
        "dpadapt fit": _command(X, y, X_public, y_public),
        "transfer regressor": lambda: regressor.fit(X, y, public=public),
        "transfer classifier": lambda: classifier.fit(X, y > 0, public=classes),
        "clustering": lambda: clustering.fit(X, public=targets),
        "hybrid": lambda: hybrid.fit(X, y > 0, agents=people),
        "TableModel.fit": _table_model(X, y, X_public, y_public),
        # With noise of its own: costs that were computed before are remembered.
        "one release": lambda: ledger.release(noise, statistic, label="sum"),
    }


def _table_model(X: Any, y: Any, X_public: Any, y_public: Any) -> Callable[[], Any]:
    """Return the fit of a `TableModel` on two small data frames."""
    columns = [f"x{i}" for i in range(X.shape[1])]
    private, public = (
        pd.DataFrame(rows, columns=columns).assign(y=labels) for rows, labels in ((X, y), (X_public, y_public))
    )
    estimator = dpadapt.PrivateTransferRegressor(1.7, DELTA, random_state=0)
    model = dpadapt.TableModel(estimator, dpadapt.Schema.infer(public, dataset="made up"), label="y")
    return lambda: model.fit(private, public=dpadapt.Public(public))


def _command(X: Any, y: Any, X_public: Any, y_public: Any) -> Callable[[], Any]:
    """Return `dpadapt fit` on two small CSV files."""
    from dpadapt.cli import main

    folder = Path(tempfile.mkdtemp(prefix="dpadapt-hops-"))
    for name, rows, labels in (("private", X, y), ("public", X_public, y_public)):
        table = np.column_stack([rows, labels])
        header = ",".join([*(f"x{i}" for i in range(rows.shape[1])), "y"])
        np.savetxt(folder / f"{name}.csv", table, delimiter=",", header=header, comments="", fmt="%.6f")
    quiet = contextlib.redirect_stdout(io.StringIO())
    with quiet:
        main(["schema", str(folder / "public.csv"), "-o", str(folder / "schema.toml")])
    words = (
        f"fit --private {folder}/private.csv --public {folder}/public.csv --schema {folder}/schema.toml --label y "
        f"--task regression --epsilon 2 --delta {DELTA} --ledger {folder}/ledger --out {folder}/model"
    ).split()

    def job() -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            if main(words) != 0:
                raise RuntimeError("dpadapt fit failed.")

    return job


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print every function on the way")
    options = parser.parse_args()
    for name, job in jobs().items():
        way = trace(job)
        n_files, n_changes = hops(way)
        print(f"{name:20} {n_files:3} files {n_changes:4} changes of file")
        if options.list:
            print("\n".join(f"    {file}: {function}" for file, function in way))
