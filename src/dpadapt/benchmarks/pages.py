"""Tables of a benchmark in the documentation: between two markers, so that a later run replaces them."""

from collections.abc import Sequence
from pathlib import Path


def write_between(path: Path, text: str, start: str, end: str) -> None:
    """Write `text` between the markers of a page; a page without markers gets them at its end."""
    page = path.read_text(encoding="utf-8") if path.exists() else ""
    before, _, rest = page.partition(start)
    # Without a second marker nothing is known to be an older table, so all of the text stays.
    old, found, after = rest.partition(end)
    body = f"{start}\n\n{text}\n{end}"
    path.write_text(before + body + ((after if found else old) or "\n"), encoding="utf-8")


def pipes(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown.

    Examples
    --------
    >>> print(pipes(["a", "b"], [["1", "x|y"]]))
    | a | b |
    | --- | --- |
    | 1 | x\\|y |
    """
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in lines)
