"""Plant privacy bugs, one at a time, in a copy of the package, and check that the tests named for each of them fail.

    make mutants
    .venv/bin/python tools/mutants.py --only hybrid --processes 1

The bugs are listed in tests/mutants/. Each says in which function, class or constant it is planted (`at`; a path for
the rest of a file, or `path::name` where several files have the name), which piece of it, occurring there exactly once,
is replaced by what, what would leak, and the tests that must fail. So code can move to another file, and be repeated
elsewhere, without a change of the list. The working tree is never changed: every process has
its own copy of the source, which stands before the installed package on the import path.

A mutant is *killed* if one of its tests fails by what it checks. It *survived* if all of them pass. It is *broken* if
it says nothing about the tests: a name is missing, a file can't be imported, a test does not pass without the mutant
either, or the tests take too long.
"""

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from queue import Queue
from typing import Any

ROOT = Path(__file__).parents[1]
LISTS = ROOT / "tests" / "mutants"
PACKAGE = Path("src", "dpadapt")
# Seconds after which the tests of one mutant are ended: a planted bug may make a search endless.
_PATIENCE = 300
# What a test raises if the mutated code does not even run.
_MALFORMED = {
    "AttributeError",
    "ImportError",
    "IndentationError",
    "ModuleNotFoundError",
    "NameError",
    "SyntaxError",
    "TypeError",
    "UnboundLocalError",
}


@dataclass(frozen=True)
class Mutant:
    """A planted bug.

    Parameters
    ----------
    id : str
    file : str
        The source file, relative to the package.
    old, new : str
        The piece of the file, and what it is replaced by.
    leak : str
        What would leak, in one sentence.
    tests : tuple of str
        The tests that must fail, by pytest's names; the first that does ends the trial.
    quick : bool
        Whether it is tried in the default tests.
    within : str
        The function, class or constant that the piece stands in, such as `Filter.sums`; empty: the whole file.
    """

    id: str
    file: str
    old: str
    new: str
    leak: str
    tests: tuple[str, ...]
    quick: bool = False
    within: str = ""

    @property
    def environment(self) -> str:
        """The environment of its tests: that of torch for networks, that with psycopg and Dask for several machines."""
        if self.file in ("integrations/postgres.py", "integrations/dask.py"):
            return ".venv-scale"
        return ".venv-torch" if self.file.startswith("networks/") else ".venv"

    def applied(self) -> str:
        """Return the mutated file."""
        text = (ROOT / PACKAGE / self.file).read_text(encoding="utf-8")
        place = self.place(text)
        return text[:place] + self.new + text[place + len(self.old) :]

    def place(self, text: str) -> int:
        """Return where the piece begins in the file's text; refuse one that does not occur exactly once."""
        around = slice(0, len(text))
        if self.within:
            around = extents(text).get(self.within, slice(0, 0))
        occurrences = text[around].count(self.old)
        if occurrences != 1:
            where = f"{self.file}, {self.within}" if self.within else self.file
            raise ValueError(f"{self.id}: its old text occurs {occurrences} times in {where}, not once.")
        return text.index(self.old, around.start)


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: "killed", "SURVIVED" or "broken"; by which test, or why; and how long it took."""

    verdict: str
    by: str
    seconds: float


@cache
def extents(text: str) -> dict[str, slice]:
    """Return where each function, class and constant of a file stands in its text, with the line end before it."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    places: dict[str, slice] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            match child:
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    names, first = [name], min([child.lineno, *(part.lineno for part in child.decorator_list)])
                case ast.Assign() | ast.AnnAssign() if not isinstance(node, ast.FunctionDef):
                    targets = child.targets if isinstance(child, ast.Assign) else [child.target]
                    parts = [part for target in targets for part in ast.walk(target)]
                    names, first = [part.id for part in parts if isinstance(part, ast.Name)], child.lineno
                case _:
                    visit(child, prefix)
                    continue
            for name in names:
                around = slice(max(0, starts[first - 1] - 1), starts[child.end_lineno or 0])
                # Overloads and branches may define a name again: all of them count.
                known = places.get(f"{prefix}{name}", around)
                places[f"{prefix}{name}"] = slice(min(known.start, around.start), max(known.stop, around.stop))
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                visit(child, f"{prefix}{child.name}.")

    visit(ast.parse(text), "")
    return places


@cache
def homes() -> dict[str, list[str]]:
    """Return the files that have a function, class or constant of each name."""
    result: dict[str, list[str]] = {}
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        for name in extents(path.read_text(encoding="utf-8")):
            result.setdefault(name, []).append(path.relative_to(ROOT / PACKAGE).as_posix())
    return result


