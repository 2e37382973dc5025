"""Paper 1, private domain adaptation: `python -m benchmarks adaptation`.

R. Bassily, C. Cortes, A. Mao, M. Mohri. Differentially Private Domain Adaptation with Theoretical Guarantees. ICML
2024: its Tables 1, 2, 3, 5, 6, its Figures 1, 2, 3, the privacy cost of its noise, and speed, on the real sets in
`DPADAPT_DATA`. Without them: Figure 1 on bundled and synthetic sets, privacy costs and speed. The paper's algorithms
are tuned on the test rows, ours are not tuned. `--only figures` measures the private algorithms for regression (also
Table 5), `--only accuracy` Figure 1 for classification, `--only tables` the tables without privacy, `--only costs` the
privacy cost of the printed noise, and speed. Every core runs one process; speed is measured afterwards, by one.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.adaptation import figures, nonprivate
from benchmarks.adaptation.privacy_and_speed import privacy_rows, speed_claims, valid_up_to
from benchmarks.adaptation.sets import CLASSIFICATION, REGRESSION, named
from benchmarks.adaptation.show import GROUPS, show, summarise, write_markdown
from benchmarks.running import command, cores, resumes, watched
from benchmarks.transfer.common import real_data, versions
from dpadapt.errors import DataUnavailable

PARTS = ("figure 1", "dashed", "figure 3", "accuracy", "sentiment", "regression", "classification")


@dataclass(frozen=True)
class Size:
    """How much is measured: seeds, steps of the paper's algorithms, and which sets and cells."""

    seeds: int
    n_steps: int
    rows: tuple[int, ...]
    epsilons: tuple[float, ...]
    figure_sets: tuple[str, ...]
    accuracy_sets: tuple[str, ...]
    accuracy_rows: tuple[int, ...]
    accuracy_epsilons: tuple[float, ...]
    tables: tuple[str, ...]
    pairs: int


FULL = Size(
    seeds=10,
    n_steps=15_000,
    rows=figures.ROWS,
    epsilons=figures.EPSILONS,
    figure_sets=tuple(figures.SETS),
    accuracy_sets=tuple(figures.ACCURACY_ROWS),
    accuracy_rows=tuple(n for rows in figures.ACCURACY_ROWS.values() for n in rows),
    accuracy_epsilons=figures.ACCURACY_EPSILONS,
    tables=tuple(paper_set.name for paper_set in (*REGRESSION, *CLASSIFICATION)),
    pairs=12,
)
QUICK = Size(
    seeds=2,
    n_steps=5_000,
    rows=(300, 1_000),
    epsilons=(0.5, 10.0),
    figure_sets=("Wind", "Gas"),
    accuracy_sets=("Adult",),
    accuracy_rows=(6_847,),
    accuracy_epsilons=(1.0,),
    tables=("Wind", "Gas", "German", "German, repeated", "Accent", "Accent, repeated"),
    pairs=2,
)


@dataclass(frozen=True)
class Piece:
    """The work of one process at a time: a cell of a figure, a pair of products, or one split of a table's set."""

    part: str
    key: tuple[Any, ...]
    size: Size

    @property
    def group(self) -> str:
        """The group of `GROUPS` that the piece belongs to; a dashed line belongs to the figure that it is drawn in."""
        if self.part == "dashed":
            return "accuracy" if self.key[0] in figures.ACCURACY_ROWS else "figures"
        return next(group for group, parts in GROUPS.items() if self.part in parts)


def pieces(*, quick: bool) -> list[Piece]:
    """Return all pieces of work, the longest first."""
    size = QUICK if quick else FULL
    if not real_data():
        sizes = [(name, n) for name in figures.BUNDLED for n in size.rows]
        cells = [Piece("figure 1", (*key, e), size) for key in sizes for e in size.epsilons]
        return cells + [Piece("dashed", key, size) for key in sizes]
    rows = {name: [n for n in figures.ACCURACY_ROWS[name] if n in size.accuracy_rows] for name in size.accuracy_sets}
    work: list[tuple[str, tuple[Any, ...]]] = [
        ("accuracy", (name, n, e)) for name in rows for n in reversed(rows[name]) for e in size.accuracy_epsilons
    ]
    work += [("dashed", (name, n)) for name in rows for n in reversed(rows[name])]
    seeds = range(size.seeds)
    work += [("classification", (s.name, i)) for s in CLASSIFICATION if s.name in size.tables for i in seeds]
    work += [("regression", (s.name, i)) for s in REGRESSION if s.name in size.tables for i in seeds]
    work += [
        ("figure 1", (name, n, e)) for name in size.figure_sets for n in reversed(size.rows) for e in size.epsilons
    ]
    work += [("dashed", (name, n)) for name in size.figure_sets for n in reversed(size.rows)]
    work += [("sentiment", pair) for pair in list(figures.pairs())[: size.pairs]]
    work += [("figure 3", ("Gas", n)) for n in size.rows]
    return [Piece(part, key, size) for part, key in work]


