"""Before anything is spent: forecasts, rehearsals and advice from public rows alone."""

import shlex

import numpy as np
import pandas as pd
import pytest
from outcomes import accepted, refused

from dpadapt.accounting.ledger import Ledger

pytestmark = pytest.mark.thorough

BOTH = pytest.mark.parametrize("command", ["forecast", "rehearse"])
TASKS = pytest.mark.parametrize(("label", "task"), [("cost", "regression"), ("ill", "classification")])
QUICK = {"forecast": {}, "rehearse": {"repeats": 2, "seed": 0}}


@BOTH
@TASKS
def test_a_table_and_a_page_are_written_and_nothing_is_spent(run, site, command, label, task):
    site.private.unlink()  # neither command needs the private file
    outcome = accepted(run(*site.before(command, label=label, task=task, epsilon="1,0.3", **QUICK[command])))
    said = " ".join(outcome.out.split())
    assert "No private row was read and nothing was spent." in said
    assert said.index("ε = 0.3") < said.index("ε = 1")
    page = (site.folder / f"{command}.html").read_text()
    assert "<svg" in page
    assert "nothing spent" in page
    assert site.untouched()


def test_a_forecast_says_that_nothing_would_be_spent(run, site):
    outcome = run(*site.before("forecast", rows=12, epsilon="0.1,10"))
    assert "unspent" in outcome.out
    assert "the public model is returned" in " ".join(outcome.out.split())


def test_a_classification_can_be_forecast_without_public_labels(run, site, tmp_path):
    path = tmp_path / "unlabelled.csv"
    pd.read_csv(tmp_path / "public.csv").drop(columns="ill").to_csv(path, index=False)
    outcome = accepted(run(*site.before("forecast", public=path, label="ill", task="classification")))
    assert "no gate" in outcome.out


@TASKS
def test_a_rehearsal_compares_methods_with_public_rows_alone_and_private_rows_alone(run, site, label, task):
    outcome = run(*site.before("rehearse", label=label, task=task, epsilon="1", **QUICK["rehearse"]))
    older = "linear" if task == "regression" else "logistic"
    for line in ("public only", "private only", "with public (transfer)", f"with public ({older})"):
        assert line in outcome.out


def test_a_rehearsal_repeats_with_its_seed(run, site):
    arguments = site.before("rehearse", epsilon="1", **QUICK["rehearse"])
    assert run(*arguments).out == run(*arguments).out
    assert run(*arguments).out != run(*arguments[:-1], "1").out


@pytest.mark.parametrize("column", ["age", "region", "since"])
def test_split_by_takes_numbers_categories_and_dates(run, site, tmp_path, column):
    frame = pd.read_csv(tmp_path / "public.csv")
    frame["since"] = (pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(len(frame)), "D")).strftime("%Y-%m-%d")
    frame.to_csv(tmp_path / "public.csv", index=False)
    schema = site.schema.read_text() + '\n[columns."since"]\ntype = "ignore"\n'
    site.schema.write_text(schema)
    outcome = accepted(run(*site.before("rehearse", epsilon="1", split_by=column, **QUICK["rehearse"])))
    assert f"along {column}" in " ".join(outcome.out.split())


def test_a_rehearsal_says_that_a_random_split_contains_no_shift_and_that_public_rows_were_too_few(run, site):
    outcome = run(*site.before("rehearse", epsilon="1", rows=60, **QUICK["rehearse"]))
    assert "can't tell what a shift would do" in " ".join(outcome.out.split())
    assert "too few public rows" not in " ".join(outcome.out.split())
    outcome = run(*site.before("rehearse", epsilon="1", **QUICK["rehearse"]))
    assert "too few public rows" in " ".join(outcome.out.split())


def bad(run, site, command, named, **changes):
    refused(run(*site.before(command, **changes)), named)
    assert not (site.folder / f"{command}.html").exists()
    assert site.untouched()


@BOTH
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"epsilon": "0"}, "--epsilon"),
        ({"epsilon": "1,much"}, "--epsilon"),
        ({"epsilon": "1,inf"}, "--epsilon"),
        ({"epsilon": "1,nan"}, "--epsilon"),
        ({"epsilon": ""}, "--epsilon"),
        ({"delta": 0}, "--delta"),
        ({"rows": 0}, "--rows"),
        ({"rows": "many"}, "--rows"),
        ({"label": "nonsense"}, "--label"),
        ({"label": "region"}, "--task regression"),
        ({"task": "clustering"}, "--task"),
        ({"schema": "nothing.toml"}, "--schema"),
        ({"public": "nothing.csv"}, "--public"),
        ({"adjacency": "nonsense"}, "--adjacency"),
        ({"out": "no/such/page.html"}, "--out"),
    ],
    ids=str,
)
def test_bad_option(run, site, command, changes, named):
    bad(run, site, command, named, **changes)


