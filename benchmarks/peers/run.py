"""Errors of dpadapt and of what else a user could take, on the same public, private and test rows of bundled sets.

The rows are those of `benchmarks.transfer`: a seed draws test rows, and all others of the private pool are private.
Everything has its default parameters, or those that are stated. Libraries that need an environment of their own are
left out unless `DPADAPT_PEERS` names its Python. From scikit-learn 1.4 on, losses are means, to which diffprivlib 0.6.5
adds the noise of sums, which is far too much; so it has an earlier one:

    python -m venv peers && peers/bin/pip install 'scikit-learn<1.4' 'numpy<2' diffprivlib opacus torch
    export DPADAPT_PEERS=peers/bin/python
    python -m benchmarks peers --markdown docs/benchmarks/peers.md --picture docs/peers.svg
"""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.pages import chart_file, write_between
from benchmarks.running import command, cores, one_thread, watched
from benchmarks.transfer import fits
from benchmarks.transfer.common import print_tables, setting_text, split, titled, value_text, versions
from benchmarks.transfer.sets import Task, classes_of, loaded, task_named
from dpadapt.report.charts import Level, Line, LineChart, Panel

SETS = ("randhie by plan", "randhie by health", "fair by age", "fair by children", "digits")
EPSILONS = (0.3, 1.0, 3.0)
SEEDS = (2, 10)
DELTA = 1e-6
OURS, LIMIT = "dpadapt", "boosting, no privacy"
# What `outside.py` measures, with the best of its rates.
OPACUS, DIFFPRIVLIB = "Opacus", "diffprivlib"
# Without privacy, and with it: with public rows, then with private rows alone.
MODELS: dict[str, str] = {
    OURS: "`PrivateTransferRegressor` or `PrivateTransferClassifier`, with default parameters.",
    "public linear": "ridge or logistic regression with a tuned penalty on the public rows.",
    "public boosting": "scikit-learn's histogram gradient boosting on the public rows.",
    "fine-tuning": "DP-SGD from the public model, in dpadapt, with settings that it chooses from public rows.",
    OPACUS: "DP-SGD from the public linear model: 20 epochs, batches of 256, clipping norm 3, "
    "rate 0.01, 0.03, 0.1 or 0.3, whichever is best on the test rows (a choice that is not private).",
    "private only": "`PrivateLinearRegression` or `PrivateLogisticRegression`; public rows give ranges alone.",
    "DP-EBM": "of interpret, on private rows; public rows give ranges alone. It has at most two classes.",
    DIFFPRIVLIB: "its linear or logistic regression on private rows; public rows give ranges alone. Its delta is 0.",
    LIMIT: "boosting on public and private rows, or private rows alone, whichever is better: no guarantee.",
}
RIVALS = tuple(name for name in MODELS if name not in (OURS, LIMIT))
START, END = "<!-- bench peers -->", "<!-- end of bench peers -->"


def measure(name: str) -> dict[str, Any]:
    """Return the errors of all models for every epsilon and seed of one set, such as "digits x 10" (ten seeds)."""
    name, _, seeds = name.rpartition(" x ")
    task, began = task_named(name), time.process_time()
    outside = _outside(task, int(seeds))
    rows = [row for seed in range(int(seeds)) for row in _errors(task, seed, outside)]
    return {"rows": rows, "seconds": time.process_time() - began}


def _errors(task: Task, seed: int, outside: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    (domains, public), classes = loaded(task), classes_of(task)
    test, private = split(len(domains.y), seed)
    X, y, y_test = domains.X[private[0]], domains.y[private[0]], domains.y[test]

    def error_of(model: Any, X_test: Any = domains.X[test], *, n_rows: int = 0) -> Any:
        return fits.measured(model, X_test, y_test, classes, n_rows=n_rows)

    alone = {n: error_of(model, n_rows=len(domains.y_public)) for n, model in fits.public_models(task).items()}
    alone[LIMIT] = fits.not_private(task, X, y, error_of)
    for i, epsilon in enumerate(EPSILONS):
        params: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "random_state": 1_000 * seed + i}
        row = {"task": task.name, "kind": task.kind, "n": len(y), "epsilon": epsilon, "seed": seed, **alone}
        row[OURS] = error_of(fits.estimator(task, **params).fit(X, y, public=public))
        row["fine-tuning"] = error_of(fits.fit_from_one_start(task, fits.fine_tuned(task, **params), X, y, public))
        of_ranges = fits.private_only(task, **params).fit(fits.scaled(task)[private[0]], y)
        row["private only"] = error_of(of_ranges, fits.scaled(task)[test])
        if fits.has_dp_ebm() and len(classes) <= 2:
            row["DP-EBM"] = error_of(fits.dp_ebm(task, X, y, **params), n_rows=len(y))
        for key in outside:
            peer, of_epsilon, of_seed = key.split("|")
            if (float(of_epsilon), int(of_seed)) == (epsilon, seed):
                row[peer] = _error_of_predictions(outside[key], y_test, classes)
        yield row