def measure(piece: Piece) -> dict[str, Any]:
    """Return the row of one piece, or the reason why it was skipped."""
    size = piece.size
    options: dict[str, Any] = {"seeds": size.seeds, "n_steps": size.n_steps}
    try:
        if piece.part == "figure 1":
            row = figures.figure_1(*piece.key, **options)
        elif piece.part == "dashed":
            row = figures.without_noise(*piece.key, **options)
        elif piece.part == "figure 3":
            row = figures.figure_3(*piece.key, **options)
        elif piece.part == "accuracy":
            row = figures.accuracy_cell(*piece.key, **options)
        elif piece.part == "sentiment":
            row = figures.pair(*piece.key, **options)
        else:
            name, seed = piece.key
            table = getattr(nonprivate, f"{piece.part}_row")
            row = {"set": name, "seed": seed, "values": table(named(name), seed, n_steps=size.n_steps)}
    except DataUnavailable as missing:
        return {"skipped": f"{piece.part}, {piece.key[0]}: {missing}"}
    return {"row": row}


def run(*, quick: bool, only: Sequence[str] = tuple(GROUPS)) -> dict[str, Any]:
    """Return the results of the groups `only` as plain data."""
    start = time.perf_counter()
    todo = [piece for piece in pieces(quick=quick) if piece.group in only]
    rows_by_part: dict[str, list[Any]] = {part: [] for part in PARTS}
    skipped: set[str] = set()
    for piece, result in watched(measure, todo, cores(), name=_spoken):
        if "row" in result:
            rows_by_part[piece.part].append((todo.index(piece), result["row"]))
        else:
            skipped.add(result["skipped"])
    # Processes finish in any order; sorted, the tables don't depend on it.
    parts: dict[str, Any] = {part: [row for _, row in sorted(rows, key=_first)] for part, rows in rows_by_part.items()}
    dashed = {(row["set"], row["n"]): row for row in parts.pop("dashed")}
    for cell in (*parts["figure 1"], *parts["accuracy"]):
        if line := dashed.get((cell["set"], cell["n"])):
            cell["values"]["no noise"], cell["settings"]["no noise"] = line["values"], line["setting"]
    for part in ("figure 1", "figure 3", "accuracy"):
        order = list(dict.fromkeys(row["set"] for row in parts[part]))
        parts[part].sort(key=lambda row, order=order: (order.index(row["set"]), row["n"], row["epsilon"]))
    for part in ("regression", "classification"):
        parts[part] = list(_merged(parts[part]))
    size = QUICK if quick else FULL
    return {
        "quick": quick,
        "data": "real sets" if real_data() else "bundled and synthetic sets; DPADAPT_DATA not set",
        "seeds": size.seeds,
        "n_steps": size.n_steps,
        "skipped": sorted(skipped),
        "versions": versions(),
        "processes": cores(),
        **parts,
        "privacy": {"rows": privacy_rows(), "valid": valid_up_to()} if "costs" in only else {},
        "speed": list(speed_claims(quick=quick)) if "costs" in only else [],
        "minutes": None if resumes() else (time.perf_counter() - start) / 60,
    }


def write_report(results: dict[str, Any], path: Path) -> None:
    """Write the HTML page with the figures."""
    from benchmarks.pages import adaptation_page

    path.write_text(adaptation_page(summarise(results)), encoding="utf-8")


def _merged(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield one row per set from rows of single splits: each method's figures in the order of splits."""
    for name in dict.fromkeys(row["set"] for row in rows):
        values = [row["values"] for row in sorted(rows, key=lambda row: row["seed"]) if row["set"] == name]
        yield {"set": name, "values": {method: [part[method] for part in values] for method in values[0]}}


def _first(pair: tuple[int, Any]) -> int:
    return pair[0]


def _spoken(piece: Piece) -> str:
    return f"{piece.part}: {', '.join(map(str, piece.key))}"


if __name__ == "__main__":
    writers = {
        "report": ("write a page with the figures", write_report),
        "markdown": ("write the tables between this page's markers", write_markdown),
    }
    command(__spec__.name, __doc__, run, show, writers=writers, parts=tuple(GROUPS))
