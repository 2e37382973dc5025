"""`dpadapt ledger`: what was spent on a private data set, and who may spend how much of what is left."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpadapt.cli.options import AdjacencyName, AdjacencyOption, Json, teach
from dpadapt.cli.screen import check_parent, console, print_json, say, write_file

if TYPE_CHECKING:
    from dpadapt.accounting.ledger import Ledger
    from dpadapt.accounting.places import Place


_GROUP = teach(
    """The ledger of a private data set: its cap, what was spent and on what, and who may spend how much.

A ledger is a file to which every fit and every evaluation on one private data set is charged before
noise is drawn. It refuses what would exceed its cap. By default it lies beside the private file. For
several machines it is kept on a PostgreSQL server instead. Reading it costs nothing. An allowance limits
what is spent under a name, such as that of an analyst.
""",
    "dpadapt ledger show patients.ledger",
    "dpadapt ledger history patients.ledger",
    "dpadapt ledger allow patients.ledger anna --epsilon 0.5",
    "dpadapt ledger page patients.ledger -o ledger.html",
    "dpadapt ledger show postgresql://anna@server/budgets --dataset patients",
)

_SHOW = teach(
    "Show the data set of a ledger, its cap, and what is spent and left.", "dpadapt ledger show patients.ledger"
)

_HISTORY = teach(
    "List every charge of a ledger and every change of its allowances, oldest first.",
    "dpadapt ledger history patients.ledger --json",
)

_NEW = teach(
    "Make a ledger before the first fit, for example to give out allowances. Its cap can't be changed later.",
    "dpadapt ledger new patients.ledger --epsilon 3 --dataset patients",
)

_ALLOW = teach(
    """Limit what may be spent under a name: make an allowance, or raise or lower its epsilon.

