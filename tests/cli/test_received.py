"""Whatever a model folder, schema, request or public file says or brings along, the holder's ledger is charged.

The holder's files lie in one folder. Everything that was received lies in another, which is also the working folder and
the home of the user, beside ledgers of every likely name with a cap of a million.
"""

import hashlib
import json
import shutil
import socket
import sys
import types
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from outcomes import refused, snapshot

from dpadapt.accounting.ledger import Ledger
from dpadapt.cli import main
from dpadapt.persist import MODEL_FILE
from tests.saved_models import json_of, rewrite

# Names that a command might look for: of the private file, the public file, the data set, the model, and any.
TRAPS = ("trap", "private", "public", "public-private", "patients", "model", "schema", "request")


def table(n, seed):
    draw = np.random.default_rng(seed)
    age, bmi = draw.integers(18, 90, n), draw.normal(26, 4, n).round(1)
    return pd.DataFrame({"age": age, "bmi": bmi, "cost": (200 + 6 * age + 12 * bmi + draw.normal(0, 60, n)).round(2)})


@dataclass(frozen=True)
class Place:
    """The holder's folder and the one of received files."""

    folder: Path

    @property
    def holder(self):
        return self.folder / "holder"

    @property
    def inbox(self):
        return self.folder / "inbox"

    @property
    def ledger(self):
        return self.holder / "private.ledger"

    def fit(self, *more):
        private, public, out = self.holder / "private.csv", self.inbox / "public.csv", self.folder / "out"
        cap = ["--ledger-epsilon", 3, "--ledger-delta", 1e-6]
        return ["fit", "--private", private, "--public", public, "--out", out, *cap, *more]

    def fit_by_schema(self):
        options = ["--label", "cost", "--task", "regression", "--method", "linear", "--epsilon", 0.5]
        return self.fit("--schema", self.inbox / "schema.toml", *options)

    def fit_by_request(self):
        return self.fit("--request", self.inbox / "request.toml", "--yes")

    def evaluate(self):
        private = self.holder / "private.csv"
        return ["evaluate", self.inbox / "model", "--private", private, "--epsilon", 0.1, "--ledger-epsilon", 3]


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    place = Place(tmp_path_factory.mktemp("template"))
    place.holder.mkdir()
    place.inbox.mkdir()
    table(300, 1).to_csv(place.holder / "private.csv", index=False)
    table(200, 2).to_csv(place.inbox / "public.csv", index=False)
    schema, public = place.inbox / "schema.toml", place.inbox / "public.csv"
    options = ["--label", "cost", "--task", "regression", "--method", "linear", "--epsilon", "0.5"]
    theirs = place.folder / "theirs.csv"
    table(300, 3).to_csv(theirs, index=False)
    facts = ["--schema", schema, "--public", public]
    for command in (
        ["schema", public, "-o", schema, "--dataset", "patients"],
        ["request", *facts, *options, "-o", place.inbox / "request.toml"],
        ["fit", *facts, *options, "--private", theirs, "--no-ledger", "--out", place.inbox / "model"],
    ):
        assert main([str(part) for part in command]) == 0
    theirs.unlink()
    for name in TRAPS:
        Ledger.open(place.inbox / f"{name}.ledger", epsilon=1e6, delta=1e-6)
    return place.folder


@pytest.fixture(params=["a ledger beside the private file", "no ledger"])
def place(request, template, tmp_path, monkeypatch):
    """Return a copy of the folders, with or without the holder's ledger; any connection is an error."""
    shutil.copytree(template, tmp_path / "copy")
    place = Place(tmp_path / "copy")
    if request.param != "no ledger":
        Ledger.open(place.ledger, epsilon=3.0, delta=1e-6, dataset="patients")
    monkeypatch.chdir(place.inbox)
    monkeypatch.setenv("HOME", str(place.inbox))
    monkeypatch.setenv("DPADAPT_LEDGER", str(place.inbox / "trap.ledger"))
    monkeypatch.setenv("PGPASSWORD", "sesame")

    def connect(*_args, **_options):
        raise AssertionError("a connection was tried")

    driver = types.ModuleType("psycopg")
    driver.connect = connect
    monkeypatch.setitem(sys.modules, "psycopg", driver)
    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, connect)
    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setattr(socket, "getaddrinfo", connect)
    return place


