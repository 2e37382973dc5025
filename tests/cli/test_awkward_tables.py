"""What a new user meets: two messy tables go from raw files to a report and predictions.

The tables have missing cells, dates, an id, several rows per person, a category and a column value that public rows
lack, a rare class, and the private file is compressed, has semicolons, Latin-1 letters and an extra column.
"""

import gzip
import re

import numpy as np
import pandas as pd
import pytest

from dpadapt import load

pytestmark = pytest.mark.thorough


def visits(n, seed, *, public):
    """Return visits to a clinic; the public ones are all of 2019, from one town, and know two of three plans."""
    rng = np.random.default_rng(seed)
    patient = rng.integers(0, n // 2, n) + (0 if public else 10_000)
    age = rng.integers(18, 90, n).astype(float)
    plan = rng.choice(["basic", "full"] if public else ["basic", "full", "sénior"], n)
    year = 2019 if public else 2020
    start = pd.Timestamp(f"{year}-01-01") + pd.to_timedelta(rng.integers(0, 365, n), "D")
    cost = 5 * age + 100 * (plan == "full") + (0 if public else 80) + rng.normal(0, 40, n)
    frame = pd.DataFrame(
        {
            "visit": np.arange(n) + 1,
            "patient": [f"p{k:05d}" for k in patient],
            "age": age,
            "plan": plan,
            "start": start.strftime("%d.%m.%Y"),
            "town": "Bern" if public else rng.choice(["Bern", "Genève"], n),
            "score": 1.0 if public else rng.choice([1.0, 2.0], n),
            "cost": cost.round(1),
            "ill": np.where(rng.random(n) < 0.02 + 0.06 * (age > 60), "yes", "no"),
        }
    )
    for column in ("age", "plan", "start"):
        frame.loc[rng.random(n) < 0.1, column] = None
    return frame


PUBLIC, PRIVATE, NEW = visits(300, 0, public=True), visits(700, 1, public=False), visits(20, 2, public=False)


def test_messy_files_go_from_raw_to_a_report_and_predictions(run, tmp_path):
    PUBLIC.to_csv(tmp_path / "public.csv", index=False)
    for name, frame in (("private", PRIVATE), ("new", NEW.drop(columns="cost"))):
        text = frame.assign(remark="très bien")[[*frame.columns[::-1], "remark"]].to_csv(index=False, sep=";")
        (tmp_path / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode("latin-1")))

    def command(*arguments):
        outcome = run(*arguments)
        assert outcome.code == 0, outcome.err
        return outcome.out

    schema, model, predictions = (tmp_path / name for name in ("schema.toml", "model", "predictions.csv"))
    command("schema", tmp_path / "public.csv", "-o", schema, "--dataset", "visits")
    # A number may be ignored without deleting its range.
    text, changed = re.subn(r'(\[columns\."?score"?\]\n)type = "number"', r'\1type = "ignore"', schema.read_text())
    assert changed == 1
    schema.write_text(text)
    tables = ["--private", tmp_path / "private.csv.gz", "--public", tmp_path / "public.csv", "--schema", schema]
    what = ["--label", "cost", "--task", "regression", "--epsilon", 1, "--out", model]
    said = command("fit", *tables, *what)
    command("predict", model, tmp_path / "new.csv.gz", "-o", predictions)
    predicted = pd.read_csv(predictions).iloc[:, -1]
    assert np.isfinite(predicted).all()
    assert load(model).model.predict(NEW.drop(columns="cost")) == pytest.approx(predicted)
    # The report begins with a verdict, in plain words.
    page = (model / "report.html").read_text()
    assert page.index('class="verdict') < page.index("The guarantee")
    assert "700 private rows" in page
    assert "viewport" in page
    shown = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    assert [word for word in ("heard", "blur", "vote", "worth 1%") if word in shown + said] == []
