"""Every option of the commands that fit, ask for a fit or evaluate, each declared once; and options of other commands.

A field of `FitOptions` is an option of `dpadapt fit`: its type, default and help, and a `Use`, which says who states it
and what it does. The command, `dpadapt request`, the file of a request, the checks and the parameters of the estimator
all follow from the field.
"""

import math
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from inspect import Parameter, Signature
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_type_hints

import typer

from dpadapt.methods import METHODS, Method, Task, find

if TYPE_CHECKING:
    from dpadapt.accounting.places import Place
    from dpadapt.rows import Unit


class TaskName(StrEnum):
    """What a model predicts."""

    regression = "regression"
    classification = "classification"


class FitTask(StrEnum):
    """What to fit: a model of a number, a model of a class, or centres among the public rows."""

    regression = "regression"
    classification = "classification"
    clustering = "clustering"


class AdjacencyName(StrEnum):
    """Which data sets count as neighbours; the values are those of `Adjacency`."""

    zero_out = "zero-out"
    add_remove = "add-remove"
    replace_one = "replace-one"


# The formats of tables, for help texts: `inputs.files.FORMAT_NAMES`, without importing their readers.
TABLES = "CSV, Parquet or Excel"

# Options of commands that have no dataclass of their own.

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
EncodingOption = Annotated[
    str | None, typer.Option(help="Encoding of CSV files, such as latin-1. Default: found out.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for other programs.")]


def teach(text: str, *example: str) -> str:
    """Return help text with its paragraphs unwrapped, for the terminal to wrap, and the lines of examples below it.

    Blocks marked with \\b stay as they are.
    """
    paragraphs = text.strip().split("\n\n")
    if example:
        title = "Examples:" if sum(line.startswith("dpadapt") for line in example) > 1 else "Example:"
        paragraphs += [title, "\n  ".join(["\b", *example])]
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


@dataclass(frozen=True, kw_only=True)
class Use:
    """Who states an option of `dpadapt fit`, and what it does.

    An analyst may state it in a request if `asked`; else it is the custodian's, and `why_not` says why a request leaves
    no room for it. `tasks` know it, and it means nothing without the option `beside`. Its value must pass the function
    `check` of `dpadapt.checks`. It sets `parameter` of the estimator, and a method whose estimator lacks that refuses
    the option; `parse` makes the parameter from the text of the option and the classes of the label (none but for
    classification), or raises a ValueError of its own that begins with the option: another is reported as a flaw.
    """

    asked: bool = True
    why_not: str = ""
    tasks: Collection[str] = tuple(FitTask)
    beside: str = ""
    check: Literal["positive", "count", "delta"] | None = None
    parameter: str = ""
    parse: Callable[[str, tuple[Any, ...]], Any] | None = None


_CUSTODIAN = Use(asked=False)
_PREDICTION = tuple(TaskName)
_CLASSES = (FitTask.classification,)


def _class_weights(text: str, classes: tuple[Any, ...]) -> Any:
    """Return `balanced`, or the weights of a text such as ill=20,healthy=1."""
    if text == "balanced":
        return text
    names, weights = {str(label): label for label in classes}, {}
    for part in text.split(","):
        name, _, number = part.rpartition("=")
        if name.strip() not in names or not _is_number(number):
            raise ValueError(
                "--class-weight must be balanced, or one weight for each class that does not count 1, such as "
                "ill=20,healthy=1; the classes are those that the schema lists for the label."
            )
        weights[names[name.strip()]] = float(number)
    return weights


def _decision_threshold(text: str, _classes: tuple[Any, ...]) -> Any:
    """Return a number, the costs of a text such as 5:1, or the name of a score."""
    if _is_number(text):
        return float(text)
    miss, _, alarm = text.partition(":")
    if _is_number(miss) and _is_number(alarm):
        return {"miss": float(miss), "false alarm": float(alarm)}
    return text


def _is_number(text: str) -> bool:
    with suppress(ValueError):
        float(text)
        return True
    return False


