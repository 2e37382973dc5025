"""Every Python block of the README and the docs runs, in order, in one namespace per page; links point somewhere."""

import re
import warnings
from functools import cache
from itertools import count
from pathlib import Path

import pytest

from dpadapt import DataUnavailable, NoLedgerWarning

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def skip_without_extras(code):
    """Skip what imports torch, Flower or Dask by a line of its own, where there is none."""
    for extra in re.findall(r"^(?:import|from) (torch|flwr|dask)\b", code, flags=re.MULTILINE):
        pytest.importorskip(extra)


def run(code, name, namespace):
    """Run a piece of documentation. What it shows is imitated, so each of its fits must be charged to a ledger."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", NoLedgerWarning)
        exec(compile(code, name, "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_run(page, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL):
        skip_without_extras(block)
        try:
            run(block, page.name, namespace)
        except DataUnavailable:
            pytest.skip("needs real data sets: set DPADAPT_DATA")


def without_code(text):
    """Return a page's text without its blocks of code."""
    return re.sub(r"^(`{3,}).*?^\1", "", text, flags=re.DOTALL | re.MULTILINE)


@cache
def anchors(page):
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    found = set()
    for heading in re.findall(r"^#+ (.*)", without_code(page.read_text(encoding="utf-8")), flags=re.MULTILINE):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-")
        repeated = (f"{anchor}-{number}" for number in count(1))
        found.add(anchor if anchor not in found else next(name for name in repeated if name not in found))
    return found


@pytest.mark.parametrize("page", sorted({*PAGES, *ROOT.glob("*.md")}), ids=lambda page: str(page.relative_to(ROOT)))
def test_local_links_and_their_anchors_exist(page):
    text = without_code(page.read_text(encoding="utf-8"))
    for target, fragment in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", text):
        file = page.parent / target if target else page
        assert file.exists(), f"{page.name} links to {target}"
        if fragment and file.suffix == ".md":
            assert fragment in anchors(file), f"{page.name} links to {target}#{fragment}"


def test_anchors_are_those_of_the_headings(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A `b` (c), 1. d\n```\n# no heading\n```\n## x\n## x\n")
    assert anchors(page) == {"a-b-c-1-d", "x", "x-1"}


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "guides").glob("*.md")), ids=lambda page: page.name)
def test_a_guide_has_at_most_1500_words(page):
    assert len(page.read_text(encoding="utf-8").split()) <= 1500


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_examples_run(example, capsys):
    code = example.read_text(encoding="utf-8")
    skip_without_extras(code)
    run(code, example.name, {"__name__": "__main__"})
    assert capsys.readouterr().out


def test_readme_fits_one_screen_and_names_the_two_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 75
    assert "make demo" in text
    assert "make test" in text


def test_every_file_that_papers_md_names_exists():
    text = (ROOT / "PAPERS.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w/]+\.py)`", text))
    assert len(named) > 50
    places = (ROOT, ROOT / "src" / "dpadapt")  # sources are named from the package on
    assert [path for path in named if not any((place / path).exists() for place in places)] == []
