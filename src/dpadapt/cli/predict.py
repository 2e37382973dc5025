"""`dpadapt predict`: apply a fitted model to a table."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpadapt.cli.options import check_parent, check_suffix, teach

if TYPE_CHECKING:
    import pandas as pd


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
) -> None:
    """Load, encode, predict, write."""
    check_suffix(out, "--out")
    check_parent(out, "--out")

    from dpadapt.persist import load
    from dpadapt.tables import Schema, check_columns, encode_features, read_table

    saved = load(model)
    if saved.extra.get("task") == "clustering":
        raise ValueError(
            f"{model}: this is a clustering, which predicts nothing. The chosen rows are in its chosen.csv."
        )
    if "schema" not in saved.extra or "label" not in saved.extra:
        raise ValueError(f"{model}: the model was saved without a schema. Predict with a model made by dpadapt fit.")
    schema, label = Schema.from_dict(saved.extra["schema"], origin=f"{model}, model.json"), str(saved.extra["label"])
    # Rows to predict are treated as private: no message shows a value.
    table = read_table(data, origin=str(data), private=True)
    check_columns(table, schema, label=label, optional=label)
    X = encode_features(table, schema, label=label)
    _write(_predictions(saved.model, X), out)
    typer.echo(f"Wrote {out}.")


def _predictions(model: Any, X: Any) -> "pd.DataFrame":
    import pandas as pd

    columns = {"prediction": model.predict(X)}
    if hasattr(model, "predict_proba"):
        probabilities = model.predict_proba(X)
        columns |= {f"probability of {name}": probabilities[:, k] for k, name in enumerate(model.classes_)}
    return pd.DataFrame(columns)


def _write(frame: "pd.DataFrame", out: Path) -> None:
    import io

    from dpadapt.persist import write_atomically

    buffer = io.BytesIO()
    if out.suffix.lower() == ".csv":
        frame.to_csv(buffer, index=False)
    else:
        frame.to_parquet(buffer, index=False)
    write_atomically(out, buffer.getvalue())