def _list_methods(name: str | None) -> str | None:
    """Print all methods and stop, if the name of the method is help."""
    if name != "help":
        return name
    from dpadapt.cli.screen import say

    for title, published in (("Methods:", False), ("Published algorithms, for comparison:", True)):
        say(title)
        for method in METHODS:
            if method.published is published:
                say(f"  {method.name} ({method.task}): {method.summary}")
    raise typer.Exit


@dataclass(frozen=True, kw_only=True)
class SpendingOptions:
    """Options of the commands that spend a budget on private rows."""

    private: Annotated[Path, typer.Option(help=f"Private rows, {TABLES}: a file or folder."), _CUSTODIAN]
    epsilon: Annotated[
        float, typer.Option(help="The most to spend. Positive; smaller is more private."), Use(check="positive")
    ]
    public: Annotated[
        Path | None, typer.Option(help="Public rows, with or without the label. Not protected."), _CUSTODIAN
    ] = None
    delta: Annotated[
        float,
        typer.Option(help="Chance that the guarantee fails: well below 1 / number of rows."),
        Use(check="delta", parameter="delta"),
    ] = 1e-6
    adjacency: Annotated[
        AdjacencyName,
        typer.Option(metavar="NAME", help="Of neighbours: zero-out, add-remove or replace-one.", show_choices=False),
        Use(parameter="adjacency"),
    ] = AdjacencyName.zero_out
    person: Annotated[
        str | None, typer.Option(help="Column of persons' ids: protects all rows of a person."), Use()
    ] = None
    ledger: Annotated[
        str | None,
        typer.Option(help="Default: beside --private. A file, or postgresql://user@host/database."),
        _CUSTODIAN,
    ] = None
    dataset: Annotated[
        str | None, typer.Option(help="With --ledger on a server: the name of the data set there."), _CUSTODIAN
    ] = None
    no_ledger: Annotated[
        bool, typer.Option("--no-ledger", help="Charge no ledger: nothing adds up what you spend."), _CUSTODIAN
    ] = False
    ledger_epsilon: Annotated[
        float | None,
        typer.Option(help="Cap of a new ledger. Default: three times --epsilon."),
        Use(asked=False, check="positive"),
    ] = None
    allowance: Annotated[
        str | None, typer.Option(help="Charge under this allowance, made by dpadapt ledger allow."), _CUSTODIAN
    ] = None
    encoding: Annotated[str | None, typer.Option(help="Encoding of CSV files. Default: found out."), _CUSTODIAN] = None

    @property
    def unit(self) -> "Unit":
        """What is protected."""
        return "row" if self.person is None else "person"

    @property
    def place(self) -> "Place | None":
        """The place that --ledger and --dataset name."""
        from dpadapt.accounting.places import ServerPlace, ledger_place

        place = None if self.ledger is None else ledger_place(self.ledger, self.dataset or "")
        if self.dataset is not None and not (
            isinstance(place, ServerPlace) and self.dataset and self.dataset.isprintable()
        ):
            raise ValueError(
                "--dataset names the data set on the server that --ledger names. Give both, or leave it out."
            )
        return place

    def check(self, *, task: str = "") -> None:
        """Refuse options that the task does not know or that don't fit each other; nothing is read."""
        from dpadapt import checks

        defaults = {field.name: field.default for field in fields(self)}
        for name, use in uses(type(self)).items():
            value, option = getattr(self, name), flag_of(name)
            if value is None or value == defaults[name]:
                continue
            if task and task not in use.tasks:
                raise ValueError(f"{option} is for --task {' or '.join(use.tasks)}. Leave it out.")
            if use.beside and getattr(self, use.beside) is None:
                raise ValueError(f"{option} goes with {flag_of(use.beside)}. Give both, or leave it out.")
            if self.no_ledger and name != "no_ledger" and ("ledger" in name or name == "allowance"):
                raise ValueError(f"--no-ledger: {option} asks for a ledger. Leave one out.")
            if use.check is not None:
                getattr(checks, use.check)(value, option)
        self.place  # noqa: B018  refuses a --dataset without a server


