"""The shape of the code: imports point one way, noise is drawn in one place, importing is quick."""

import ast
import itertools
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import dpadapt

SOURCE = Path(dpadapt.__file__).parent
ROOT = Path(__file__).parents[1]
FILES = sorted(SOURCE.rglob("*.py"))
EXPERIMENTS = sorted((ROOT / "benchmarks").rglob("*.py"))

# Each may import what stands on earlier lines, and itself; parts on one line don't import each other.
LAYERS = [
    {"errors", "data", "rows", "disk", "notebook"},
    {"checks"},
    {"mechanisms"},
    {"accounting"},
    {"inputs"},
    {"learning"},
    {"transfer", "networks"},
    {"clustering", "hybrid", "representation"},
    {"integrations"},
    {"papers"},
    {"methods", "tables", "datasets"},
    {"persist", "evaluation"},
    {"audit", "advice"},
    {"report"},
    {"demo", "plots"},
    {"cli"},
]
LEVEL = {name: level for level, layer in enumerate(LAYERS) for name in layer}


def module_name(path):
    """Return the dotted name of a file of the package."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in FILES}


@cache
def imports(path, *, at_import_only=False):
    """Return the modules of the package that a file imports: anywhere in it, or only when it is imported itself."""
    tree = ast.parse(path.read_text())
    nodes = tree.body if at_import_only else ast.walk(tree)
    modules = set()
    for node in nodes:
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            module = name if name in MODULES else name.rpartition(".")[0]
            if module in MODULES:
                modules.add(module)
    return modules


# Where the core hands over to what needs an extra: each is imported by one module, inside a function.
SEAMS = {
    "dpadapt.accounting.places": {"dpadapt.integrations.postgres"},
    "dpadapt.inputs.gate": {"dpadapt.integrations.dask"},
}


def part(module):
    """Return the first name below the package."""
    return [*module.split("."), ""][1]


def test_every_part_has_a_layer():
    parts = {part(module) for module in MODULES} - {""}
    assert parts == LEVEL.keys()


def test_imports_point_one_way():
    for path in FILES:
        name = module_name(path)
        mine, seams = part(name), SEAMS.get(name, set())
        assert not seams & imports(path, at_import_only=True), name
        for other in {part(module) for module in imports(path) - seams} - {mine, ""}:
            assert mine in ("", "__main__") or LEVEL[other] < LEVEL[mine], f"{name} must not import {other}"


def test_papers_do_not_import_each_other():
    for module, path in MODULES.items():
        if module.startswith("dpadapt.papers."):
            mine = module.split(".")[2]
            others = {name.split(".")[2] for name in imports(path) if name.startswith("dpadapt.papers.")}
            assert others <= {mine}, module


def test_no_module_imports_itself_in_a_circle():
    graph = {module: imports(path, at_import_only=True) - {module} for module, path in MODULES.items()}
    while ready := [module for module, needs in graph.items() if not needs & graph.keys()]:
        for module in ready:
            del graph[module]
    assert graph == {}


def test_the_product_does_not_import_the_experiments():
    assert sources(re.compile(r"(import|from) benchmarks\b")) == []


# Modules that one other module imports, and why each is a file of its own.
OWN_SUBJECT = {
    "clustering.inference": "what is computed without a source: no private row, no noise",
    "hybrid.classifier_fit": "the part that asks people and reads the curator's rows; its plan is apart",
    "integrations.dask": "needs the extra `scale`",
    "integrations.device": "a person's device, which knows no transport: it is tested without Flower",
    "integrations.postgres": "ledgers on a server, which accounting reaches by a seam",
    "networks.ghost_clipping": "clipped gradients without a gradient per row; an oracle checks it",
    "networks.models": "layers and losses to start from",
    "networks.trial": "the check that a model trains row by row",
    "papers.reweigh.rounds": "the weights of Algorithm 1, which its theorem is about",
    "report.ledger": "the page of a ledger, which needs no model",
    "representation.feature_moments": "the private moments of features, and public rows recoloured to them",
    "transfer.regression_fit": "the private half of the regressor: everything that reads private rows",
}


def test_a_module_with_one_importer_has_a_stated_reason():
    importers = {module: set() for module in MODULES}
    exported = set()
    for module, path in MODULES.items():
        for other in imports(path) - {module}:
            # What a package exports is for users, who are importers too.
            (exported.add(other) if path.name == "__init__.py" else importers[other].add(module))
    lonely = {
        module.removeprefix("dpadapt.")
        for module, users in importers.items()
        if len(users) == 1 and module not in exported and MODULES[module].name != "__init__.py"
    }
    # One file per command; `cli.app` puts them together.
    lonely = {module for module in lonely if not module.startswith("cli.")}
    assert lonely == OWN_SUBJECT.keys()


def test_every_module_has_a_test_file_of_its_name():
    for path in FILES:
        place = path.relative_to(SOURCE)
        if place.name != "__init__.py":
            assert (ROOT / "tests" / place.parent / f"test_{place.name}").exists(), f"{place} has no test file"


def test_constants_have_names_that_are_unique_in_the_package():
    homes = {}
    for module, path in MODULES.items():
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, ast.Assign | ast.AnnAssign):
                continue
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for name in [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]:
                if re.fullmatch(r"_?[A-Z][A-Z0-9_]+", name):
                    homes.setdefault(name, set()).add(module)
    # Each command has its own help text.
    shared = {name: modules for name, modules in homes.items() if len(modules) > 1 and name != "_HELP"}
    assert shared == {}


MOST_BY_HAND = 50


def by_hand(path):
    """Return the names of the constants of a file whose own comment says that they were chosen by hand.

    The comment is the block of lines above a constant, or above the constants that stand together under it. A constant
    of which neighbours were measured, or that follows from others, says that instead. Clustering says of whole files
    that their constants were chosen on development draws; no neighbours were compared there.
    """
    text = path.read_text()
    lines, names = text.splitlines(), []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        assigned = [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
        constants = [name for name in assigned if re.fullmatch(r"_?[A-Z][A-Z0-9_]+", name)]
        above = itertools.dropwhile(re.compile(r"\s*_?[A-Z][A-Z0-9_, ]+ = ").match, lines[: node.lineno - 1][::-1])
        comment = [line.strip("# ") for line in itertools.takewhile(lambda line: line.lstrip().startswith("#"), above)]
        if constants and "chosen by hand" in " ".join(reversed(comment)).lower():
            names += constants
    return names


def test_few_constants_were_chosen_by_hand():
    assert by_hand(SOURCE / "mechanisms" / "mechanism.py") == ["_GAUSSIAN_GRID_BITS", "_LAPLACE_GRID_BITS"]
    others = [path for path in FILES if path.relative_to(SOURCE).parts[0] not in ("transfer", "hybrid", "papers")]
    assert sum(len(by_hand(path)) for path in others) <= MOST_BY_HAND


def sources(pattern, *, but=()):
    """Return the files whose code (not strings or comments) matches `pattern`."""
    allowed = {SOURCE / name for name in but}
    experiments = [] if pattern.pattern.startswith("(import|from) benchmarks") else EXPERIMENTS
    return [str(path) for path in (*FILES, *experiments) if path not in allowed and pattern.search(code_of(path))]


@cache
def code_of(path):
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
    return ast.unparse(tree)


def test_bounded_statistics_are_made_where_the_bound_is_enforced():
    makers = [f"mechanisms/{name}.py" for name in ("bounded", "bounded_neighbours")]
    makers += ["papers/adaptation/bounded_losses.py", "papers/reweigh/parity.py"]
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


# Where private cells, labels, weights and ids are read.
READERS = (
    *sorted((SOURCE / "tables").glob("*.py")),
    SOURCE / "integrations" / "dask.py",
    *sorted((SOURCE / "inputs").glob("*.py")),
    *(SOURCE / f"{name}.py" for name in "checks evaluation hybrid/agents learning/base".split()),
)
INFERRING = re.compile(
    r"(pd|pandas)\.(Series|Index|array|to_datetime|to_numeric|to_timedelta)|(np|numpy)\.(array|asarray|asanyarray)"
    r"|.*\.(infer_objects|convert_dtypes)"
)
# Values that have a type of their own, or are public, by the text of the argument.
TYPED_OR_PUBLIC = {
    "evaluation.py": {
        "values": "an array of numbers: its type was looked at",
        "public.y": "public",
        "model.predict_proba(public[0])": "of public rows",
        "function(rows)": "what a model predicts: its type must be the one that it has for null rows",
    },
    "hybrid/agents.py": {"question.value(X, y, coins)": "of a single person"},
    "inputs/files.py": {
        "[str(name).strip() for name in frame.columns]": "names of columns, all texts",
        "[str(name).strip() for name in start.iloc[0]]": "names of columns, all texts",
        "[str(name).strip() for name in table.column_names]": "names of columns, all texts",
    },
    "inputs/gate.py": {
        "values": "public labels; where it looks for dates, private values are arrays already",
        "classes.tolist()": "the classes are assumed public",
    },
    "learning/base.py": {"self.classes_[codes]": "classes"},
    "inputs/persons.py": {"ids": "has two dimensions, so it is an array"},
    "integrations/dask.py": {
        "method(np.zeros((1, width)))": "of a null row",
        "method(frame)": "predictions",
        "predictions": "of a model",
    },
    "tables/cells.py": {"text": "one text", "found": "distinct cells, which have the type of their column"},
    "tables/encoding.py": {"values": "classes of the schema"},
    "tables/model.py": {
        "tasks": "public",
        "unseen": "public",
        "of_schema": "of the schema",
        **{
            f"self.model_.{name}": "predictions"
            for name in (
                "predict(self.encode(X))",
                "predict_proba(self.encode(X))",
                "predict_interval(self.encode(X), coverage=coverage)",
                "predict_set(self.encode(X), coverage=coverage)",
                "decision_function(self.encode(X))",
            )
        },
    },
}


def inferred(code):
    """Return the arguments of calls that infer one type for many values."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and INFERRING.fullmatch(ast.unparse(node.func)):
            values = node.args[0] if node.args else node.func
            typed = any(keyword.arg == "dtype" for keyword in node.keywords)
            constant = all(isinstance(part, ast.Constant | ast.List | ast.Load) for part in ast.walk(values))
            # `checks.cells` gives values a type.
            if not typed and not constant and not ast.unparse(values).startswith("checks.cells("):
                found.append(ast.unparse(values))
    return found


