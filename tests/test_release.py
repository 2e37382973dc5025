"""What a release says about itself agrees with itself. `make release-check` builds one and tries it out."""

import re
import tomllib
from pathlib import Path

import pytest

import dpadapt
from tools.release_check import SDIST_PARTS, complaints

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PYTHONS = ["3.11", "3.12", "3.13"]


def test_the_version_stands_in_one_place_and_the_citation_follows():
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "src/dpadapt/__init__.py"
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.+)$", citation, re.M) == [dpadapt.__version__]
    assert re.findall(r"^license: (.+)$", citation, re.M) == [PROJECT["project"]["license"]]


def test_supported_pythons_are_the_same_everywhere():
    classifiers = [re.search(r":: (3\.\d+)$", text) for text in PROJECT["project"]["classifiers"]]
    assert [found[1] for found in classifiers if found] == PYTHONS
    assert PROJECT["project"]["requires-python"] == f">={PYTHONS[0]}"
    page = (ROOT / "docs" / "guides" / "installation.md").read_text(encoding="utf-8")
    assert "Python 3.11, 3.12 and 3.13" in page
    for extra in PROJECT["project"]["optional-dependencies"].keys() - {"dev", "bench", "docs"}:
        assert f"| `{extra}` |" in page


def test_the_sdist_names_what_it_holds_and_all_of_it_exists():
    include = {pattern.strip("/") for pattern in PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]}
    assert include - {"*.md"} <= SDIST_PARTS
    for part in include:
        assert list(ROOT.glob(part)), part
    assert {path.name for path in ROOT.glob("*.md")} <= SDIST_PARTS


@pytest.mark.parametrize(
    ("name", "fine"),
    [
        ("src/dpadapt/plots.py", True),
        ("tests/accounting/test_store.py", True),
        ("docs/guides/installation.md", True),
        (".venv/bin/python", False),
        ("tests/.venv-torch/pyvenv.cfg", False),
        (".ci/run", False),
        ("src/dpadapt/__pycache__/data.cpython-311.pyc", False),
        ("tests/.pytest_cache/README.md", False),
        ("benchmarks/results/a.json", False),
        ("notes.txt", False),
    ],
)
def test_noise_in_a_distribution_is_found(name, fine):
    assert (complaints([name, "LICENSE"], parts=SDIST_PARTS, needed={"LICENSE"}) == []) is fine
    assert complaints([name], parts=SDIST_PARTS, needed={"LICENSE"})[-1] == "LICENSE is missing"


def test_the_changelog_can_be_released():
    """The newest section comes first; its parts stand in a fixed order, guarantees first, and each once."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (.+)$", text, re.M)
    assert versions[0] == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+( \(\d{4}-\d\d-\d\d\))?", version) for version in versions[1:])
    for section in re.split(r"^## .+$", text, flags=re.M)[1:]:
        parts = re.findall(r"^### (.+)$", section, re.M)
        order = ["Privacy", "Added", "Changed", "Removed", "Fixed"]
        assert parts == [part for part in order if part in parts]
        for block in re.split(r"^### .+$", section, flags=re.M)[1:]:
            assert block.strip().startswith("- ")
