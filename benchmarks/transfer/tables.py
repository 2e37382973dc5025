"""Results of `python -m benchmarks transfer` as verdicts, tables and heat maps for terminal, page and documentation."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pages import pipes, svg_file, transfer_map, write_between
from benchmarks.transfer.claims import CORRUPTION_LIMIT, CORRUPTIONS, corruption_claims, corruption_ratio
from benchmarks.transfer.common import (
    SIZES,
    Row,
    by_task,
    cell_text,
    claim,
    error,
    harm,
    points,
    print_tables,
    ratio_text,
    run_text,
    size_text,
    titled,
    value_text,
    worst_rise,
)
from benchmarks.transfer.fits import (
    DP_EBM,
    DP_EBM_SEEDS,
    EPSILONS,
    FINE_TUNING,
    FIXED_FINE_TUNING,
    FIXED_SETTING,
    OURS,
    RIVALS,
)
from benchmarks.transfer.sets import KINDS

START, END = "<!-- bench transfer -->", "<!-- end of bench transfer -->"
# Limits of the mean of a cell: error over that of another model, points of accuracy below the public model, error over
# that of a smaller cell of the same set, error over private only where the public model is worse than none.
BEHIND_LIMIT, POINTS_LIMIT, RISE_LIMIT, LEFT_LIMIT = 1.01, 0.3, 1.02, 1.15
# Limits of single fits, error over that of the public model: one that few exceed, and the share; one at a quantile,
# and the fits without which that quantile says little.
FIT_LIMIT, FITS_SHARE = 1.02, 0.01
QUANTILE, QUANTILE_LIMIT, QUANTILE_FITS = 0.999, 1.05, 2_000
# Columns of the tables, where the models were measured.
_COLUMNS = (
    *("public linear", "public boosting", "public", "ours", "landed"),
    *(FINE_TUNING, FIXED_FINE_TUNING, "private only", "not private", DP_EBM),
)
_SUMMARISED = ("ours", "landed", "public", *(name for name in (*RIVALS, DP_EBM) if name != "best public"))
_MEASURES = {
    "regression": "mean squared error over the variance of the labels",
    "classification": "accuracy in percent and log-loss; ratios are of the log-loss",
}


# Verdicts.


def verdicts(results: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return all claims, those about every cell first."""
    of_cells = [verdict for kind in KINDS for verdict in _grid_verdicts(kind, _of_kind(results["cells"], kind))]
    of_cells += _harm_verdicts("hard sets", results["robustness"])
    return [*of_cells, *corruption_claims(results["corruption"]), *results["claims"]]


def _grid_verdicts(kind: str, rows: Sequence[Row]) -> Iterator[dict[str, str]]:
    yield from _harm_verdicts(kind, rows)
    if rows:
        yield _rises(kind, rows)
        yield _on_average(kind, rows)
    large = [row for row in rows if row["n"] >= 1000 and row["epsilon"] >= 1]
    if large:
        what = f"{kind}: never behind public boosting by over 1% at epsilon >= 1 and n >= 1,000"
        yield _never_behind(what, large, "public boosting")
    landed = [row for row in rows if not row["size"] and row["epsilon"] >= 1 and "landed" in row["compared"]]
    if landed:
        what = f"{kind}: never behind the landed estimators by over 1% with all rows at epsilon >= 1"
        yield _never_behind(what, landed, "landed")
    # One is the error of no model: the mean of the labels.
    bad = [row for row in large if kind == "regression" and error(row["public"]) > 1]
    if bad:
        what = "regression: where the public model is worse than none, epsilon >= 1 and n >= 1,000: at most"
        yield _never_behind(f"{what} {LEFT_LIMIT} x private only", bad, "private only", limit=LEFT_LIMIT)


def _harm_verdicts(name: str, rows: Sequence[Row]) -> Iterator[dict[str, str]]:
    """Yield the claims of no harm against the estimator's public model: of cells, and of single fits."""
    if not rows:
        return
    above = sum(_harmed(row) for row in rows)
    worst = max(rows, key=harm)
    text = f"{above} of {len(rows)} cells above; worst {_harm(worst):.3f} x ({cell_text(worst)})"
    what = f"{name}: every cell at most {BEHIND_LIMIT} x the estimator's public model"
    if classifying := [row for row in rows if np.ndim(row["ours"])]:
        lowest = min(classifying, key=points)
        what += f", classes at most {POINTS_LIMIT} points less accurate"
        text += f", {points(lowest):+.2f} points ({cell_text(lowest)})"
    yield claim(what, text, not above)
    ratios = np.array([ratio for row in rows for ratio in row["ratios"]])
    above = int(np.sum(~(ratios <= FIT_LIMIT)))
    percent = round(100 * above / len(ratios), 1)
    worst = max(rows, key=lambda row: max(row["ratios"]))
    text = f"{percent:.1f}% ({above} of {len(ratios)}); worst {max(worst['ratios']):.3f} x ({cell_text(worst)})"
    what = f"{name}: at most {FITS_SHARE:.0%} of single fits above {FIT_LIMIT} x the estimator's public model"
    yield claim(what, text, percent <= 100 * FITS_SHARE)
    if len(ratios) >= QUANTILE_FITS:
        high = round(float(np.quantile(ratios, QUANTILE)), 3)
        what = f"{name}: {QUANTILE:.1%} of single fits at most {QUANTILE_LIMIT} x the estimator's public model"
        yield claim(what, f"{high:.3f} x ({len(ratios):,} fits)", high <= QUANTILE_LIMIT)


