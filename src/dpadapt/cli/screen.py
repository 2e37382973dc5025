"""What commands print and write: results, progress, what is said about errors; limits of time."""

import errno
import json
import math
import signal
import threading
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from dpadapt.errors import made_here

if TYPE_CHECKING:
    from rich.console import Console


class Incomplete(RuntimeError):
    """Something failed after a budget was spent; the message says what was saved.

    `receipt` is what to print below the message, if it could be saved nowhere, and `code` the exit code.
    """

    def __init__(self, message: str, *, receipt: str = "", code: int = 1) -> None:
        super().__init__(message)
        self.receipt = receipt
        self.code = code


class CannotPrint(RuntimeError):
    """Standard output can't be written."""


@contextmanager
def _printing() -> Iterator[None]:
    """Turn an error of standard output into `CannotPrint`, so that it is not taken for one of another file."""
    try:
        yield
    except OSError as error:
        raise CannotPrint(f"standard output can't be written: {error.strerror}") from None


# Categories of characters that steer a terminal, reverse the direction of text or can't be seen.
_UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def printable(text: str) -> str:
    """Return `text` as a terminal may show it: characters that would steer it are written as escapes, line ends stay.

    Names of columns, classes, data sets and files come from other people. Everything that is printed passes through
    here: `say` and `console` for results, `main` for errors.
    """
    if text.isprintable():
        return text
    return "".join(
        c.encode("unicode_escape").decode() if c != "\n" and unicodedata.category(c) in _UNPRINTABLE else c
        for c in text
    )


def say(text: str) -> None:
    """Print a result as plain text."""
    with _printing():
        print(printable(text), flush=True)


def console(*, stderr: bool = False) -> "Console":
    """Return the console that tables go to, or the one for progress (standard error)."""
    from rich.console import Console
    from rich.text import Text

    class Screen(Console):
        """Shows names as they are, but never lets them steer the terminal."""

        def render_str(self, text: str, **options: Any) -> Text:
            """Return the text to show; rich passes every cell, title and sentence through here."""
            return super().render_str(printable(text), **options)

        def print(self, *objects: Any, **options: Any) -> None:
            with _printing():
                super().print(*objects, **options)
                self.file.flush()

        def on_broken_pipe(self) -> None:
            """Raise: rich would end the process, as if nothing had been spent."""
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    return Screen(highlight=False, emoji=False, stderr=stderr)


def print_json(fields: dict[str, Any]) -> None:
    """Print `fields` as JSON; infinities become text, as on receipts."""
    say(json.dumps({key: _finite(value) for key, value in fields.items()}, indent=2))


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show on standard error, if it is a terminal, that the command is at work."""
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield
        return
    with screen.status(f"{what} ..."):
        yield


class Done(Protocol):
    """What moves a progress bar."""

    def __call__(self, text: str = "", steps: int = 1) -> None:
        """Show so many steps as done, and a text, if there is a new one."""


@contextmanager
def progress_bar(what: str, total: int | None) -> Iterator[Done]:
    """Show a bar on standard error, if it is a terminal; yield a function to call after each step.

    With `total` None the number of steps is not known, and the bar only moves.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    screen = console(stderr=True)
    columns = TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as progress:
        bar = progress.add_task(what, total=total)
        yield lambda text="", steps=1: progress.update(
            bar, advance=steps, description=printable(text) if text else None
        )


@contextmanager
def time_limit(seconds: int, refusal: str) -> Iterator[None]:
    """End what takes longer by an error with this text. Without alarms (Windows, other threads) there is no limit."""
    if not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: Any) -> None:
        raise ValueError(refusal)

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def reason(error: BaseException) -> str:
    """Return what may be said about an error: its text if it is ours, else its kind alone."""
    if made_here(error):
        # Without the number of the system's error.
        return str(getattr(error, "strerror", None) or error)
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, MemoryError):
        return "memory ran out"
    if isinstance(error, RecursionError):
        return "something is nested too deeply"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"an unexpected {type(error).__name__}, which is a flaw in dpadapt: please report what you did"


def check_suffix(path: Path, option: str) -> None:
    """Require an output file that ends in .csv or .parquet."""
    if path.suffix.lower() not in (".csv", ".parquet", ".pq"):
        raise ValueError(f"{option} {path}: expected a name ending in .csv or .parquet.")


def check_parent(path: Path, option: str) -> None:
    """Require an output file in a folder that exists, and not a folder itself."""
    try:
        if path.is_dir():
            raise ValueError(f"{option} {path}: this is a folder. Give a file name.")
        if not path.absolute().parent.is_dir():
            raise ValueError(f"{option} {path}: its folder does not exist. Make it first.")
    except OSError as error:
        raise ValueError(f"{option} {path}: can't be written ({error.strerror}).") from None


def write_file(path: Path, option: str, content: bytes) -> None:
    """Write a result whole or not at all."""
    with new_file(path, option) as file:
        file.write(content)


@contextmanager
def new_file(path: Path, option: str) -> Iterator[IO[bytes]]:
    """Open the file of a result to write piece by piece; it is there when the block ends, and only if it succeeds."""
    from dpadapt.disk import atomic_file

    try:
        with atomic_file(path) as file:
            yield file
    except OSError as error:
        raise ValueError(f"{option} {path}: can't be written ({error.strerror}).") from None


def _finite(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
