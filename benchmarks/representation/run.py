"""Paper 4, public representations: `python -m benchmarks representation`.

"On the Benefits of Public Representations for Private Transfer Learning under Distribution Shift", arXiv:2312.15551:
Figure 3 by simulation, and the probes of Section 4 on the sets and encoders that are available here. Data and noise are
seeded. A star marks settings that were chosen by the reported figure: such rows are not private.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.pages import figure_file, pipes, state_run, write_between
from benchmarks.representation import networks, probe, shifted, subspace
from benchmarks.running import command, cores, watched
from benchmarks.transfer.common import versions
from dpadapt.errors import DataUnavailable

PROBE_START, PROBE_END = "<!-- bench probe -->", "<!-- end of bench probe -->"
# Pictures that are written beside the page of the tables, by part.
PICTURES = {"subspace": "representation-figure-3.svg", "networks": "representation-figure-1.svg"}

# Each part has functions `pieces`, `measure`, `claims`, `tables` and `figures`.
PARTS: dict[str, ModuleType] = {"subspace": subspace, "networks": networks, "probe": probe, "shifted": shifted}
Piece = tuple[str, Any]
# Kinds of pieces that measure time: nothing else may run beside them.
SPEED = ("speed", "opacus", "moments speed", "cost")


def measure(piece: Piece) -> dict[str, Any]:
    """Return the row of one piece, or the reason why it was skipped."""
    part, key = piece
    begin = time.process_time()
    try:
        return {"row": {**PARTS[part].measure(key), "cpu": time.process_time() - begin}}
    except (DataUnavailable, ImportError) as missing:
        return {"skipped": f"{_spoken(piece)}: {missing}"}


def run(*, quick: bool, only: Sequence[str] = tuple(PARTS)) -> dict[str, Any]:
    """Measure the parts `only`, one process per core; then speed, by one process."""
    begin = time.perf_counter()
    todo: list[Piece] = [(name, key) for name in only for key in PARTS[name].pieces(quick=quick)]
    timed = [piece for piece in todo if piece[1][0] in SPEED]
    rows_by_part: dict[str, list[tuple[int, Any]]] = {name: [] for name in PARTS}
    skipped = set()
    for pieces, processes in (([piece for piece in todo if piece not in timed], cores()), (timed, 1)):
        for piece, result in watched(measure, pieces, processes, name=_spoken):
            if "row" in result:
                rows_by_part[piece[0]].append((todo.index(piece), result["row"]))
            else:
                skipped.add(result["skipped"])
    # Processes finish in any order; sorted, the tables don't depend on it.
    rows = {name: [row for _, row in sorted(pairs, key=_first)] for name, pairs in rows_by_part.items()}
    return {
        "quick": quick,
        "rows": rows,
        "skipped": sorted(skipped),
        "minutes": (time.perf_counter() - begin) / 60,
        "processes": cores(),
        "versions": versions(),
    }


def summarise(results: dict[str, Any], names: Sequence[str] = tuple(PARTS)) -> dict[str, Any]:
    """Return claims, tables, figures and facts of those of the parts `names` that have rows."""
    parts = [(PARTS[name], rows) for name, rows in results["rows"].items() if rows and name in names]
    size = "A quick run, fewer draws and cells" if results["quick"] else "The full run"
    words = ", ".join(f"{name} {number}" for name, number in results["versions"].items())
    return {
        "command": "python -m benchmarks representation",
        "title": "Public representations: the paper's figures, and ours",
        "words": "A star marks settings that were chosen by the reported figure.",
        "facts": [
            f"{size}, {results['minutes']:.1f} minutes on {results['processes']} core(s); data and noise are seeded.",
            *(f"Left out, {reason}" for reason in results["skipped"]),
            words,
        ],
        **{
            kind: [one for part, rows in parts for one in getattr(part, kind)(rows)]
            for kind in ("claims", "tables", "figures")
        },
    }


def show(results: dict[str, Any]) -> None:
    """Print the tables and the claims."""
    from rich.console import Console
    from rich.table import Table

    console, summary = Console(), summarise(results)
    for shown in summary["tables"]:
        table = Table(*shown["columns"], title=shown["title"])
        for row in shown["rows"]:
            table.add_row(*row)
        console.print(table)
    claims = Table("claim", "measured", "verdict", title="paper 4: public representations")
    for row in summary["claims"]:
        claims.add_row(row["claim"], row["measured"], row["verdict"])
    console.print(claims)
    for sentence in summary["facts"]:
        # Not as markup: names of extras stand in brackets.
        console.print(sentence, markup=False)


def markdown(results: dict[str, Any], names: Sequence[str] = tuple(PARTS)) -> str:
    """Return the claims and the tables of some parts in Markdown."""
    summary = summarise(results, names)
    columns = ["claim", "measured", "verdict"]
    texts = [pipes(columns, [[row[name] for name in columns] for row in summary["claims"]])]
    for shown in summary["tables"]:
        texts.append(f"**{shown['title']}**\n\n{pipes(shown['columns'], shown['rows'])}")
        if "words" in shown:
            texts.append(shown["words"])
    return "\n\n".join([*texts, *summary["facts"]]) + "\n"


def write_report(results: dict[str, Any], path: Path) -> None:
    """Write the HTML page with the figures."""
    from benchmarks.pages import paper_page

    path.write_text(paper_page(summarise(results)), encoding="utf-8")


def markers(part: str) -> tuple[str, str]:
    """Return the markers of a part's tables on the page of the paper."""
    return f"<!-- bench representation: {part} -->", f"<!-- end of bench representation: {part} -->"


def write_markdown(results: dict[str, Any], path: Path) -> None:
    """Write the tables of the parts that were measured between their markers on a page, and the figures beside it."""
    for part in ("subspace", "networks", "probe"):
        rows = results["rows"].get(part, ())
        if not rows:
            continue
        cpu = sum(row.get("cpu", 0.0) for row in rows) / 60
        write_between(path, markdown({**results, "minutes": cpu, "processes": 1}, (part,)), *markers(part))
        if "measured on" in results["versions"]:
            state_run(path, f"python -m benchmarks representation --only {part}", results["versions"])
        if part in PICTURES:
            figure = subspace.figure_3(rows) if part == "subspace" else networks.figures(rows)[0]
            (path.parent / PICTURES[part]).write_text(figure_file(figure), encoding="utf-8")


def write_probes(results: dict[str, Any], path: Path) -> None:
    """Write the tables of probes by kind of public rows between the markers of a documentation page."""
    cpu = sum(row.get("cpu", 0.0) for row in results["rows"].get("shifted", ())) / 60
    text = markdown({**results, "skipped": [], "minutes": cpu, "processes": 1}, ("shifted",))
    write_between(path, text, PROBE_START, PROBE_END)
    if "measured on" in results["versions"]:
        state_run(path, "python -m benchmarks representation --only shifted", results["versions"])


def _first(pair: tuple[int, Any]) -> int:
    return pair[0]


def _spoken(piece: Piece) -> str:
    part, key = piece
    return f"{part}: {', '.join(str(one) for one in key if one)}"


if __name__ == "__main__":
    writers = {
        "report": ("write a page with the figures", write_report),
        "markdown": ("write the paper's tables between this page's markers, and the figures beside it", write_markdown),
        "probes": ("write the tables of probes by kind of public rows between this page's markers", write_probes),
    }
    command(__spec__.name, __doc__, run, show, writers=writers, parts=tuple(PARTS))
