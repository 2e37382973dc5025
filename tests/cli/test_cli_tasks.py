"""`dpadapt fit --method subspace --tasks COLUMN`."""

import json

import numpy as np
import pandas as pd
import pytest


@pytest.fixture
def surveyed(site):
    """A site whose public table says which hospital a row comes from, in a column that the private one has not."""
    public = pd.read_csv(site.folder / "public.csv")
    public["hospital"] = np.array(["A", "B", "C", "D", "E"])[np.arange(len(public)) % 5]
    public.to_csv(site.folder / "public.csv", index=False)
    return site


def test_tasks_are_used_and_the_column_is_no_feature(surveyed, run):
    done = run(*surveyed.fit(method="subspace", tasks="hospital", seed=0))
    assert done.code == 0, done.err
    model = json.loads((surveyed.out / "model.json").read_text())
    assert model["class"].endswith("PrivateSubspaceRegressor")
    assert "hospital" not in json.dumps(model)
    assert run("predict", surveyed.out, surveyed.folder / "new.csv", "-o", surveyed.folder / "said.csv").code == 0
    assert len(pd.read_csv(surveyed.folder / "said.csv")) == 7


def test_tasks_may_be_ignored_in_the_schema(surveyed, run):
    text = surveyed.schema.read_text() + '\n[columns.hospital]\ntype = "ignore"\n'
    surveyed.schema.write_text(text)
    assert run(*surveyed.fit(method="subspace", tasks="hospital", seed=0)).code == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"method": "subspace", "tasks": "ward"}, "has no such column"),
        ({"method": "subspace", "tasks": "region"}, "a column of their own"),
        ({"method": "subspace", "tasks": "cost"}, "a column of their own"),
        ({"method": "subspace", "tasks": "hospital", "public": None}, "Give them with --public"),
        ({"method": "transfer", "tasks": "hospital"}, "makes no use of tasks"),
    ],
)
def test_bad_tasks_are_refused_and_nothing_is_spent(surveyed, run, changes, words):
    done = run(*surveyed.fit(**changes))
    assert done.code == 2
    assert words in " ".join(done.err.split())
    assert surveyed.untouched()


def test_labels_without_tasks_are_refused_and_rows_without_a_task(site, run):
    done = run(*site.fit(method="subspace"))
    assert done.code == 2
    assert "--tasks must name the column" in " ".join(done.err.split())
    public = pd.read_csv(site.folder / "public.csv")
    public["hospital"] = ["A", "B", "", "D"] * (len(public) // 4)
    public.to_csv(site.folder / "public.csv", index=False)
    done = run(*site.fit(method="subspace", tasks="hospital"))
    assert done.code == 2
    assert "have no task" in " ".join(done.err.split())
    assert site.untouched()


def test_without_public_rows_it_is_plain_private_regression(site, run):
    assert run(*site.fit(method="subspace", public=None, seed=0)).code == 0
