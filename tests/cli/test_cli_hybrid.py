"""`dpadapt fit --method hybrid`: people simulated from a file."""

import numpy as np
import pandas as pd
import pytest

from dpadapt import persist


@pytest.fixture
def people(site, tmp_path):
    """Return a file of people whose label follows another rule than the private rows' does."""
    table = pd.read_csv(site.private)
    rows = table.sample(30_000, replace=True, random_state=0)
    rows["ill"] = (rows["age"] > rows["age"].median()).astype(int)
    path = tmp_path / "people.csv"
    rows.to_csv(path, index=False)
    return path


def hybrid(site, **changes):
    wanted = {"label": "ill", "task": "classification", "method": "hybrid", "public": None, "ledger": None}
    return site.fit(**{**wanted, **changes})


def test_people_from_a_file_are_asked_and_the_model_predicts(run, site, people, tmp_path):
    outcome = run(*hybrid(site, agents=people, agents_epsilon=2, epsilon=4))
    assert outcome.code == 0, outcome.err
    assert "people answered one question each" in " ".join(outcome.out.split())
    saved = persist.load(site.out)
    assert saved.model.mode_ == "hybrid"
    assert 0 < sum(saved.model.people_asked_.values()) <= 30_000
    # The categories of the schema are asked about as such.
    assert saved.model.groups
    assert any("epsilon = 2 for each" in fact for fact in saved.model.privacy_.assumptions)
    rows = pd.read_csv(people).head(2000)
    rows.drop(columns="ill").to_csv(tmp_path / "rows.csv", index=False)
    assert run("predict", site.out, tmp_path / "rows.csv", "-o", tmp_path / "found.csv").code == 0
    assert np.mean(pd.read_csv(tmp_path / "found.csv")["prediction"] == rows["ill"]) > 0.6


def test_without_people_it_is_a_model_of_the_private_rows(run, site):
    outcome = run(*hybrid(site))
    assert outcome.code == 0, outcome.err
    assert "Nobody was asked" in outcome.out


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"agents_epsilon": 1}, "Name their file with --agents"),
        ({"agents": "people"}, "--agents-epsilon must be given"),
        ({"agents": "people", "agents_epsilon": 0}, "--agents-epsilon must be a positive number"),
        ({"agents": "people", "agents_epsilon": 1, "method": "logistic"}, "asks nobody"),
        ({"public": "people"}, "not by public rows"),
        ({"agents": "missing.csv", "agents_epsilon": 1}, "--agents"),
        ({"agents": "private", "agents_epsilon": 1}, "this is the private file"),
    ],
)
def test_bad_options_are_named_and_nothing_is_written(run, site, people, changes, words):
    files = {"people": people, "private": site.private}
    changes = {name: files.get(value, value) for name, value in changes.items()}
    outcome = run(*hybrid(site, **changes))
    assert outcome.code != 0
    assert words in " ".join(outcome.err.split())
    assert not (site.out / "model.json").exists()
