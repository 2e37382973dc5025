"""Every Python block of the README and the docs runs, in order, in one namespace per page; links point somewhere."""

import re
from pathlib import Path

import pytest

from dpadapt import DataUnavailable

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def skip_without_extras(code):
    """Skip what imports torch or Flower by a line of its own, where there is none."""
    for extra in re.findall(r"^(?:import|from) (torch|flwr)\b", code, flags=re.MULTILINE):
        pytest.importorskip(extra)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_run(page, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL):
        skip_without_extras(block)
        try:
            exec(compile(block, page.name, "exec"), namespace)
        except DataUnavailable:
            pytest.skip("needs real data sets: set DPADAPT_DATA")


@pytest.mark.parametrize("page", [*PAGES, *ROOT.glob("*.md")], ids=lambda page: page.name)
def test_local_links_exist(page):
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_examples_run(example, capsys):
    code = example.read_text(encoding="utf-8")
    skip_without_extras(code)
    exec(compile(code, example.name, "exec"), {"__name__": "__main__"})
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
