"""What several commands share: option types, checks and consoles."""

import json
import math
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console


class Incomplete(RuntimeError):
    """Something failed after a budget was spent; the message says what was saved."""


class TaskName(StrEnum):
    """What a model predicts."""

    regression = "regression"
    classification = "classification"


class AdjacencyName(StrEnum):
    """Which data sets count as neighbours; the values are those of `Adjacency`."""

    zero_out = "zero-out"
    add_remove = "add-remove"
    replace_one = "replace-one"


Delta = Annotated[
    float,
    typer.Option(
        help="Probability with which the guarantee may fail: in (0, 1), well below 1 / number of rows. 0 is only for "
        "clustering."
    ),
]
AdjacencyOption = Annotated[
    AdjacencyName,
    typer.Option(
        help="Which data sets count as neighbours: one row zeroed out, added or removed, or replaced by another."
    ),
]
SchemaOption = Annotated[Path, typer.Option(help="What is known about the columns; made by dpadapt schema.")]
LabelOption = Annotated[str, typer.Option(help="The column to predict.")]
TaskOption = Annotated[TaskName, typer.Option(help="Predict a number or a class.")]
Epsilons = Annotated[str, typer.Option(help="Budgets to try, separated by commas.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for other programs.")]


def teach(text: str) -> str:
    """Return help text with its paragraphs unwrapped, for the terminal to wrap; blocks marked with \\b stay."""
    paragraphs = text.strip().split("\n\n")
    return "\n\n".join(part if part.startswith("\b") else " ".join(part.split()) for part in paragraphs)


def console() -> "Console":
    """Return the console that results go to."""
    from rich.console import Console

    return Console(highlight=False)


def print_json(fields: dict[str, Any]) -> None:
    """Print `fields` as JSON; infinities become text, as on receipts."""
    typer.echo(json.dumps({key: _finite(value) for key, value in fields.items()}, indent=2))


def parse_epsilons(text: str) -> list[float]:
    """Return the numbers of a list such as 0.3,1,3, sorted, each once."""
    try:
        epsilons = sorted({float(part) for part in text.split(",")})
    except ValueError:
        epsilons = []
    if not epsilons or not all(0 < epsilon < math.inf for epsilon in epsilons):
        raise ValueError(f"--epsilon must be positive numbers separated by commas, such as 0.3,1,3; got {text!r}.")
    return epsilons


def check_suffix(path: Path, option: str) -> None:
    """Require an output file that ends in .csv or .parquet."""
    if path.suffix.lower() not in (".csv", ".parquet", ".pq"):
        raise ValueError(f"{option} {path}: expected a name ending in .csv or .parquet.")


def check_parent(path: Path, option: str) -> None:
    """Require an output file in a folder that exists, and not a folder itself."""
    if path.is_dir():
        raise ValueError(f"{option} {path}: this is a folder. Give a file name.")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"{option} {path}: its folder does not exist. Make it first.")


def _finite(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
