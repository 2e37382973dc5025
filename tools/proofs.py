"""Make the register of proofs, docs/concepts/proofs.md, from marks in the code.

    .venv/bin/python tools/proofs.py            # prints the gaps: statements without a planted bug
    .venv/bin/python tools/proofs.py --write    # writes the page

A mark stands where a guarantee is enforced, in a comment or in a paragraph of a docstring:

    # Claim: |sum - sum'|_2 <= clip_norm. Zeroing one record moves the sum by its clipped row alone.
    # Not proved: what rounding adds to a sum of float64 numbers.

The first sentence is the statement, what follows it is the proof or its citation. A mark belongs to the function,
class or constant in which it stands. The planted bugs of tests/mutants, and with them the tests that find each, are
joined to the mark of the function that they change. A bug in a function without a mark is joined to the marked
functions of its file that use it.
"""

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tools.mutants import PACKAGE, ROOT, Mutant, read_mutants

PAGE = ROOT / "docs" / "concepts" / "proofs.md"
# Fields of `Bounded`. A call of `replace` with one of them makes a new statistic.
_FIELDS = {"value", "l1", "l2", "linf", "replaced", "monotone", "n_categories", "fixed_rows", "per_row"}
# Commands that run the tests of an environment; a test that is marked as slow is run by `make audit`.
_COMMANDS = {".venv": "make test", ".venv-torch": "make test-networks", ".venv-scale": "make test-scale"}
_HEAD = """# Register of proofs

<!-- Made by tools/proofs.py from marks in the code: change the code, then run `python tools/proofs.py --write`. -->

Every bounded statistic, every formula for a cost, and every other place where the guarantee rests on an argument. Each
entry has the statement, its proof as it stands in the code beside the lines that enforce it, what is *not* proved, and
how it is checked. *Planted bugs* break the statement on purpose: `make mutants` plants each of them, and one of the
tests named must fail. The tests run in `make test` or `make test-all` unless another command is named.

In a statement about a statistic, a prime marks the value on a neighbouring data set: one record is made null, added or
removed. Bounds for a record that is replaced are marked *replaced*. Where shares count, a record may be a person.
"""


@dataclass(frozen=True)
class Place:
    """A function, class or constant of a file: its dotted name, its lines, and the names that it uses."""

    file: str
    name: str
    first: int
    last: int
    is_class: bool
    uses: frozenset[str]

    def holds(self, line: int) -> bool:
        """Return whether a line belongs to this place."""
        return self.first <= line <= self.last

    @property
    def own_names(self) -> set[str]:
        """The names by which other code of the file uses this place."""
        owner, _, last = self.name.rpartition(".")
        # `__init__` and `__call__` are used by the name of their class.
        return {owner.rpartition(".")[2]} if last.startswith("__") else set(last.split(", "))


@dataclass(frozen=True)
class Claim:
    """A mark: a statement, its proof and what it leaves unproved, with the place that it stands in."""

    place: Place
    statement: str
    proof: str
    unproved: str


@dataclass(frozen=True)
class Entry:
    """The claims of one place, with the planted bugs that break them."""

    place: Place
    claims: tuple[Claim, ...]
    mutants: tuple[Mutant, ...]

    @property
    def tests(self) -> list[str]:
        """The tests that find the planted bugs, each once."""
        return list(dict.fromkeys(test for mutant in self.mutants for test in mutant.tests))


@cache
def places(file: str, source: str) -> list[Place]:
    """Return the functions, classes and constants of a file; each stands before those inside it."""
    result: list[Place] = []
    above = {first + len(lines) - 1: first for first, lines in comments(source)}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = ""
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                name = child.name
            elif isinstance(child, ast.Assign | ast.AnnAssign) and isinstance(node, ast.Module):
                targets = child.targets[0] if isinstance(child, ast.Assign) else child.target
                name = ", ".join(part.id for part in ast.walk(targets) if isinstance(part, ast.Name))
            if name and isinstance(child, ast.stmt):
                first = min([child.lineno, *(part.lineno for part in getattr(child, "decorator_list", ()))])
                uses = {part.id for part in ast.walk(child) if isinstance(part, ast.Name)}
                uses |= {part.attr for part in ast.walk(child) if isinstance(part, ast.Attribute)}
                # A comment right above belongs to what it stands above.
                lines = above.get(first - 1, first), child.end_lineno or first
                result.append(Place(file, prefix + name, *lines, isinstance(child, ast.ClassDef), frozenset(uses)))
            visit(child, f"{prefix}{name}." if name else prefix)

    visit(ast.parse(source), "")
    return result


