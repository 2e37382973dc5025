"""Stories, concepts and comparisons: what can be checked of them without running the notebooks."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("tutorials", "concepts", "coming-from")
PAGES = [path for folder in (*FOLDERS, "guides") for path in sorted((ROOT / "docs" / folder).glob("*.md"))]
NOTEBOOKS = [path for path in PAGES if path.parent.name == "tutorials" and path.name != "index.md"]
MOST_WORDS = 1500
# Made from the code by tools/proofs.py, to be looked up and not to be read through.
REGISTER = ROOT / "docs" / "concepts" / "proofs.md"


def name(path):
    return str(path.relative_to(ROOT))


def tool(module):
    """Return a module of the folder tools."""
    spec = importlib.util.spec_from_file_location(module, ROOT / "tools" / f"{module}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def test_pictures_are_those_that_the_script_draws():
    pictures = tool("pictures")
    for file, draw in pictures.PICTURES.items():
        assert (pictures.CONCEPTS / file).read_text(encoding="utf-8") == draw(), "run: python tools/pictures.py"


@pytest.mark.parametrize("path", [path for path in PAGES if path != REGISTER], ids=name)
def test_pages_are_short(path):
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(text.replace("|", " ").split()) <= MOST_WORDS


@pytest.mark.parametrize("folder", FOLDERS)
def test_index_lists_every_page_in_words_and_in_its_tree(folder):
    place = ROOT / "docs" / folder
    index = (place / "index.md").read_text(encoding="utf-8")
    tree = re.search(r"```\{toctree\}\n(.*?)```", index, flags=re.DOTALL)[1].split()
    pages = sorted(path.stem for path in place.glob("*.md") if path.name != "index.md")
    assert sorted(word for word in tree if not word.startswith(":")) == pages
    assert all(f"]({page}.md" in index for page in pages)


def code(path):
    """Return the code cells of a notebook."""
    cells = re.findall(r"```\{code-cell\} python\n(.*?)```", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert cells
    return ast.parse("\n".join(cells))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_notebooks_charge_every_fit_and_evaluation_to_a_ledger(path):
    calls = [node for node in ast.walk(code(path)) if isinstance(node, ast.Call)]
    spending = [
        call
        for call in calls
        if (isinstance(call.func, ast.Attribute) and call.func.attr == "fit")
        or (isinstance(call.func, ast.Name) and call.func.id == "evaluate")
    ]
    assert spending
    for call in spending:
        assert "ledger" in {keyword.arg for keyword in call.keywords}, ast.unparse(call)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_notebooks_use_no_seeded_noise(path):
    # Advice reads public rows only, so that its seed voids nothing.
    seeded = [
        ast.unparse(call.func)
        for call in ast.walk(code(path))
        if isinstance(call, ast.Call) and "random_state" in {keyword.arg for keyword in call.keywords}
    ]
    assert set(seeded) <= {"advise"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_notebooks_have_the_header_that_the_site_runs_them_by(path):
    assert path.read_text(encoding="utf-8").startswith("---\nfile_format: mystnb\nkernelspec:\n  name: python3\n")
