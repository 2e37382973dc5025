"""`dpadapt predict`: apply a fitted model to a table."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpadapt.cli.options import EncodingOption, check_parent, check_suffix, made_here, say, teach, working, write_file

if TYPE_CHECKING:
    import pandas as pd

    from dpadapt.tables import Table, TableModel

_HELP = teach(
    """
Apply a fitted model to the rows of a table.

The rows are encoded by the schema that is saved with the model. The result has one row per input row, in the same
order: the prediction and, for a classification, the probability of each class. Predicting costs the rows that the
model was fitted on no further privacy.

Example:

\b
  dpadapt predict model/ new.csv -o predictions.csv
"""
)


def mount(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("predict", help=_HELP)(_predict)


def _predict(
    model: Annotated[Path, typer.Argument(help="A folder made by dpadapt fit.")],
    data: Annotated[Path, typer.Argument(help="Rows to predict, CSV or Parquet; the label may be missing.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write, CSV or Parquet.")] = Path("predictions.csv"),
    encoding: EncodingOption = None,
) -> None:
    """Load, encode, predict, write."""
    check_suffix(out, "--out")
    check_parent(out, "--out")

    from dpadapt.persist import load
    from dpadapt.tables import TableModel, check_columns, has_unknown_columns, read_table

    with working("reading"):
        saved = load(model)
    if saved.extra.get("task") == "clustering":
        raise ValueError(
            f"{model}: this is a clustering, which predicts nothing. The chosen rows are in its chosen.csv."
        )
    of_table = saved.model
    if not isinstance(of_table, TableModel) or of_table.label is None:
        raise ValueError(f"{model}: the model was saved without a schema. Predict with a model made by dpadapt fit.")
    with working("predicting"):
        # Rows to predict are treated as private: no message shows a value.
        table = read_table(data, origin=str(data), private=True, encoding=encoding)
        check_columns(table, of_table.schema, label=of_table.label, optional=of_table.label)
        try:
            predictions = _predictions(of_table, table)
        except Exception as error:
            if made_here(error):
                raise
            # The rows are as the schema says, so the model is not.
            raise ValueError(
                f"{model}: the model can't predict ({type(error).__name__}): its files are damaged. Make it again."
            ) from None
        write_file(out, "--out", _content(predictions, out))
    if has_unknown_columns(table, of_table.schema):
        say(f"{data}: columns that the schema does not know are not used.")
    say(f"Wrote {out}.")


def _predictions(of_table: "TableModel", table: "Table") -> "pd.DataFrame":
    """Return the prediction for each row and, for a classification, the probability of each class."""
    import pandas as pd

    # Encoded once for both.
    X, model = of_table.encode(table), of_table.model_
    columns = {"prediction": model.predict(X)}
    if hasattr(model, "predict_proba"):
        probabilities = model.predict_proba(X)
        columns |= {f"probability of {name}": probabilities[:, k] for k, name in enumerate(model.classes_)}
    return pd.DataFrame(columns)


def _content(frame: "pd.DataFrame", out: Path) -> bytes:
    """Return the file to write."""
    import io

    from dpadapt.tables import to_csv

    if out.suffix.lower() == ".csv":
        return to_csv(frame)
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False)
    return buffer.getvalue()
