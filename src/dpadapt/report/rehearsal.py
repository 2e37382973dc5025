"""Rehearsals of several methods side by side, as one dictionary with words."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpadapt.learning.rehearsal import Rehearsal
from dpadapt.report.helped import help_in_words
from dpadapt.report.summarise import version, with_spread


@dataclass(frozen=True)
class Part:
    """The rehearsal of one method; all parts have the same splits and epsilons.

    Parameters
    ----------
    key : str
        "together" for the default method with public rows, "private only" for it without, else any name.
    name : str
        As tables and plots call it.
    method : str
    public : bool
        Whether it was given public rows.
    found : Rehearsal
    """

    key: str
    name: str
    method: str
    public: bool
    found: Rehearsal


def summarise_rehearsal(
    parts: Sequence[Part], *, label: str, n_public: int, n_private: int, delta: float, split_by: str | None
) -> dict[str, Any]:
    """Return all that a report of rehearsals says.

    Parameters
    ----------
    parts : sequence of Part
        The first is the default method's.
    label : str
        The column that is predicted.
    n_public, n_private : int
        Rows of the public table, and of the private one that is to come.
    delta : float
    split_by : str or None
        The column along which the public table was split.
    """
    first = parts[0].found
    panel = with_spread(
        {
            "key": "epsilon",
            "title": f"{n_private:,} private rows",
            "axis": "epsilon (smaller is more private)",
            "symbol": "ε",
            "x": list(first.epsilons),
            "levels": [{"key": "public only", "name": "public only", "values": first.public_only.tolist()}],
            "curves": [
                {
                    "key": part.key,
                    "name": part.name,
                    "method": part.method,
                    "public": part.public,
                    "points": [
                        {"x": epsilon, "values": part.found.errors[:, k].tolist()}
                        for k, epsilon in enumerate(first.epsilons)
                    ],
                }
                for part in parts
            ],
        }
    )
    repeats = len(first.public_only)
    how = f"along {split_by}: rows with larger values played the private part" if split_by else "at random"
    words = [f"The public rows were split {how}, {repeats} time{'s' if repeats != 1 else ''}."]
    if split_by is None:
        words.append("A random split has no shift in it, so it can't tell what a shift would do.")
    if first.repeated_rows:
        words.append(
            "There are too few public rows: some stood for several private ones, so these errors are too high."
        )
    return {
        "kind": "rehearsal",
        "title": f"{label}, rehearsed on public rows",
        "version": version(),
        "axis": first.metric,
        "measure": f"{first.metric}, on held-out public rows: smaller is better",
        "delta": delta,
        "rows": {"public": n_public, "private": n_private},
        "panels": [panel],
        "words": [*words, *help_in_words(panel["levels"], panel["curves"])],
    }