def test_no_type_is_inferred_from_private_values():
    found = {str(path.relative_to(SOURCE)): set(inferred(path.read_text())) for path in READERS}
    assert {name: values for name, values in found.items() if values} == {
        name: set(values) for name, values in TYPED_OR_PUBLIC.items()
    }


@pytest.mark.parametrize(
    "call",
    [
        "pd.Series(labels)",
        "pd.Series(labels, index=rows)",
        "pd.Index(labels)",
        "pd.to_datetime(labels, errors='coerce')",
        "np.asarray(labels)",
        "np.array(labels, copy=True)",
        "labels.infer_objects()",
    ],
)
def test_a_call_that_infers_a_type_is_found(call):
    assert any("labels" in values for values in inferred(f"def f(labels):\n    return {call}"))
    assert inferred("np.asarray(labels, dtype=object), np.asarray(checks.cells(labels)), np.array([0.0, 1.0])") == []


def test_public_names_resolve_and_are_all_listed():
    assert sorted(dpadapt.__all__) == dpadapt.__all__ == sorted(dpadapt._HOME)
    for name in dpadapt.__all__:
        assert getattr(dpadapt, name).__name__ == name
    assert set(dpadapt.__all__) < set(dir(dpadapt))
    assert not hasattr(dpadapt, "nothing_of_this_name")


