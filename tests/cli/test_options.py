"""Options that several commands have, and the one place where an option of `dpadapt fit` is declared."""

import tomllib
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from outcomes import refused

from dpadapt import persist
from dpadapt.accounting.ledger import Ledger
from dpadapt.cli import app as commands
from dpadapt.cli import fit, request
from dpadapt.cli.options import TABLES, AdjacencyName, FitOptions, Use, flag_of, parse_epsilons, uses
from dpadapt.inputs.files import FORMAT_NAMES
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.methods import METHODS


def test_adjacency_choices_are_those_of_the_library():
    assert [name.value for name in AdjacencyName] == [member.value for member in Adjacency]


def test_help_names_the_formats_that_are_read():
    assert TABLES == FORMAT_NAMES


def test_budgets_are_sorted_and_listed_once():
    assert parse_epsilons("3, 1,0.3,1") == [0.3, 1.0, 3.0]


@pytest.fixture
def asked(run, site):
    path = site.folder / "request.toml"
    assert run(*site.before("request", rows=None, epsilon=0.5, out=path)).code == 0
    return path


@pytest.fixture
def planted(monkeypatch):
    """Declare more options in the one place, and mount the commands anew."""

    @dataclass(frozen=True, kw_only=True)
    class Planted(FitOptions):
        prior: Annotated[str | None, typer.Option(help="What is known."), Use(parameter="prior")] = None
        steps: Annotated[int, typer.Option(help="How many."), Use(tasks=("clustering",), parameter="n_steps")] = 3
        cut: Annotated[
            str | None,
            typer.Option(help="In parts of the classes."),
            Use(
                tasks=("classification",),
                parameter="decision_threshold",
                parse=lambda text, classes: float(text) / len(classes),
            ),
        ] = None

    for module in ("options", "fit", "request"):
        monkeypatch.setattr(f"dpadapt.cli.{module}.FitOptions", Planted)
    app = typer.Typer()
    fit.mount(app)
    request.mount(app)
    monkeypatch.setattr(commands, "app", app)


def test_an_option_that_is_declared_in_one_place_reaches_the_estimator_and_the_request(run, site, planted):
    asked = site.folder / "asked.toml"
    assert run(*site.before("request", epsilon=0.5, rows=None, prior="same-population", out=asked)).code == 0
    assert tomllib.loads(asked.read_text())["fit"]["prior"] == "same-population"
    by_request = site.fit(schema=None, task=None, label=None, epsilon=None, delta=None, request=asked)
    refused(run(*by_request, "--yes", "--prior", "shifted"), "--prior shifted: the request")
    assert site.untouched()
    assert run(*by_request, "--yes").code == 0
    assert persist.load(site.out).model.estimator.prior == "same-population"
    before = Ledger.open(site.ledger).n_charges
    refused(run(*site.fit(prior="nonsense", public=site.folder / "missing.csv")), "prior must be one of")
    refused(
        run(*site.fit(prior="same-population", method="reverse-adaptation")),
        "--prior: the method reverse-adaptation has no such",
    )
    assert Ledger.open(site.ledger).n_charges == before


def test_an_option_is_parsed_with_the_classes_and_one_with_a_default_does_not_concern_other_tasks(run, site, planted):
    asked = site.folder / "asked.toml"
    good = {"task": "classification", "label": "ill", "epsilon": 0.5, "rows": None, "out": asked}
    assert run(*site.before("request", **good, cut=1)).code == 0
    assert tomllib.loads(asked.read_text())["fit"]["cut"] == "1"
    refused(run(*site.before("request", **good, steps=4)), "--steps is for --task clustering")


def test_an_option_or_a_key_that_is_declared_nowhere_is_refused(run, site, asked):
    by_request = site.fit(schema=None, task=None, label=None, epsilon=None, delta=None, request=asked)
    refused(run(*by_request, "--yes", "--prior", "nonsense"), "--prior")
    asked.write_text(asked.read_text().replace("[fit]", '[fit]\nprior = "shifted"'))
    refused(run(*by_request, "--yes"), "unknown key 'prior' in [fit]")
    assert site.untouched()


# Values, not the defaults, of all options that some method refuses.
VALUES = {
    "rows": 600,
    "clusters": 3,
    "seed": 1,
    "weight": "bmi",
    "max_weight": 9,
    "mean_weight": 2,
    "class_weight": "balanced",
    "threshold": 0.3,
    "intervals": None,
    "tasks": "region",
    "agents": "a.csv",
    "agents_epsilon": 1,
    "label": "cost",
}
NEEDED_BESIDE = {
    "rows": {"adjacency": "add-remove"},
    "max_weight": {"weight": "bmi"},
    "mean_weight": {"weight": "bmi", "max_weight": 9},
}


@pytest.mark.parametrize("method", METHODS, ids=lambda method: f"{method.name}-{method.task}")
def test_a_method_refuses_the_options_that_it_does_not_know_before_anything_is_read(run, site, method, monkeypatch):
    def fail(*_args, **_options):
        raise AssertionError("a table was read")

    monkeypatch.setattr("dpadapt.tables.table_chunks", fail)
    monkeypatch.setattr("dpadapt.tables.read_table", fail)
    known = method.estimator().get_params(deep=False)
    label = {"regression": "cost", "classification": "ill", "clustering": None}[method.task]
    good = {"task": method.task, "method": method.name, "label": label}
    good |= {"public": None} if method.beside == "agents" else {}
    good |= {"clusters": 3} if method.task == "clustering" else {}
    for name, use in uses(FitOptions).items():
        if method.task in use.tasks and (not use.parameter or use.parameter in known):
            continue
        beside = NEEDED_BESIDE.get(name, {}) if method.task in use.tasks else {}
        flags = ["--intervals"] if name == "intervals" else []
        outcome = run(*site.fit(**good | beside | {name: VALUES[name]}), *flags)
        refused(outcome, "weight" if name == "mean_weight" else flag_of(name))
    assert Ledger.open(site.ledger).entries == []
