"""Which ledger private rows are charged to: the one beside them, or the one that is named; nothing else unasked."""

import os

import pytest

from dpadapt.accounting.ledger import Ledger
from dpadapt.accounting.places import ledger_of


def test_pipes_and_links_in_a_circle_are_refused_at_once(tmp_path):
    private = tmp_path / "rows.csv"
    private.touch()
    circle = tmp_path / "circle.ledger"
    circle.symlink_to(circle)
    with pytest.raises(ValueError, match="is not there"):
        ledger_of(private, given=circle)
    circle.unlink()
    # To open a pipe would wait for somebody who writes to it.
    os.mkfifo(tmp_path / "rows.ledger")
    assert ledger_of(private)[0] == tmp_path / "rows.ledger"
    loop = tmp_path / "loop.csv"
    loop.symlink_to(loop)
    with pytest.raises(ValueError, match="leads back to itself"):
        ledger_of(loop)


def test_a_link_to_nowhere_is_refused(tmp_path):
    private = tmp_path / "june.csv"
    private.touch()
    private.with_suffix(".ledger").symlink_to("lost.ledger")
    with pytest.raises(ValueError, match="is not there"):
        ledger_of(private)


def test_the_ledger_of_a_folder_is_asked_for_when_the_folder_or_a_link_to_its_files_has_a_new_name(tmp_path):
    store, links = tmp_path / "store", tmp_path / "links"
    raw = store / "raw"
    raw.mkdir(parents=True)
    links.mkdir()
    (raw / "x.csv").touch()
    Ledger.open(store / "raw.ledger", epsilon=9.0, delta=1e-6)
    (links / "x.csv").symlink_to("../store/raw/x.csv")
    with pytest.raises(ValueError, match=r"raw.ledger may be that of its rows"):
        ledger_of(links)
    with pytest.raises(ValueError, match=r"raw.ledger may be that of its rows"):
        ledger_of(links / "x.csv")
    raw.rename(store / "renamed")
    for private in (store / "renamed", store / "renamed" / "x.csv"):
        with pytest.raises(ValueError, match=r"raw.ledger may be that of its rows"):
            ledger_of(private)
    # The ledger of another table in the folder above says nothing about these rows.
    (store / "raw.csv").touch()
    (store / "other").mkdir()
    assert ledger_of(store / "other" / "y.csv")[0] == store / "other" / "y.ledger"


def test_a_ledger_beside_the_folder_of_the_private_file_is_not_charged_unasked(tmp_path, monkeypatch):
    """Whoever can write to the folder above does not choose the ledger, nor a server that is connected to."""
    monkeypatch.setattr("dpadapt.integrations.postgres.without_passwords", lambda address: pytest.fail("a server"))
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "june.csv").touch()
    (tmp_path / "rows.ledger").write_text("postgresql://stranger@host/budgets\nrows\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"rows.ledger may be that of its rows"):
        ledger_of(tmp_path / "rows" / "june.csv")


def test_python_users_get_the_same_two_rules(tmp_path):
    private = tmp_path / "june.csv"
    ledger = Ledger.beside(private, epsilon=3.0, delta=1e-6)
    assert Ledger.beside(private).epsilon == ledger.epsilon
    assert [path.name for path in tmp_path.iterdir()] == ["june.ledger"]
    with pytest.raises(ValueError, match=r"june.ledger may be that of its rows.*Ledger.open names it"):
        Ledger.beside(tmp_path / "july.csv", epsilon=3.0, delta=1e-6)
