"""Benchmarks in pieces: each measured by one of several processes, under a progress bar."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

# What every benchmark's command shares: its options, one thread, and where the results go.


_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")

Writer = Callable[[dict[str, Any], Path], None]


def one_thread() -> dict[str, str]:
    """Return the environment that holds numerical libraries to one thread."""
    return dict.fromkeys(_THREADS, "1")


def command(
    module: str,
    about: str | None,
    run: Callable[..., dict[str, Any]],
    show: Callable[[dict[str, Any]], None],
    *,
    writers: Mapping[str, tuple[str, Writer]] | None = None,
) -> None:
    """Run a benchmark's module as a command: measure, print the tables, and write what is asked for.

    `writers` are further options: each takes a file, has a help text, and a function that writes results there.
    """
    writers = {"out": ("write the results as JSON", _write_json), **(writers or {})}
    parser = argparse.ArgumentParser(description=about.splitlines()[0] if about else None)
    parser.add_argument("--quick", action="store_true", help="a few minutes at most: fewer repetitions, sets or seeds")
    parser.add_argument("--results", type=Path, help="measure nothing: show these, which an earlier --out wrote")
    for name, (text, _) in writers.items():
        parser.add_argument(f"--{name}", type=Path, help=text)
    options = parser.parse_args()
    asked = {name: getattr(options, name) for name in writers if getattr(options, name)}
    for name, path in asked.items():
        # Before a run of minutes, not after it.
        if not path.parent.is_dir() or path.is_dir():
            parser.error(f"--{name} must name a file in a folder that exists, got {path}.")
    if options.results:
        results = json.loads(options.results.read_text(encoding="utf-8"))
    else:
        if not all(os.environ.get(name) == "1" for name in _THREADS):
            # The numerical libraries read this when they are loaded, so start over with it set.
            os.execve(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]], {**os.environ, **one_thread()})
        results = run(quick=options.quick)
    # Written first: a screen that fails must not lose them.
    for name, path in asked.items():
        writers[name][1](results, path)
    show(results)


def _write_json(results: dict[str, Any], path: Path) -> None:
    path.write_text(json.dumps(results, indent=2), encoding="utf-8")


Piece = TypeVar("Piece")
Found = TypeVar("Found")


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def measured(measure: Callable[[Piece], Found], todo: Sequence[Piece], processes: int) -> Iterator[tuple[Piece, Found]]:
    """Yield each piece with its results as they come."""
    if processes == 1:
        yield from ((piece, measure(piece)) for piece in todo)
        return
    # Fresh processes: they read the limit of one thread, and no lock is inherited.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(measure, piece): piece for piece in todo}
        for done in as_completed(waiting):
            yield waiting[done], done.result()


def watched(
    measure: Callable[[Piece], Found],
    todo: Sequence[Piece],
    processes: int,
    *,
    name: Callable[[Piece], str],
) -> Iterator[tuple[Piece, Found]]:
    """Yield what `measured` yields, under a progress bar that names the last piece, or a line each in a log."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    screen = Console(stderr=True)
    with Progress(*columns, console=screen, transient=True) as progress:
        bar = progress.add_task("fitting", total=len(todo))
        for done, (piece, found) in enumerate(measured(measure, todo, processes), 1):
            progress.update(bar, advance=1, description=f"fitted {name(piece)}")
            if not screen.is_terminal:
                # A log shows no bar.
                screen.print(f"{done} of {len(todo)}: {name(piece)}", markup=False, soft_wrap=True)
            yield piece, found
