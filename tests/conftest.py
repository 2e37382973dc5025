"""Which tests run when, and which examples property tests draw.

`make test` runs what protects users, `make test-all` what is marked `thorough`, `make audit` what is marked `slow`.
Files and tests carry these marks themselves; here are the folders of code that protects nobody, and the cases of
published algorithms. Of many cases of one kind (`every_fourth`) the default run takes every fourth.
`tests/contract/conftest.py` marks the contract's variants.
"""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples in every default run; `make audit` explores new ones.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

ROOT = Path(__file__).parents[1]
# Algorithms and experiments of the papers.
THOROUGH = tuple(str(ROOT / name) for name in ("benchmarks", "src/dpadapt/papers", "tests/benchmarks", "tests/papers"))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out folders of which no test would be selected: to import them takes seconds in each process."""
    return True if "not thorough" in config.option.markexpr and str(collection_path) in THOROUGH else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
        case = sum(item.callspec.indices.values()) if parameters else 0
        one_of_many = item.get_closest_marker("every_fourth") is not None and case % 4
        if str(item.path).startswith(THOROUGH) or one_of_many or any(map(_is_published, parameters)):
            item.add_marker(pytest.mark.thorough)


def _is_published(parameter: object) -> bool:
    """Return whether a test's parameter is a published algorithm: its class, an instance, its method or its case."""
    subject = getattr(parameter, "cls", parameter)
    cls = subject if isinstance(subject, type) else type(subject)
    homes = [*(base.__module__ for base in cls.__mro__), str(getattr(parameter, "path", ""))]
    return any(home.startswith("dpadapt.papers.") for home in homes)
