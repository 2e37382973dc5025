"""`dpadapt fit --task clustering`: private sources and public targets in, rows of the public file out."""

import json

import numpy as np
import pandas as pd
import pytest

from dpadapt import Ledger


@pytest.fixture
def town(tmp_path):
    random = np.random.default_rng(0)
    for name, n, middle in (("public", 120, 0.6), ("private", 500, 0.3)):
        x, y = random.normal(middle, 0.15, (2, n))
        pd.DataFrame({"east": x, "north": y}).to_csv(tmp_path / f"{name}.csv", index=False)
    (tmp_path / "schema.toml").write_text(
        'dataset = "homes"\n'
        + "".join(f'[columns.{name}]\ntype = "number"\nlow = -1\nhigh = 2\n' for name in ("east", "north"))
    )
    return tmp_path


def order(town, **changes):
    options = {
        "private": town / "private.csv",
        "public": town / "public.csv",
        "schema": town / "schema.toml",
        "task": "clustering",
        "clusters": 6,
        "epsilon": 1,
        "ledger": town / "homes.ledger",
        "out": town / "out",
    } | changes
    named = {name.replace("_", "-"): value for name, value in options.items() if value is not None}
    return ["fit", *[part for name, value in named.items() for part in (f"--{name}", value)]]


def test_it_writes_the_chosen_rows_of_the_public_file(run, town):
    outcome = run(*order(town, method="clustering"))
    assert outcome.code == 0
    chosen = pd.read_csv(town / "out" / "chosen.csv", dtype={"row": int, "east": str, "north": str}, index_col="row")
    public = pd.read_csv(town / "public.csv", dtype=str)
    assert len(chosen) == 6
    pd.testing.assert_frame_equal(chosen, public.loc[chosen.index], check_names=False)
    receipt = json.loads((town / "out" / "receipt.json").read_text())
    assert receipt["epsilon"] == pytest.approx(1.0, rel=1e-3)
    assert Ledger.open(town / "homes.ledger").spent() == pytest.approx(1.0, rel=1e-3)
    assert "6 of 120 public rows" in outcome.out


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"clusters": None}, "--clusters"),
        ({"clusters": 0}, "--clusters"),
        ({"clusters": 121}, "--clusters"),
        ({"public": None}, "--public"),
        ({"label": "east"}, "--label"),
        ({"agents_epsilon": 1}, "--agents-epsilon"),
        ({"rows": 3}, "--rows"),
        ({"method": "linear"}, "--method"),
        ({"epsilon": 0}, "--epsilon"),
        ({"ledger": None, "ledger_epsilon": 2}, "--ledger"),
        ({"task": "regression", "label": "east"}, "--clusters"),
        ({"task": "regression", "clusters": None}, "--label"),
    ],
)
def test_bad_orders_are_refused_and_nothing_is_spent(run, town, changes, named):
    Ledger.open(town / "homes.ledger", epsilon=1.0, delta=1e-6, dataset="homes")
    outcome = run(*order(town, **changes))
    assert outcome.code != 0
    assert named in outcome.err
    assert not Ledger.open(town / "homes.ledger").entries
    assert not (town / "out" / "model.json").exists()


def test_the_private_file_is_refused_as_the_public_one(run, town):
    outcome = run(*order(town, public=town / "private.csv"))
    assert outcome.code != 0
    assert not (town / "homes.ledger").exists() or not Ledger.open(town / "homes.ledger").entries


def test_one_private_row_is_no_reason_to_refuse(run, town):
    (town / "private.csv").write_text("east,north\n0.5,0.5\n")
    assert run(*order(town, adjacency="add-remove")).code == 0


def test_there_is_nothing_to_predict_with_chosen_rows(run, town):
    assert run(*order(town)).code == 0
    outcome = run("predict", town / "out", town / "public.csv")
    assert outcome.code != 0
    assert "chosen.csv" in outcome.err
