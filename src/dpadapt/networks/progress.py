"""A progress bar that shows steps alone: a private loss would be a release."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(total: int, *, verbose: bool) -> Iterator[Callable[[int], None]]:
    """Give a function that takes the number of finished steps."""
    if not verbose:
        yield lambda step: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("private training"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns) as bar:
        task = bar.add_task("steps", total=total)
        yield lambda step: bar.update(task, completed=step)
