"""`dpadapt ledger`."""

import json

import pytest
from outcomes import accepted, refused

from dpadapt.accounting.calibrate import calibrate
from dpadapt.accounting.ledger import Ledger
from dpadapt.mechanisms import Gaussian


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
    assert charges[0]["releases"][0]["times"] >= 1


def test_a_history_shows_numbers_that_add_up(run, tmp_path):
    path = tmp_path / "patients.ledger"
    ledger = Ledger.open(path, epsilon=10.0, delta=1e-6)
    for label, epsilon in [("fit", 1.0), ("evaluate", 0.5)]:
        ledger.child(epsilon, 1e-6, label=label).start(Gaussian(calibrate(epsilon, 1e-6)), label="a sum")
    charges = json.loads(run("ledger", "history", path, "--json").out)["charges"]
    assert [charge["epsilon"] for charge in charges] == pytest.approx([1.0, 0.5], abs=1e-6)
    assert charges[0]["spent_epsilon"] == pytest.approx(1.0, abs=1e-6)
    assert charges[1]["spent_epsilon"] == ledger.spent() <= 1.58
    text = " ".join(run("ledger", "history", path).out.split())
    assert "fit: epsilon = 1, so far 1 " in text
    assert f"evaluate: epsilon = 0.5, so far {ledger.spent():.4g} " in text


@pytest.mark.parametrize("seed", [None, 3])
def test_a_ledger_says_whether_noise_came_from_a_seed(run, site, seed):
    assert run(*site.fit(method="linear", seed=seed)).code == 0
    assert ("came from a seed" in " ".join(run("ledger", "show", site.ledger).out.split())) is (seed is not None)


def test_showing_a_missing_ledger_creates_none(run, tmp_path):
    refused(run("ledger", "show", tmp_path / "no.ledger"))
    assert not list(tmp_path.iterdir())


def test_a_ledger_is_made_before_the_first_fit(run, site, tmp_path):
    path = tmp_path / "persons.ledger"
    options = ["--epsilon", "2", "--dataset", "people", "--adjacency", "add-remove", "--persons"]
    assert "epsilon = 2" in run("ledger", "new", path, *options).out
    ledger = Ledger.open(path)
    assert (ledger.epsilon, ledger.delta, ledger.dataset, ledger.unit) == (2.0, 1e-6, "people", "person")
    assert ledger.adjacency.value == "add-remove"
    refused(run("ledger", "new", path, "--epsilon", "9"), "it exists already")
    # The ledger that a link led to was moved: a new one would be a second budget for its rows.
    link = tmp_path / "link.ledger"
    link.symlink_to(tmp_path / "moved.ledger")
    refused(run("ledger", "new", link, "--epsilon", "9"), "this is a link")
    assert not (tmp_path / "moved.ledger").exists()
    for option, value in (("--epsilon", "0"), ("--epsilon", "nan"), ("--delta", "1")):
        given = {"--epsilon": "1", option: value}
        refused(run("ledger", "new", tmp_path / "other", *[x for pair in given.items() for x in pair]), option)
    assert not (tmp_path / "other").exists()


def test_an_allowance_limits_fits_and_evaluations(run, site):
    made = run("ledger", "allow", site.ledger, "anna", "--epsilon", "1.2")
    assert "at most epsilon = 1.2 at delta = 1e-06 may be spent under anna, of which 0 is spent" in made.out
    fitted = accepted(run(*site.fit(method="linear", allowance="anna")))
    assert f"Charged to {site.ledger} (patients), allowance anna: epsilon = 1 of 1.2 spent" in fitted.out
    before = site.ledger.read_bytes()
    second = run(*site.fit(method="linear", allowance="anna", out=site.folder / "second"))
    refused(second, "--epsilon 1 is more than what is left of the allowance anna", "nothing was spent", "ledger allow")
    evaluate = ["evaluate", site.out, "--private", site.private, "--ledger", site.ledger, "--allowance", "anna"]
    refused(run(*evaluate, "--epsilon", "1", "--delta", "1e-6"), "the allowance anna")
    refused(run(*evaluate[:-1], "bert", "--epsilon", "0.1"), "--allowance bert", "Its allowances are anna")
    assert site.ledger.read_bytes() == before
    assert run(*evaluate, "--epsilon", "0.1", "--delta", "1e-6").code == 0
    # The cap binds whoever has an allowance.
    assert run("ledger", "allow", site.ledger, "anna", "--epsilon", "3").code == 0
    refused(run(*site.fit(epsilon=2.9, allowance="anna", out=site.folder / "second")), "patients.ledger has epsilon")
    facts = json.loads(run("ledger", "show", site.ledger, "--json").out)
    assert facts["allowances"]["anna"]["epsilon"] == 3
    assert facts["allowances"]["anna"]["spent_epsilon"] == pytest.approx(facts["spent_epsilon"])
    assert "anna: epsilon = 1." in " ".join(run("ledger", "show", site.ledger).out.split())
    history = json.loads(run("ledger", "history", site.ledger, "--json").out)
    assert [change["epsilon"] for change in history["allowances"]] == [1.2, 3.0]
    assert {charge["allowance"] for charge in history["charges"]} == {"anna"}
    shown = " ".join(run("ledger", "history", site.ledger).out.split())
    assert "allowance" in shown
    assert "anna" in shown


def test_bad_allowances_are_refused(run, site, tmp_path):
    before = site.ledger.read_bytes()
    for arguments, named in (
        (["anna", "--epsilon", "3.1"], "--epsilon"),
        (["anna", "--epsilon", "1", "--delta", "1e-5"], "--delta"),
        (["anna", "--epsilon", "0"], "--epsilon"),
        (["anna", "--epsilon", "inf"], "--epsilon"),
        (["anna", "--epsilon", "1", "--delta", "-1"], "--delta"),
        (["", "--epsilon", "1"], "the name of an allowance"),
        (["\x1b[2J", "--epsilon", "1"], "the name of an allowance"),
    ):
        refused(run("ledger", "allow", site.ledger, *arguments), named)
    refused(run("ledger", "allow", tmp_path / "no.ledger", "anna", "--epsilon", "1"), "there is no such ledger")
    refused(run(*site.fit(allowance="anna")), "--allowance anna", "It has none", "Nothing was spent")
    refused(run(*site.fit(allowance="anna", ledger=tmp_path / "new.ledger")), "does not exist yet")
    refused(run(*site.fit(allowance="anna", ledger=None)), "--allowance")
    assert not (tmp_path / "new.ledger").exists()
    assert site.ledger.read_bytes() == before


def test_the_page_of_a_ledger(run, site, tmp_path):
    assert run("ledger", "allow", site.ledger, "anna", "--epsilon", "1.2").code == 0
    assert run(*site.fit(method="linear", allowance="anna")).code == 0
    page = tmp_path / "ledger.html"
    assert run("ledger", "page", site.ledger, "-o", page).code == 0
    for text in ("patients", "anna", "predict cost: PrivateLinearRegression", "1.2"):
        assert text in page.read_text(encoding="utf-8")
    before = site.ledger.read_bytes()
    refused(run("ledger", "page", site.ledger, "-o", site.ledger), "--out")
    refused(run("ledger", "page", site.ledger, "-o", tmp_path / "no" / "page.html"), "--out")
    refused(run("ledger", "page", tmp_path / "no.ledger", "-o", page), "there is no such ledger")
    assert site.ledger.read_bytes() == before
