"""Paper 3, the hybrid model: `python -m benchmarks hybrid`.

R. Kohen, O. Sheffet. Transfer Learning In Differential Privacy's Hybrid-Model. ICML 2022: its own experiments, beside
the paper's figures; and every way to a model on populations that differ from the curator's sample. Real tables need
`DPADAPT_DATA`; without it they are left out. `--only targets` measures the four populations with a target,
`--only populations` all of them, and `--only paper` the paper's own experiments. Every core runs one process.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.hybrid import reweigh, reweigh_claims, transfer
from benchmarks.pages import pipes, write_between
from benchmarks.running import command, cores, resumes, watched
from benchmarks.transfer.common import real_data, versions

# What `--only` chooses from; every part has a section of its own on the page.
PARTS = ("targets", "populations", "paper")

Piece = reweigh.Piece | transfer.Piece


def measure(piece: Piece) -> dict[str, Any]:
    """Return the row of one piece."""
    if isinstance(piece, transfer.Piece):
        return transfer.measure(piece)
    return reweigh.measure(piece)


def run(*, quick: bool, only: Sequence[str] = PARTS) -> dict[str, Any]:
    """Return the results of the parts `only` as plain data."""
    start = time.perf_counter()
    todo: list[Piece] = [*reweigh.pieces(quick=quick)] if "paper" in only else []
    if "populations" in only:
        todo += transfer.pieces(quick=quick)
    elif "targets" in only:
        todo += transfer.target_pieces(quick=quick)
    rows_by_part: dict[str, list[tuple[int, dict[str, Any]]]] = {"paper": [], "transfer": []}
    for piece, row in watched(measure, todo, cores(), name=_spoken):
        part = "transfer" if isinstance(piece, transfer.Piece) else "paper"
        rows_by_part[part].append((todo.index(piece), row))
    # Processes finish in any order; sorted, the tables don't depend on it.
    parts = {part: [row for _, row in sorted(rows, key=lambda pair: pair[0])] for part, rows in rows_by_part.items()}
    return {
        "quick": quick,
        "measured": [part for part in PARTS if part in only],
        "data": "synthetic and real populations"
        if real_data()
        else "synthetic populations only: DPADAPT_DATA is not set",
        "versions": versions(),
        "processes": cores(),
        **parts,
        "minutes": None if resumes() else (time.perf_counter() - start) / 60,
    }


def claims(results: dict[str, Any]) -> list[dict[str, str]]:
    """Return all claims, with the paper's figure where there is one."""
    return [one for part in results["measured"] for one in _claims_of(results, part)]


def _claims_of(results: dict[str, Any], part: str) -> list[dict[str, str]]:
    """Return the claims of one part."""
    if part == "paper":
        mine = list(reweigh_claims.claims(results["paper"]))
    else:
        mine = list((transfer.target_claims if part == "targets" else transfer.claims)(results["transfer"]))
    return [{"paper": "-", **one} for one in mine]


def tables(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all tables."""
    return [one for part in results["measured"] for one in _tables_of(results, part)]


def _tables_of(results: dict[str, Any], part: str) -> list[dict[str, Any]]:
    """Return the tables of one part; the targets have none of their own."""
    if part == "paper":
        return reweigh_claims.tables(results["paper"])
    return list(transfer.tables(results["transfer"])) if part == "populations" else []


def facts(results: dict[str, Any]) -> list[str]:
    """Return sentences on how the results were measured."""
    size = "A quick run, on fewer sets and seeds." if results["quick"] else "The full run."
    if len(results["measured"]) < len(PARTS):
        size = f"{size[:-1]} of the part(s) {', '.join(results['measured'])}."
    numbers = ", ".join(f"{name} {number}" for name, number in results["versions"].items())
    took = "" if results["minutes"] is None else f" It took {results['minutes']:.1f} minutes"
    took += f" with {results['processes']} processes;" if took else " Measured piece by piece with `--keep`;"
    return [
        f"{size}{took} {results['data']}.",
        "Data and noise are seeded. People are drawn with replacement from rows of their own.",
        numbers,
    ]


def show(results: dict[str, Any]) -> None:
    """Print the tables and the claims."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    for content in tables(results):
        table = Table(*content["columns"], title=content["title"], caption=content.get("words"))
        for row in content["rows"]:
            table.add_row(*row)
        console.print(table)
    drawn = Table("claim", "paper", "measured", "verdict", title="paper 3: the hybrid model")
    for row in claims(results):
        drawn.add_row(row["claim"], row["paper"], row["measured"], row["verdict"])
    console.print(drawn)
    for sentence in facts(results):
        console.print(sentence, markup=False)


def markdown(results: dict[str, Any], part: str) -> str:
    """Return the claims and the tables of one part in Markdown."""
    columns = ["claim", "paper", "measured", "verdict"]
    texts = [pipes(columns, [[row[name] for name in columns] for row in _claims_of(results, part)])]
    for content in _tables_of(results, part):
        words = f"\n\n{content['words']}" if content.get("words") else ""
        texts.append(f"**{content['title']}**{words}\n\n{pipes(content['columns'], content['rows'])}")
    return "\n\n".join([*texts, " ".join(facts(results))]) + "\n"


def write_report(results: dict[str, Any], path: Path) -> None:
    """Write the HTML page with the figures."""
    from benchmarks.pages import paper_page

    summary = {
        "command": "python -m benchmarks hybrid",
        "title": "A curator's sample, and people in the local model",
        "words": "Error is measured on test rows of the people's population, which no method uses.",
        "figures": list(transfer.figures(results["transfer"])),
        "claims": claims(results),
        "tables": tables(results),
        "facts": facts(results),
    }
    path.write_text(paper_page(summary), encoding="utf-8")


def markers(part: str) -> tuple[str, str]:
    """Return the two lines of a page between which a part's section stands."""
    return f"<!-- bench hybrid {part} -->", f"<!-- end of bench hybrid {part} -->"


def write_markdown(results: dict[str, Any], path: Path) -> None:
    """Write the section of each part that was measured between its markers on a documentation page."""
    for part in results["measured"]:
        write_between(path, markdown(results, part), *markers(part))


def _spoken(piece: Piece) -> str:
    if isinstance(piece, transfer.Piece):
        return f"{piece.name}, {piece.people:,} people"
    return f"{piece.part}: {piece.key}"


if __name__ == "__main__":
    writers = {
        "report": ("write a page with the figures", write_report),
        "markdown": ("write the tables between this page's markers", write_markdown),
    }
    command(__spec__.name, __doc__, run, show, writers=writers, parts=PARTS)
