"""Paper 2, mirror descent: `python -m benchmarks mirror`.

"Public Data-Assisted Mirror Descent for Private Model Training", arXiv:2112.00193. The theorems of Section 3 and
Appendix D, Figure 1, real tables with 4% public rows if `DPADAPT_DATA` is set, and the networks of Table 1 if torch is
installed. Data and noise are seeded. A star marks settings that were chosen by the reported loss, as in the paper: such
rows are not private.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.mirror import figure1, networks, real
from benchmarks.mirror.theory import theory
from benchmarks.pages import pipes, state_run, write_between
from benchmarks.running import command
from benchmarks.transfer.common import versions

# Each part returns tables (title, columns, rows), claims, the reason if something was skipped, and its raw results.
PARTS: dict[str, Callable[..., dict[str, Any]]] = {
    "theory": theory,
    "figure1": figure1.figure1,
    "real": real.real_tables,
    "networks": networks.table1,
}
# The name of the raw results of a part, and what computes tables, claims and figures from them. `theory` has none.
RAW: dict[str, tuple[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "figure1": ("draws", figure1.present),
    "real": ("splits", real.present),
    "networks": ("rows", networks.present),
}


def run(*, quick: bool, only: Sequence[str] = tuple(PARTS)) -> dict[str, Any]:
    """Measure the parts `only`."""
    parts = {name: measure(quick=quick) for name, measure in PARTS.items() if name in only}
    return {"quick": quick, "parts": parts, "versions": versions()}


def presented(results: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the parts, with tables, claims and figures computed from the raw results.

    Stored results hold those of the code that measured them, whose verdicts may have had other rules.
    """
    parts = {}
    for name, part in results["parts"].items():
        raw, present = RAW.get(name, ("", None))
        parts[name] = {**part, **present(part)} if present and part.get(raw) else part
    return parts


def show(results: dict[str, Any]) -> None:
    """Print the tables and the claims."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    claims = Table("claim", "measured", "verdict", title="paper 2: public data as the mirror map")
    for part in presented(results).values():
        for shown in part["tables"]:
            table = Table(*shown["columns"], title=shown["title"])
            for row in shown["rows"]:
                table.add_row(*row)
            console.print(table)
        if part.get("skipped"):
            # Not as markup: names of extras stand in brackets.
            console.print(f"skipped: {part['skipped']}", markup=False)
        for row in part["claims"]:
            claims.add_row(row["claim"], row["measured"], row["verdict"])
    console.print(claims)
    console.print(results["versions"])


def markdown(results: dict[str, Any], name: str) -> str:
    """Return the claims and the tables of one part in Markdown."""
    columns, part = ["claim", "measured", "verdict"], presented(results)[name]
    texts = [pipes(columns, [[row[name] for name in columns] for row in part["claims"]])]
    texts += [f"**{shown['title']}**\n\n{pipes(shown['columns'], shown['rows'])}" for shown in part["tables"]]
    if part.get("skipped"):
        texts.append(f"Skipped: {part['skipped']}.")
    texts.append(", ".join(f"{name} {number}" for name, number in results["versions"].items()))
    return "\n\n".join(texts) + "\n"


def write_report(results: dict[str, Any], path: Path) -> None:
    """Write the HTML page with the figures."""
    from benchmarks.pages import paper_page

    measured = presented(results)
    parts = [measured[name] for name in PARTS if name in measured]
    title = "Public data as the mirror map: the paper's figures, and ours"
    words = "A star marks settings that were chosen by the reported loss, as in the paper."
    sizes = "a quick run, fewer draws and sets than the paper" if results["quick"] else "the full run"
    facts = [
        f"This is {sizes}; data and noise are seeded.",
        *(f"Not measured: {name}." for name in PARTS if name not in results["parts"]),
        *(part["skipped"] for part in parts if part.get("skipped")),
    ]
    facts.append(", ".join(f"{name} {number}" for name, number in results["versions"].items()))
    summary = {
        "command": "python -m benchmarks mirror",
        "title": title,
        "words": words,
        "facts": facts,
        **{key: [one for part in parts for one in part.get(key, [])] for key in ("figures", "claims", "tables")},
    }
    path.write_text(paper_page(summary), encoding="utf-8")


def markers(part: str) -> tuple[str, str]:
    """Return the markers of a part's tables on a documentation page."""
    return f"<!-- bench mirror: {part} -->", f"<!-- end of bench mirror: {part} -->"


def write_markdown(results: dict[str, Any], path: Path) -> None:
    """Write the tables of the parts that were measured between their markers on a page; other parts stay."""
    for name, part in results["parts"].items():
        # A part that could not be measured must not replace an earlier run of hours by the reason.
        if not part["tables"]:
            continue
        write_between(path, markdown(results, name), *markers(name))
        if "measured on" in results["versions"]:
            state_run(path, f"python -m benchmarks mirror --only {name}", results["versions"])


if __name__ == "__main__":
    writers = {
        "report": ("write a page with the figures", write_report),
        "markdown": ("write the tables of the measured parts between this page's markers", write_markdown),
    }
    command(__spec__.name, __doc__, run, show, writers=writers, parts=tuple(PARTS))
