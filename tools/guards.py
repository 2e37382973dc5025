"""Remove each guard of a module once, in a copy of the package, and list the guards that no test of the module misses.

    make guards MODULES="mechanisms/bounded.py persist.py"
    .venv/bin/python -m tools.guards mechanisms/bounded.py --only copy --processes 1

A guard is a condition of an `if` that ends in `raise` (each part of an `or` by itself), a call of min, max, clip, copy
or deepcopy, or a `dtype=`. The tests of a module are those of the file in tests/ that mirrors it, the quickest first,
without docstring examples; then, if all of them pass, those of `--contract`. A guard that *survived* needs a test, or
guards nothing and can be removed.
"""

import argparse
import ast
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.mutants import PACKAGE, ROOT, Mutant, Outcome, Pool, Source, name_of, python_of, try_mutant

_EXTREMES = {"min", "max", "minimum", "maximum"}
# Seconds that the tests of one guard may take, besides three times what they take with all guards.
_PATIENCE_OF_A_GUARD = 60.0
# Of a test with parameters, some may be slow.
_QUICK = ("-m", "not slow")


def tests_of(module: str) -> str:
    """Return the file that tests a module, given by its path in the package."""
    path = Path(module)
    return Path("tests", path.parent, f"test_{path.name}").as_posix()


def guards_of(module: str, text: str) -> list[Mutant]:
    """Return a mutant of the module's `text` for each guard: the whole text, without that guard."""
    source, guards = text.encode(), []
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def place(node: ast.expr) -> slice:
        last_line, last_column = node.end_lineno or 0, node.end_col_offset or 0
        return slice(starts[node.lineno - 1] + node.col_offset, starts[last_line - 1] + last_column)

    for node, other in _replacements(ast.parse(text)):
        own = place(node)
        new = source[: own.start] + other.encode() + source[own.stop :]
        said = " ".join(source[own].decode().split())
        name = f"{module}:{node.lineno}: {said} -> {other}"
        guards.append((own.start, Mutant(name, module, text, new.decode(), "A guard is missing.", (tests_of(module),))))
    return [guard for _, guard in sorted(guards, key=lambda pair: pair[0])]


def _replacements(tree: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """Yield each expression that is, or has, a guard, with the code that takes its place."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise):
            either = isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.Or)
            for condition in node.test.values if either else [node.test]:
                yield condition, "False"
        if not isinstance(node, ast.Call):
            continue
        called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        module = isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) in ("np", "copy")
        if called in _EXTREMES and len(node.args) > 1:
            yield from ((node, f"({ast.unparse(argument)})") for argument in node.args)
        elif called in ("clip", "copy", "deepcopy"):
            if module and node.args:
                yield node, f"({ast.unparse(node.args[0])})"
            elif isinstance(node.func, ast.Attribute):
                yield node, f"({ast.unparse(node.func.value)})"
        for keyword in node.keywords:
            if keyword.arg == "dtype":
                others = [other for other in node.keywords if other is not keyword]
                yield node, ast.unparse(ast.Call(node.func, node.args, others))


def try_guard(guard: Mutant, source: Source, tests: Sequence[str], contract: Sequence[str]) -> Outcome:
    """Run the module's tests, and those of the contract if they pass, without the guard, up to the first failure."""
    python = python_of(guard.environment)
    for some in filter(None, (tests, contract)):
        outcome = try_mutant(Mutant(**{**vars(guard), "tests": tuple(some)}), source, python, *_QUICK)
        if outcome.verdict != "SURVIVED":
            break
    return outcome


def tests_in_order(module: str, source: Source, python: Path) -> tuple[list[str], float]:
    """Return the module's tests, the quickest first, and how many seconds all of them take."""
    seconds = Counter[str]()
    for case in source.test(python, [tests_of(module)], *_QUICK):
        if case.find("failure") is not None or case.find("error") is not None:
            raise ValueError(f"{name_of(case)} fails with all guards in place.")
        if case.find("skipped") is None:
            seconds[name_of(case).partition("[")[0]] += float(case.get("time", 0.0))
    if not seconds:
        raise ValueError(f"{tests_of(module)} has no test that runs.")
    return sorted(seconds, key=lambda test: seconds[test]), sum(seconds.values())


def try_module(module: str, guards: Sequence[Mutant], contract: Sequence[str], processes: int) -> list[str]:
    """Try the guards of one module, print what became of each, and return those that survived."""
    survivors = []
    with tempfile.TemporaryDirectory(prefix="dpadapt-guards-") as folder:
        tests, seconds = tests_in_order(module, Source(Path(folder, "whole")), python_of(guards[0].environment))
        pool = Pool(folder, processes, patience=_PATIENCE_OF_A_GUARD + 3 * seconds)
        print(f"{module}: {len(guards)} guards; its {len(tests)} tests take {seconds:.0f} s", flush=True)
        for guard, outcome in pool.each(lambda guard, source: try_guard(guard, source, tests, contract), guards):
            # Tests that end with another error than that of a check, or not at all, have missed the guard, too.
            verdict = outcome.verdict if outcome.verdict == "SURVIVED" else "killed"
            print(f"{verdict:8} {outcome.seconds:4.0f} s  {guard.id}  {outcome.by}", flush=True)
            if verdict == "SURVIVED":
                survivors.append(guard.id)
    print(f"{module}: {len(guards)} guards, {len(guards) - len(survivors)} killed, {len(survivors)} survived")
    return survivors


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the guards of the modules that the arguments name; return 1 if any survived."""
    parser = argparse.ArgumentParser(description="Remove each guard once and list those that no test misses.")
    parser.add_argument("modules", nargs="+", help="paths in the package, such as mechanisms/bounded.py")
    parser.add_argument("--only", default="", help="only guards whose place or text contains this text")
    parser.add_argument("--list", action="store_true", help="list the guards and try none")
    parser.add_argument("--contract", nargs="*", default=[], help="further tests, for guards that survive the module's")
    parser.add_argument("--processes", type=int, default=1, help="how many are tried at a time; default: 1")
    options = parser.parse_args(arguments)
    survivors = []
    for module in options.modules:
        text = (ROOT / PACKAGE / module).read_text(encoding="utf-8")
        guards = [guard for guard in guards_of(module, text) if options.only in guard.id]
        if options.list:
            print(*(guard.id for guard in guards), sep="\n")
        elif guards:
            survivors += try_module(module, guards, options.contract, options.processes)
    for survivor in survivors:
        print(f"survived: {survivor}")
    return int(bool(survivors))


if __name__ == "__main__":
    sys.exit(main())
