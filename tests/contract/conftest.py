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
    """Return whether a test is about a published algorithm, or a further recipe of a product.

    Of further recipes, and of persons and weights, the default run checks what leaves where one row is added or
    removed, which is the strictest.
    """
    subject = parameters.get("case", parameters.get("estimator", parameters.get("cls")))
    cls = getattr(subject, "cls", subject if isinstance(subject, type) else type(subject))
    if ".papers." in cls.__module__:
        return True
    recipe, name = getattr(subject, "recipe", None), parameters.get("name", "")
    variant = recipe is not None and recipe.variant and name.endswith(("zero-out", "replace-one"))
    return variant or (recipe is not None and parameters.get("adjacency", "add-remove") != "add-remove")
