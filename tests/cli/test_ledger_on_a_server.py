"""`--ledger postgresql://...`: every command that takes a ledger's file takes the address of a server."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "integrations"))

from outcomes import accepted, refused
from postgres_server import PASSWORD, Server, why_not

# As it stands in an address.
ENCODED = "sesame%2Fopen%40once"


@pytest.fixture(scope="module")
def server():
    if why_not():
        pytest.skip(why_not())
    server = Server()
    yield server
    server.close()


def without_password(outcome):
    assert "sesame" not in outcome.out
    assert "sesame" not in outcome.err
    return outcome


def test_fit_show_history_evaluate_and_audit_charge_one_ledger_on_a_server(run, site, server, monkeypatch):
    monkeypatch.delenv("PGPASSWORD", raising=False)
    address, shown = server.url(password=PASSWORD), server.url()
    assert ENCODED in address
    fitted = accepted(without_password(run(*site.fit(ledger=address, dataset="patients", ledger_epsilon=3))))
    assert f"New ledger {shown}: at most epsilon = 3" in " ".join((fitted.out + fitted.err).split())
    for path in site.out.iterdir():
        assert b"sesame" not in path.read_bytes()
        assert shown.encode() not in path.read_bytes()
    facts = without_password(run("ledger", "show", address, "--dataset", "patients", "--json"))
    assert json.loads(facts.out)["charges"] == 1
    assert "patients" in without_password(run("ledger", "show", address, "--dataset", "patients")).out
    history = json.loads(without_password(run("ledger", "history", address, "--dataset", "patients", "--json")).out)
    assert sum(len(charge["releases"]) for charge in history["charges"]) == json.loads(facts.out)["entries"] > 0
    assert f"Charged to {shown} (patients)" in fitted.out
    # The file beside the private one names the server; the password comes from the environment.
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    accepted(without_password(run("evaluate", site.out, "--private", site.private, "--epsilon", "0.5")))
    assert json.loads(run("ledger", "show", shown, "--dataset", "patients", "--json").out)["charges"] == 2
    audited = accepted(run("audit", site.out, "--ledger", shown, "--dataset", "patients", "--json"))
    assert '"the ledger was charged"' in audited.out
    refused(without_password(run(*site.fit(ledger=address, epsilon=2.9))), f"the ledger {shown} has epsilon")
    assert len(json.loads(run("ledger", "show", shown, "--dataset", "patients", "--json").out)) > 0


def test_later_fits_find_the_server_by_the_private_file(run, site, server, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    address, dataset = server.url(password=PASSWORD), "found-by-the-file"
    assert run(*site.fit(ledger=address, dataset=dataset, ledger_epsilon=3)).code == 0
    pointer = site.private.with_suffix(".ledger")
    assert pointer.read_text() == f"{server.url()}\n{dataset}\n"
    # Without the options, and with a schema that names another data set.
    arguments = site.fit(out=site.out.with_name("again"))
    place = arguments.index("--ledger")
    accepted(run(*arguments[:place], *arguments[place + 2 :]))
    assert json.loads(run("ledger", "show", address, "--dataset", dataset, "--json").out)["charges"] == 2
    refused(
        run(*site.fit(ledger=site.private.with_name("other.ledger"), out=site.out.with_name("third"))), "are charged to"
    )


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("postgresql://anna:sesame@127.0.0.1:1/db", "no server answers at that address"),
        ("postgresql://anna:sesame/x@host/db", "the address of the ledger is not understood"),
        ("postgresql://anna:sesame@host/db?nonsense=1", "the address of the ledger is not understood"),
    ],
)
def test_a_bad_address_is_refused_in_one_line_before_anything_is_spent(run, site, address, words):
    pytest.importorskip("psycopg")
    for command in (site.fit(ledger=address, dataset="patients"), ["ledger", "show", address, "--dataset", "patients"]):
        refused(without_password(run(*command)), words)
    assert site.untouched()


def test_wrong_passwords_and_missing_names_are_refused_in_one_line(run, site, server, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "sesame")
    for command, words in (
        (site.fit(ledger=server.url(), dataset="patients"), "does not let this user in"),
        (["ledger", "show", server.url()], "--dataset"),
    ):
        refused(without_password(run(*command)), words)
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    assert "there is no such ledger" in run("ledger", "show", server.url(), "--dataset", "nobody's").err


def test_a_missing_driver_is_named(run, site, monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    refused(
        without_password(run(*site.fit(ledger="postgresql://anna:sesame@host/db", dataset="patients"))),
        "pip install 'dpadapt[postgres]'",
    )


def test_allowances_and_pages_of_a_ledger_on_a_server(run, site, server, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    address, dataset = server.url(), ["--dataset", "allowances"]
    assert run("ledger", "new", address, "--epsilon", "3", *dataset).code == 0
    assert run("ledger", "new", address, "--epsilon", "9", *dataset).code == 2
    assert run("ledger", "allow", address, "anna", "--epsilon", "1.2", *dataset).code == 0
    fit = site.fit(ledger=address, dataset="allowances", method="linear", allowance="anna")
    assert run(*fit).code == 0
    refused(without_password(run(*fit)), "more than what is left of the allowance anna")
    history = json.loads(run("ledger", "history", address, *dataset, "--json").out)
    assert {charge["allowance"] for charge in history["charges"]} == {"anna"}
    page = site.folder / "ledger.html"
    assert without_password(run("ledger", "page", server.url(password=PASSWORD), *dataset, "-o", page)).code == 0
    assert "anna" in page.read_text()
    assert "sesame" not in page.read_text()