TARGETS = {
    "absolute": "{inbox}/trap.ledger",
    "relative": "trap.ledger",
    "parent": "../trap.ledger",
    "parent of the holder": "../inbox/trap.ledger",
    "new file": "{inbox}/new.ledger",
    "home": "~/trap.ledger",
    "file address": "file://{inbox}/trap.ledger",
    "variable": "$DPADAPT_LEDGER",
    "variable in braces": "${{DPADAPT_LEDGER}}",
    "postgresql": "postgresql://thief@127.0.0.1:5432/budgets",
    "postgres with a password": "postgres://thief:sesame@localhost/budgets",
    "pointer": "postgresql://thief@127.0.0.1/budgets\npatients\n",
}


def target_of(place, name):
    return TARGETS[name].format(inbox=place.inbox)


def holds(place, run, command, *, accepted=None):
    """Run a command: the holder's ledger alone may be charged, and if the command is refused nothing changes."""
    before, had = snapshot(place.folder), place.ledger.exists()
    charges = Ledger.open(place.ledger).n_charges if had else 0
    outcome = run(*command)
    after = snapshot(place.folder)
    assert "a connection was tried" not in outcome.err
    if accepted is not None:
        assert (outcome.code == 0) == accepted, outcome.err
    if outcome.code:
        assert outcome.code == 2, outcome.err
        assert len(outcome.err.splitlines()) == 1
        assert after == before
        return outcome
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert {path for path in changed if not path.is_relative_to(place.folder / "out")} == {place.ledger}
    assert not place.ledger.is_symlink()
    assert Ledger.open(place.ledger).n_charges == charges + 1
    assert f"Charged to {place.ledger}" in outcome.out
    return outcome


