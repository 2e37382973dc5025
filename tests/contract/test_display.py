"""Estimators in a notebook: scikit-learn's display parses the docstring, and shows parameters and fitted attributes."""

import inspect
import warnings
from itertools import pairwise

import pytest
from cases import CASES, estimators

# One fit of each class; the first recipe of a class is its usual one.
FIRST = list({case.cls: case for case in reversed(CASES)}.values())
# The sections of the numpydoc format, which scikit-learn's parser knows.
SECTIONS = {
    "Parameters", "Attributes", "Methods", "Returns", "Yields", "Receives", "Other Parameters", "Raises", "Warns",
    "Warnings", "See Also", "Notes", "References", "Examples",
}  # fmt: skip


@pytest.mark.parametrize("case", FIRST, ids=str)
def test_an_estimator_is_displayed_without_warnings(case):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        unfitted = case.make()._repr_html_()
    fitted = case.fit(case.data())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shown = fitted._repr_html_()
    assert case.cls.__name__ in unfitted
    assert case.cls.__name__ in shown


@pytest.mark.parametrize("cls", estimators(), ids=lambda cls: cls.__name__)
def test_a_docstring_has_the_sections_of_numpydoc_and_states_the_guarantee(cls):
    lines = inspect.getdoc(cls).splitlines()
    underlined = {line for line, below in pairwise(lines) if below and set(below) == {"-"}}
    assert underlined <= SECTIONS
    paragraphs = [line for line in lines if line.startswith("**Privacy.** ")]
    assert len(paragraphs) == 1
    assert lines.index(paragraphs[0]) < lines.index("Parameters")
