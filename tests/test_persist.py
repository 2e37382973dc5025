"""Models saved as JSON and arrays."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dpadapt import Public, persist
from dpadapt.methods import PREDICTORS, Method

OLD_MODELS = sorted((Path(__file__).parent / "models_of_0_1").iterdir())


def fitted(method: Method, frame: bool = False):
    rng = np.random.default_rng(0)
    X, X_public = rng.uniform(-1, 1, (300, 3)), rng.uniform(-1, 1, (50, 3))
    if frame:
        X, X_public = pd.DataFrame(X, columns=list("abc")), pd.DataFrame(X_public, columns=list("abc"))
    y, y_public = np.asarray(X)[:, 0] * 2, np.asarray(X_public)[:, 0] * 2
    if method.task == "classification":
        y, y_public = np.where(y > 0, "yes", "no"), np.where(y_public > 0, "yes", "no")
    model = method.estimator(epsilon=1.0, delta=1e-6, random_state=0)
    public = {"public": Public(X_public, y_public, tasks=np.arange(50) % 5)} if method.beside == "public" else {}
    return model.fit(X, y, **public), X


@pytest.mark.parametrize("frame", [False, True], ids=["array", "frame"])
@pytest.mark.parametrize("method", PREDICTORS, ids=lambda method: method.name)
def test_every_method_survives_a_round_trip(tmp_path, method, frame):
    model, X = fitted(method, frame)
    persist.save(model, tmp_path / "model", extra={"note": "kept"})
    saved = persist.load(tmp_path / "model")
    assert type(saved.model) is type(model)
    assert saved.method == method
    assert saved.extra == {"note": "kept"}
    assert saved.model.get_params() == model.get_params()
    assert saved.model.privacy_ == model.privacy_
    assert np.array_equal(saved.model.predict(X), model.predict(X))
    assert {name for name in vars(saved.model) if name.endswith("_")} == {n for n in vars(model) if n.endswith("_")}


@pytest.mark.parametrize("method", PREDICTORS, ids=lambda method: method.name)
def test_files_hold_no_pickle_and_strict_json(tmp_path, method):
    model, _ = fitted(method)
    persist.save(model, tmp_path)
    with np.load(tmp_path / "arrays.npz", allow_pickle=False) as arrays:
        assert all(arrays[name].dtype != object for name in arrays.files)
    for name in ("model.json", "receipt.json"):
        json.loads((tmp_path / name).read_text(), parse_constant=pytest.fail)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["arrays.npz", "model.json", "receipt.json"]


@pytest.mark.parametrize(
    "value",
    [None, True, 3, -2.5, float("inf"), "text", [1, "a"], (0.0, 1.0), {"k": [1.0]}, np.float32(0.5), np.int64(3)],
    ids=repr,
)
def test_values_survive_json(value):
    again = persist._unpack(json.loads(json.dumps(persist._pack(value, "x"), allow_nan=False)))
    assert again == value
    assert isinstance(again, tuple) == isinstance(value, tuple)


def test_what_cannot_be_saved_is_refused_before_the_fit():
    model = PREDICTORS[0].estimator(epsilon=object())
    with pytest.raises(TypeError, match="epsilon can't be saved"):
        persist.method_of(model)


def test_an_unfitted_model_and_a_foreign_class_are_refused(tmp_path):
    with pytest.raises(ValueError, match="fitted"):
        persist.save(PREDICTORS[0].estimator(), tmp_path)
    with pytest.raises(TypeError, match="METHODS"):
        persist.save(object(), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def folder(tmp_path):
    persist.save(fitted(PREDICTORS[0])[0], tmp_path)
    return tmp_path


def change(folder, **fields):
    path = folder / "model.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"format": "something"}, "not a model"),
        ({"format": "dpadapt model 99"}, "this version reads"),
        ({"class": "os.system"}, "not known here"),
        ({"class": None}, "not known here"),
        ({"params": {"nonsense": 1}}, "damaged"),
        ({"params": None}, "damaged"),
        ({"attributes": {"predict": 1}}, "no fitted attribute"),
        ({"attributes": {"__class__": 1}}, "no fitted attribute"),
        ({"checksums": {}}, "damaged"),
        ({"checksums": {"arrays.npz": "0", "receipt.json": "0"}}, "does not belong"),
    ],
    ids=str,
)
def test_a_folder_that_is_no_such_model_is_refused(folder, fields, said):
    change(folder, **fields)
    with pytest.raises(ValueError, match=said):
        persist.load(folder)


@pytest.mark.parametrize("name", ["model.json", "arrays.npz", "receipt.json"])
def test_missing_or_damaged_files_are_refused(folder, name):
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"again"):
        persist.load(folder)
    (folder / name).unlink()
    with pytest.raises(ValueError, match=r"again|not a model"):
        persist.load(folder)


def test_files_of_two_models_do_not_mix(folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    persist.save(fitted(PREDICTORS[1])[0], other)
    (folder / "receipt.json").write_bytes((other / "receipt.json").read_bytes())
    with pytest.raises(ValueError, match="does not belong"):
        persist.load(folder)


def test_a_failed_write_leaves_the_old_file_and_no_scraps(tmp_path, monkeypatch):
    path = tmp_path / "file"
    persist.write_atomically(path, b"old")

    def fail(handle):
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        persist.write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("folder", OLD_MODELS, ids=lambda folder: folder.name)
def test_models_of_version_0_1_load_though_their_classes_have_moved(folder):
    saved = persist.load(folder)
    assert saved.model.privacy_.epsilon <= 1.0
    if "centers" in saved.extra:
        assert saved.model.centers_.tolist() == saved.extra["centers"]
    else:
        assert saved.model.predict([[0.5, -0.5], [-0.25, 0.75]]).tolist() == saved.extra["predictions"]


def test_a_saved_model_of_an_unknown_class_is_refused(tmp_path):
    model, _ = fitted(PREDICTORS[0])
    persist.save(model, tmp_path)
    description = json.loads((tmp_path / "model.json").read_text())
    description["class"] = "dpadapt.transfer.regression.Unknown"
    (tmp_path / "model.json").write_text(json.dumps(description))
    with pytest.raises(ValueError, match="not known here"):
        persist.load(tmp_path)
