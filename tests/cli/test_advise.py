"""`dpadapt advise`: a verdict, a page, a schema where there is none, and the command to run next."""

import shlex

import pytest

from dpadapt.accounting.ledger import Ledger

pytestmark = pytest.mark.thorough

QUICK = ["--epsilon", "1", "--seed", "0"]


@pytest.fixture
def advise(run, site):
    def call(*more, schema=None):
        out = ["--out", site.folder / "advice.html", "--schema", schema or site.folder / "new.toml"]
        return run("advise", site.folder / "public.csv", "--label", "cost", "--rows", 600, *QUICK, *out, *more)

    return call


def test_advice_reads_no_private_row_and_its_next_command_can_be_run_as_it_is(advise, run, site):
    hidden = site.private.rename(site.folder / "elsewhere.csv")
    outcome = advise()
    assert outcome.code == 0, outcome.err
    said = " ".join(outcome.out.split())
    assert "No private row was read and nothing was spent." in said
    assert "no difference (random split)" in said
    page = (site.folder / "advice.html").read_text()
    assert "<svg" in page
    assert "nothing spent" in page
    assert (site.folder / "new.toml").exists()
    assert site.untouched()
    command = next(line for line in outcome.out.splitlines() if line.strip().startswith("dpadapt fit"))
    arguments = shlex.split(command.replace("PRIVATE.csv", str(hidden)).replace("model/", str(site.out)))
    done = run(*arguments[1:], "--ledger", site.folder / "next.ledger")
    assert done.code == 0, done.err
    assert Ledger.open(site.folder / "next.ledger").spent() > 0


@pytest.fixture
def few_public_rows(site):
    """Leave too few public rows to rehearse on, so that the advice is quick."""
    path = site.folder / "public.csv"
    path.write_text("\n".join(path.read_text().splitlines()[:61]) + "\n")


@pytest.mark.usefixtures("few_public_rows")
def test_a_schema_that_exists_is_used_and_left_alone(advise, site):
    before = site.schema.read_text()
    outcome = advise(schema=site.schema)
    assert outcome.code == 0, outcome.err
    assert site.schema.read_text() == before
    assert "which was inferred" not in outcome.out


@pytest.mark.usefixtures("few_public_rows")
def test_persons_and_secret_sizes_reach_the_next_command(advise):
    outcome = advise("--rows-per-person", 3, "--secret-size")
    said = " ".join(outcome.out.split())
    assert "--adjacency add-remove --rows 600" in said
    assert "--person COLUMN" in said


def test_bad_options_are_refused_by_name(advise, site):
    for more, named in ((["--split-by", "height"], "split_by"), (["--person", "nobody"], "person")):
        outcome = advise(*more)
        assert outcome.code == 2
        assert named in outcome.err
        assert len(outcome.err.strip().splitlines()) == 1
        assert not (site.folder / "advice.html").exists()


def test_refusals_name_the_options_of_the_command(advise):
    refused = advise("--rows", 0)
    assert refused.code == 2
    assert "--rows must be a whole number of at least 2" in refused.err
    assert "--rows-per-person" in advise("--person", "nobody").err


def test_with_persons_it_is_their_number_that_is_public(advise):
    said = " ".join(advise("--rows-per-person", 3).out.split())
    assert "the number of persons is public" in said


def test_a_schema_is_inferred_with_the_options_of_the_schema_command(run, site):
    options = ["--category", "ill", "--dataset", "clinic"]
    made = site.folder / "made.toml"
    assert run("schema", site.folder / "public.csv", "-o", made, *options).code == 0
    advised = site.folder / "advised.toml"
    order = ["advise", site.folder / "public.csv", "--label", "cost", "--rows", 600, "--epsilon", "1", "--seed", 0]
    order += ["--out", site.folder / "a.html", "--schema"]
    outcome = run(*order, advised, *options)
    assert outcome.code == 0, outcome.err
    assert advised.read_text() == made.read_text()
    assert "id: a different text in every row" in outcome.out
    again = run(*order, advised, *options)
    assert (again.code, len(again.err.splitlines())) == (2, 1)
    assert "--category" in again.err