A fit or an evaluation with --allowance NAME can pass neither the allowance nor the cap of the ledger. An allowance sets
nothing aside: all of them together may exceed the cap. Every change stays in the history.
""",
    "dpadapt ledger allow patients.ledger anna --epsilon 0.5",
    "dpadapt fit ... --ledger patients.ledger --allowance anna",
)

_PAGE = teach(
    "Write one page about a ledger, which opens offline: budget, allowances, and who spent what on what and when.",
    "dpadapt ledger page patients.ledger -o ledger.html",
)

File = Annotated[
    str,
    typer.Argument(
        help="A ledger created by dpadapt fit or Ledger.open: its file, or postgresql://user@host/database."
    ),
]
Dataset = Annotated[str | None, typer.Option(help="Name of the private data set; needed for a ledger on a server.")]


def mount(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    group = typer.Typer(help=_GROUP)
    group.callback(invoke_without_command=True)(_help)
    group.command("show", help=_SHOW)(_show)
    group.command("history", help=_HISTORY)(_history)
    group.command("new", help=_NEW)(_new)
    group.command("allow", help=_ALLOW)(_allow)
    group.command("page", help=_PAGE)(_page)
    app.add_typer(group, name="ledger")


def _help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        say(context.get_help())


def _place(file: str, dataset: str | None) -> "Place":
    from dpadapt.accounting.places import ledger_place

    place = ledger_place(file, dataset or "")
    if not isinstance(place, Path) and not dataset:
        raise ValueError("--dataset: a ledger on a server is found by the name of its data set. Give that name.")
    return place


def open_existing(file: str, dataset: str | None, *, read_only: bool = True) -> tuple["Ledger", str]:
    """Open a ledger that exists; return also what it is called."""
    from dpadapt.accounting.ledger import Ledger
    from dpadapt.accounting.places import ledger_exists

    place = _place(file, dataset)
    if not (place.is_file() if isinstance(place, Path) else ledger_exists(place)):
        raise ValueError(
            f"{place}: there is no such ledger. If there was one, its budget must be taken as spent; for data about "
            f"which nothing was released yet, dpadapt ledger new or dpadapt fit --ledger {place} makes one."
        )
    ledger = Ledger.open(place, read_only=read_only, dataset=dataset)
    return ledger, place.name if isinstance(place, Path) else f"{place}: {dataset}"


def _show(file: File, dataset: Dataset = None, as_json: Json = False) -> None:
    ledger, name = open_existing(file, dataset)
    entries = ledger.entries
    facts: dict[str, Any] = {
        "dataset": ledger.dataset,
        "adjacency": ledger.adjacency.value,
        "unit": ledger.unit,
        "cap_epsilon": ledger.epsilon,
        "delta": ledger.delta,
        "spent_epsilon": ledger.spent(),
        "remaining_epsilon": ledger.remaining(),
        "rule": ledger.rule,
        "charges": ledger.n_charges,
        "entries": len(entries),
        "seeded": any(entry.seeded for entry in entries),
        "allowances": {name: _limit(ledger.allowance(name)) for name in ledger.allowances},
    }
    if as_json:
        print_json(facts)
        return
    from dpadapt.report.terminal import facts_table

    receipt = ledger.receipt()
    kept = receipt.epsilon <= ledger.epsilon * (1 + 1e-6)
    promise = ": guaranteed, however charges are chosen" if kept else ""
    kind = "Gaussian noise" if ledger.delta else "pure noise"
    shown = {
        "data set": ledger.dataset or "(no name)",
        "cap": f"epsilon = {ledger.epsilon:.4g} at delta = {ledger.delta:.3g}{promise}",
        "spent": f"epsilon = {receipt.epsilon:.4g}: {receipt.meaning}",
        "left": f"epsilon = {facts['remaining_epsilon']:.4g}: the largest further release ({kind}) that is let through",
        "rule": f"{ledger.rule} (how charges are added up; docs/guides/ledger.md)",
        "neighbours": f"{ledger.adjacency.value}, of one {ledger.unit}",
    }
    if facts["allowances"]:
        shown["allowances"] = "\n".join(
            f"{allowed}: epsilon = {limit['spent_epsilon']:.4g} of {limit['epsilon']:.4g} spent at delta = "
            f"{limit['delta']:.3g}; {limit['remaining_epsilon']:.4g} left, if the cap lets it through"
            for allowed, limit in facts["allowances"].items()
        )
    if facts["seeded"]:
        shown["warning"] = "some noise came from a seed: no guarantee for those charges"
    console().print(facts_table(name, shown))


def _limit(allowance: "Ledger") -> dict[str, float]:
    return {
        "epsilon": allowance.epsilon,
        "delta": allowance.delta,
        "spent_epsilon": allowance.spent(),
        "remaining_epsilon": allowance.remaining(),
    }


def _history(file: File, dataset: Dataset = None, as_json: Json = False) -> None:
    ledger, name = open_existing(file, dataset)
    from dpadapt.report.ledger import cost_alone, history_of
    from dpadapt.report.terminal import history_table

    if not as_json:
        console().print(history_table(name, history_of(ledger)))
        return
    past = ledger.records()
    charges = [
        {
            "time": record.time,
            "allowance": record.allowance,
            "epsilon": cost_alone(ledger, record.charge),
            "spent_epsilon": spent,
            "releases": [entry.to_dict() for entry in record.charge],
        }
        for record, spent in zip((record for record in past if record.charge), ledger.spending(), strict=True)
    ]
    limits = [
        {"time": record.time, "allowance": record.allowance, "epsilon": record.limit[0], "delta": record.limit[1]}
        for record in past
        if record.limit is not None
    ]
    print_json({"dataset": ledger.dataset, "charges": charges, "allowances": limits})


def _new(
    file: Annotated[str, typer.Argument(help="A new file, or postgresql://user@host/database.")],
    epsilon: Annotated[float, typer.Option(help="The cap: the most that may ever be spent on the data set.")],
    delta: Annotated[float, typer.Option(help="The delta of the cap.")] = 1e-6,
    dataset: Dataset = None,
    adjacency: AdjacencyOption = AdjacencyName.zero_out,
    persons: Annotated[bool, typer.Option("--persons", help="Protect persons, not rows: for fits with --person.")] = (
        False
    ),
) -> None:
    from dpadapt import checks
    from dpadapt.accounting.ledger import Ledger
    from dpadapt.accounting.places import ledger_exists
    from dpadapt.mechanisms.adjacency import Adjacency

    checks.positive(epsilon, "--epsilon")
    checks.delta(delta, "--delta")
    place = _place(file, dataset)
    if isinstance(place, Path) and place.is_symlink():
        raise ValueError(
            f"{place}: this is a link. If it led to a ledger, bring that very file back: a new one would lack what was "
            f"spent. For other data, choose another name."
        )
    if ledger_exists(place):
        raise ValueError(f"{place}: it exists already. Its cap can't be changed; dpadapt ledger show shows it.")
    if isinstance(place, Path):
        check_parent(place, "the ledger")
    Ledger.open(
        place,
        epsilon=epsilon,
        delta=delta,
        dataset=dataset or "",
        adjacency=Adjacency.of(adjacency.value),
        unit="person" if persons else "row",
    )
    say(f"Made the ledger {place}: at most epsilon = {epsilon:g} at delta = {delta:g} may ever be spent.")


def _allow(
    file: File,
    name: Annotated[str, typer.Argument(help="The name of the allowance, such as that of an analyst.")],
    epsilon: Annotated[float, typer.Option(help="The most that may be spent under the name. At most the cap.")],
    delta: Annotated[
        float | None, typer.Option(help="Of a new allowance; it stays fixed. Default: that of the cap.")
    ] = None,
    dataset: Dataset = None,
) -> None:
    from dpadapt import checks

    checks.positive(epsilon, "--epsilon")
    if delta is not None:
        checks.delta(delta, "--delta")
    ledger, called = open_existing(file, dataset, read_only=False)
    allowance = ledger.allow(name, epsilon, delta)
    say(
        f"{called}: at most epsilon = {allowance.epsilon:g} at delta = {allowance.delta:g} may be spent under {name}, "
        f"of which {allowance.spent():.4g} is spent."
    )


def _page(
    file: File,
    dataset: Dataset = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="HTML file to write.")] = Path("ledger.html"),
) -> None:
    from dpadapt.report.ledger import ledger_page, summarise_ledger

    check_parent(out, "--out")
    ledger, name = open_existing(file, dataset)
    if isinstance(place := _place(file, dataset), Path) and out.exists() and out.samefile(place):
        raise ValueError(f"--out {out}: this is the ledger itself. Give another name.")
    write_file(out, "--out", ledger_page(summarise_ledger(ledger, name)).encode())
    say(f"Wrote {out}")
