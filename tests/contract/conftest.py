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
    """Return whether a test is about a further recipe.

    Of further recipes, and of persons, weights and chunks, the default run checks what leaves where one row is added
    or removed, which is the strictest.
    """
    recipe = getattr(parameters.get("case"), "recipe", None)
    name = parameters.get("name", "")
    further = recipe is not None and (recipe.variant or type(parameters["case"]).__name__ == "StreamedCase")
    variant = further and name.endswith(("zero-out", "replace-one"))
    return variant or (recipe is not None and parameters.get("adjacency", "add-remove") != "add-remove")