def _error_of_predictions(predicted: Any, y: Any, classes: Any) -> Any:
    if not len(classes):
        return float(np.mean((predicted - y) ** 2) / np.var(y))
    return fits.accuracy_and_log_loss(predicted, np.searchsorted(classes, y))


def _outside(task: Task, seeds: int) -> dict[str, Any]:
    """Return the predictions of the libraries in the environment that `DPADAPT_PEERS` names, if there is one."""
    python = os.environ.get("DPADAPT_PEERS")
    if not python:
        return {}
    domains, _ = loaded(task)
    data: dict[str, Any] = {"X_public": domains.X_public, "y_public": domains.y_public, "X": domains.X, "y": domains.y}
    data |= {"classes": classes_of(task), "seeds": np.arange(seeds), "epsilons": EPSILONS, "delta": DELTA}
    for seed in range(seeds):
        data[f"test {seed}"], private = split(len(domains.y), seed)
        data[f"private {seed}"] = private[0]
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder, "data.npz"), Path(folder, "found.npz")
        np.savez(given, **data)
        script = Path(__file__).with_name("outside.py")
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | one_thread()
        subprocess.run([python, str(script), str(given), str(found)], check=True, env=environment)
        with np.load(found) as arrays:
            return dict(arrays)


def run(*, quick: bool) -> dict[str, Any]:
    """Measure every set."""
    todo = [f"{name} x {SEEDS[not quick]}" for name in SETS]
    found = dict(watched(measure, todo, cores(), name=str))
    return {
        "quick": quick,
        "versions": {**versions(), **_peer_versions()},
        "seconds": sum(found[piece]["seconds"] for piece in todo),
        "rows": [row for piece in todo for row in found[piece]["rows"]],
    }


def _peer_versions() -> dict[str, str]:
    """Return the versions of the peers that are measured."""
    from importlib.metadata import version

    found = {"interpret-core": version("interpret-core")} if fits.has_dp_ebm() else {}
    python = os.environ.get("DPADAPT_PEERS")
    if python:
        names = ("diffprivlib", "opacus", "torch")
        ask = f"from importlib.metadata import version\nprint(*map(version, {names}))"
        answer = subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True).stdout
        found |= dict(zip(names, answer.split(), strict=True))
    return found


# Summaries.


