"""Check the site that `make docs` built: links and anchors lead somewhere, and nothing is loaded from a network.

    python tools/check_site.py FOLDER

Prints every problem and fails if there is one.
"""

import argparse
import re
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a browser fetches by itself. A link that a reader may click is another matter.
_LOADS = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "object": "data"}


class Page(HTMLParser):
    """What matters of an HTML file: its anchors, its links, and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the attributes that matter."""
        given = dict(attrs)
        self.anchors.update(name for name in (given.get("id"), given.get("name")) if name)
        if tag == "a" and given.get("href"):
            self.links.add(str(given["href"]))
        if tag in _LOADS and given.get(_LOADS[tag]):
            self.loads.add(str(given[_LOADS[tag]]))


def problems(site: Path) -> list[str]:
    """Return what is wrong with the HTML pages and style sheets of a folder, one line each."""
    page = cache(Page)
    wrong = []
    for path in sorted(set(site.rglob("*.html")) - set((site / "_static").rglob("*.html"))):  # templates of the theme
        name = path.relative_to(site)
        for target in sorted(page(path).links | page(path).loads):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                if target in page(path).loads and parts.scheme != "data":
                    wrong.append(f"{name} loads {target}")
                continue
            file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not file.exists():
                wrong.append(f"{name} leads to {target}, which does not exist")
            elif parts.fragment and file.suffix == ".html" and unquote(parts.fragment) not in page(file).anchors:
                wrong.append(f"{name} leads to {target}, which has no such anchor")
    for path in sorted(site.rglob("*.css")):
        remote = re.findall(
            r"(?:url\(|@import)\s*[\"']?\s*((?:https?:)?//[^\"')\s]+)", path.read_text(encoding="utf-8")
        )
        wrong.extend(f"{path.relative_to(site)} loads {target}" for target in remote)
    return wrong


def main() -> int:
    """Print the problems of a site and return 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    site = parser.parse_args().folder
    found = problems(site)
    print("\n".join(found) if found else f"{len(list(site.rglob('*.html')))} pages: no broken link, nothing remote")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
