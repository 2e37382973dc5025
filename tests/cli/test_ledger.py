"""`dpadapt ledger`."""

import json

import pytest


def test_ledger_show_and_history(run, site):
    assert run(*site.fit(method="linear")).code == 0
    shown = run("ledger", "show", site.ledger)
    assert "patients" in shown.out
    assert "epsilon = 3" in shown.out
    facts = json.loads(run("ledger", "show", site.ledger, "--json").out)
    assert facts["charges"] == 1
    assert facts["spent_epsilon"] == pytest.approx(1.0, abs=1e-3)
    assert "gradient" in run("ledger", "history", site.ledger).out
    charges = json.loads(run("ledger", "history", site.ledger, "--json").out)["charges"]
    assert charges[0]["times"] >= 1


@pytest.mark.parametrize("seed", [None, 3])
def test_a_ledger_says_whether_noise_came_from_a_seed(run, site, seed):
    assert run(*site.fit(method="linear", seed=seed)).code == 0
    assert ("came from a seed" in " ".join(run("ledger", "show", site.ledger).out.split())) is (seed is not None)


def test_showing_a_missing_ledger_creates_none(run, tmp_path):
    outcome = run("ledger", "show", tmp_path / "no.ledger")
    assert outcome.code == 2
    assert not list(tmp_path.iterdir())