def _never_behind(what: str, rows: Sequence[Row], other: str, *, limit: float = BEHIND_LIMIT) -> dict[str, str]:
    # Written with `not`, so that NaN counts as behind.
    above = sum(not _over(row, other) <= limit for row in rows)
    worst = max(rows, key=lambda row: _over(row, other))
    text = f"{above} of {len(rows)} cells above; worst {_over(worst, other):.3f} x ({cell_text(worst)})"
    return claim(what, text, not above)


def _rises(kind: str, rows: Sequence[Row]) -> dict[str, str]:
    rises = {name: round(worst_rise(cells), 3) for name, cells in by_task(rows)}
    worst = max(rises, key=lambda name: rises[name])
    above = sum(not rise <= RISE_LIMIT for rise in rises.values())
    text = f"{above} of {len(rises)} sets above; worst {100 * (rises[worst] - 1):+.1f}% ({worst})"
    return claim(f"{kind}: error never rises by over 2% as n or epsilon grows", text, not above)


def _on_average(kind: str, rows: Sequence[Row]) -> dict[str, str]:
    mean = round(geometric_mean([row for row in rows if not row["size"] and row["epsilon"] == 1], "ours"), 3)
    what = f"{kind}: below the best public model with all rows at epsilon 1, as a geometric mean over sets"
    return claim(what, f"{mean:.3f} x", mean < 1)


def geometric_mean(rows: Sequence[Row], name: str) -> float:
    """Return the geometric mean of a model's error over that of the best public model.

    Examples
    --------
    >>> geometric_mean([{"relative": {"ours": 0.5}}, {"relative": {"ours": 2.0}}], "ours")
    1.0
    """
    return float(np.exp(np.mean([np.log(row["relative"][name]) for row in rows])))


def _harm(row: Row) -> float:
    """Return our error over that of the public model, rounded to the digits shown, so that verdicts fit numbers."""
    return round(harm(row), 3)


def _harmed(row: Row) -> bool:
    return not (_harm(row) <= BEHIND_LIMIT and round(points(row), 2) >= -POINTS_LIMIT)


def _over(row: Row, other: str) -> float:
    """Return our error over that of another model on the same seeds, rounded to the digits that are shown."""
    return round(error(row["compared"]["ours"]) / max(error(row["compared"][other]), 1e-300), 3)


def _behind(row: Row) -> bool:
    return not _over(row, "best public") <= BEHIND_LIMIT


# Tables.


