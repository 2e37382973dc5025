"""The table of data sets, and how to look a set up in it."""

from dpadapt.datasets.provenance import Source
from dpadapt.datasets.sources_other import OTHERS
from dpadapt.datasets.sources_tables import TABLES

ALIASES = {"airline": "airline_nyc13"}
SOURCES: tuple[Source, ...] = TABLES + OTHERS


def find(name: str, part: str | None) -> Source:
    """Return the row of the table for this set and part (the first part if None)."""
    known = ALIASES.get(name, name)
    parts = [source for source in SOURCES if source.name == known]
    if not parts:
        names = ", ".join(dict.fromkeys(source.name for source in SOURCES))
        raise ValueError(f"name must be one of {names}, got {name!r}.")
    if part is None:
        return parts[0]
    for source in parts:
        if source.part == part:
            return source
    raise ValueError(f"part of {known!r} must be one of {', '.join(repr(s.part) for s in parts)}, got {part!r}.")
