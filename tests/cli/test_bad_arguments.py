"""Generated bad input: wrong arguments and damaged files for every command, with secrets in all private cells.

Whatever the input, a command ends in time with exit code 0, 1 or 2 and without a traceback, shows no secret and no
control character, names no flaw of its own, and spends nothing if the code is 2.
"""

import os
import random
import shutil
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dpadapt.accounting.ledger import Ledger
from dpadapt.cli import main
from dpadapt.persist import MODEL_FILE
from tests.saved_models import json_of, rewrite

pytestmark = pytest.mark.every_fourth

# One for each type of private cell: text, number, date, label of a regression and of a classification.
SECRETS = {"region": "ZEBRA7731", "bmi": "98765.4321", "visit": "1987-03-14", "cost": "7351.9271", "ill": "QUAGGA"}
# More than one command takes; a hang is caught long before the test runner's own limit.
SECONDS = 60.0

NUMBERS = [*"0|-1|nan|inf|-inf|1e308|1e-308|5e-324|1e400|x||1e|0x10|1,2".split("|"), "9" * 400]
NUMBERS += ["1e-30", "-0.0", "1e5", "2", ".5", "\u0663", "True", "None", " 1 ", "1_000", "\x1b[2J"]
COUNTS = ["0", "-1", "1", "1.5", "x", "", "1e3", str(2**53), str(2**63), str(10**40), "9" * 400, "9" * 5000, "-0"]
WORDS = [
    "nonsense",
    "",
    " ",
    "\x1b[2J",
    "=1+1",
    "../..",
    "a" * 3000,
    "\ud8ff",
    "-",
    "--",
    "cost",
    "ill",
    "region",
    "id",
]
WORDS += ["age", "visit", "[red]x[/red]", "{0}", "%s", "\u202e", "a\nb", "'", '"']
CHOICES = {
    "--task": ["regression", "classification", "clustering", "nonsense", ""],
    "--adjacency": ["zero-out", "add-remove", "replace-one", "nonsense"],
    "--metric": ["accuracy", "log-loss", "squared-error", "auc", "nonsense"],
    "--method": ["transfer", "linear", "logistic", "hybrid", "subspace", "clustering", "nonsense", "", "pda-dpmd"],
}
KINDS = {
    "--epsilon": NUMBERS, "--delta": NUMBERS, "--ledger-epsilon": NUMBERS, "--ledger-delta": NUMBERS,
    "--error-bound": NUMBERS,
    "--agents-epsilon": NUMBERS, "--rate": NUMBERS, "--gaussian": NUMBERS, "--laplace": NUMBERS, "--pure": NUMBERS,
    "--rows": COUNTS, "--clusters": COUNTS, "--seed": COUNTS, "--steps": COUNTS,
    "--allowance": [*WORDS, "anna"],
    "--label": WORDS, "--tasks": WORDS, "--split-by": WORDS, "--dataset": WORDS, "--category": WORDS,
    "--encode": [*WORDS, "region=wordllama", "=", "a=b=c"], **CHOICES,
}  # fmt: skip
FILES = ("--private", "--public", "--schema", "--ledger", "--out", "--agents", "--request")


def make_tables(folder: Path) -> None:
    """Write a public and a private table; every private cell type holds its secret, in rows that are otherwise good."""
    for name, n in (("public", 80), ("private", 120)):
        rng = np.random.default_rng(n)
        age = rng.integers(18, 90, n)
        frame = pd.DataFrame({
            "id": [f"p{k:03d}" for k in range(n)],
            "age": age,
            "region": rng.choice(["north", "south", "west"], n),
            "bmi": rng.normal(26, 4, n).round(1),
            "visit": rng.choice(["2020-01-01", "2021-06-30"], n),
            "cost": (200 + 6 * age + rng.normal(0, 60, n)).round(2),
            "ill": np.where(rng.random(n) < 0.5, "yes", "no"),
        })  # fmt: skip
        if name == "private":
            frame = frame.astype(str)
            # Out of range, and so without a message; the identifier is ignored.
            frame.loc[3, "bmi"], frame.loc[4, "cost"], frame.loc[5, "id"] = SECRETS["bmi"], SECRETS["cost"], "ZEBRA7731"
        frame.to_csv(folder / f"{name}.csv", index=False)
    text = (folder / "private.csv").read_text()
    (folder / "new.csv").write_text(text)
    (folder / "people.csv").write_text(text.replace("p0", "q0"))


