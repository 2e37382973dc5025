"""`dpadapt request` and `dpadapt fit --request`: an analyst asks, the custodian sees the cost and agrees."""

import io
import json
import shutil
import sys
import tomllib

import pytest
from outcomes import accepted, refused

from dpadapt.accounting.ledger import Ledger
from dpadapt.cli.request import read_request
from dpadapt.tables import read_schema
from tests.saved_models import json_of

pytestmark = pytest.mark.every_fourth


@pytest.fixture
def asked(run, site):
    """Return the path of a good request, for a quick method without a forecast."""
    path = site.folder / "request.toml"
    accepted(run(*site.before("request", method="linear", rows=None, epsilon=0.5, out=path)))
    return path


def carry_out(site, request, *more, public="public.csv"):
    beside = [] if public is None else ["--public", site.folder / public]
    paths = ["--request", request, "--private", site.private, "--ledger", site.ledger, "--out", site.out]
    return ["fit", *paths, *beside, *more]


def test_a_request_is_made_without_the_private_rows(run, site):
    asked = site.folder / "request.toml"
    assert run(*site.before("request", epsilon=0.5, out=asked)).code == 0
    fields = tomllib.loads(asked.read_text())
    assert fields["fit"] == {
        "task": "regression",
        "label": "cost",
        "method": "transfer",
        "epsilon": 0.5,
        "delta": 1e-6,
        "adjacency": "zero-out",
        "intervals": False,
    }
    assert fields["forecast"]["rows"] == 600
    assert "gate" in fields["forecast"]["words"]
    request = read_request(asked)
    assert request.schema == read_schema(site.schema)
    before = asked.read_text()
    site.private.unlink()
    again = accepted(run(*site.before("request", epsilon=0.5, out=asked)))
    assert "No private row was read" in again.out
    assert asked.read_text() == before
    assert site.untouched()


def test_the_custodian_sees_the_cost_and_nothing_is_spent_without_consent(run, site, asked):
    outcome = run(*carry_out(site, asked))
    assert outcome.code == 2
    shown = " ".join(outcome.out.split())
    assert "at most epsilon = 0.5 at delta = 1e-06" in shown
    assert "epsilon = 3 left of 3" in shown
    assert outcome.err.startswith(f"dpadapt: error: --request {asked}: nothing was spent.")
    assert outcome.err.count("\n") == 1
    assert site.untouched()


@pytest.mark.parametrize("answer", ["y", "n", ""])
def test_at_a_terminal_the_custodian_is_asked(run, site, asked, monkeypatch, answer):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stdin", Terminal(f"{answer}\n"))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    outcome = run(*carry_out(site, asked))
    assert outcome.code == (0 if answer == "y" else 2)
    assert site.untouched() is (answer != "y")


def test_a_request_is_the_fit_that_it_asks_for(run, site, asked):
    """The same receipt and model as by the options, up to the noise."""
    accepted(run(*carry_out(site, asked, "--yes")))
    by_request = json.loads((site.out / "receipt.json").read_text()), json_of(site.out)
    shutil.rmtree(site.out)
    assert run(*site.fit(epsilon=0.5, method="linear")).code == 0
    by_options = json.loads((site.out / "receipt.json").read_text()), json_of(site.out)
    assert by_request[0] == by_options[0]
    assert by_request[1]["params"] == by_options[1]["params"]
    assert by_request[1]["extra"] == by_options[1]["extra"]
    assert Ledger.open(site.ledger).n_charges == 2


def test_a_request_is_carried_out_under_an_allowance(run, site, asked):
    assert run("ledger", "allow", site.ledger, "anna", "--epsilon", "0.6").code == 0
    outcome = accepted(run(*carry_out(site, asked, "--allowance", "anna", "--yes")))
    assert "anna: epsilon = 0.6 left of 0.6" in " ".join(outcome.out.split())
    anna = Ledger.open(site.ledger).allowance("anna")
    assert anna.spent() == pytest.approx(0.5, abs=1e-3)
    remedy = "Ask for a request with an --epsilon of 0.25 or less, or raise the allowance"
    again = run(*carry_out(site, asked, "--allowance", "anna", "--yes"))
    refused(again, "the allowance anna", "nothing was spent", remedy)
    assert len(Ledger.open(site.ledger).records()) == 2


