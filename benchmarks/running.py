"""What all benchmarks share: the command line, one thread per process, and work that is divided among processes."""

import argparse
import json
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.__main__ import BENCHMARKS
from benchmarks.pages import state_run

_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
# The folder of `--keep`, for `watched`. A variable of the environment, so that it survives `os.execve` below.
_KEEP = "DPADAPT_BENCHMARK_KEEP"

Writer = Callable[[dict[str, Any], Path], None]
Piece = TypeVar("Piece")
Result = TypeVar("Result")


def one_thread() -> dict[str, str]:
    """Return the environment variables that limit numerical libraries to one thread."""
    return dict.fromkeys(_THREADS, "1")


def command(
    module: str,
    about: str | None,
    run: Callable[..., dict[str, Any]],
    show: Callable[[dict[str, Any]], None],
    *,
    writers: Mapping[str, tuple[str, Writer]] | None = None,
    parts: Sequence[str] = (),
) -> None:
    """Run a benchmark's module as a command: measure, print the tables, and write the requested files.

    `writers` adds options. Each option names a file; it has a help text and a function that writes the results there.
    `parts` are names of which `--only` chooses some; `run` then takes them as its argument `only`.
    """
    writers = {"out": ("write the results as JSON", _write_json), **(writers or {})}
    parser = argparse.ArgumentParser(description=about.splitlines()[0] if about else None)
    parser.add_argument(
        "--quick", action="store_true", help="a smaller run, of minutes: fewer repetitions, data sets or seeds"
    )
    parser.add_argument("--results", type=Path, help="measure nothing; show the results that an earlier --out wrote")
    parser.add_argument(
        "--keep",
        type=Path,
        help="a folder for the results of single pieces: a run that was interrupted goes on from there. Empty it after "
        "every change of code or data",
    )
    for name, (text, _) in writers.items():
        parser.add_argument(f"--{name}", type=Path, help=text)
    if parts:
        parser.add_argument("--only", nargs="+", choices=parts, default=list(parts), help="measure only these parts")
    options = parser.parse_args()
    requested = {name: getattr(options, name) for name in writers if getattr(options, name)}
    for name, path in requested.items():
        # Checked before a run that may take hours, not after it.
        if not path.parent.is_dir() or path.is_dir():
            parser.error(f"--{name} must name a file in a folder that exists, got {path}.")
    if options.results:
        results = json.loads(options.results.read_text(encoding="utf-8"))
    else:
        if options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
            os.environ[_KEEP] = str(options.keep.resolve())
        if not all(os.environ.get(name) == "1" for name in _THREADS):
            # Numerical libraries read these variables when they are loaded, so the process starts again with them set.
            os.execve(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]], {**os.environ, **one_thread()})
        results = run(quick=options.quick, **({"only": options.only} if parts else {}))
    # Written first: an error while printing must not lose the results.
    for name, path in requested.items():
        writers[name][1](results, path)
        if path.suffix == ".md" and "measured on" in results.get("versions", {}):
            state_run(path, _typed(module), results["versions"])
    show(results)


def _typed(module: str) -> str:
    """Return the command that runs a module, as people type it."""
    names = (f"benchmarks {name}" for name, (own, _) in BENCHMARKS.items() if own == module)
    return f"python -m {next(names, module)}"


def _write_json(results: dict[str, Any], path: Path) -> None:
    path.write_text(json.dumps(results, indent=2), encoding="utf-8")


def resumes() -> bool:
    """Return whether `--keep` is given: pieces may then be from an earlier run, so that the run's time says nothing."""
    return bool(os.environ.get(_KEEP))


def peak_memory() -> int:
    """Return the most bytes that this process has held at once.

    `ru_maxrss` is the larger of this and what the process that started it had held; on Linux `VmHWM` is this alone.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return 1024 * int(next(line.split()[1] for line in status.read_text().splitlines() if "VmHWM" in line))
    import resource  # Windows has none

    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def measured(
    measure: Callable[[Piece], Result], todo: Sequence[Piece], processes: int
) -> Iterator[tuple[Piece, Result]]:
    """Yield each piece of work with its result, as processes finish."""
    if processes == 1:
        yield from ((piece, measure(piece)) for piece in todo)
        return
    # Spawned, not forked: a new process reads the limit of one thread and inherits no lock.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        pieces = {pool.submit(measure, piece): piece for piece in todo}
        for future in as_completed(pieces):
            yield pieces[future], future.result()


def watched(
    measure: Callable[[Piece], Result],
    todo: Sequence[Piece],
    processes: int,
    *,
    name: Callable[[Piece], str],
) -> Iterator[tuple[Piece, Result]]:
    """Yield what `measured` yields, with a progress bar on a terminal or one line per piece in a log."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    screen = Console(stderr=True)
    with Progress(*columns, console=screen, transient=True) as progress:
        bar = progress.add_task("fitting", total=len(todo))
        for done, (piece, result) in enumerate(_kept(measure, todo, processes), 1):
            progress.update(bar, advance=1, description=f"fitted {name(piece)}")
            if not screen.is_terminal:
                screen.print(f"{done} of {len(todo)}: {name(piece)}", markup=False, soft_wrap=True)
            yield piece, result


def in_order(
    measure: Callable[[Piece], Result], todo: Sequence[Piece], processes: int, *, name: Callable[[Piece], str]
) -> list[Result]:
    """Return the results of all pieces in the order of `todo`, whichever process ends first; pieces are hashable."""
    results = dict(watched(measure, todo, processes, name=name))
    return [results[piece] for piece in todo]


def _kept(measure: Callable[[Piece], Result], todo: Sequence[Piece], processes: int) -> Iterator[tuple[Piece, Result]]:
    """Yield what `measured` yields; with `--keep`, first what an interrupted run has stored, and store the rest."""
    folder = os.environ.get(_KEEP)
    if not folder:
        yield from measured(measure, todo, processes)
        return

    def path(piece: Piece) -> Path:
        name = sha256(f"{measure.__module__} {piece!r}".encode()).hexdigest()[:24]
        return Path(folder) / f"{name}.pickle"

    left = [piece for piece in todo if not path(piece).exists()]
    yield from ((piece, pickle.loads(path(piece).read_bytes())) for piece in todo if piece not in left)
    for piece, result in measured(measure, left, processes):
        # Renamed when it is complete: a run that ends in between leaves no half of a file.
        draft = path(piece).with_suffix(".draft")
        draft.write_bytes(pickle.dumps(result))
        draft.replace(path(piece))
        yield piece, result
