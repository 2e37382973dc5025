"""Benchmarks in pieces: each measured by one of several processes, under a progress bar."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import TypeVar

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