@dataclass(frozen=True, kw_only=True)
class FitOptions(SpendingOptions):
    """Options of `dpadapt fit`. An analyst's request states those with `Use.asked`."""

    schema: Annotated[
        Path,
        typer.Option(help="What is known about the columns; made by dpadapt schema."),
        Use(asked=False, why_not="the request contains its schema"),
    ]
    task: Annotated[
        FitTask,
        typer.Option(metavar="NAME", help="regression, classification or clustering.", show_choices=False),
        Use(),
    ]
    out: Annotated[Path, typer.Option(help="A folder for the model, the receipt and the report."), _CUSTODIAN]
    label: Annotated[str | None, typer.Option(help="The column to predict."), Use(tasks=_PREDICTION)] = None
    method: Annotated[
        str | None,
        typer.Option(
            help="Default: transfer, or clustering. --method help lists all.", is_eager=True, callback=_list_methods
        ),
        Use(),
    ] = None
    request: Annotated[
        Path | None, typer.Option(help="What to fit, as an analyst asks for it by dpadapt request."), _CUSTODIAN
    ] = None
    yes: Annotated[
        bool,
        typer.Option("--yes", help="With --request: spend without a question."),
        Use(asked=False, beside="request"),
    ] = False
    rows: Annotated[
        int | None,
        typer.Option(help="With add-remove: a public estimate of the number of rows."),
        Use(tasks=_PREDICTION, check="count", parameter="n_rows"),
    ] = None
    intervals: Annotated[
        bool,
        typer.Option("--intervals", help="Spend 2 to 10% of the budget for predict --coverage."),
        Use(tasks=_PREDICTION, parameter="intervals"),
    ] = False
    weight: Annotated[
        str | None,
        typer.Option(help="The column of sample weights of private rows."),
        Use(tasks=_PREDICTION, beside="max_weight"),
    ] = None
    max_weight: Annotated[
        float | None,
        typer.Option(help="With --weight: the largest weight, publicly known."),
        Use(tasks=_PREDICTION, beside="weight", parameter="max_weight"),
    ] = None
    mean_weight: Annotated[
        float | None,
        typer.Option(help="With --weight: the mean weight, if it is publicly known."),
        Use(tasks=_PREDICTION, beside="weight", parameter="mean_weight"),
    ] = None
    class_weight: Annotated[
        str | None,
        typer.Option(help="How much classes count: balanced, or e.g. ill=20,healthy=1."),
        Use(tasks=_CLASSES, parameter="class_weight", parse=_class_weights),
    ] = None
    threshold: Annotated[
        str | None,
        typer.Option(help="When to answer the second class: 0.3, 5:1 (costs), f1 or balanced_accuracy."),
        Use(tasks=_CLASSES, parameter="decision_threshold", parse=_decision_threshold),
    ] = None
    tasks: Annotated[
        str | None,
        typer.Option(help="For --method subspace: the public column of tasks."),
        Use(tasks=_PREDICTION, beside="public"),
    ] = None
    agents: Annotated[
        Path | None,
        typer.Option(help="For --method hybrid: people to simulate, one row each."),
        Use(
            asked=False,
            why_not="a request can't ask for people who answer for themselves",
            tasks=_CLASSES,
            beside="agents_epsilon",
        ),
    ] = None
    agents_epsilon: Annotated[
        float | None,
        typer.Option(help="With --agents: the epsilon of each person's one noisy bit."),
        Use(
            asked=False,
            why_not="a request can't ask for people who answer for themselves",
            tasks=_CLASSES,
            beside="agents",
            check="positive",
        ),
    ] = None
    clusters: Annotated[
        int | None,
        typer.Option(help="For --task clustering: how many rows to choose."),
        Use(tasks=(FitTask.clustering,), check="count", parameter="n_clusters"),
    ] = None
    ledger_delta: Annotated[
        float | None, typer.Option(help="Delta of a new ledger. Default: --delta."), Use(asked=False, check="delta")
    ] = None
    memory: Annotated[
        str | None,
        typer.Option(
            help="What private rows may take in memory, at least 64MB; the rest goes to TMPDIR. Default: 512MB."
        ),
        _CUSTODIAN,
    ] = None
    seed: Annotated[
        int | None,
        typer.Option(help="FOR TESTS ONLY, NO GUARANTEE: who knows the seed can subtract the noise."),
        Use(asked=False, why_not="a request is carried out without a seed", parameter="random_state"),
    ] = None

    def parameters(self, method: Method, classes: tuple[Any, ...]) -> dict[str, Any]:
        """Return the parameters of the method's estimator that are set, or refuse an option that it does not know."""
        known = method.estimator().get_params(deep=False)
        parameters: dict[str, Any] = {"epsilon": self.epsilon}
        for field in fields(self):
            use, value = uses(FitOptions)[field.name], getattr(self, field.name)
            if not use.parameter or value is None:
                continue
            if use.parameter in known:
                value = value.value if isinstance(value, StrEnum) else value
                parameters[use.parameter] = value if use.parse is None else use.parse(value, classes)
            elif value != field.default:
                raise ValueError(f"{flag_of(field.name)}: the method {method.name} has no such choice. Leave it out.")
        return parameters


