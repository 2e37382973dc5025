"""`dpadapt predict`, `statement` and `audit`: a saved model applied to a table, described and checked."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpadapt.cli.ledger import open_existing
from dpadapt.cli.options import TABLES, EncodingOption, Json, teach
from dpadapt.cli.screen import (
    check_parent,
    check_suffix,
    console,
    new_file,
    print_json,
    progress_bar,
    say,
    working,
    write_file,
)
from dpadapt.errors import made_here

if TYPE_CHECKING:
    import pandas as pd

    from dpadapt.tables import Table, TableModel

_PREDICT_HELP = teach(
    """Apply a fitted model to the rows of a table.

The rows are encoded by the schema that is saved with the model. The result has one row per input row, in the same
order: the prediction and, for a classification, the probability of each class. With --coverage it also has an interval
for each row (lower, upper), or the classes that belong to its set: at 0.9 they hold the label of about 90% of new rows,
on average, if these come from the population of the private rows. Predicting costs the rows that the model was fitted
on no further privacy. The table may be larger than memory: it is read, predicted and written piece by piece.
""",
    "dpadapt predict model/ new.csv -o predictions.csv",
)


def _predict(
    model: Annotated[Path, typer.Argument(help="A folder made by dpadapt fit.")],
    data: Annotated[
        Path,
        typer.Argument(help=f"Rows to predict, {TABLES}: a file or a folder; the label may be missing."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write, CSV or Parquet.")] = Path("predictions.csv"),
    coverage: Annotated[
        float | None,
        typer.Option(help="Share of new rows that intervals or sets shall cover, such as 0.9. Needs fit --intervals."),
    ] = None,
    encoding: EncodingOption = None,
) -> None:
    check_suffix(out, "--out")
    check_parent(out, "--out")

    import numpy as np

    from dpadapt import checks
    from dpadapt.persist import load
    from dpadapt.tables import TableModel, check_columns, has_unknown_columns, table_chunks
    from dpadapt.tables.writing import safe_line_end, write_csv, write_parquet

    if coverage is not None:
        checks.inside_unit(coverage, "--coverage")
    with working("reading"):
        saved = load(model)
    if saved.extra.get("task") == "clustering":
        raise ValueError(
            f"{model}: this is a clustering, which predicts nothing. The chosen rows are in its chosen.csv."
        )
    of_table = saved.model
    if not isinstance(of_table, TableModel) or of_table.label is None:
        raise ValueError(f"{model}: the model was saved without a schema. Predict with a model made by dpadapt fit.")
    if coverage is not None and not getattr(of_table.estimator, "intervals", False):
        raise ValueError(
            f"--coverage: {model} was fitted without --intervals. Fit it with --intervals, or leave it out."
        )
    with working("reading"):
        # Rows to predict are treated as private: no message shows a value.
        chunks = table_chunks(data, origin=str(data), private=True, encoding=encoding)
        check_columns(chunks.header, of_table.schema, label=of_table.label, optional=of_table.label)
    warned: dict[str, None] = {}

    def predictions() -> "Iterator[pd.DataFrame]":
        for chunk in chunks:
            try:
                frame, texts = _predictions(of_table, chunk, coverage)
            except Exception as error:
                if made_here(error):
                    raise
                # The rows are as the schema says, so the model is not.
                raise ValueError(
                    f"{model}: the model can't predict ({type(error).__name__}): its files are damaged. Make it again."
                ) from None
            yield frame
            warned.update(dict.fromkeys(texts))
            done(steps=len(frame))

    with progress_bar("predicting", chunks.n_rows) as done, new_file(out, "--out") as file:
        if out.suffix.lower() == ".csv":
            # Class names are the only texts; one line end must do for those of all rows.
            names = np.ravel(getattr(of_table.model_, "classes_", ())).tolist()
            write_csv(file, predictions(), line_end=safe_line_end("".join(map(str, names))))
        else:
            write_parquet(file, predictions())
    if has_unknown_columns(chunks.header, of_table.schema):
        say(f"{data}: columns that the schema does not know are not used.")
    for text in warned:
        say(f"warning: {text}")
    say(f"Wrote {out}.")


def _predictions(of_table: "TableModel", table: "Table", coverage: float | None) -> "tuple[pd.DataFrame, list[str]]":
    """Return what is known about each row, and warnings about its interval or set.

    That is the prediction; for a classification, the probability of each class; with a coverage, the ends of an
    interval, or which classes belong to a set.
    """
    import warnings

    import pandas as pd

    # Encoded once for both.
    X, model = of_table.encode(table), of_table.model_
    columns = {"prediction": model.predict(X)}
    if hasattr(model, "predict_proba"):
        probabilities = model.predict_proba(X)
        columns |= {f"probability of {name}": probabilities[:, k] for k, name in enumerate(model.classes_)}
    if coverage is None:
        return pd.DataFrame(columns), []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if hasattr(model, "predict_interval"):
            columns |= dict(zip(("lower", "upper"), model.predict_interval(X, coverage=coverage).T, strict=True))
        else:
            members = model.predict_set(X, coverage=coverage)
            columns |= {f"set has {name}": members[:, k] for k, name in enumerate(model.classes_)}
    return pd.DataFrame(columns), [str(one.message) for one in caught]


_STATEMENT_HELP = teach(
    """Write a one-page privacy statement of a model, for a data-protection assessment.

