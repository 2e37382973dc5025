"""Every name that a receipt of a product shows is explained on the page of receipts."""

import re
from pathlib import Path

import pytest
from cases import CASES

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "receipt.md"
# Published algorithms explain their releases on their own pages.
PRODUCTS = [case for case in CASES if ".papers." not in case.cls.__module__ and not case.recipe.slow]


def explained():
    """Return the names in the table of releases."""
    lines = PAGE.read_text(encoding="utf-8").split("## The names of releases")[1].splitlines()
    cells = [line.split("|")[1].strip() for line in lines if line.startswith("| ")]
    return {name for cell in cells for name in ([*cell.split("; ")] if ";" in cell else cell.split(", "))}


@pytest.mark.parametrize("case", PRODUCTS, ids=str)
def test_names_of_releases_are_explained(case):
    fitted = case.fit(case.data())
    model = fitted[0] if isinstance(fitted, tuple) else fitted
    names = {re.sub(r"^(\w+: )+", "", entry.label) for entry in model.privacy_.entries}
    assert names <= explained()