def test_a_request_without_an_allowance_shows_those_that_the_ledger_has(run, site, asked):
    assert "allowance" not in run(*carry_out(site, asked)).out
    for name in ("anna", "bert"):
        assert run("ledger", "allow", site.ledger, name, "--epsilon", "0.6").code == 0
    outcome = run(*carry_out(site, asked))
    assert "none (this ledger has: anna, bert)" in " ".join(outcome.out.split())
    assert site.untouched()


def test_a_request_over_the_cap_is_answered_by_a_smaller_request(run, site, asked):
    assert run(*site.fit(method="linear", epsilon=2.85)).code == 0
    outcome = run(*carry_out(site, asked, "--yes"))
    refused(outcome, "nothing was spent", "Ask for a request with an --epsilon of")
    assert "another ledger for the same rows would lack what was already spent" in outcome.err


@pytest.mark.parametrize(
    ("changes", "task"),
    [
        (
            {"label": "ill", "task": "classification", "method": "logistic", "rows": None}
            | {"class_weight": "balanced", "threshold": "0.3"},
            "classification",
        ),
        ({"label": None, "rows": None, "task": "clustering", "clusters": 3}, "clustering"),
        ({"method": "linear", "adjacency": "add-remove"}, "regression"),
        ({"public": None, "method": "linear"}, "regression"),
    ],
    ids=["weights", "clustering", "add-remove", "no public rows"],
)
def test_every_kind_of_fit_can_be_asked_for(run, site, changes, task):
    if changes.get("adjacency"):
        site.ledger.unlink()
        Ledger.open(site.ledger, epsilon=3.0, delta=1e-6, dataset="patients", adjacency=changes["adjacency"])
    path = site.folder / "request.toml"
    accepted(run(*site.before("request", epsilon=0.5, out=path, **changes)))
    public = None if "public" in changes else "public.csv"
    accepted(run(*carry_out(site, path, "--yes", public=public)))
    model = json_of(site.out)
    assert task in json.dumps(model)


def test_another_public_file_is_refused(run, site, asked):
    public = site.folder / "public.csv"
    public.write_text(public.read_text().replace("north", "south", 1))
    refused(run(*carry_out(site, asked, "--yes")), "--public", "SHA-256", "Nothing was spent")
    refused(run(*carry_out(site, asked, "--yes", public="private.csv")), "--public", "SHA-256")
    refused(run(*carry_out(site, asked, "--yes", public="missing.csv")), "--public", "no such file")
    refused(run(*carry_out(site, asked, "--yes", public=None)), "--public must be the public file of the request")
    assert site.untouched()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--label", "ill"], "--label ill: the request"),
        (["--method", "transfer"], "--method transfer: the request"),
        (["--task", "classification"], "--task classification: the request"),
        (["--epsilon", "1"], "--epsilon 1.0: the request"),
        (["--delta", "1e-5"], "--delta 1e-05: the request"),
        (["--adjacency", "replace-one"], "--adjacency replace-one: the request"),
        (["--person", "id"], "--person id: the request"),
        (["--intervals"], "--intervals True: the request"),
        (["--schema", "schema.toml"], "--schema: the request contains its schema"),
        (["--seed", "1"], "--seed: a request is carried out without a seed"),
        (["--allowance", "bert"], "--allowance bert: the ledger"),
    ],
)
def test_options_that_ask_for_something_else_are_refused(run, site, asked, options, named):
    refused(run(*carry_out(site, asked, "--yes", *options)), named)
    assert site.untouched()


