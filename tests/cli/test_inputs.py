"""What commands read: too few rows are refused, and the message does not show their number."""

import pytest
from refusals import edit_private, refused


@pytest.mark.parametrize("public", [True, False])
def test_fewer_than_ten_private_rows_are_refused(run, site, tmp_path, public):
    edit_private(site, lambda f: f.iloc[:9])
    changes = {} if public else {"public": None}
    refused(run(*site.fit(**changes)), "--private", "at least 10 rows", "Nothing was spent")
    assert site.untouched()


def test_too_few_private_rows_are_refused_alike_where_their_number_is_private(run, site):
    said = set()
    for rows in (0, 1):
        edit_private(site, lambda f, rows=rows: f.iloc[:rows])
        outcome = run(*site.fit(adjacency="add-remove", rows=600, ledger=None))
        refused(outcome, "--private", "at least two rows")
        said.add(outcome.err)
    assert len(said) == 1


def test_that_there_are_two_private_rows_is_on_the_receipt(run, site):
    assert run(*site.fit(adjacency="add-remove", rows=600, ledger=None)).code == 0
    assert "that there are at least two private rows" in (site.out / "receipt.json").read_text()
    assert run(*site.fit(ledger=None)).code == 0
    assert "two private rows" not in (site.out / "receipt.json").read_text()


def test_a_private_number_of_rows_is_not_shown(run, site, tmp_path):
    edit_private(site, lambda f: f.iloc[:9])
    outcome = run(*site.fit(adjacency="add-remove", rows=9, ledger=None))
    assert outcome.code == 0, outcome.err