def comments(source: str) -> list[tuple[int, list[str]]]:
    """Return the blocks of comment lines of a file: the number of the first line, and the text of each line."""
    blocks: list[tuple[int, list[str]]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip():
            line, text = token.start[0], token.string.removeprefix("#").strip()
            if blocks and line == blocks[-1][0] + len(blocks[-1][1]):
                blocks[-1][1].append(text)
            else:
                blocks.append((line, [text]))
    return blocks


def paragraphs(source: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the paragraphs of the docstrings of functions and classes, in the form of `comments`."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            text = node.body[0]
            start, end = text.lineno, text.end_lineno or text.lineno
            for number in range(start, end + 2):
                if number > end or not lines[number - 1].strip():
                    yield start, [line.strip().removesuffix('"""').strip() for line in lines[start - 1 : number - 1]]
                    start = number + 1


@cache
def claims(file: str, source: str) -> list[Claim]:
    """Return the marks of a file, in its order."""
    here, result = places(file, source), []
    for first, lines in sorted([*comments(source), *paragraphs(source)]):
        begins = [number for number, line in enumerate(lines) if line.startswith("Claim: ")]
        for begin, end in zip(begins, [*begins[1:], len(lines)], strict=False):
            text, _, unproved = " ".join(lines[begin:end]).partition("Not proved: ")
            statement, _, proof = text.removeprefix("Claim: ").strip().partition(". ")
            around = [place for place in here if place.holds(first + begin)]
            if not around:
                raise ValueError(f"{file}, line {first + begin}: a claim must stand in a function, class or constant.")
            result.append(Claim(around[-1], statement.removesuffix(".") + ".", proof.strip(), unproved.strip()))
    return result


@cache
def makers(file: str, source: str) -> list[Place]:
    """Return the functions that make a `Bounded`, from numbers or from another one."""
    if file.startswith("audit/"):
        # The audit copies statistics of made-up rows, to measure what a release tells. Nothing there is a release.
        return []
    lines = [node.lineno for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and _makes(node)]
    if not lines:
        return []
    return list(dict.fromkeys([place for place in places(file, source) if place.holds(line)][-1] for line in lines))


def _makes(call: ast.Call) -> bool:
    name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
    if name == "__new__":
        return any(isinstance(part, ast.Name) and part.id == "Bounded" for part in call.args)
    if name == "replace":
        return any(part.arg in _FIELDS for part in call.keywords)
    return name in ("Bounded", "with_value")


def unmarked(sources: Mapping[str, str]) -> list[str]:
    """Return the functions that make a `Bounded` and have no mark, and neither has a function around them."""
    result = []
    for file, source in sorted(sources.items()):
        making = makers(file, source)
        marked = {claim.place.name for claim in claims(file, source)} if making else set()
        for place in making:
            parts = place.name.split(".")
            if not marked & {".".join(parts[: number + 1]) for number in range(len(parts))}:
                result.append(f"{file}: {place.name}")
    return result


def changed_line(mutant: Mutant, source: str) -> int:
    """Return the number of the first line of the source that a mutant changes."""
    letters = zip(mutant.old, mutant.new, strict=False)
    same = next((number for number, (old, new) in enumerate(letters) if old != new), len(mutant.old))
    # What a mutant adds behind its text belongs to the last line of the text.
    return source.count("\n", 0, mutant.place(source) + min(same, len(mutant.old) - 1)) + 1


def entries(sources: Mapping[str, str], mutants: Sequence[Mutant]) -> list[Entry]:
    """Return the register of some files: the claims of each place, with the planted bugs that touch it."""
    result = []
    for file, source in sorted(sources.items()):
        if "Claim: " not in source:
            continue
        marks, here = claims(file, source), places(file, source)
        marked = list(dict.fromkeys(mark.place for mark in marks))
        touching: dict[str, list[Mutant]] = {place.name: [] for place in marked}
        for mutant in (mutant for mutant in mutants if mutant.file == file):
            around = [place for place in here if place.holds(changed_line(mutant, source))]
            own = [place for place in around if place in marked]
            for place in own[-1:] or users(around, here, marked):
                touching[place.name].append(mutant)
        for place in marked:
            mine = tuple(mark for mark in marks if mark.place == place)
            result.append(Entry(place, mine, tuple(touching[place.name])))
    return result


def users(around: Sequence[Place], here: Sequence[Place], marked: Sequence[Place]) -> list[Place]:
    """Return the marked places of a file that use one of `around`, perhaps by way of functions without a mark."""
    if around and around[-1].is_class:
        # A line of the class itself, such as a field: it touches every method.
        return [place for place in marked if place.name.startswith(f"{around[-1].name}.")]
    names = {name for place in around if not place.is_class for name in place.own_names}
    between = [place for place in here if place not in marked and not place.is_class]
    while more := {name for place in between if place.uses & names for name in place.own_names} - names:
        names |= more
    return [place for place in marked if place.uses & names]


@cache
def package() -> dict[str, str]:
    """Return the source of every file of the package, by its path in the package."""
    folder = ROOT / PACKAGE
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in folder.rglob("*.py")}


def register() -> list[Entry]:
    """Return the register of the package."""
    return entries(package(), read_mutants())


@cache
def slow_tests(file: str) -> set[str]:
    """Return the tests of a file that are marked as slow."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    whole = any("pytestmark" in ast.unparse(node) and "slow" in ast.unparse(node) for node in tree.body)
    return {node.name for node in functions if whole or any("slow" in ast.unparse(d) for d in node.decorator_list)}


def command(test: str, environment: str) -> str:
    """Return the command that runs a test."""
    file, _, name = test.partition("::")
    return "make audit" if name.partition("[")[0] in slow_tests(file) else _COMMANDS[environment]


def escaped(text: str) -> str:
    """Return text in which Markdown finds no markup but code between backticks."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part[:1] == "`" else re.sub(r"([\\*_<>\[\]|~#])", r"\\\1", part) for part in parts)


def page(register: Iterable[Entry]) -> str:
    """Return the page of a register."""
    lines, file = [_HEAD], ""
    for entry in register:
        if entry.place.file != file:
            file = entry.place.file
            lines.append(f"## {file}\n")
        lines.append(f"### `{entry.place.name}`\n")
        for claim in entry.claims:
            lines.append(f"**{escaped(claim.statement)}** {escaped(claim.proof)}".strip() + "\n")
            if claim.unproved:
                lines.append(f"*Not proved:* {escaped(claim.unproved)}\n")
        if not entry.mutants:
            lines.append("*No planted bug.*\n")
            continue
        lines.append("*Planted bugs:*\n")
        lines += [f"- `{mutant.id}`: {escaped(mutant.leak)}" for mutant in entry.mutants]
        commands = {test: command(test, mutant.environment) for mutant in entry.mutants for test in mutant.tests}
        lines.append("\n*Tests that find them:*\n")
        for test in entry.tests:
            lines.append(f"- `{test}`" + (f" (`{commands[test]}`)" if commands[test] != "make test" else ""))
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the gaps of the register, and write its page if asked to; return 1 if a `Bounded` has no claim."""
    parser = argparse.ArgumentParser(description="Make the register of proofs from marks in the code.")
    parser.add_argument("--write", action="store_true", help="write docs/concepts/proofs.md")
    options = parser.parse_args(arguments)
    missing, marks = unmarked(package()), register()
    for place in missing:
        print(f"{place} makes a Bounded and has no claim")
    for entry in marks:
        if not entry.mutants:
            print(f"{entry.place.file}: {entry.place.name} has no planted bug")
    bugs = {mutant.id for entry in marks for mutant in entry.mutants}
    print(f"{sum(len(entry.claims) for entry in marks)} claims in {len(marks)} places; {len(bugs)} planted bugs")
    if options.write:
        PAGE.write_text(page(marks), encoding="utf-8")
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
