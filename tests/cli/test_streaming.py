"""`dpadapt fit` on files and folders that are read in chunks: one model and one ledger, wherever the rows are kept."""

import errno
import json
import shutil
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from outcomes import SECRET_NUMBER, SECRET_TEXT, accepted, refused

from dpadapt import Ledger
from dpadapt.inputs import sources as spill
from dpadapt.tables import TableModel
from tests.saved_models import arrays_of, json_of

TASKS = {"regression": "cost", "classification": "ill"}


@pytest.fixture
def site(site):
    """The site without a ledger, and with a schema that names no data set."""
    site.ledger.unlink()
    text = site.schema.read_text().splitlines(keepends=True)
    site.schema.write_text("".join(line for line in text if not line.startswith("dataset")))
    return site


def fit(site, private, **changes):
    """Arguments of a fit that finds its ledger by itself."""
    arguments = site.fit(private=private, **{"seed": 7, **changes})
    at = arguments.index("--ledger")
    return arguments[:at] + arguments[at + 2 :]


def folder_of(site, rows, ending="csv", name="patients", cuts=(0, 7, 17_000, None)):
    folder = site.folder / name
    folder.mkdir()
    for k, (start, end) in enumerate(pairwise(cuts), 1):
        part, path = rows.iloc[start:end], folder / f"part-{k}.{ending}"
        part.to_csv(path, index=False) if ending == "csv" else part.to_parquet(path, index=False)
    return folder


def small_folder(site, name="patients"):
    table = pd.read_csv(site.private, dtype=str)
    table.loc[1, "id"], table.loc[2, "bmi"] = SECRET_TEXT, SECRET_NUMBER
    return folder_of(site, table, name=name, cuts=(0, 200, 400, 600))


def result_of(folder):
    """Return the arrays and the receipt of a fit; what is said about the time and the ledger is left out."""
    receipt = json_of(folder, "receipt.json")
    return arrays_of(folder), {name: value for name, value in receipt.items() if name != "created"}


def assert_same(one, other):
    (arrays, receipt), (others, other_receipt) = one, other
    assert arrays.keys() == others.keys() != set()
    assert all(np.array_equal(arrays[name], others[name], equal_nan=arrays[name].dtype.kind == "f") for name in arrays)
    assert receipt == other_receipt


def nothing_happened(site):
    return not list(site.folder.rglob("*.ledger")) and not site.out.exists()


# One model


@pytest.mark.thorough
@pytest.mark.parametrize("task", TASKS)
def test_files_and_folders_give_the_model_of_the_same_rows_in_memory(run, site, rows, task, monkeypatch):
    changes = {"task": task, "label": TASKS[task], "ledger": None}
    rows.to_csv(site.private, index=False)
    # As before, with all rows in memory.
    with monkeypatch.context() as patch:
        patch.setattr(TableModel, "reads_chunks", False)
        assert run(*site.fit(seed=7, **changes)).code == 0
    whole = result_of(site.out)
    text, parquet = folder_of(site, rows), folder_of(site, rows, "parquet", "columnar")
    for private, memory in [(site.private, None), (text, None), (parquet, None), (parquet, "64MB")]:
        shutil.rmtree(site.out)
        accepted(run(*site.fit(seed=7, private=private, memory=memory, **changes)))
        assert_same(whole, result_of(site.out))


def test_rows_in_the_spill_file_give_the_same_model(run, site, rows, monkeypatch):
    rows.to_csv(site.private, index=False)
    assert run(*site.fit(seed=7, ledger=None)).code == 0
    whole, opened = result_of(site.out), []
    place = spill.Spill._open
    monkeypatch.setattr(spill.Spill, "_open", lambda self: opened.append(place(self)) or opened[-1])
    monkeypatch.setattr("dpadapt.inputs.sources.memory_in_bytes", lambda *_: 0)
    monkeypatch.setattr("dpadapt.inputs.sources._LEAST_MEMORY", 0)
    assert run(*site.fit(seed=7, ledger=None)).code == 0
    assert opened
    assert_same(whole, result_of(site.out))


# Refusals