def test_options_that_agree_with_the_request_are_accepted(run, site, asked):
    stated = ["--label", "cost", "--method", "linear", "--epsilon", "0.5", "--delta", "1e-6", "--task", "regression"]
    assert run(*carry_out(site, asked, "--yes", *stated)).code == 0


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("[fit]", "[fit", "damaged"),
        ('format = "dpadapt request 1"', 'format = "dpadapt request 2"', "another version"),
        ('format = "dpadapt request 1"', "", "no request"),
        ("[fit]", '[fit]\nlambda = "x"', "unknown key 'lambda' in [fit]"),
        ("[fit]", "[fit]\nseed = 1", "unknown key 'seed' in [fit]"),
        ("[public]", "[more]\n[public]", "unknown key 'more'"),
        ("[public]", "[public]\nurl = 1", "unknown key 'url' in [public]"),
        ("epsilon = 0.5", "", "[fit] lacks epsilon"),
        ("epsilon = 0.5", 'epsilon = "0.5"', "epsilon in [fit]: expected a number"),
        ("epsilon = 0.5", "epsilon = true", "epsilon in [fit]: expected a number"),
        ("epsilon = 0.5", "epsilon = -1", "--epsilon"),
        ("epsilon = 0.5", "epsilon = nan", "--epsilon"),
        ("epsilon = 0.5", "epsilon = inf", "--epsilon"),
        ("delta = 1e-06", "delta = 2.0", "--delta"),
        ('task = "regression"', 'task = "prediction"', "task in [fit]: expected one of"),
        ('method = "linear"', 'method = "magic"', "--method"),
        ('label = "cost"', 'label = "income"', "--label"),
        ('label = "cost"', "label = 3", "label in [fit]: expected a text"),
        ('type = "category"', 'type = "colour"', "[schema]"),
        ("\n[schema]", "\n[scheme]", "unknown key 'scheme'"),
        ("sha256 =", "sha1 =", "unknown key 'sha1' in [public]"),
        ("\n[schema]", "\n[forecast]\nrows = 6.5\n[schema]", "rows in [forecast]: expected a whole number"),
    ],
)
def test_a_damaged_request_is_refused_and_nothing_is_spent(run, site, asked, old, new, named):
    text = asked.read_text()
    assert text.count(old) >= 1
    asked.write_text(text.replace(old, new, 1))
    refused(run(*carry_out(site, asked, "--yes")), named)
    assert site.untouched()


def test_what_is_no_file_of_a_request_is_refused(run, site, asked):
    for path in (site.folder / "missing.toml", site.folder, site.private, site.ledger, site.schema):
        refused(run(*carry_out(site, path, "--yes")), "--request")
    asked.write_bytes(b"\xff\xfe" + asked.read_bytes())
    refused(run(*carry_out(site, asked, "--yes")), "damaged")
    refused(run(*site.fit(), "--yes"), "--yes")
    for option in ("schema", "task", "epsilon"):
        refused(run(*site.fit(**{option: None})), f"--{option} must be given")
    assert site.untouched()


def test_a_bad_request_is_not_written(run, site):
    path = site.folder / "request.toml"
    for changes, named in (
        ({"epsilon": 0}, "--epsilon"),
        ({"label": "income"}, "--label"),
        ({"method": "hybrid", "task": "classification", "label": "ill", "public": None}, "--method hybrid"),
        ({"rows": 0}, "--rows"),
        ({"public": site.folder / "missing.csv"}, "--public"),
        ({"out": site.folder / "no" / "folder.toml"}, "--out"),
    ):
        refused(run(*site.before("request", **({"epsilon": 0.5, "out": path} | changes))), named)
    assert not path.exists()


def test_a_request_makes_no_ledger_unless_the_custodian_sets_its_cap(run, site, asked):
    """With the name of another data set, an analyst would get a new ledger, and a cap of three times the request."""
    site.ledger.unlink()
    text = asked.read_text()
    asked.write_text(text.replace('dataset = "patients"', 'dataset = "patients-again"'))
    arguments = [str(part) for part in carry_out(site, asked, "--yes")]
    place = arguments.index("--ledger")
    without = arguments[:place] + arguments[place + 2 :]
    for cap in ([], ["--ledger-epsilon", "1"], ["--ledger-delta", "1e-6"]):
        refused(run(*without, *cap), "--request", "its cap is not the request's to choose", "--ledger-epsilon")
    assert [file.name for file in site.folder.iterdir() if file.suffix == ".ledger"] == []
    assert run(*without, "--ledger-epsilon", "1", "--ledger-delta", "1e-7").code == 0
    (made,) = [file for file in site.folder.iterdir() if file.suffix == ".ledger"]
    assert made.name == "private.ledger"
    assert Ledger.open(made).delta == 1e-7


@pytest.mark.parametrize("word", ["two\\nlines", "escape\\u001b[2J"])
def test_texts_of_a_request_have_one_line(run, site, asked, word):
    asked.write_text(asked.read_text().replace('label = "cost"', f'label = "{word}"'))
    refused(run(*carry_out(site, asked, "--yes")), "label in [fit]", "a text of one line")
