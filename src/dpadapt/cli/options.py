"""Options that several commands have, each declared once."""

import math
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


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
AllowanceOption = Annotated[
    str | None,
    typer.Option(
        help="Charge under this allowance of the ledger, too, made by dpadapt ledger allow.", show_default=False
    ),
]
DatasetOption = Annotated[
    str | None,
    typer.Option(
        help="With --ledger on a server: the name of the private data set there. Default: that of the private file.",
        show_default=False,
    ),
]
SchemaOption = Annotated[Path, typer.Option(help="What is known about the columns; made by dpadapt schema.")]
LabelOption = Annotated[str, typer.Option(help="The column to predict.")]
TaskOption = Annotated[TaskName, typer.Option(help="Predict a number or a class.")]
Epsilons = Annotated[str, typer.Option(help="Budgets to try, separated by commas.")]
EncodingOption = Annotated[
    str | None, typer.Option(help="Encoding of CSV files, such as latin-1. Default: found out.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for other programs.")]


def teach(text: str) -> str:
    """Return help text with its paragraphs unwrapped, for the terminal to wrap; blocks marked with \\b stay."""
    paragraphs = text.strip().split("\n\n")
    return "\n\n".join(part if part.startswith("\b") else " ".join(part.split()) for part in paragraphs)


def parse_epsilons(text: str) -> list[float]:
    """Return the numbers of a list such as 0.3,1,3, sorted, each once."""
    try:
        epsilons = sorted({float(part) for part in text.split(",")})
    except ValueError:
        epsilons = []
    if not epsilons or not all(0 < epsilon < math.inf for epsilon in epsilons):
        raise ValueError(f"--epsilon must be positive numbers separated by commas, such as 0.3,1,3; got {text!r}.")
    return epsilons