# Where a model may state a ledger: its description, and what it keeps for the command line.
IN_MODEL = {
    "extra": lambda fields, target: fields["extra"].update(ledger=target),
    "extra, parts": lambda fields, target: fields["extra"].update(ledger={"path": target, "address": target}),
    "extra, list": lambda fields, target: fields["extra"].update(ledgers=[target], links=[target]),
    "top": lambda fields, target: fields.update(ledger=target),
    "data set": lambda fields, target: fields["extra"]["schema"].update(dataset=target),
    "schema": lambda fields, target: fields["extra"]["schema"].update(ledger=target),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("where", IN_MODEL)
def test_a_received_model_does_not_choose_the_ledger(run, place, where, target):
    fields = json_of(place.inbox / "model")
    IN_MODEL[where](fields, target_of(place, target))
    rewrite(place.inbox / "model", {"model.json": fields})
    # Rows without a ledger are not evaluated until the holder names one.
    outcome = holds(place, run, place.evaluate(), accepted=None if where == "schema" else place.ledger.exists())
    if outcome.code and where != "schema":
        assert "has no ledger of its own" in outcome.err
        assert "name that ledger with --ledger" in outcome.err


@pytest.mark.parametrize("how", ["file", "link", "link to the parent", "pointer"])
def test_a_ledger_inside_a_received_model_is_not_charged(run, place, how):
    for name in TRAPS:
        path = place.inbox / "model" / f"{name}.ledger"
        if how == "file":
            shutil.copy(place.inbox / "trap.ledger", path)
        elif how == "pointer":
            path.write_text(TARGETS["pointer"])
        else:
            path.symlink_to(place.inbox / "trap.ledger" if how == "link" else "../trap.ledger")
    holds(place, run, place.evaluate(), accepted=place.ledger.exists())


@pytest.mark.parametrize("target", [name for name in TARGETS if name != "pointer"])
def test_a_received_schema_does_not_choose_the_ledger(run, place, target):
    path = place.inbox / "schema.toml"
    name = json.dumps(target_of(place, target))
    path.write_text(path.read_text().replace('dataset = "patients"', f"dataset = {name}"))
    assert name in path.read_text()
    holds(place, run, place.fit_by_schema(), accepted=True)


@pytest.mark.parametrize("target", ["absolute", "parent", "postgresql", "variable"])
@pytest.mark.parametrize("line", ["ledger = {}", "[ledger]\npath = {}", "[columns.age.ledger]\npath = {}"])
def test_a_schema_or_request_with_a_key_for_a_ledger_is_refused_and_changes_nothing(run, place, line, target):
    stated = line.format(json.dumps(target_of(place, target)))
    for name, command in (("schema.toml", place.fit_by_schema()), ("request.toml", place.fit_by_request())):
        path = place.inbox / name
        text = path.read_text()
        path.write_text(f"{stated}\n{text}" if line.startswith("ledger") else f"{text}\n{stated}\n")
        holds(place, run, command, accepted=False)


@pytest.mark.parametrize("target", ["absolute", "relative", "parent", "postgresql", "variable", "home"])
@pytest.mark.parametrize("table", ["fit", "public", "schema"])
def test_a_request_that_states_a_ledger_in_a_table_is_refused_and_changes_nothing(run, place, table, target):
    path = place.inbox / "request.toml"
    text, name = path.read_text(), json.dumps(target_of(place, target))
    path.write_text(text.replace(f"[{table}]\n", f"[{table}]\nledger = {name}\n"))
    assert path.read_text() != text
    holds(place, run, place.fit_by_request(), accepted=False)


def test_a_received_request_does_not_choose_the_ledger(run, place):
    holds(place, run, place.fit_by_request(), accepted=True)


def test_a_request_for_another_data_set_is_refused_where_the_holder_has_a_ledger(run, place):
    path = place.inbox / "request.toml"
    path.write_text(path.read_text().replace('dataset = "patients"', 'dataset = "trap"'))
    holds(place, run, place.fit_by_request(), accepted=not place.ledger.exists())


@pytest.mark.parametrize("name", ["public.csv", "private.csv", "link.csv"])
def test_a_received_public_file_does_not_choose_the_ledger(run, place, name):
    """Its folder has a ledger of its name, and of the name of the private file."""
    if name == "link.csv":
        (place.inbox / name).symlink_to("public.csv")
    elif name != "public.csv":
        (place.inbox / "public.csv").rename(place.inbox / name)
    command = [place.inbox / name if part == place.inbox / "public.csv" else part for part in place.fit_by_schema()]
    holds(place, run, command, accepted=True)


@pytest.mark.parametrize("target", TARGETS)
def test_cells_and_columns_of_a_public_file_name_no_ledger(run, place, target):
    rows = pd.read_csv(place.inbox / "public.csv")
    for column in ("ledger", "--ledger", target_of(place, target)):
        rows[column] = target_of(place, target)
    rows.to_csv(place.inbox / "public.csv", index=False)
    holds(place, run, place.fit_by_schema())


def digests(content):
    """Return digests of some content, as text and as bytes."""
    hashes = [hashlib.new(name, content) for name in ("md5", "sha1", "sha256", "sha512", "blake2b", "blake2s")]
    checks = [zlib.crc32(content), zlib.adler32(content)]
    texts = [h.hexdigest() for h in hashes] + [f"{check:08x}" for check in checks] + [str(check) for check in checks]
    return [text.encode() for text in texts] + [h.digest() for h in hashes]


def test_what_a_fit_writes_names_no_ledger_and_holds_no_digest_of_private_rows(run, place):
    """A digest would be a release: whoever guesses all rows but one can check a guess of that row."""
    private = place.holder / "private.csv"
    lines = private.read_bytes().splitlines(keepends=True)
    frame = pd.read_csv(private)
    contents = [private.read_bytes(), b"".join(lines[1:]), *lines[1:], *(line.strip() for line in lines[1:])]
    contents += [frame.to_numpy().tobytes(), frame.drop(columns="cost").to_numpy().tobytes()]
    needles = [digest for content in contents for digest in digests(content)]
    command = [*place.fit_by_schema(), "--ledger", place.ledger]
    assert run(*command).code == 0
    written = [path for path in (place.folder / "out").rglob("*") if path.is_file()]
    assert {MODEL_FILE, "receipt.json", "report.html"} <= {path.name for path in written}
    for path in written:
        assert b"private.ledger" not in path.read_bytes(), path.name
        assert str(place.holder).encode() not in path.read_bytes(), path.name
    for path in [*written, place.ledger]:
        stored = path.read_bytes()
        assert not any(needle in stored for needle in needles), path.name


def test_a_received_model_does_not_choose_the_data_set_that_an_audit_opens_on_a_server(run, place, monkeypatch):
    # Without the driver of a server, which finds passwords in an address.
    monkeypatch.setattr("dpadapt.integrations.postgres.without_passwords", lambda address: address)
    refused(
        run("audit", place.inbox / "model", "--ledger", "postgresql://anna@127.0.0.1/budgets"),
        "--dataset: a ledger on a server is found by the name of its data set",
    )