@dataclass
class Site:
    """A folder with good input, and the good arguments of every command."""

    folder: Path

    def good(self, command: str) -> list[str]:
        here = {name: str(self.folder / f"{name}.csv") for name in ("private", "public", "new", "people")}
        schema, ledger, out = (str(self.folder / name) for name in ("schema.toml", "patients.ledger", "model"))
        table = ["--schema", schema, "--label", "cost", "--task", "regression"]
        fit = ["fit", "--private", here["private"], "--epsilon", "1", "--ledger", ledger, "--out", out]
        before = ["--public", here["public"], *table, "--rows", "100", "--epsilon", "1"]
        return {
            "schema": ["schema", here["public"], "-o", str(self.folder / "another.toml"), "--dataset", "patients"],
            "forecast": ["forecast", *before, "--out", str(self.folder / "f.html")],
            "rehearse": ["rehearse", *before, "--repeats", "1", "--out", str(self.folder / "r.html")],
            "regression": [*fit, "--public", here["public"], *table],
            "classification": [*fit, "--schema", schema, "--label", "ill", "--task", "classification"],
            "clustering": [*fit, "--public", here["public"], "--schema", schema, "--task", "clustering",
                           "--clusters", "3"],
            "hybrid": [*fit, "--schema", schema, "--label", "ill", "--task", "classification", "--method", "hybrid",
                       "--agents", here["people"], "--agents-epsilon", "1"],
            "predict": ["predict", str(self.folder / "saved"), here["new"], "-o", str(self.folder / "p.csv")],
            "evaluate": ["evaluate", str(self.folder / "saved"), "--private", here["private"], "--epsilon", "0.1",
                         "--public", here["public"], "--ledger", ledger],
            "cost": ["cost", "--gaussian", "1.5", "--delta", "1e-6"],
            "calibrate": ["calibrate", "--epsilon", "1", "--delta", "1e-6"],
            "ledger show": ["ledger", "show", ledger],
            "ledger history": ["ledger", "history", ledger],
            "ledger new": ["ledger", "new", str(self.folder / "new.ledger"), "--epsilon", "1", "--delta", "1e-6"],
            "ledger allow": ["ledger", "allow", ledger, "anna", "--epsilon", "2"],
            "ledger page": ["ledger", "page", ledger, "--out", str(self.folder / "ledger.html")],
            "request": ["request", *before, "--out", str(self.folder / "request.toml")],
            "fit by request": ["fit", "--private", here["private"], "--public", here["public"], "--ledger", ledger,
                               "--request", str(self.folder / "request.toml"), "--allowance", "anna", "--out", out,
                               "--yes"],
        }[command]  # fmt: skip


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """Return a folder with good tables, a schema, a ledger that has one charge, and a saved model."""
    folder = tmp_path_factory.mktemp("template")
    make_tables(folder)
    made = main(["schema", str(folder / "public.csv"), "-o", str(folder / "schema.toml"), "--dataset", "patients"])
    assert made == 0
    Ledger.open(folder / "patients.ledger", epsilon=30.0, delta=1e-5, dataset="patients")
    for command in ("ledger allow", "request"):
        assert main(Site(folder).good(command)) == 0
    arguments = [*Site(folder).good("regression"), "--method", "linear", "--public", str(folder / "public.csv")]
    arguments[arguments.index("--out") + 1] = str(folder / "saved")
    assert main(arguments) == 0
    shutil.rmtree(folder / "model", ignore_errors=True)
    return folder


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Return a file's content with one of many kinds of damage."""
    middle = chance.randrange(max(1, len(content)))
    lines = content.splitlines(keepends=True) or [b""]
    return chance.choice([
        lambda: b"",
        lambda: content[:middle],
        lambda: content[:middle] + bytes([chance.randrange(256)]) + content[middle + 1 :],
        lambda: content[:middle] + b"\x00" * chance.randrange(1, 9) + content[middle:],
        lambda: content.decode("utf-8", "replace").encode("utf-16"),
        lambda: content.replace(b"\n", b"\r"),
        lambda: b"".join(lines[1:]),
        lambda: b"".join(lines[:1]),
        lambda: lines[0] + content,
        lambda: content + lines[-1] * 3,
        lambda: content.replace(b",", b";"),
        lambda: content.replace(b",", b",," ),
        lambda: content[:middle] + b'"' + content[middle:],
        lambda: content.replace(b"age", b"\x1b[2Jage"),
        lambda: content.replace(b"age", b"=age"),
        lambda: bytes(range(256)) * 16,
        lambda: b"[" * 20_000,
        lambda: b'{"a":' * 20_000,
        lambda: b"9" * 20_000,
        lambda: content.replace(b"1", b"1e999"),
        lambda: content.replace(b"2", b"nan"),
    ])()  # fmt: skip