@pytest.mark.parametrize("memory", ["much", "-1GB", "10MB", "nan", ""])
def test_an_amount_of_memory_that_is_none_is_refused(run, site, memory):
    refused(run(*fit(site, small_folder(site), memory=memory)), "--memory must be")
    assert nothing_happened(site)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"person": "id"}, "for persons or for weights. Give one file"),
        ({"weight": "bmi", "max_weight": 50}, "for persons or for weights. Give one file"),
        ({"method": "subspace", "public": None}, "PrivateSubspaceRegressor"),
        ({"method": "hybrid", "task": "classification", "label": "ill", "public": None}, "PrivateHybridClassifier"),
        ({"task": "clustering", "label": None, "clusters": 3}, "PrivateSourceTargetClustering"),
        ({"epsilon": 0}, "--epsilon"),
    ],
    ids=["person", "weight", "subspace", "hybrid", "clustering", "epsilon"],
)
@pytest.mark.parametrize("given", ["a folder", "--memory"])
def test_what_can_not_be_read_in_chunks_is_refused(run, site, changes, named, given):
    how = {"private": small_folder(site)} if given == "a folder" else {"private": site.private, "memory": "64MB"}
    refused(run(*fit(site, **how, **{"seed": None, **changes})), named)
    assert nothing_happened(site)


@pytest.mark.parametrize("which", ["a file", "the folder"])
def test_a_file_of_the_private_folder_is_refused_as_public(run, site, which):
    folder = small_folder(site)
    public = shutil.copy(folder / "part-2.csv", site.folder / "copy.csv") if which == "a file" else folder
    refused(run(*fit(site, folder, public=public)), "--public", "this is the private file")
    # Nor is the folder that holds the public file.
    shutil.copy(folder / "part-3.csv", site.folder / "census.csv")
    refused(run(*fit(site, site.folder / "census.csv", public=folder)), "--public", "this is the private file")
    assert nothing_happened(site)


