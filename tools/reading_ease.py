"""Print the Flesch reading ease and the number of words of documentation pages.

    .venv-docs/bin/python tools/reading_ease.py [FILE ...]

Without files: the guides. Code, tables, headings and the targets of links are left out. 50 is fairly difficult, 60 is
plain English; technical terms of many syllables lower it.
"""

import argparse
import re
from pathlib import Path

import textstat

ROOT = Path(__file__).parents[1]
LEAST = 50


def prose(text: str) -> str:
    """Return the sentences of a page: without code, tables, headings, directives and comments."""
    text = re.sub(r"^(`{3,}|:{3,}).*?^\1", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"^(\||#|!\[).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    # A name in code is read as one word, and the point of a number ends no sentence.
    text = re.sub(r"\d[\d.,:]*\d", "10", re.sub(r"`[^`]*`", "name", text))
    # A list item and a paragraph end a sentence.
    text = re.sub(r"\n\s*(?:[-*]|\d+\.) ", ".\n", text)
    text = re.sub(r"[*_]", "", re.sub(r"\n{2,}", ".\n", text))
    return re.sub(r"([.:!?])\s*\.", r"\1", text)


def main() -> None:
    """Print one line per page, the hardest first."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path)
    files = parser.parse_args().files or sorted((ROOT / "docs" / "guides").glob("*.md"))
    scores = sorted((textstat.flesch_reading_ease(prose(file.read_text(encoding="utf-8"))), file) for file in files)
    print("| page | words | reading ease |\n|---|---|---|")
    for score, file in scores:
        words = len(file.read_text(encoding="utf-8").split())
        print(f"| {file.stem} | {words:,} | {score:.0f}{'' if score >= LEAST else ' (below)'} |")


if __name__ == "__main__":
    main()
