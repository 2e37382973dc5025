"""Saving fitted models as JSON and plain arrays, and loading them again. Never pickle: loading runs no code.

A model is one file, a zip archive that any program can open:

`model.json`
    Format and version, method, parameters, small attributes, and what the caller keeps beside the model, such as the
    schema of its table.
`receipt.json`
    What the fit released and what it cost.
`arrays/*.npy`
    The other attributes, one array each; the public models of a transfer and the calibration of its intervals,
    several arrays each.

The file is replaced at one instant: wherever a `save` is interrupted, `load` gives the model before or the new one.
"""

import io
import json
import math
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt import __version__
from dpadapt.accounting.receipt import Receipt
from dpadapt.disk import write_atomically
from dpadapt.methods import METHODS, Method
from dpadapt.tables.model import TableModel
from dpadapt.tables.schema import Schema
from dpadapt.transfer.base import Base
from dpadapt.transfer.intervals import Calibration

# The name of a model's file in a folder.
MODEL_FILE = "model.dpadapt"
_MODEL_FORMAT = "dpadapt model 1"
_ARRAYS, _ARRAY_ENDING = "arrays/", ".npy"
# Columns of a model of tables that are no features: they are kept, so that an evaluation protects the same unit.
_COLUMNS_BESIDE = ("person", "weight")
# Attributes of several arrays each.
_PARTS: dict[str, type[Base] | type[Calibration]] = {"public_base_": Base, "calibration_": Calibration}

# Bytes that `prepare` writes as a trial. More than a model of a thousand columns and its report take, so that a full
# disk is found before a budget is spent.
_TRIAL_BYTES = 2**20


@dataclass(frozen=True)
class Saved:
    """What `load` found: a fitted model, its row in the table of methods, and what `save` got beside the model.

    The model is a `TableModel` if it was saved with the schema of its table.
    """

    model: Any
    method: Method
    extra: dict[str, Any]


def save(model: Any, path: str | Path, *, extra: Mapping[str, Any] | None = None) -> None:
    """Write a fitted model to a file, which an earlier model keeps until the new one is complete.

    Parameters
    ----------
    model : estimator
        Of a class in `dpadapt.methods`, or a `TableModel` of such an estimator, with which its schema is saved.
    path : str or Path
        A file, or a folder, in which the file is named model.dpadapt.
    extra : mapping, optional
        JSON-ready facts to keep beside the model, such as the schema of its table.

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import PrivateLinearRegression
    >>> X = np.linspace(-1, 1, 200)[:, None]
    >>> model = PrivateLinearRegression(random_state=0).fit(X, X[:, 0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(model, folder)
    ...     again = load(folder).model
    >>> np.array_equal(again.predict(X), model.predict(X))
    True
    """
    content = _content(model, extra)
    write_atomically(_file_of(Path(path)), content)


def _file_of(path: Path) -> Path:
    """Return the file of a model that a file or its folder names."""
    return path / MODEL_FILE if path.is_dir() else path