def edit_cells(path: Path, chance: random.Random) -> None:
    """Put something that is no such cell into cells of a table; into those of a private one also secrets."""
    try:
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (ValueError, pd.errors.ParserError):  # damaged already
        return
    column = chance.choice(list(frame.columns))
    cells = ["", "nan", "inf", "-inf", "1e999", "\x00", "9" * 400, "\x1b[2J", "=1+1", "-"]
    cell = chance.choice(cells if path.stem == "public" else [*cells, *SECRETS.values(), "\x1b[2JZEBRA7731"])
    rows = chance.choice([[0], [0, 7], range(len(frame))])
    frame.loc[frame.index.isin(rows), column] = cell
    if chance.random() < 0.2:
        frame = frame.iloc[: chance.randrange(3)]
    if chance.random() < 0.1:
        frame = frame.drop(columns=column)
    frame.to_csv(path, index=False)


def edit_model(path: Path, chance: random.Random) -> None:
    """Replace one value in a model's file by something else."""
    name = chance.choice(["model.json", "model.json", "receipt.json"])
    try:
        value = json_of(path, name)
    except (ValueError, RecursionError, zipfile.BadZipFile):  # damaged already
        return
    part = value
    while True:
        keys = list(part) if isinstance(part, dict) else list(range(len(part)))
        key = chance.choice(keys)
        inner = part[key]
        if isinstance(inner, dict | list) and inner and chance.random() < 0.75:
            part = inner
            continue
        part[key] = chance.choice([None, 3, -1, 1e308, 10**400, "text", "", [], {}, [[]], {"a": None}, True, "\x1b[2J"])
        break
    rewrite(path, {name: value})


def odd_path(site: Site, command: str, chance: random.Random) -> str:
    """Return a path that is no good file: missing, a folder, too long, a loop, a pipe, strange."""
    loop, pipe = site.folder / "loop.csv", site.folder / "pipe.csv"
    if not loop.is_symlink():
        loop.symlink_to(loop)
    if not pipe.exists():
        os.mkfifo(pipe)
    names = ["missing.csv", "missing.toml", ".", "", "a" * 300 + ".csv", "no/such/folder.csv", "new.csv/below.csv"]
    names += ["\x1b[2J.csv", "pipe.csv", "loop.csv", "saved", "patients.ledger", "schema.toml"]
    if command not in ("schema", "forecast", "rehearse", "request"):
        # These read public rows alone, and can't know that a file is private.
        names.append("private.csv")
    odd = chance.choice([*names, "a\0b", "\ud8ff.csv", "-"])
    return odd if odd.startswith("/") or odd in ("", "-") or "\0" in odd else str(site.folder / odd)