@BOTH
def test_a_missing_label_or_column_is_named(run, site, tmp_path, command):
    frame = pd.read_csv(tmp_path / "public.csv")
    frame.drop(columns="cost").to_csv(tmp_path / "public.csv", index=False)
    bad(run, site, command, "'cost'")
    frame.drop(columns="age").to_csv(tmp_path / "public.csv", index=False)
    bad(run, site, command, "'age'")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"repeats": 0}, "--repeats"),
        ({"seed": -1}, "--seed"),
        ({"rows": 9}, "--rows"),
        ({"split_by": "shoe"}, "--split-by"),
        ({"split_by": "id"}, "--split-by"),
    ],
    ids=str,
)
def test_bad_option_of_a_rehearsal(run, site, changes, named):
    bad(run, site, "rehearse", named, **changes)


def test_a_public_table_too_small_to_split_is_refused(run, site, tmp_path):
    pd.read_csv(tmp_path / "public.csv").head(20).to_csv(tmp_path / "public.csv", index=False)
    bad(run, site, "rehearse", "at least 30 rows")


# Advice: a verdict, a page, a schema where there is none, and the command to run next.

QUICK_ADVICE = ["--epsilon", "1", "--seed", "0"]


@pytest.fixture
def advise(run, site):
    def call(*more, schema=None):
        out = ["--out", site.folder / "advice.html", "--schema", schema or site.folder / "new.toml"]
        return run("advise", site.folder / "public.csv", "--label", "cost", "--rows", 600, *QUICK_ADVICE, *out, *more)

    return call


def test_advice_reads_no_private_row_and_its_next_command_can_be_run_as_it_is(advise, run, site):
    hidden = site.private.rename(site.folder / "elsewhere.csv")
    outcome = accepted(advise())
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
    accepted(run(*arguments[1:], "--ledger", site.folder / "next.ledger"))
    assert Ledger.open(site.folder / "next.ledger").spent() > 0


@pytest.fixture
def few_public_rows(site):
    """Leave too few public rows to rehearse on, so that the advice is quick."""
    path = site.folder / "public.csv"
    path.write_text("\n".join(path.read_text().splitlines()[:61]) + "\n")


@pytest.mark.usefixtures("few_public_rows")
def test_a_schema_that_exists_is_used_and_left_alone(advise, site):
    before = site.schema.read_text()
    outcome = accepted(advise(schema=site.schema))
    assert site.schema.read_text() == before
    assert "which was inferred" not in outcome.out


@pytest.mark.usefixtures("few_public_rows")
def test_persons_and_secret_sizes_reach_the_next_command(advise):
    outcome = advise("--rows-per-person", 3, "--secret-size")
    said = " ".join(outcome.out.split())
    assert "--adjacency add-remove --rows 600" in said
    assert "--person COLUMN" in said


def test_bad_options_are_refused_by_name(advise, site):
    for more, named in (
        (["--split-by", "height"], "split_by"),
        (["--person", "nobody"], "--rows-per-person"),
        (["--rows", 0], "--rows must be a whole number of at least 2"),
    ):
        refused(advise(*more), named)
        assert not (site.folder / "advice.html").exists()


def test_a_schema_is_inferred_with_the_options_of_the_schema_command(run, site):
    options = ["--category", "ill", "--dataset", "clinic"]
    made = site.folder / "made.toml"
    assert run("schema", site.folder / "public.csv", "-o", made, *options).code == 0
    advised = site.folder / "advised.toml"
    order = ["advise", site.folder / "public.csv", "--label", "cost", "--rows", 600, "--epsilon", "1", "--seed", 0]
    order += ["--out", site.folder / "a.html", "--schema"]
    outcome = accepted(run(*order, advised, *options))
    assert advised.read_text() == made.read_text()
    assert "id: a different text in every row" in outcome.out
    again = run(*order, advised, *options)
    assert (again.code, len(again.err.splitlines())) == (2, 1)
    assert "--category" in again.err
