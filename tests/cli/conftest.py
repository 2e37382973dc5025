"""Tables for the command line, and a way to run it."""

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dpadapt.accounting.ledger import Ledger
from dpadapt.cli import main
from dpadapt.persist import MODEL_FILE

# Tests import `outcomes`.
sys.path.insert(0, str(Path(__file__).parent))


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def temporary(tmp_path_factory, monkeypatch) -> Path:
    """Return the folder of temporary files, where a fit saves its model if it can't elsewhere."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.fixture
def run(capsys) -> Callable[..., Outcome]:
    def call(*arguments) -> Outcome:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return Outcome(code, *capsys.readouterr())

    return call


def make_table(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age, smoker = rng.integers(18, 90, n), rng.choice(["no", "yes"], n)
    region, bmi = rng.choice(["north", "south", "west"], n), rng.normal(26, 4, n).round(1)
    cost = 200 + 6 * age + 300 * (smoker == "yes") + 12 * (bmi - 25) + rng.normal(0, 60, n)
    ill = (rng.random(n) < 1 / (1 + np.exp((60 - age) / 8))).astype(int)
    return pd.DataFrame(
        {
            "id": [f"p{seed}-{k:05d}" for k in range(n)],
            "age": age,
            "region": region,
            "smoker": smoker,
            "bmi": bmi,
            "cost": cost.round(2),
            "ill": ill,
        }
    )


@pytest.fixture(scope="session")
def rows() -> pd.DataFrame:
    """Return more rows than one block has."""
    return make_table(20_000, 5)


def _arguments(options: dict) -> list[str]:
    named = {name.replace("_", "-"): value for name, value in options.items() if value is not None}
    return [part for name, value in named.items() for part in (f"--{name}", str(value))]


@dataclass(frozen=True)
class Site:
    """A folder with the files of one job."""

    folder: Path

    @property
    def private(self) -> Path:
        return self.folder / "private.csv"

    @property
    def schema(self) -> Path:
        return self.folder / "schema.toml"

    @property
    def ledger(self) -> Path:
        return self.folder / "patients.ledger"

    @property
    def out(self) -> Path:
        return self.folder / "model"

    def fit(self, **changes) -> list[str]:
        """Arguments of a good fit, with changes; None leaves an option out, and refuses a ledger."""
        options = {
            "private": self.private,
            "public": self.folder / "public.csv",
            "schema": self.schema,
            "label": "cost",
            "task": "regression",
            "epsilon": 1,
            "delta": 1e-6,
            "ledger": self.ledger,
            "out": self.out,
        } | changes
        return ["fit", *_arguments(options), *(["--no-ledger"] if options["ledger"] is None else [])]

    def before(self, command: str, **changes) -> list[str]:
        """Arguments of a good forecast or rehearsal, with changes."""
        options = {
            "public": self.folder / "public.csv",
            "schema": self.schema,
            "label": "cost",
            "task": "regression",
            "rows": 600,
            "out": self.folder / f"{command}.html",
        } | changes
        return [command, *_arguments(options)]

    def untouched(self) -> bool:
        """Whether nothing was spent and no model was written."""
        return not Ledger.open(self.ledger).entries and not (self.out / MODEL_FILE).exists()


@pytest.fixture(scope="session")
def template(tmp_path_factory) -> Path:
    """Return a folder with the tables and the schema of every job, which are made once."""
    folder = tmp_path_factory.mktemp("template")
    make_table(200, 1).to_csv(folder / "public.csv", index=False)
    make_table(600, 2).to_csv(folder / "private.csv", index=False)
    make_table(7, 3).drop(columns=["id", "cost"]).to_csv(folder / "new.csv", index=False)
    assert main(["schema", str(folder / "public.csv"), "-o", str(folder / "schema.toml"), "--dataset", "patients"]) == 0
    return folder


@pytest.fixture
def site(tmp_path, template) -> Site:
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    site = Site(tmp_path)
    Ledger.open(site.ledger, epsilon=3.0, delta=1e-6, dataset="patients")
    return site


@pytest.fixture(scope="session")
def models(tmp_path_factory) -> tuple[Path, dict[Path, Outcome]]:
    """Return the folder of models that several tests use, and what their fits said."""
    return tmp_path_factory.mktemp("models"), {}


@pytest.fixture
def fitted(run, site, models):
    """Return a function that puts a model into the site, fitted once and then copied, and returns what the fit said."""

    def put(*flags: str, **changes) -> Outcome:
        folder, said = models
        model = folder / "_".join([*flags, *(f"{name}-{value}" for name, value in sorted(changes.items())), "model"])
        if model.exists():
            shutil.copytree(model, site.out)
            return said[model]
        outcome = run(*site.fit(**changes), *flags)
        assert outcome.code == 0, outcome.err
        shutil.copytree(site.out, model)
        said[model] = outcome
        return outcome

    return put
