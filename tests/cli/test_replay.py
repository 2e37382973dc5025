"""What `dpadapt fit` prints and writes depends on the private file through releases alone.

The releases of one fit are recorded. A fit on another private file that is given the same released values must print
the same text and write the same files, byte by byte.
"""

import re

import numpy as np
import pandas as pd
import pytest
from outcomes import accepted

from dpadapt.accounting import ledger
from dpadapt.persist import MODEL_FILE

# When a report was made: a minute may begin between two fits.
TIME = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d UTC")
FITS = {
    "regression": {},
    "classification": {"label": "ill", "task": "classification"},
    "without public rows": {"public": None},
    "add-remove": {"adjacency": "add-remove", "rows": 600},
    "too small a budget": {"epsilon": 0.001},
    "clustering": {"label": None, "task": "clustering", "clusters": 3, "adjacency": "add-remove"},
}


class Deck:
    """Takes the place of drawing: records what is drawn at first, and gives it out again later."""

    def __init__(self):
        self.drawn, self.again = [], None
        self._draw = ledger._draw

    def __call__(self, mechanism, bounded, scale, random):
        if self.again is not None:
            return next(self.again)
        self.drawn.append(self._draw(mechanism, bounded, scale, random))
        return np.copy(self.drawn[-1]) if isinstance(self.drawn[-1], np.ndarray) else self.drawn[-1]


@pytest.mark.parametrize("name", FITS)
def test_output_and_files_depend_on_releases_alone(run, site, tmp_path, monkeypatch, name):
    deck = Deck()
    monkeypatch.setattr(ledger, "_draw", deck)
    other = pd.read_csv(site.private)
    # Outside the ranges of the schema, and all labels exchanged.
    other["age"], other["bmi"], other["cost"] = other["age"] * 2, 40.0 - other["bmi"], 5e5 - 9 * other["cost"]
    other["ill"] = 1 - other["ill"]
    if "add-remove" in (name, FITS[name].get("adjacency")):
        other = pd.concat([other, other.iloc[:7]])
    other.to_csv(tmp_path / "other.csv", index=False)
    seen = []
    for private in ("private.csv", "other.csv"):
        # Under the same names, so that nothing but the rows differs.
        (tmp_path / private).replace(tmp_path / "rows.csv")
        options = {"ledger": None, "private": tmp_path / "rows.csv", **FITS[name]}
        outcome = accepted(run(*site.fit(**options)))
        seen.append((outcome, {path.name: path.read_bytes() for path in sorted(site.out.iterdir())}))
        deck.again = deck.again or iter(deck.drawn)
    assert (len(deck.drawn) > 0) == (name != "too small a budget")
    assert next(deck.again, None) is None
    assert seen[0][0] == seen[1][0]
    assert seen[0][1].keys() == seen[1][1].keys() >= {MODEL_FILE, "receipt.json"}
    for file, content in seen[0][1].items():
        first, second = (TIME.sub(b"", one) for one in (content, seen[1][1][file]))
        assert first == second, file