What is protected, how strongly, what left the private data, what was assumed to be public, what the model's folder
contains, and how to verify all of it. It is made from the receipt alone: the private data is not needed.
""",
    "dpadapt statement model/ -o statement.html",
)


def _statement(
    model: Annotated[Path, typer.Argument(help="The folder of a model.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="HTML file to write. Default: the text is printed.")
    ] = None,
) -> None:
    from dpadapt.persist import load
    from dpadapt.report.receipt import statement_page, statement_text, summarise_statement
    from dpadapt.tables import TableModel

    if out is not None:
        check_parent(out, "--out")
    saved = load(model)
    dataset = (saved.model.schema.dataset if isinstance(saved.model, TableModel) else "") or "the private data"
    summary = summarise_statement(
        saved.model.privacy_, dataset=dataset, method=f"{saved.method.name} ({saved.method.task})"
    )
    if out is None:
        say(statement_text(summary))
        return
    write_file(out, "--out", statement_page(summary).encode())
    say(f"Wrote {out}")


_AUDIT_HELP = teach(
    """Check a saved model and its receipt, without the private rows.

A second accountant must confirm the receipt, its entries must add up and agree with the model's parameters, and, with
--ledger, they must have been charged. Nothing private is read and nothing is spent.

An audit is no proof: it can refute a receipt, never confirm it. The exit code is 1 if the receipt is refuted, and 0
otherwise.
""",
    "dpadapt audit model/ --ledger patients.ledger",
)


def _audit(
    model: Annotated[Path, typer.Argument(help="A model made by dpadapt fit or dpadapt.save.")],
    ledger: Annotated[
        str | None,
        typer.Option(
            help="The ledger of its private data set, to look for the model's charges; a file, or "
            "postgresql://user@host/database."
        ),
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="With --ledger on a server: the name of the private data set there.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Audit a model; the exit code is 1 if its receipt is refuted."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    from dpadapt.audit.saved_model import audit_model

    if dataset is not None and ledger is None:
        raise ValueError("--dataset names the data set on the server that --ledger names. Give both, or leave it out.")
    # The model may come from somebody else: its folder does not say which ledger is opened.
    audit = audit_model(model, ledger=None if ledger is None else open_existing(ledger, dataset)[0])
    if as_json:
        print_json(audit.to_dict())
        return int(audit.verdict == "refuted")
    table = Table(title=escape(f"Audit of {model.name}"), title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    for head, width in (("check", 24), ("verdict", 9), ("result", None)):
        table.add_column(head, overflow="fold", min_width=width)
    for finding in audit.findings:
        refuted = finding.verdict == "refuted"
        cells = finding.check, "REFUTED" if refuted else finding.verdict, finding.words
        table.add_row(*map(escape, cells), style="bold red" if refuted else None)
    console().print(table)
    say(audit.words)
    return int(audit.verdict == "refuted")


def mount(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("predict", help=_PREDICT_HELP)(_predict)
    app.command("statement", help=_STATEMENT_HELP)(_statement)
    app.command("audit", help=_AUDIT_HELP)(_audit)
