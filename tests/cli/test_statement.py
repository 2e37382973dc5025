"""`dpadapt statement`: one page for a data-protection assessment, from the model's folder alone."""

import pytest


@pytest.fixture
def model(run, site):
    outcome = run(*site.fit())
    assert outcome.code == 0, outcome.err
    site.private.unlink()
    return site.out


def test_the_text_says_what_an_officer_asks(run, model):
    outcome = run("statement", model)
    assert outcome.code == 0, outcome.err
    said = " ".join(outcome.out.split())
    for part in (
        "privacy unit is one row",
        "number of rows is public",
        "Rows are protected, not persons",
        "factor of at most 2.7",
        "What is assumed to be public",
        "the schema",
        "scout: Gaussian",
        "model.dpadapt",
        "second accountant",
        "What is not covered",
    ):
        assert part in said, part


def test_the_page_stands_alone(run, model, site):
    out = site.folder / "statement.html"
    assert run("statement", model, "--out", out).code == 0
    page = out.read_text()
    assert "Privacy statement" in page
    assert "http" not in page.replace("http-equiv", "")


def test_a_person_is_the_unit_where_persons_were_protected(run, site):
    schema = site.schema.read_text()
    assert run(*site.fit(person="id", ledger=site.folder / "persons.ledger")).code == 0, schema
    said = " ".join(run("statement", site.out).out.split())
    assert "privacy unit is one person (all rows with one id)" in said
    assert "Rows are protected, not persons" not in said


def test_a_seeded_fit_is_said_to_have_no_guarantee(run, site):
    assert run(*site.fit(seed=1)).code == 0
    said = " ".join(run("statement", site.out).out.split())
    assert "There is no guarantee" in said
    assert "factor of at most" not in said


def test_a_folder_without_a_model_is_refused(run, site):
    outcome = run("statement", site.folder)
    assert outcome.code == 2
    assert len(outcome.err.strip().splitlines()) == 1