def _content(model: Any, extra: Mapping[str, Any] | None) -> bytes:
    """Return the file of a model; equal models have equal files."""
    if isinstance(model, TableModel):
        if "model_" not in vars(model):
            raise ValueError("model must be fitted and hold its receipt in privacy_. Call fit first.")
        table_facts = {"schema": model.schema.to_dict(), "label": model.label, "task": model.task}
        table_facts |= {name: getattr(model, name) for name in _COLUMNS_BESIDE if getattr(model, name) is not None}
        model, extra = model.model_, {**table_facts, **(extra or {})}
    method = method_of(model)
    receipts = {name: value for name, value in _fitted(model).items() if isinstance(value, Receipt)}
    if set(receipts) != {"privacy_"}:
        raise ValueError("model must be fitted and hold its receipt in privacy_. Call fit first.")
    arrays: dict[str, NDArray[Any]] = {}
    plain: dict[str, Any] = {}
    for name, value in _fitted(model).items():
        if isinstance(value, np.ndarray) and value.dtype != object:
            arrays[name] = value
        elif isinstance(value, Base | Calibration):
            arrays |= {f"{name}/{part}": array for part, array in value.arrays().items()}
        elif name not in receipts:
            plain[name] = _pack(value, name)
    description = {
        "format": _MODEL_FORMAT,
        "version": __version__,
        "method": method.name,
        "class": method.path,
        "params": {name: _pack(value, name) for name, value in model.get_params(deep=False).items()},
        "attributes": plain,
        "extra": dict(extra or {}),
    }
    members = {
        "model.json": json.dumps(description, indent=2, allow_nan=False).encode(),
        "receipt.json": model.privacy_.to_json().encode(),
        **{f"{_ARRAYS}{name}{_ARRAY_ENDING}": _array_file(array) for name, array in arrays.items()},
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, member in members.items():
            archive.writestr(zipfile.ZipInfo(name), member)  # without the time of now
    return buffer.getvalue()


def _array_file(array: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def load(path: str | Path) -> Saved:
    """Read a model that `save` wrote.

    Parameters
    ----------
    path : str or Path
        The model's file, or the folder that holds it.

    Returns
    -------
    saved : Saved
        The model, its method, and what was kept beside it.

    Raises
    ------
    ValueError
        If there is no model, or one of another version, or a damaged one.
    """
    path = Path(path)
    members = _read(path)
    description = _description(path, members)
    # By the name of the class alone, wherever its module is.
    class_name = str(description.get("class")).rpartition(".")[2]
    method = next((method for method in METHODS if method.path.rpartition(".")[2] == class_name), None)
    if method is None:
        raise ValueError(
            f"{path.name}: the model's method {_short(description.get('method'))} is not known here. "
            f"Load it with the version of dpadapt that made it: {_short(description.get('version'))}."
        )
    extra = description.get("extra", {})
    try:
        model = method.estimator(**{name: _unpack(value) for name, value in description["params"].items()})
        fitted = {name: _unpack(value) for name, value in description["attributes"].items()}
        parts: dict[str, dict[str, NDArray[Any]]] = {}
        for member, content in members.items():
            if not member.startswith(_ARRAYS):
                continue
            attribute, slash, part = member[len(_ARRAYS) : -len(_ARRAY_ENDING)].partition("/")
            # Claim: no code of a received model runs. Arrays of objects, which are pickles, are refused.
            array = np.load(io.BytesIO(content), allow_pickle=False)
            if slash:
                parts.setdefault(attribute, {})[part] = array
            else:
                fitted[attribute] = array
        fitted |= {name: _PARTS[name].from_arrays(own) for name, own in parts.items()}
        fitted["privacy_"] = Receipt.from_json(members["receipt.json"].decode())
        # Without the base to which it belongs, a correction would predict alone.
        baseless = "score_coef_" in fitted and "public_base_" not in fitted
        damaged = not isinstance(extra, dict) or baseless
    except Exception:
        # Whatever JSON and arrays can hold may stand where something else is expected; each fails in its own way.
        damaged = True
    if damaged:
        raise ValueError(f"{path.name}: the model is damaged. Make it again.")
    for name, value in fitted.items():
        if not name.endswith("_") or name.startswith("_"):
            raise ValueError(f"{path.name}: {_short(name)} is no fitted attribute. The model is damaged.")
        setattr(model, name, value)
    return Saved(_with_schema(model, extra, path), method, extra)


def _with_schema(model: Any, extra: Mapping[str, Any], path: Path) -> Any:
    """Return a `TableModel` around the model, if a schema was saved with it; else the model."""
    schema, label = extra.get("schema"), extra.get("label")
    if not isinstance(schema, dict) or "columns" not in schema or not isinstance(label, str | None):
        return model
    beside = {name: extra[name] for name in _COLUMNS_BESIDE if isinstance(extra.get(name), str)}
    of_table = TableModel(model, Schema.from_dict(schema, origin=f"{path}, model.json"), label=label, **beside)
    of_table.model_, of_table.notes_ = model, []
    return of_table


def _read(path: Path) -> dict[str, bytes]:
    """Return what a model's file holds, by name; all of it was read at one instant."""
    try:
        with zipfile.ZipFile(_file_of(path)) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    except (OSError, ValueError):  # ValueError: a path that no system has
        raise ValueError(
            f"{path}: not a model: there is no readable {MODEL_FILE}. Give a folder made by dpadapt fit, or a file "
            f"made by dpadapt.save."
        ) from None
    except Exception:  # zipfile has many errors for damaged archives
        pass
    raise ValueError(f"{path}: the model is damaged, or is none. Make it again.")


def method_of(model: Any) -> Method:
    """Return the row of the table of methods that `model` belongs to, if its parameters can be saved."""
    if isinstance(model, TableModel):
        return method_of(vars(model).get("model_", model.estimator))
    path = f"{type(model).__module__}.{type(model).__qualname__}"
    for method in METHODS:
        if method.path == path:
            for name, value in model.get_params(deep=False).items():
                if name == "public_model" and (not isinstance(value, str | None) or _given_model(model)):
                    raise TypeError(
                        "public_model can't be saved as plain data. Keep the fitted estimator by joblib or skops, and "
                        "open such a file only if you trust it."
                    )
                _pack(value, name)
            return method
    raise TypeError(f"model must be of a class in dpadapt.methods.METHODS, got {type(model).__name__}.")


def _given_model(model: Any) -> bool:
    """Return whether a fitted model starts from a public model that the user gave."""
    base = getattr(model, "public_base_", None)
    return isinstance(base, Base) and base.given


def prepare(folder: str | Path, *, name: str = "folder") -> Path:
    """Make `folder` if there is none, and write and rename a file in it as a trial; `name` names it in errors."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        trial = Path(tempfile.mkdtemp(prefix=".trial-", dir=folder))
        try:
            write_atomically(trial / MODEL_FILE, bytes(_TRIAL_BYTES))
        finally:
            shutil.rmtree(trial, ignore_errors=True)
        in_the_way = (folder / MODEL_FILE).is_dir()
    except OSError as error:
        raise ValueError(
            f"{name} {folder}: can't write there ({error.strerror}). Choose a folder you may write to, with room for a "
            f"model."
        ) from None
    if in_the_way:
        raise ValueError(f"{name} {folder}: {MODEL_FILE} is a folder there. Choose another folder.")
    return folder


def _description(path: Path, members: Mapping[str, bytes]) -> dict[str, Any]:
    """Return model.json, parsed."""
    try:
        description = json.loads(members["model.json"].decode())
    except (KeyError, ValueError, RecursionError):
        raise ValueError(f"{path}: the model is damaged, or is none. Make it again.") from None
    form = description.get("format") if isinstance(description, dict) else None
    if not isinstance(form, str) or not form.startswith("dpadapt model "):
        raise ValueError(f"{path}: not a model of dpadapt. Give a folder made by dpadapt fit.")
    if form != _MODEL_FORMAT:
        raise ValueError(
            f"{path}: the model has the format {_short(form)}, this version reads {_MODEL_FORMAT!r}. "
            f"Load it with dpadapt {_short(description.get('version'))}."
        )
    return dict(description)


def _short(value: Any) -> str:
    """Return text from a model's file for a message: one that is no text, or long, is not shown."""
    return repr(value) if isinstance(value, str) and len(value) <= 60 else "(unreadable)"


def _fitted(model: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(model).items() if name.endswith("_") and not name.startswith("_")}


def _pack(value: Any, name: str) -> Any:
    """Return `value` in JSON, with marks where JSON has no such type."""
    match value:
        case np.generic():
            return _pack(value.item(), name)
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"float": repr(value)}
        case tuple():
            return {"tuple": [_pack(item, name) for item in value]}
        case list():
            return [_pack(item, name) for item in value]
        case np.ndarray():
            return {"array": _pack(value.tolist(), name), "dtype": value.dtype.str}
        case dict() if all(isinstance(key, str) for key in value):
            return {"dict": {key: _pack(item, name) for key, item in value.items()}}
        case dict():
            return {"pairs": [[_pack(key, name), _pack(item, name)] for key, item in value.items()]}
    raise TypeError(f"{name} can't be saved: {type(value).__name__} is neither a number, text, list nor array.")


def _unpack(value: Any) -> Any:
    match value:
        case list():
            return [_unpack(item) for item in value]
        case {"float": str(text)}:
            return float(text)
        case {"tuple": list(items)}:
            return tuple(_unpack(item) for item in items)
        case {"array": items, "dtype": str(kind)}:
            return np.array(_unpack(items), dtype=np.dtype(kind))
        case {"dict": dict(items)}:
            return {key: _unpack(item) for key, item in items.items()}
        case {"pairs": list(pairs)}:
            return {_unpack(key): _unpack(item) for key, item in pairs}
    return value