def cells(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one cell per set and epsilon, with the errors of every model over the seeds.

    Of Opacus' rates, the one with the least mean error is kept. Models that were not measured are missing.
    """
    made = []
    keys = dict.fromkeys((row["task"], row["epsilon"]) for row in results["rows"])
    for task, epsilon in keys:
        rows = [row for row in results["rows"] if (row["task"], row["epsilon"]) == (task, epsilon)]
        names = [name for name in rows[0] if name not in ("task", "kind", "n", "epsilon", "seed")]
        errors = {name: np.array([np.atleast_1d(row[name]) for row in rows]) for name in names}
        rates = [name for name in names if name.startswith(f"{OPACUS}, rate")]
        if rates:
            errors[OPACUS] = min((errors.pop(name) for name in rates), key=lambda values: float(values[:, -1].mean()))
        made.append({"task": task, "epsilon": epsilon, "kind": rows[0]["kind"], "n": rows[0]["n"], "errors": errors})
    return made


def outcome(ours: Any, rival: Any) -> str:
    """Return whether ours wins, ties or loses: a tie if the 95% interval of the paired ratio of errors holds 1.

    Ratios are averaged by their logarithms: a rival with a few huge errors would otherwise tie with everything.

    Examples
    --------
    >>> import numpy as np
    >>> rival = np.linspace(1.0, 2.0, 10)
    >>> outcome(rival - 0.1, rival), outcome(rival + 0.1, rival), outcome(rival[::-1], rival)
    ('wins', 'loses', 'ties')
    """
    difference = np.log(ours) - np.log(rival)
    if not np.isfinite(difference).all():
        raise ValueError("errors must be positive numbers")
    mean, half = float(np.mean(difference)), half_width(difference)
    return "ties" if abs(mean) <= half else "wins" if mean < 0 else "loses"


def half_width(values: Any) -> float:
    """Return half the width of the 95% interval of a mean over seeds."""
    return float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))


def outcomes(results: Mapping[str, Any]) -> dict[str, dict[str, list[str]]]:
    """Return, for every rival, the names of the cells in which ours wins, ties and loses."""
    found: dict[str, dict[str, list[str]]] = {}
    for cell in cells(results):
        for rival in RIVALS:
            if rival in cell["errors"]:
                said = outcome(cell["errors"][OURS][:, -1], cell["errors"][rival][:, -1])
                places = found.setdefault(rival, {"wins": [], "ties": [], "loses": []})
                places[said].append(f"{cell['task']} at {cell['epsilon']:g}")
    return found


def tables(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tables: who wins, then the errors of every model."""
    made = cells(results)
    names = [name for name in MODELS if any(name in cell["errors"] for cell in made)]
    won = [
        {"cells": [rival, *(str(len(said[word])) for word in said), ", ".join(said["loses"]) or "-"], "bad": False}
        for rival, said in outcomes(results).items()
    ]
    return [
        {
            "title": "Where dpadapt wins, ties and loses",
            "words": "Cells (a set and an epsilon) by the paired ratio over seeds of mean squared errors or "
            "log-losses; a tie is a 95% interval that holds 1. Seeds share rows, so intervals are a little too narrow.",
            "header": ["dpadapt against", "wins", "ties", "loses", "loses where"],
            "rows": won,
        },
        _errors_table(
            "Regression: mean squared error over the variance of the test labels", made, names, 0, "regression"
        ),
        _errors_table("Classification: log-loss", made, names, 1, "classification"),
        _errors_table("Classification: percent wrong", made, names, 0, "classification"),
    ]


def _errors_table(
    title: str, made: Sequence[Mapping[str, Any]], names: Sequence[str], column: int, kind: str
) -> dict[str, Any]:
    rows = []
    for cell in made:
        if cell["kind"] == kind:
            values = {name: float(errors[:, column].mean()) for name, errors in cell["errors"].items()}
            if title.endswith("percent wrong"):
                values = {name: 100 - value for name, value in values.items()}
            best = min(value for name, value in values.items() if name != LIMIT)
            shown = [_bold(values.get(name), best, percent=title.endswith("wrong")) for name in names]
            rows.append({"cells": [cell["task"], f"{cell['n']:,}", f"{cell['epsilon']:g}", *shown], "bad": False})
    words = "Means over seeds; the least of each line, without the last column, is bold."
    return {"title": title, "words": words, "header": ["set", "private rows", "epsilon", *names], "rows": rows}


def _bold(value: float | None, best: float, *, percent: bool) -> str:
    if value is None:
        return "-"
    text = f"{value:.1f}" if percent else value_text(value)
    return f"**{text}**" if value == best else text


def show(results: Mapping[str, Any]) -> None:
    """Print the tables."""
    print_tables(tables(results), (), [setting_text(results), f"{results['seconds'] / 60:.1f} minutes of CPU time"])


def write_markdown(results: Mapping[str, Any], path: Path) -> None:
    """Write the tables between the markers of a page."""
    seeds = len({row["seed"] for row in results["rows"]})
    measured = {name for row in results["rows"] for name in row}
    left_out = [] if any(name.startswith(OPACUS) for name in measured) else [f"{OPACUS} and {DIFFPRIVLIB}"]
    left_out += [] if "DP-EBM" in measured else ["DP-EBM"]
    parts = [
        f"Printed by `python -m benchmarks peers`. {setting_text(results)} Bundled sets; {seeds} seeds; "
        f"{results['seconds'] / 60:.1f} minutes of CPU time besides those of other environments; zero-out, "
        f"delta {DELTA:g}." + (f" Not measured: {', '.join(left_out)}." if left_out else ""),
        "\n".join(f"- **{name}**: {words}" for name, words in MODELS.items()),
    ]
    for table in tables(results):
        parts += titled(table)
    write_between(path, "\n\n".join(parts) + "\n", START, END)


# The picture of the README.

_PICTURE_SETS = ("randhie by plan", "fair by age")
_PICTURE_LINES = {OURS: "s2", "fine-tuning": "s1", "private only": "s3", "DP-EBM": "s4"}
_PICTURE_LEVELS = ("public linear", "public boosting")


def picture(results: Mapping[str, Any]) -> str:
    """Return an SVG of errors over epsilon relative to the better public model, which every reader already has."""
    made = cells(results)
    panels = []
    for task in _PICTURE_SETS:
        of_task = [cell for cell in made if cell["task"] == task]
        free = min((of_task[0]["errors"][name][:, -1] for name in _PICTURE_LEVELS), key=np.mean)
        lines = []
        for name, style in _PICTURE_LINES.items():
            if name not in of_task[0]["errors"]:
                continue
            ratios = [cell["errors"][name][:, -1] / free for cell in of_task]
            means = [float(values.mean()) for values in ratios]
            halves = [half_width(values) for values in ratios]
            low, high = ([m + sign * h for m, h in zip(means, halves, strict=True)] for sign in (-1, 1))
            lines.append(
                Line(name, [cell["epsilon"] for cell in of_task], means, low, high, style, dashed=name != OURS)
            )
        levels = [Level("best public model", 1.0)]
        panels.append(Panel(lines, levels, "epsilon", f"{task}, {of_task[0]['n']:,} private rows"))
    title = "Error over that of the best public model, by epsilon; below 1 the private rows were worth their budget"
    return chart_file(LineChart(panels, title, "error over best public").svg())


def write_picture(results: Mapping[str, Any], path: Path) -> None:
    """Write the picture as a file of its own."""
    path.write_text(picture(results), encoding="utf-8")


if __name__ == "__main__":
    command(
        __spec__.name,
        __doc__,
        run,
        show,
        writers={
            "markdown": ("write the tables between the markers of this page", write_markdown),
            "picture": ("write the picture of the README", write_picture),
        },
    )
