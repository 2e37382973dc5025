"""Every Python block of the README and the docs runs, in order, in one namespace per page; links point somewhere."""

import re
import warnings
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


@pytest.mark.parametrize("page", [*PAGES, *ROOT.glob("*.md")], ids=lambda page: str(page.relative_to(ROOT)))
def test_local_links_exist(page):
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


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
