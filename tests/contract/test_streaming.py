"""The contract where private rows come in chunks: every estimator that reads a `Source`, found by itself.

The rows of a recipe are three blocks here, whose borders are not those of the chunks; all of them go to the spill file.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from cases import CASES, Case
from requirements import CHECKS, OF_RELEASES, concerns, recorded

from dpadapt import Source
from dpadapt import rows as blocks
from dpadapt.inputs import sources as source

CHUNK, BLOCK = 130, 150  # rows


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    for module in (blocks, source):
        monkeypatch.setattr(module, "BLOCK_ROWS", BLOCK)
    monkeypatch.setattr(source, "_LEAST_MEMORY", 0)


@dataclass(frozen=True, eq=False)
class StreamedCase(Case):
    """An estimator and one way to fit it on rows in chunks."""

    def fit(self, data: tuple[Any, ...], *, beside: dict[str, Any] | None = None, **options: Any) -> Any:
        """Return an estimator that was fitted on the same rows in chunks."""

        def chunks() -> Any:
            n = max(map(len, data))
            return (tuple(part[k : k + CHUNK] for part in data) for k in range(0, n, CHUNK))

        return super().fit((Source(chunks, memory=0),), beside=beside, **options)


# An encoder needs all rows: it is refused beside a `Source`.
STREAMED = [
    StreamedCase(case.cls, case.recipe) for case in CASES if case.cls._streams and "encoder" not in case.recipe.params
]
FIRST = {case.cls: case for case in reversed(STREAMED)}
# What is refused without a look at the rows is a matter of the other battery.
OF_ROWS = [
    name for name in CHECKS if name.startswith(("non_finite", "a_refusal", "the_callers", "a_pickled", "a_seed"))
]


def params():
    """Yield every check of a release for every case, and those of rows for one case of each class."""
    for case in STREAMED:
        first = FIRST[case.cls] is case
        for name in (*OF_RELEASES, *(OF_ROWS if first else [])):
            # Under add-remove, neighbours differ in their number of rows, too.
            marks = [] if first or name.endswith("add-remove") else [pytest.mark.slow]
            if concerns(name, case):
                yield pytest.param(case, name, id=f"{case}-{name}", marks=marks)


def test_the_search_finds_the_estimators_of_sums():
    assert {case.cls.__name__ for case in STREAMED} >= {
        "PrivateTransferRegressor",
        "PrivateTransferClassifier",
        "PrivateLinearRegression",
        "PrivateLogisticRegression",
        "PrivateProbe",
    }


@pytest.mark.parametrize(("case", "name"), list(params()))
def test_contract_of_rows_in_chunks(case, name):
    CHECKS[name](case)


@pytest.mark.parametrize("case", STREAMED, ids=str)
def test_chunks_give_the_releases_of_rows_in_memory(case):
    whole = recorded(Case(case.cls, case.recipe))
    for one, other in zip(recorded(case).releases, whole.releases, strict=True):
        assert np.asarray(one.value) == pytest.approx(np.asarray(other.value), rel=1e-9, abs=1e-9 * one.scale)
