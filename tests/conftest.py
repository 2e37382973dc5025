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
# Algorithms and experiments of the papers, pages whose code is run, a browser, bugs that are planted, attacks and other
# statistical tests that take long, previews, and whole stories that shorter tests cover piece by piece.
THOROUGH = (
    "benchmarks/",
    "src/dpadapt/papers/",
    "tests/benchmarks/",
    "tests/papers/",
    "tests/accounting/test_calibrate.py::test_rows_that_are_hardly_ever_sampled",
    "tests/accounting/test_calibrate.py::test_sampled_calibration_spends",
    "tests/accounting/test_filter.py::test_no_adaptive_analyst",
    "tests/accounting/test_filter.py::test_the_analyst_is_strong",
    "tests/audit/test_battery_cases.py",
    "tests/cli/test_advise.py",
    "tests/cli/test_awkward_tables.py",
    "tests/cli/test_before_spending.py",
    "tests/cli/test_demo.py",
    "tests/cli/test_predict.py::test_a_failure_midway",
    "tests/cli/test_predict.py::test_memory_does_not_grow",
    "tests/cli/test_predict.py::test_predictions_in_chunks",
    "tests/cli/test_streaming.py::test_files_and_folders_give",
    "tests/cli/test_walkthrough.py",
    "tests/demo/",
    "tests/report/test_browser.py",
    "tests/test_docs.py::test_python_blocks_run",
    "tests/test_docs.py::test_examples_run",
    "tests/test_advice.py",
    "tests/test_mutants.py::test_tests_that_fail_without_a_mutant",
    "tests/test_mutants.py::test_the_tests_find_a_planted_bug",
    "tests/test_mutants.py::test_parameters_in_the_names_of_tests_exist",
    "tests/transfer/test_regression.py::test_an_over_confident_gate",
    "tests/transfer/test_regression.py::test_without_a_shift",
    "tests/transfer/test_unseen_groups.py",
)

# Of many cases of one kind, the default run takes every fourth.
FOURTH = (
    "tests/cli/test_bad_arguments.py",
    "tests/cli/test_bad_input.py",
    "tests/cli/test_fit.py::test_any_failure_after_the_charge",
    "tests/cli/test_request.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        place = _place(item)
        fourth = place.startswith(FOURTH) and hasattr(item, "callspec") and sum(item.callspec.indices.values()) % 4
        if place.startswith(THOROUGH) or fourth or _is_variant(item):
            item.add_marker(pytest.mark.thorough)


def _place(item: pytest.Item) -> str:
    return f"{item.path.relative_to(ROOT).as_posix()}::{item.name}"


def _is_variant(item: pytest.Item) -> bool:
    """Return whether a test of the contract is about a published algorithm, or a further recipe of a product.

    Of further recipes, and of persons and weights, the default run checks what leaves where one row is added or
    removed, which is the strictest.
    """
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    subject = parameters.get("case", parameters.get("estimator", parameters.get("cls")))
    cls = getattr(subject, "cls", subject if isinstance(subject, type) else type(subject))
    if ".papers." in cls.__module__:
        return True
    recipe, name = getattr(subject, "recipe", None), parameters.get("name", "")
    if recipe is None:
        return False
    variant = recipe.variant and name.endswith(("zero-out", "replace-one"))
    return variant or parameters.get("adjacency", "add-remove") != "add-remove"
