"""The site: every public name is in its reference, and the check of the built pages finds what is wrong with them."""

import ast
import inspect
import re
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import dpadapt
from tools.check_site import problems

ROOT = Path(__file__).parents[1]
SOURCE = Path(dpadapt.__file__).parent
NEED_EXTRAS = ("dpadapt.networks", "dpadapt.integrations.flower")


def listed():
    """Return the names in the tables of the reference, page by page."""
    names = []
    for page in sorted((ROOT / "docs" / "reference").glob("*.rst")):
        names += re.findall(r"^   (dpadapt\.[\w.]+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return names


def exported():
    """Return the names in `__all__` of the package and its subpackages, read from the source."""
    names = []
    for path in sorted(SOURCE.rglob("__init__.py")):
        package = ".".join(path.parent.relative_to(SOURCE.parent).parts)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
                names += [f"{package}.{name}" for name in ast.literal_eval(node.value)]
    return names


def of_name(name):
    """Import what a dotted name stands for."""
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)


def test_no_public_name_is_missing_in_the_reference():
    assert len(exported()) > 150
    reference = listed()
    objects = [of_name(name) for name in reference if not name.startswith(NEED_EXTRAS)]
    missing = []
    for name in exported():
        if name in reference:
            continue
        # A name that several packages export is listed once.
        value = None if name.startswith(NEED_EXTRAS) else of_name(name)
        if inspect.ismodule(value):
            # Of a module, its functions and classes are listed.
            missing += [f"{name}.{part}" for part in defined_in(value) if f"{name}.{part}" not in reference]
        elif not any(value is known for known in objects):
            missing.append(name)
    assert set(missing) == set()


def defined_in(module):
    """Return the public functions and classes that a module defines."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__ and callable(value)
    ]


@cache
def importable():
    """Return the objects of the reference by name, without those whose extra is not installed."""
    extras = {"dpadapt.networks": "torch", "dpadapt.integrations.flower": "flwr"}
    absent = tuple(part for part, module in extras.items() if find_spec(module) is None)
    return {name: of_name(name) for name in listed() if not (absent and name.startswith(absent))}


def test_names_of_the_reference_resolve_to_what_they_say():
    """The path that a reader copies must import, and give an object of that name with a docstring of its own."""
    for name, value in importable().items():
        assert inspect.isclass(value) or inspect.isfunction(value), name
        assert value.__name__ == name.rpartition(".")[2]
        assert value.__module__.startswith("dpadapt."), name
        assert vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__, name


def test_no_name_is_listed_twice():
    names = listed()
    assert sorted(set(names)) == sorted(names)
    objects = [of_name(name) for name in names if not name.startswith(NEED_EXTRAS)]
    assert len({id(value) for value in objects}) == len(objects)


PAGE = '<html><head><script src="a.js"></script></head><body><h1 id="top">x</h1>{}</body></html>'


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('<a href="other.html#there">x</a> <a href="#top">x</a> <a href="https://a.example">x</a>', None),
        ('<a href="gone.html">x</a>', "gone.html"),
        ('<a href="other.html#gone">x</a>', "no such anchor"),
        ('<a href="#gone">x</a>', "no such anchor"),
        ('<img src="https://a.example/x.png">', "loads https://a.example/x.png"),
        ('<img src="gone.png">', "gone.png"),
        ('<script src="//a.example/x.js"></script>', "loads //a.example/x.js"),
    ],
)
def test_the_check_of_the_site_finds_a_problem(tmp_path, body, problem):
    (tmp_path / "a.js").write_text("")
    (tmp_path / "other.html").write_text('<p id="there">x</p>')
    (tmp_path / "index.html").write_text(PAGE.format(body))
    found = problems(tmp_path)
    assert len(found) == (problem is not None)
    assert problem is None or problem in found[0]


@pytest.mark.parametrize("rule", ['@import "https://a.example/x.css";', "a { src: url(https://a.example/x.woff) }"])
def test_the_check_of_the_site_finds_remote_fonts(tmp_path, rule):
    (tmp_path / "style.css").write_text(rule)
    assert len(problems(tmp_path)) == 1
