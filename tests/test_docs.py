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


@pytest.mark.thorough
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


@pytest.mark.thorough
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_examples_run(example, capsys):
    code = example.read_text(encoding="utf-8")
    skip_without_extras(code)
    run(code, example.name, {"__name__": "__main__"})
    assert capsys.readouterr().out


def test_readme_and_first_page_have_the_same_example_and_commands():
    """Whoever has read one of them finds the same on the other."""
    readme, start = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/start.md"))
    first, commands = re.findall(r"```(?:python|bash)\n.*?```", readme, flags=re.DOTALL)[:2]
    assert first in start
    assert commands in start
    assert len(re.sub(r"\\\n", "", commands).splitlines()) == 2 + 3  # fences, and three commands


def test_readme_fits_one_screen_and_names_the_two_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 75
    assert "make demo" in text
    assert "make test" in text


BENCHMARK_PAGES = sorted(set((ROOT / "docs" / "benchmarks").glob("*.md")) - {ROOT / "docs" / "benchmarks" / "index.md"})


@pytest.mark.parametrize("page", BENCHMARK_PAGES, ids=lambda page: page.name)
def test_a_benchmark_page_begins_with_command_date_versions_and_data(page):
    first = page.read_text(encoding="utf-8").split("\n\n")[1]
    assert all(
        re.fullmatch(
            r"- `python -m benchmarks[ .][\w. -]+`: measured on \d{4}-\d\d-\d\d; python 3\S+, .*\. Data: .*\.", line
        )
        for line in first.splitlines()
    )


def test_numbers_of_the_summary_stand_on_the_pages_that_it_links():
    """Each line of a table, and each item of a list, quotes figures of the page that it links last."""
    summary = ROOT / "docs" / "benchmarks" / "index.md"
    text = summary.read_text(encoding="utf-8")
    checked = 0
    for item in re.findall(r"^(?:\||- ).*(?:\n  .*)*", text, flags=re.MULTILINE):
        links = re.findall(r"\]\(([^)]*\.md)\)", item)
        # Tables leave out the zero before the point in some places.
        for figure in (
            re.findall(r"(?<![\w.,])0?(\d*\.\d+)", re.sub(r"epsilon (of )?[\d.]+", "", item)) if links else ()
        ):
            page = (summary.parent / links[-1]).read_text(encoding="utf-8")
            assert re.search(rf"(?<![1-9.]){re.escape(figure)}(?!\d)", page), (figure, links[-1])
            checked += 1
    assert checked > 30
    # The counts are lines of the other page's table, word for word.
    counts = re.findall(r"^\| [^|]+ \| \d+ \| \d+ \| \d+ \|.*", text, flags=re.MULTILINE)
    assert len(counts) >= 7
    peers = (summary.parent / "peers.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in counts if line not in peers] == []


def test_every_file_that_papers_md_names_exists():
    text = (ROOT / "PAPERS.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w/]+\.py)`", text))
    assert len(named) > 50
    places = (ROOT, ROOT / "src" / "dpadapt")  # sources are named from the package on
    assert [path for path in named if not any((place / path).exists() for place in places)] == []