@pytest.mark.parametrize("change", ["removed", "cut", "grown"])
def test_a_file_that_changes_while_it_is_read_is_refused(run, site, monkeypatch, change):
    folder = small_folder(site)
    last, encode = folder / "part-3.csv", TableModel.encode_chunks

    def meanwhile(self, chunks, **options):
        if change == "removed":
            last.unlink()
        else:
            text = last.read_text()
            last.write_text(text[: len(text) // 2] if change == "cut" else text + text.splitlines()[-1])
        return encode(self, chunks, **options)

    monkeypatch.setattr(TableModel, "encode_chunks", meanwhile)
    refused(run(*fit(site, folder)), "part-3.csv: the file was changed or removed while it was read")
    assert nothing_happened(site)


def test_a_number_of_rows_that_is_private_is_not_written(run, site):
    folder = small_folder(site)
    outcome = accepted(run(*fit(site, folder, adjacency="add-remove", rows=1000)))
    written = b"".join(path.read_bytes() for path in site.out.iterdir()).decode("latin-1")
    assert "600" not in outcome.out + json_of(site.out, "receipt.json")["assumptions"][0]
    assert "600 private" not in written
    assert SECRET_TEXT not in written + outcome.out
    assert SECRET_NUMBER not in written + outcome.out


# A full disk


def full_disk(monkeypatch, *, after):
    """Keep no row in memory, and fail at a write to a spill file that follows so many others."""
    monkeypatch.setattr("dpadapt.inputs.sources.memory_in_bytes", lambda *_: 0)
    monkeypatch.setattr("dpadapt.inputs.sources._LEAST_MEMORY", 0)
    written, write = [0], spill.os.write

    def limited(descriptor, content):
        written[0] += 1
        if written[0] > after:
            raise OSError(errno.ENOSPC, f"No space left on device: {SECRET_TEXT}")
        return write(descriptor, content)

    # The ledger and the model are written by others.
    monkeypatch.setattr(spill, "os", type("Full", (), {"write": staticmethod(limited)}))


def test_a_disk_that_is_full_while_rows_are_read_spends_nothing(run, site, monkeypatch):
    folder = small_folder(site)
    full_disk(monkeypatch, after=0)
    refused(run(*fit(site, folder)), "error: /", "has no room for the private rows", "TMPDIR")
    assert nothing_happened(site)


@pytest.mark.parametrize("ledger", ["a file", "none"])
def test_a_disk_that_is_full_after_the_charge_is_said_to_have_spent(run, site, monkeypatch, ledger):
    folder = small_folder(site)
    begun, start = [], Ledger.start_all

    def charged(self, *args, **options):
        runs = start(self, *args, **options)
        begun.append(full_disk(monkeypatch, after=0))
        return runs

    monkeypatch.setattr("dpadapt.inputs.sources.memory_in_bytes", lambda *_: 0)
    monkeypatch.setattr("dpadapt.inputs.sources._LEAST_MEMORY", 0)
    monkeypatch.setattr(Ledger, "start_all", charged)
    arguments = site.fit(private=folder, ledger=None) if ledger == "none" else fit(site, folder, seed=None)
    outcome = run(*arguments)
    line, _, receipt = outcome.err.partition("\n")
    assert outcome.code == 1
    assert begun
    for words in ("nothing was written there", "has no room for the private rows", "The budget is spent"):
        assert words in line
    assert SECRET_TEXT not in outcome.err
    if ledger == "none":
        assert json.loads(receipt)["epsilon"] == pytest.approx(1.0, rel=1e-2)
    else:
        assert Ledger.open(site.folder / "patients.ledger").spent() == pytest.approx(1.0, rel=1e-2)


# One ledger


def linear(site, private, **changes):
    return fit(site, private, **{"method": "linear", "public": None, **changes})


def spent(site, name="patients.ledger"):
    return Ledger.open(site.folder / name).n_charges


def test_the_ledger_of_a_folder_lies_beside_it(run, site):
    folder = small_folder(site)
    for k in (1, 2):
        assert run(*linear(site, f"{folder}/")).code == 0
        assert spent(site) == k
    assert [path.relative_to(site.folder).as_posix() for path in site.folder.rglob("*.ledger")] == ["patients.ledger"]
    outcome = run(*linear(site, folder, epsilon=3))
    refused(outcome, "--epsilon 3 is more than what is left")


def test_folders_whose_names_differ_after_a_dot_have_ledgers_of_their_own(run, site):
    for name, ledger in (
        ("patients.2025", "patients.2025"),
        ("patients.2026", "patients.2026"),
        ("spark.parquet", "spark"),
    ):
        new = ["--ledger", site.folder / f"{ledger}.ledger"]
        assert run(*linear(site, small_folder(site, name)), *new).code == 0
        # The next command finds the ledger by the name of the folder.
        assert run(*linear(site, site.folder / name)).code == 0
    assert sorted(path.name for path in site.folder.glob("*.ledger")) == [
        "patients.2025.ledger",
        "patients.2026.ledger",
        "spark.ledger",
    ]


def test_a_file_of_a_folder_is_charged_to_a_ledger_that_is_named_once(run, site):
    folder = small_folder(site)
    assert run(*linear(site, folder)).code == 0
    refused(run(*linear(site, folder / "part-1.csv")), "patients.ledger may be that of its rows", "--ledger")
    named = ["--ledger", site.folder / "patients.ledger"]
    assert run(*linear(site, folder / "part-1.csv"), *named).code == 0
    assert run(*linear(site, folder / "part-1.csv")).code == 0
    # What leads to it from beside the file hinders no fit on the folder.
    assert run(*linear(site, folder)).code == 0
    assert spent(site) == 4


def test_a_folder_is_charged_to_the_ledger_of_its_file_when_that_is_named(run, site):
    folder = small_folder(site)
    assert run(*linear(site, folder / "part-1.csv")).code == 0
    refused(run(*linear(site, folder)), "part-1.ledger may be that of its rows")
    assert run(*linear(site, folder), "--ledger", folder / "part-1.ledger").code == 0
    assert run(*linear(site, folder)).code == 0
    assert spent(site, "patients/part-1.ledger") == spent(site) == 3
