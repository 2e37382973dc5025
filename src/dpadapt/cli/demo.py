"""`dpadapt demo`: the main job on real data that ships inside installed packages."""

from pathlib import Path
from typing import Annotated, Any

import typer

from dpadapt.cli.options import teach
from dpadapt.cli.screen import console, progress_bar, write_file

_HELP = teach(
    """Go from two raw tables to a decision, and show on real data what privacy costs and how much public data helps.

First the way that a user takes: dpadapt advise, fit, evaluate, predict and statement on two raw tables of a survey,
with missing cells, dates and words. Each command is printed before it runs.

Two sensitive data sets, people's visits to a doctor and women's answers about affairs, are each split in two ways into
a public and a private population. They ship with statsmodels: pip install 'dpadapt\\[demo]'. For several epsilons and
numbers of private rows, models of the private rows alone and of private with public rows are compared with the public
rows alone, with a model without privacy, and with no model at all. Then the demo shows the papers' algorithms, and
other help for private rows: an encoder, people who answer for themselves, points to choose from. It takes about
a minute. The folder gets report.html (opens offline), results.json, and tables/ with what the commands wrote.
""",
    "dpadapt demo",
    "dpadapt demo --quick --out demo-report",
)


def mount(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("demo", help=_HELP)(_demo)


def _demo(
    out: Annotated[Path, typer.Option(help="A folder for the report and the results.")] = Path("demo-report"),
    quick: Annotated[bool, typer.Option("--quick", help="Two splits instead of eight: seconds, wider spread.")] = False,
) -> None:
    """Measure, then write and print the results."""
    import json

    from dpadapt.persist import prepare

    prepare(out, name="--out")
    from dpadapt.demo import demo_page, summarise_demo
    from dpadapt.report.terminal import panel_tables

    screen = console()
    _walk(out / "tables", quick=quick)
    summary = summarise_demo(_measure(seeds=2 if quick else 8))
    write_file(out / "results.json", "--out", json.dumps(summary, indent=2).encode())
    write_file(out / "report.html", "--out", demo_page(summary).encode())
    for case in summary["cases"]:
        panel_tables(screen, case)
        for sentence in case["words"]:
            screen.print(sentence)
        screen.print()
    screen.print("The papers' algorithms on the same rows", style="bold underline")
    for case in summary["papers"]:
        panel_tables(screen, case)
    screen.print("Other help for private rows", style="bold underline")
    for case in summary["others"]:
        panel_tables(screen, case)
    screen.print(f"Wrote report.html and results.json to {out}", soft_wrap=True, markup=False)


def _walk(folder: Path, *, quick: bool) -> None:
    """Run the commands of a user on two raw tables."""
    import shlex

    from dpadapt.cli.app import app
    from dpadapt.demo import write_raw_tables

    screen = console()
    screen.print("From two raw tables to a decision", style="bold underline")
    paths = write_raw_tables(folder)
    # These rows were published long ago: each demo may begin with a new ledger.
    for name in ("schema.toml", "private.ledger", "test.ledger"):
        (folder / name).unlink(missing_ok=True)
    schema, model = folder / "schema.toml", folder / "model"
    tables = ["--private", paths["private"], "--public", paths["public"], "--schema", schema]
    rows = len(paths["private"].read_text(encoding="utf-8").splitlines()) - 1
    facts = ["--label", "affair", "--rows", rows, "--schema", schema, "--epsilon", "1" if quick else "0.3,1"]
    spend = ["--epsilon", 1, "--ledger-epsilon", 3, "--intervals"]
    commands: list[list[Any]] = [
        ["advise", paths["public"], *facts, "--out", folder / "advice.html"],
        ["fit", *tables, "--label", "affair", "--task", "classification", *spend, "--out", model],
        ["evaluate", model, "--private", paths["test"], "--epsilon", 0.3, "--ledger", folder / "private.ledger"],
        ["predict", model, paths["new"], "--coverage", 0.9, "--out", folder / "predictions.csv"],
        ["statement", model, "--out", folder / "statement.html"],
    ]
    for command in commands:
        given = [str(part) for part in command]
        screen.print(f"\n$ dpadapt {shlex.join(given)}", style="bold", markup=False, soft_wrap=True)
        app(args=given, prog_name="dpadapt", standalone_mode=False)
    screen.print()


def _measure(*, seeds: int) -> dict[str, Any]:
    from dpadapt.demo import CASES, EPSILONS, side_by_side

    with progress_bar("fitting", len(CASES) * (seeds + 1) + 1) as done:
        return side_by_side(CASES, epsilons=EPSILONS, seeds=seeds, done=lambda name: done(f"fitting {name}"))