def chosen_method(name: str | None, task: Task) -> Method:
    """Return the method that --method names, or the task's default."""
    try:
        return find(name, task)
    except ValueError as error:
        raise ValueError(f"--method: {error}") from None


def check_method_delta(delta: float, option: str, method: Method) -> None:
    """Require 0 < delta < 1, or 0 <= delta < 1 for clustering, which has pure forms."""
    from dpadapt import checks

    # Checked here, not in `fit`: by then a new ledger would exist, with a cap that no fit could be charged to.
    if checks.delta(delta, option) == 0 and method.task != "clustering":
        raise ValueError(f"{option} must be positive: the methods draw Gaussian noise, got 0. A common choice is 1e-6.")


def flag_of(name: str) -> str:
    """Return how the command line spells an option."""
    return f"--{name.replace('_', '-')}"


def uses(options: type) -> Mapping[str, Use]:
    """Return the use of each option, by name."""
    hints = get_type_hints(options, include_extras=True)
    return {name: next(part for part in hints[name].__metadata__ if isinstance(part, Use)) for name in hints}


def asked_kinds() -> Mapping[str, type]:
    """Return what a request may state, by name, with its type."""
    hints = get_type_hints(FitOptions)
    return {name: next(iter(get_args(hints[name])), hints[name]) for name, use in uses(FitOptions).items() if use.asked}


# Takes the values of the options, and the names of those that the command line states.
Run = Callable[[dict[str, Any], set[str]], None]


def add_command(
    app: typer.Typer,
    name: str,
    run: Run,
    options: type[SpendingOptions],
    *,
    help: str,
    only: Collection[str] = (),
    optional: Collection[str] = (),
    changes: Mapping[str, tuple[Any, Any]] = MappingProxyType({}),
) -> None:
    """Add a command with the fields of the dataclass `options` as its options, or with those named in `only`.

    Fields in `optional` have no default, and are None where the command line leaves them out. `changes` holds type and
    default of options that the command has in another form.
    """
    hints = get_type_hints(options, include_extras=True) | {name: kind for name, (kind, _) in changes.items()}
    parameters = [Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context)]
    for field in fields(options):
        if only and field.name not in (*only, *changes):
            continue
        kind, default = hints[field.name], Parameter.empty if field.default is MISSING else field.default
        if field.name in optional:
            kind, default = Annotated[kind.__origin__ | None, *kind.__metadata__], None
        default = changes[field.name][1] if field.name in changes else default
        parameters.append(Parameter(field.name, Parameter.KEYWORD_ONLY, annotation=kind, default=default))

    def command(context: typer.Context, **values: Any) -> None:
        sources = {name: context.get_parameter_source(name) for name in values}
        run(values, {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"})

    # Needed options first.
    parameters.sort(key=lambda option: option.name not in optional and option.default is not Parameter.empty)
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    app.command(name, help=help)(command)