def test_importing_is_light():
    heavy = [
        "sklearn",
        "pandas",
        "scipy",
        "dp_accounting",
        "opendp",
        "randomgen",
        "rich",
        "typer",
        "plotly",
        "torch",
        "matplotlib",
    ]
    script = f"import sys, dpadapt; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# The weight of the house: the most that it may have. To raise a number is a decision that a commit message explains.
BUDGET = {
    "files": 160,
    "lines": 47450,
    "lines of tests": 40460,
    # Outside transfer, hybrid and papers, which will be rewritten.
    "lines of a file": 820,
    "lines of a function": 80,
}
ROOMS = {
    "accounting": 3300,
    "audit": 1285,
    "cli": 3525,
    "clustering": 1160,
    "datasets": 478,
    "hybrid": 2380,
    "inputs": 1975,
    "integrations": 1562,
    "learning": 2880,
    "mechanisms": 2160,
    "networks": 2214,
    "papers": 7590,
    "report": 1740,
    "representation": 2400,
    "tables": 3022,
    "top level": 3790,
    "transfer": 6120,
}
# Files and changes of file, by tools/hops.py.
PATHS = {
    "dpadapt fit": (50, 264),
    "transfer regressor": (25, 113),
    "transfer classifier": (25, 114),
    "clustering": (16, 50),
    "hybrid": (22, 103),
    "TableModel.fit": (32, 134),
    "one release": (9, 18),
}


def lines(path):
    return len(path.read_text(encoding="utf-8").splitlines())


def lines_of_code(function):
    """Return the number of lines of a function without its docstring."""
    first = function.body[0]
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    docstring = first.end_lineno - first.lineno + 1 if documented else 0
    return function.end_lineno - function.lineno + 1 - docstring


def test_the_house_weighs_no_more_than_its_budget():
    rooms = Counter()
    for path in FILES:
        place = path.relative_to(SOURCE).parts
        rooms[place[0] if len(place) > 1 else "top level"] += lines(path)
    others = [path for path in FILES if path.relative_to(SOURCE).parts[0] not in ("transfer", "hybrid", "papers")]
    functions = [
        node for path in others for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)
    ]
    weights = {
        "files": len(FILES),
        "lines": rooms.total(),
        "lines of tests": sum(map(lines, (ROOT / "tests").rglob("*.py"))),
        "lines of a file": max(map(lines, others)),
        "lines of a function": max(map(lines_of_code, functions)),
    }
    assert {name: weight for name, weight in weights.items() if weight > BUDGET[name]} == {}
    assert {room: weight for room, weight in rooms.items() if weight > ROOMS.get(room, 0)} == {}


@pytest.mark.thorough
def test_the_measured_paths_are_no_longer_than_their_budget():
    """In a process of its own: what was computed before is remembered, and would not be visited again."""
    command = [sys.executable, "-W", "ignore", "tools/hops.py"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = dict(re.findall(r"^(.+?) +(\d+ files +\d+) changes", printed, flags=re.MULTILINE))
    assert paths.keys() == PATHS.keys()
    measured = {name: tuple(map(int, re.findall(r"\d+", path))) for name, path in paths.items()}
    assert {name: path for name, path in measured.items() if path[0] > PATHS[name][0] or path[1] > PATHS[name][1]} == {}
