"""The table of data sets is complete, and the documentation lists all of it."""

import re
from pathlib import Path

from benchmarks import data
from benchmarks.data.loading import available

DOCS = Path(__file__).parents[3] / "docs" / "papers" / "data.md"


def test_every_set_of_the_collection_is_listed():
    names = set(
        "wind gas news slice airline_nyc13 adult german accent mnist fashion_mnist cifar10 superconductivity "
        "office_caltech10 amazon_reviews wikitext2 california_housing fresh".split()
    )
    assert {source.name for source in available()} == names


def test_parts_are_unique_and_checksums_well_formed():
    keys = [(source.name, source.part) for source in available()]
    assert len(keys) == len(set(keys))
    for source in available():
        assert bool(source.file) == bool(re.fullmatch("[0-9a-f]{64}", source.sha256))
        assert source.file or source.remotes
        assert source.what
        assert source.note
        assert source.origin
        assert source.licence


def test_documentation_lists_every_file_and_every_split():
    text = DOCS.read_text(encoding="utf-8")
    for source in available():
        assert f"`{source.name}`" in text
        assert f"`{source.part}`" in text
        assert source.file in text
    for name in data.__all__:
        if "_by_" in name:
            assert f"`{name}" in text
