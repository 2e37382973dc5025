"""The shape of the code: imports point one way, noise is drawn in one place, files stay small, importing is quick."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dpadapt

SOURCE = Path(dpadapt.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
CAPABILITIES = ("adaptation", "mirror", "hybrid", "representation", "clustering")

# Each may import what stands on earlier lines, and itself. Only the capabilities may not import their neighbours.
LAYERS = [
    {"errors", "_validate", "data"},
    {"rows"},
    {"mechanisms"},
    {"accounting"},
    {"learning"},
    {"networks"},
    set(CAPABILITIES),
    {"methods", "tables", "datasets"},
    {"persist"},
    {"audit", "benchmarks", "report"},
    {"cli"},
]
LEVEL = {name: level for level, layer in enumerate(LAYERS) for name in layer}
BROTHERS = {name for layer in LAYERS[7:] for name in layer}


def part(path):
    """Return the first name below the package that a file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_parts(path):
    """Return which parts of the package a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            words = name.split(".")
            if words[0] == "dpadapt" and len(words) > 1 and words[1] in LEVEL:
                found.add(words[1])
    return found


def test_every_part_has_a_layer():
    parts = {part(path) for path in FILES} - {"__init__", "__main__"}
    assert parts <= LEVEL.keys(), f"say in which layer {sorted(parts - LEVEL.keys())} belongs"


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(SOURCE)) for path in FILES])
def test_imports_point_one_way(path):
    mine = part(path)
    if mine in ("__init__", "__main__"):
        return
    for other in imported_parts(path) - {mine}:
        assert LEVEL[other] <= LEVEL[mine], f"{mine} must not import {other}"
        if LEVEL[other] == LEVEL[mine]:
            assert other in BROTHERS, f"{mine} must not import {other}: they are on one level"
        assert not (mine in CAPABILITIES and other in CAPABILITIES)


def sources(pattern, *, but=()):
    """Return the files whose code (not strings or comments) matches `pattern`."""
    allowed = {SOURCE / name for name in but}
    return [str(path.relative_to(SOURCE)) for path in FILES if path not in allowed and pattern.search(code_of(path))]


def code_of(path):
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
    return ast.unparse(tree)


def test_bounded_statistics_are_made_where_the_bound_is_enforced():
    names = "bounded bounded_losses bounded_choices bounded_neighbours bounded_covers bounded_parity"
    makers = [f"mechanisms/{name}.py" for name in names.split()]
    assert sources(re.compile(r"\bBounded\("), but=makers) == []


def test_only_the_ledger_draws():
    assert sources(re.compile(r"\._apply\("), but=["accounting/ledger.py"]) == []


def test_noise_comes_from_no_global_generator():
    functions = r"(seed|rand|randn|randint|random|normal|laplace|choice|permutation|shuffle|standard_normal|uniform)"
    assert sources(re.compile(rf"(np|numpy)\.random\.{functions}\(")) == []
    assert sources(re.compile(r"\bimport random\b|\bfrom random import\b")) == []


def test_the_search_finds_what_it_looks_for():
    text = SOURCE / "mechanisms" / "bounded.py"
    assert re.search(r"\bBounded\(", code_of(text))
    assert re.search(r"\._apply\(", code_of(SOURCE / "accounting" / "ledger.py"))


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(SOURCE)) for path in FILES])
def test_no_file_is_long(path):
    assert len(path.read_text().splitlines()) <= 400


def test_public_names_resolve_and_are_all_listed():
    assert sorted(dpadapt.__all__) == dpadapt.__all__ == sorted(dpadapt._HOME)
    for name in dpadapt.__all__:
        assert getattr(dpadapt, name).__name__ == name
    assert set(dpadapt.__all__) < set(dir(dpadapt))
    assert not hasattr(dpadapt, "nothing_of_this_name")


def test_importing_is_light():
    heavy = ["sklearn", "pandas", "scipy", "dp_accounting", "opendp", "randomgen", "rich", "typer", "plotly", "torch"]
    script = f"import sys, dpadapt; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