def spoil(site: Site, command: str, arguments: list[str], chance: random.Random) -> list[str]:
    """Return the arguments with one thing made wrong, in them or in a file that they name."""
    way = chance.random()
    options = [k for k, part in enumerate(arguments[:-1]) if part in KINDS or part in FILES]
    if way < 0.40 and options:
        at = chance.choice(options)
        option = arguments[at]
        value = chance.choice(KINDS[option]) if option in KINDS else odd_path(site, command, chance)
        return [*arguments[: at + 1], value, *arguments[at + 2 :]]
    if way < 0.52:
        option = chance.choice(sorted(KINDS))
        return [*arguments, option, chance.choice(KINDS[option])]
    if way < 0.57 and options:
        at = chance.choice(options)
        return arguments[:at] + arguments[at + 2 :]
    if way < 0.60:
        return [*arguments, chance.choice(["--nonsense", "extra", "--help=1", "-x", "\x1b[2J"])]
    if way < 0.63 and (command in ("predict", "evaluate", "schema") or command.startswith("ledger")):
        at = 2 if command.startswith("ledger") else 1
        return [*arguments[:at], odd_path(site, command, chance), *arguments[at + 1 :]]
    inputs = sorted(path for path in site.folder.iterdir() if path.is_file() and str(path) in arguments)
    if command in ("predict", "evaluate"):
        inputs.append(site.folder / "saved" / MODEL_FILE)
    if not inputs:
        return arguments
    path = chance.choice(inputs)
    if path.suffix == ".csv" and chance.random() < 0.6:
        edit_cells(path, chance)
    elif path.name == MODEL_FILE and chance.random() < 0.7:
        edit_model(path, chance)
    else:
        path.write_bytes(damaged(path.read_bytes(), chance))
    return arguments


COMMANDS = ["regression", "regression", "classification", "clustering", "hybrid", "predict", "predict", "schema"]
COMMANDS += ["forecast", "rehearse", "evaluate", "cost", "calibrate", "ledger show", "ledger history"]
COMMANDS += ["request", "fit by request", "fit by request", "ledger new", "ledger allow", "ledger page"]


def try_one(template: Path, folder: Path, seed: int, capsys) -> tuple[str, int]:
    """Spoil the input of one command, run it and check everything that must hold; return the command and its code."""
    chance = random.Random(seed)
    shutil.copytree(template, folder)
    site = Site(folder)
    command = COMMANDS[seed % len(COMMANDS)]
    arguments = site.good(command)
    for _ in range(chance.choice([1, 1, 1, 2])):
        arguments = spoil(site, command, arguments, chance)
    inputs = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    ledger = folder / "patients.ledger"

    capsys.readouterr()
    start = time.monotonic()
    code = main(arguments)
    took = time.monotonic() - start
    out, err = capsys.readouterr()

    told = f"seed {seed}: {arguments}\n{out}\n{err}"
    assert code in (0, 1, 2), told
    assert took < SECONDS, told
    shown = out + err
    assert "Traceback" not in shown, told
    assert "flaw in dpadapt" not in shown, told
    # In arguments that name a file of the case, a secret can't occur; in the files that it was given, it may.
    for secret in SECRETS.values():
        assert secret not in shown, told
        for path in folder.rglob("*"):
            if path.is_file() and inputs.get(path) != path.read_bytes():
                assert secret.encode() not in path.read_bytes(), f"{path}: {told}"
    assert all(c == "\n" or c.isprintable() for c in shown), told
    if code == 2:
        assert out == "", told
        assert err.startswith("dpadapt: error: "), told
        assert err.count("\n") == 1, told
        assert ledger.read_bytes() == inputs.get(ledger, b""), told
        assert not (folder / "model" / MODEL_FILE).exists(), told
    elif code == 1:
        assert "spent" in err, told
    return command, code


@pytest.mark.parametrize(
    "seeds", [range(150), pytest.param(range(1000, 2500), marks=pytest.mark.slow)], ids=["150", "1500"]
)
def test_bad_input_is_refused_in_one_line_shows_no_secret_and_spends_nothing(
    template, tmp_path, capsys, seeds, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    counted = {}
    for seed in seeds:
        folder = tmp_path / f"{seed}"
        outcome = try_one(template, folder, seed, capsys)
        counted[outcome] = counted.get(outcome, 0) + 1
        shutil.rmtree(folder)
    # Most input was bad, for every command.
    assert sum(n for (_, code), n in counted.items() if code == 2) > len(seeds) / 2
    assert {command for command, code in counted if code == 2} == set(COMMANDS)
    print(f"{len(seeds)} bad inputs of commands, by exit code: {counted}")