def tables(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tables of the page and the terminal."""
    every_kind = [every_cell(results, kind) for kind in KINDS]
    candidates = [summary(results), safety(results, "cells"), safety(results, "robustness"), corrupted(results)]
    return [table for table in (*candidates, *every_kind) if table["rows"]]


def summary(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return geometric means over sets of the error over that of the best public model."""
    rows = []
    for kind in KINDS:
        for size in SIZES:
            for name in _SUMMARISED:
                of_size = [row for row in _of_kind(results["cells"], kind) if row["size"] == size]
                cells = [row for row in of_size if name in row["relative"]]
                if not cells:
                    continue
                texts = [kind, size_text(size), str(len({row["task"] for row in cells})), name]
                for epsilon in EPSILONS:
                    same = [row for row in cells if row["epsilon"] == epsilon]
                    texts.append(f"{geometric_mean(same, name):.3f}" if same else "-")
                rows.append({"cells": texts, "bad": False})
    return {
        "title": "Against what a user already has: geometric means over sets",
        "words": "Error over that of the best public model; 1 is as good as it.",
        "header": ["kind", "private rows", "sets", "model", *(f"epsilon {epsilon:g}" for epsilon in EPSILONS)],
        "rows": rows,
    }


def safety(results: Mapping[str, Any], part: str) -> dict[str, Any]:
    """Return harm and monotonicity by set, of the grid (`cells`) or of the hard sets (`robustness`)."""
    rows = []
    for name, cells in by_task(results[part]):
        ratios = [ratio for row in cells for ratio in row["ratios"]]
        above = sum(not ratio <= FIT_LIMIT for ratio in ratios)
        rise = round(worst_rise(cells), 3)
        accuracy = f"{min(map(points, cells)):+.2f}" if np.ndim(cells[0]["ours"]) else "-"
        texts = [
            name,
            value_text(cells[0]["public"]),
            ratio_text(max(map(_harm, cells))),
            ratio_text(min(map(_harm, cells))),
            accuracy,
            ratio_text(max(ratios)),
            f"{above} of {len(ratios)}",
            f"{100 * (rise - 1):.1f}%",
        ]
        rows.append({"cells": texts, "bad": any(map(_harmed, cells)) or not rise <= RISE_LIMIT})
    columns = ["set", "public model", "worst cell", "best cell", "points", "worst fit", f"fits above {FIT_LIMIT}"]
    return {
        "title": "Harm and monotonicity by set" if part == "cells" else "Sets that are hard on purpose",
        "words": "Error over that of the estimator's public model; the fewest points of accuracy gained. Rise: how far "
        "the mean error of a cell lies above that of a cell with no more rows and no more budget.",
        "header": [*columns, "worst rise"],
        "rows": rows,
    }


def corrupted(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return the error with corrupted public data over that with clean data."""
    rows = []
    for row in results["corruption"]:
        ratios = [corruption_ratio(row, name) for name in CORRUPTIONS]
        texts = [row["task"], value_text(row["clean"]), *map(ratio_text, ratios)]
        rows.append({"cells": texts, "bad": any(not ratio <= CORRUPTION_LIMIT for ratio in ratios)})
    return {
        "title": "Corrupted public data",
        "words": "Mean squared error over the variance of the labels, or log-loss, with clean public data; then the "
        "error with corrupted labels and with corrupted cells over it.",
        "header": ["set", "clean", *CORRUPTIONS],
        "rows": rows,
    }


def every_cell(results: Mapping[str, Any], kind: str, *, epsilons: Sequence[float] = EPSILONS) -> dict[str, Any]:
    """Return every model side by side, a row per cell."""
    cells = [row for row in _of_kind(results["cells"], kind) if row["epsilon"] in epsilons]
    names = [name for name in _COLUMNS if any(name in row["compared"] for row in cells)]
    rows = []
    for row in cells:
        interval = "" if row["interval"] is None else " [{:.3f}, {:.3f}]".format(*row["interval"])
        texts = [
            row["task"],
            f"{row['n']:,}",
            f"{row['epsilon']:g}",
            *(value_text(row["compared"][name]) if name in row["compared"] else "-" for name in names),
            f"{_over(row, 'best public'):.3f}{interval}",
            f"{row['regret']:.3f}",
        ]
        rows.append({"cells": texts, "bad": _harmed(row)})
    return {
        "title": f"{kind.capitalize()}: against what a user already has",
        "words": f"{_MEASURES[kind].capitalize()}. Regret: ours over the best model that a user could have had.",
        "header": ["set", "rows", "epsilon", *names, "ours / best public [95%]", "regret"],
        "rows": rows,
    }


# Heat maps.


def heat_maps(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return two maps per kind: against the estimator's public model, hard sets included, and against the best one."""
    maps = []
    for kind in KINDS:
        cells = _of_kind(results["cells"], kind)
        against_own = [*cells, *_of_kind(results["robustness"], kind)]
        if not against_own:
            continue
        harmed, behind = sum(map(_harmed, against_own)), sum(map(_behind, cells))
        words = f"{harmed} of {len(against_own)} cells are worse than the claim of no harm allows."
        title = f"{kind.capitalize()}: error over that of the estimator's public model"
        maps.append({"title": title, "words": words, "file": f"{kind}-harm", **_map(against_own, _harm_cell)})
        words = f"{behind} of {len(cells)} cells are behind the best public model by over 1%."
        title = f"{kind.capitalize()}: error over that of the best public model"
        maps.append({"title": title, "words": words, "file": f"{kind}-best", **_map(cells, _best_cell)})
    return maps


def _map(cells: Sequence[Row], drawn: Any) -> dict[str, Any]:
    """Return a row per set, a group of columns per number of private rows, a column per epsilon."""
    rows = []
    for name, of_set in by_task(cells):
        placed = {(row["size"], row["epsilon"]): row for row in of_set}
        line = [placed.get((size, epsilon)) for size in SIZES for epsilon in EPSILONS]
        rows.append({"name": name, "cells": [row and drawn(row) for row in line]})
    columns = [f"{epsilon:g}" for epsilon in EPSILONS]
    return {"rows": rows, "groups": [{"name": f"{size_text(size)} rows", "columns": columns} for size in SIZES]}


def _harm_cell(row: Row) -> dict[str, Any]:
    values = ", ".join(f"{name} {value_text(row[name])}" for name in OURS)
    return {"value": _harm(row), "harm": _harmed(row), "note": f"{cell_text(row)}: {values}"}


def _best_cell(row: Row) -> dict[str, Any]:
    values = ", ".join(f"{name} {value_text(row['compared'][name])}" for name in ("ours", "best public"))
    return {"value": _over(row, "best public"), "harm": _behind(row), "note": f"{cell_text(row)}: {values}"}


# Outputs.


def facts(results: Mapping[str, Any]) -> list[str]:
    """Return sentences on how the results were measured."""
    setting, landed, (seeds, rival_seeds) = results["setting"], results["landed"], results["seeds"]
    fixed = "; ".join(
        f"{kind}: " + ", ".join(f"{name} {value:g}" for name, value in FIXED_SETTING[kind].items()) for kind in KINDS
    )
    sentences = [
        f"{run_text(results)}; {results['processes']} core(s); {results['data']}.",
        f"Means over {seeds} seeds for ours and the public model, over the first {rival_seeds} of them wherever other "
        f"models are compared; {setting['adjacency']}, delta {setting['delta']:g}.",
        "The best public model is the better of linear and boosting on the test rows, so it is chosen in hindsight.",
        f"{FIXED_FINE_TUNING.capitalize()} was chosen in hindsight, too ({fixed}; the clipping norm of regression is "
        "in standard deviations of the public labels).",
        "Not private is the better of boosting on public and private rows and on private rows; regret leaves it out.",
    ]
    if landed:
        sentences.append(
            f"Landed: the estimators of commit {landed['commit'][:12]} ({landed['date']}), on the same seeds."
        )
    if any(DP_EBM in row["compared"] for row in results["cells"]):
        sentences.append(f"{DP_EBM}: the first {DP_EBM_SEEDS} seeds, at most two classes; regret leaves it out.")
    return [*sentences, *(f"Left out, {reason}" for reason in results["skipped"])]


def show(results: dict[str, Any]) -> None:
    """Print the tables."""
    print_tables(tables(results), verdicts(results), facts(results))


def summarise(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the HTML page shows, as plain data."""
    return {
        "version": results["versions"]["dpadapt"],
        "facts": facts(results),
        "claims": verdicts(results),
        "tables": tables(results),
        "maps": heat_maps(results),
    }


def markdown(results: Mapping[str, Any], pictures: Mapping[str, str]) -> str:
    """Return the page of the documentation: claims, heat maps from files, tables; `pictures` are files by title."""
    parts = [" ".join(["Printed by `python -m benchmarks transfer`.", *facts(results)])]
    parts.append(pipes(["claim", "measured", "verdict"], [list(row.values()) for row in verdicts(results)]))
    parts += [f"![{title}]({file})" for title, file in pictures.items()]
    for table in (summary(results), safety(results, "cells"), safety(results, "robustness"), corrupted(results)):
        parts += titled(table) if table["rows"] else []
    epsilons = " / ".join(f"{epsilon:g}" for epsilon in EPSILONS)
    for kind in KINDS:
        if cells := _of_kind(results["cells"], kind):
            what = f"Error over that of the best public model at epsilon {epsilons}; bold is above {BEHIND_LIMIT}"
            parts += [f"**{kind.capitalize()}.** {what}.", _grid_pipes(cells)]
            parts += titled(every_cell(results, kind, epsilons=(1.0,)))
    return "\n\n".join(parts) + "\n"


def write_markdown(results: Mapping[str, Any], path: Path) -> None:
    """Write the tables between the markers of a page, and the heat maps into files beside it."""
    pictures = {}
    for drawn in heat_maps(results):
        file = path.with_name(f"{path.stem}-{drawn['file']}.svg")
        file.write_text(svg_file(transfer_map(drawn)), encoding="utf-8")
        pictures[f"{drawn['title']}. {drawn['words']}"] = file.name
    write_between(path, markdown(results, pictures), START, END)


def _grid_pipes(cells: Sequence[Row]) -> str:
    rows = []
    for name, of_set in by_task(cells):
        columns = [" ".join(_marked(row) for row in of_set if row["size"] == size) or "fewer rows" for size in SIZES]
        rows.append([name, value_text(of_set[0]["compared"]["best public"]), *columns])
    return pipes(["set", "best public", *(f"{size_text(size)} rows" for size in SIZES)], rows)


def _marked(row: Row) -> str:
    text = ratio_text(_over(row, "best public"))
    return f"**{text}**" if _behind(row) else text


def _of_kind(rows: Sequence[Row], kind: str) -> list[Row]:
    return [row for row in rows if row["kind"] == kind]
