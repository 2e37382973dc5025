"""Pages: the line that dates a run; the heat map, with harm that stands out and words for screen readers."""

import xml.etree.ElementTree as ElementTree

import pytest

from benchmarks.pages import heat_map, state_run

GROUPS = [{"name": "50 rows", "columns": ["0.1", "1"]}, {"name": "100 rows", "columns": ["0.1", "1"]}]


def cell(value, harm=False, note="n"):
    return {"value": value, "harm": harm, "note": note}


def drawn(*cells, name="set"):
    svg = heat_map([{"name": name, "cells": list(cells)}], GROUPS, title="a <title>", description="2 of 4", x_label="e")
    return svg, ElementTree.fromstring(svg)


def rects(root):
    return [(rect.get("class"), float(rect.get("fill-opacity"))) for rect in root.iter("rect")]


def test_harm_is_red_framed_and_bold_and_nothing_else_is():
    _, root = drawn(cell(1.011, harm=True), cell(1.009), cell(0.99), cell(1.0))
    assert [style for style, _ in rects(root)] == ["heat harm", "heat loss", "heat gain", "heat loss"]
    assert [text.text for text in root.iter("text") if "harm" in text.get("class")] == ["1.01"]
    # A cell that only just exceeds the limit is redder than one just below it, by far.
    (_, above), (_, below), _, (_, same) = rects(root)
    assert above > 2 * below > 2 * same == 0


def test_harm_is_marked_even_where_the_ratio_shows_none():
    # Accuracy lost, log-loss gained.
    _, root = drawn(cell(0.98, harm=True), None, None, None)
    [(style, opacity)] = rects(root)
    assert style == "heat harm"
    assert opacity >= 0.3


def test_a_row_needs_a_cell_or_a_gap_for_every_column():
    with pytest.raises(ValueError, match="shorter"):
        drawn(cell(1.0))


def test_a_run_dates_the_line_of_its_command_and_no_other(tmp_path):
    page = tmp_path / "page.md"
    other = "- `python -m benchmarks others`: measured on 2025-01-01; python 3. Data: b."
    page.write_text(f"# Page\n\n- `python -m benchmarks other`: measured on 2025-01-01; python 3. Data: a.\n{other}\n")
    state_run(page, "python -m benchmarks other", {"measured on": "2026-01-02", "python": "4", "numpy": "5"})
    _, _, dated, kept = page.read_text().splitlines()
    assert dated == "- `python -m benchmarks other`: measured on 2026-01-02; python 4, numpy 5. Data: a."
    assert kept == other
