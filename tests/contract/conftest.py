"""Lets the batteries import `cases`, and leaves what repeats the evidence on a product to `make test-all`."""

import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if FOLDER in item.path.parents and hasattr(item, "callspec") and _is_thorough(item.callspec.params):
            item.add_marker(pytest.mark.thorough)


def _is_thorough(parameters: dict) -> bool:
    """Return whether a test is about a further recipe of a class, under another adjacency than add-remove.

    There, and for persons, weights and chunks, the default run checks what leaves where one row is added or removed,
    which is the strictest.
    """
    from cases import RECIPES

    case = parameters.get("case")
    recipe = getattr(case, "recipe", None)
    if recipe is None:
        return False
    first = type(case).__name__ != "StreamedCase" and recipe in RECIPES.get(case.cls.__name__, [])[:1]
    further = not first and parameters.get("name", "").endswith(("zero-out", "replace-one"))
    return further or parameters.get("adjacency", "add-remove") != "add-remove"
