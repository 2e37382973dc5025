"""What commands read: too few rows are refused, and the message does not show their number."""

import pytest
from refusals import edit_private, refused


@pytest.mark.parametrize("public", [True, False])
def test_fewer_than_ten_private_rows_are_refused(run, site, tmp_path, public):
    edit_private(site, lambda f: f.iloc[:9])
    changes = {} if public else {"public": None}
    refused(run(*site.fit(**changes)), "--private", "at least 10 rows", "Nothing was spent")
    assert site.untouched()


def test_a_private_number_of_rows_is_not_shown(run, site, tmp_path):
    edit_private(site, lambda f: f.iloc[:9])
    outcome = run(*site.fit(adjacency="add-remove", rows=9, ledger=None))
    assert outcome.code == 0, outcome.err
