"""`dpadapt predict`."""

from pathlib import Path

import numpy as np
import pandas as pd
from refusals import SECRET_TEXT, refused

from dpadapt import persist
from dpadapt.tables import Schema, encode_features, read_table


def test_bad_models_rows_and_outputs_are_refused(run, site, tmp_path):
    assert run(*site.fit()).code == 0
    new, out = tmp_path / "new.csv", tmp_path / "o.csv"
    refused(run("predict", tmp_path, new, "-o", out), "not a model")
    refused(run("predict", tmp_path / "nothing", new, "-o", out), "not a model")
    refused(run("predict", site.out, new, "-o", tmp_path / "o.xlsx"), "--out")
    refused(run("predict", site.out, new, "-o", tmp_path / "no" / "o.csv"), "--out")
    refused(run("predict", site.out, new, "-o", tmp_path), "--out")
    frame = pd.read_csv(new, dtype=str)
    frame.assign(region=SECRET_TEXT).to_csv(new, index=False)
    refused(run("predict", site.out, new, "-o", out), "'region'")
    frame.drop(columns="age").to_csv(new, index=False)
    refused(run("predict", site.out, new, "-o", out), "'age'")
    assert not Path(out).exists()


def test_text_classes_are_predicted_as_text(run, site, tmp_path):
    assert run(*site.fit(label="region", task="classification")).code == 0
    rows = tmp_path / "rows.csv"
    pd.read_csv(site.private).drop(columns="region").to_csv(rows, index=False)
    assert run("predict", site.out, rows, "-o", tmp_path / "o.csv").code == 0
    assert set(pd.read_csv(tmp_path / "o.csv")["prediction"]) <= {"north", "south", "west"}


def test_predictions_equal_those_of_the_loaded_model(run, site, tmp_path):
    assert run(*site.fit()).code == 0
    rows = tmp_path / "rows.csv"
    pd.read_csv(site.private).drop(columns=["id", "cost"]).to_csv(rows, index=False)
    assert run("predict", site.out, rows, "-o", tmp_path / "o.csv").code == 0
    saved = persist.load(site.out)
    X = encode_features(read_table(rows, private=True), Schema.from_dict(saved.extra["schema"]), label="cost")
    assert np.allclose(pd.read_csv(tmp_path / "o.csv")["prediction"], saved.model.predict(X))
