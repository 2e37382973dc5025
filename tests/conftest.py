"""Property tests draw the same examples in every default run; `make audit` explores new ones.

Tests marked `thorough` belong to `make test-all`: evidence on variants and on code that protects nobody.
"""

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

ROOT = Path(__file__).parents[1]
# Algorithms and experiments of the papers, pages whose code is run, a browser, bugs that are planted.
THOROUGH = (
    "benchmarks/",
    "src/dpadapt/papers/",
    "tests/benchmarks/",
    "tests/papers/",
    "tests/cli/test_demo.py",
    "tests/report/test_browser.py",
    "tests/test_docs.py::test_python_blocks_run",
    "tests/test_docs.py::test_examples_run",
    "tests/test_mutants.py::test_the_tests_find_a_planted_bug",
    "tests/test_mutants.py::test_parameters_in_the_names_of_tests_exist",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _place(item).startswith(THOROUGH) or _is_variant(item):
            item.add_marker(pytest.mark.thorough)


def _place(item: pytest.Item) -> str:
    return f"{item.path.relative_to(ROOT).as_posix()}::{item.name}"


def _is_variant(item: pytest.Item) -> bool:
    """Return whether a test of the contract is about a published algorithm, or a further recipe of a product.

    Of further recipes the default run checks what leaves where one row is added or removed, which is the strictest.
    """
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    subject = parameters.get("case", parameters.get("estimator", parameters.get("cls")))
    cls = getattr(subject, "cls", subject if isinstance(subject, type) else type(subject))
    if ".papers." in cls.__module__:
        return True
    recipe, name = getattr(subject, "recipe", None), parameters.get("name", "")
    return recipe is not None and recipe.variant and name.endswith(("zero-out", "replace-one"))