def located(at: str) -> tuple[str, str]:
    """Return the file and the name of a place of a mutant; refuse a name that no file or several files have."""
    if at.endswith(".py"):
        return at, ""
    file, _, name = at.rpartition("::")
    files = [file] if file else homes().get(name, [])
    if len(files) != 1:
        raise ValueError(f"{at} is defined in {len(files)} files: {', '.join(files)}. Name one as path::{name}.")
    return files[0], name


def read_mutants(folder: Path = LISTS) -> list[Mutant]:
    """Return all mutants."""
    listed = [tomllib.loads(path.read_text(encoding="utf-8"))["mutant"] for path in sorted(folder.glob("*.toml"))]
    mutants = []
    for fields in (fields for part in listed for fields in part):
        file, within = located(fields.pop("at"))
        mutants.append(Mutant(**{**fields, "tests": tuple(fields["tests"])}, file=file, within=within))
    return mutants


class Source:
    """A copy of the package's source in which one mutant at a time is planted."""

    def __init__(self, folder: Path, patience: float | None = None) -> None:
        self.folder = folder
        self._patience = patience
        self._planted = 0
        shutil.copytree(ROOT / "src", folder / "src")

    @contextmanager
    def planted(self, mutant: Mutant) -> Iterator[None]:
        """Plant the mutant for as long as the context lasts."""
        place = self.folder / PACKAGE / mutant.file
        original, time_of_original = place.read_bytes(), place.stat().st_mtime
        try:
            place.write_text(mutant.applied(), encoding="utf-8")
            # Python recognises a compiled file by the time and size of its source: each mutant has a time of its own.
            self._planted += 1
            os.utime(place, (self._planted, self._planted))
            yield
        finally:
            place.write_bytes(original)
            os.utime(place, (time_of_original, time_of_original))

    def test(self, python: Path, tests: Sequence[str], *options: str) -> list[ElementTree.Element]:
        """Run tests with this source; return pytest's report, one element for each test; none if it was not written."""
        report = self.folder / "report.xml"
        report.unlink(missing_ok=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
        environment |= {
            "PYTHONPATH": str(self.folder / "src"),
            "OMP_NUM_THREADS": "1",
            # Failing examples of property tests must not reach the working tree.
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self.folder / "hypothesis"),
        }
        command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *options]
        try:
            subprocess.run(
                [*command, f"--basetemp={self.folder / 'temporary'}", *tests],
                cwd=ROOT,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=self._patience or _PATIENCE * (1 + len(tests) // 10),
                check=False,
            )
        except subprocess.TimeoutExpired:
            return []
        return list(ElementTree.parse(report).getroot().iter("testcase")) if report.exists() else []


def name_of(case: ElementTree.Element) -> str:
    """Return pytest's name of a test in its report."""
    return f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"


def kind_of(failure: ElementTree.Element) -> str:
    """Return the type of the error with which a test failed."""
    message = failure.get("message", "")
    kind = re.match(r"([\w.]+)(:|$|\n)", message)
    return kind[1].rpartition(".")[2] if kind and not message.startswith("assert ") else "AssertionError"


def try_mutant(mutant: Mutant, source: Source, python: Path, *options: str) -> Outcome:
    """Plant a mutant, run its tests up to the first that fails, and return what became of it."""
    start = time.monotonic()

    def outcome(verdict: str, by: str) -> Outcome:
        return Outcome(verdict, by, time.monotonic() - start)

    with source.planted(mutant):
        cases = source.test(python, mutant.tests, "-x", *options)
    if not cases:
        return outcome("broken", "no test ran, or they took too long")
    for case in cases:
        error, failure = case.find("error"), case.find("failure")
        if error is not None:
            return outcome("broken", f"{name_of(case)}: {error.get('message', '')[:60]}")
        if failure is not None:
            kind = kind_of(failure)
            return outcome("broken" if kind in _MALFORMED else "killed", f"{name_of(case)} ({kind})")
    return outcome("SURVIVED", "")


def failing_without(tests: Sequence[str], source: Source, python: Path) -> set[str]:
    """Return which of the tests fail, are skipped or are not found without any mutant."""
    cases = source.test(python, tests)
    if not cases and len(tests) > 1:
        # One name that is not found keeps pytest from running the others.
        middle = len(tests) // 2
        return failing_without(tests[:middle], source, python) | failing_without(tests[middle:], source, python)
    # Of a test with parameters some may be skipped, such as those that need a server.
    passed = {name_of(case): not len(case) for case in cases if case.find("skipped") is None}

    def passes(test: str) -> bool:
        # A test without parameters in its name stands for all of them.
        results = [result for name, result in passed.items() if name == test or name.startswith(f"{test}[")]
        return bool(results) and all(results)

    return {test for test in tests if not passes(test)}


def python_of(environment: str) -> Path:
    """Return the interpreter of an environment of this project; of the main one, this interpreter if there is none."""
    python = ROOT / environment / "bin" / "python"
    return python if python.exists() or environment != ".venv" else Path(sys.executable)


class Pool:
    """Threads that each run tests in a process of their own, with a source of their own."""

    def __init__(self, folder: str, processes: int, patience: float | None = None) -> None:
        self._threads = ThreadPoolExecutor(processes)
        self._sources: Queue[Source] = Queue()
        for number in range(processes):
            self._sources.put(Source(Path(folder, str(number)), patience))

    def each(self, work: Callable[[Any, Source], Any], items: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        """Yield each item with what `work` returns for it, in the order in which they are done."""

        def one(item: Any) -> Any:
            source = self._sources.get()
            try:
                return work(item, source)
            finally:
                self._sources.put(source)

        waiting = {self._threads.submit(one, item): item for item in items}
        for done in as_completed(waiting):
            yield waiting[done], done.result()


def batches_of_tests(mutants: Sequence[Mutant], n_batches: int) -> list[tuple[str, list[str]]]:
    """Return the tests of all mutants, each once, in batches of one environment; a file's tests are in one batch."""
    batches = []
    for environment in sorted({mutant.environment for mutant in mutants}):
        tests = {test for mutant in mutants if mutant.environment == environment for test in mutant.tests}
        files = sorted({test.partition("::")[0] for test in tests})
        for number in range(n_batches):
            mine = files[number::n_batches]
            batches.append((environment, sorted(test for test in tests if test.partition("::")[0] in mine)))
    return [(environment, tests) for environment, tests in batches if tests]


def try_all(mutants: Sequence[Mutant], processes: int) -> int:
    """Try the mutants, print what became of each and the score, and return 1 unless all were killed."""
    start, failing, counts = time.monotonic(), set[str](), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="dpadapt-mutants-") as folder:
        pool = Pool(folder, processes)
        batches = batches_of_tests(mutants, 2 * processes)
        print(f"{len(mutants)} mutants; first their {sum(len(tests) for _, tests in batches)} tests without any mutant")
        for _, failed in pool.each(
            lambda batch, source: failing_without(batch[1], source, python_of(batch[0])), batches
        ):
            failing |= failed
        for test in sorted(failing):
            print(f"fails without a mutant: {test}")
        print(f"{len(failing)} fail, after {time.monotonic() - start:.0f} s", flush=True)

        def one(mutant: Mutant, source: Source) -> Outcome:
            if failing & set(mutant.tests):
                return Outcome("broken", "a test fails without it, too", 0.0)
            return try_mutant(mutant, source, python_of(mutant.environment))

        for number, (mutant, outcome) in enumerate(pool.each(one, mutants), 1):
            counts[outcome.verdict] += 1
            done = f"[{number:3}/{len(mutants)}] {mutant.id:46} {outcome.verdict:8}"
            print(f"{done} {outcome.seconds:4.0f} s  {outcome.by}", flush=True)
    print(
        f"{counts['killed']} of {len(mutants)} killed, {counts['SURVIVED']} survived, {counts['broken']} broken, "
        f"in {(time.monotonic() - start) / 60:.1f} min"
    )
    return int(counts["killed"] < len(mutants))


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the mutants that the arguments choose."""
    parser = argparse.ArgumentParser(description="Plant privacy bugs and check that the tests find them.")
    parser.add_argument("--only", default="", help="only mutants whose id or file contains this text")
    parser.add_argument("--quick", action="store_true", help="only those that are tried in the default tests")
    parser.add_argument("--processes", type=int, default=2, help="how many are tried at a time; default: 2")
    options = parser.parse_args(arguments)
    mutants = [
        mutant
        for mutant in read_mutants()
        if options.only in f"{mutant.file} {mutant.id}" and (mutant.quick or not options.quick)
    ]
    if not mutants:
        parser.error(f"no mutant has {options.only!r} in its id or file.")
    return try_all(mutants, options.processes)


if __name__ == "__main__":
    sys.exit(main())
