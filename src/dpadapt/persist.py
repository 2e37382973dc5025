"""Saving fitted models as JSON and plain arrays, and loading them again. Never pickle: loading runs no code.

A model is a folder of three files: `model.json` (method, parameters, small attributes, checksums of the other two),
`arrays.npz` and `receipt.json`. Each is written beside its place and renamed, `model.json` last, so that a folder
that was half written, or mixed from two models, is refused rather than loaded.
"""

import hashlib
import io
import json
import math
import os
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
from dpadapt.methods import METHODS, Method

_MODEL_FORMAT = "dpadapt model 1"


@dataclass(frozen=True)
class Saved:
    """What `load` found.

    Parameters
    ----------
    model : estimator
        Fitted, ready to predict.
    method : Method
        Its row in the table of methods.
    extra : dict
        What was given to `save` beside the model.
    """

    model: Any
    method: Method
    extra: dict[str, Any]


def save(model: Any, folder: str | Path, *, extra: Mapping[str, Any] | None = None) -> None:
    """Write a fitted model to `folder`.

    Parameters
    ----------
    model : estimator
        Of a class in `dpadapt.methods`.
    folder : str or Path
        Made if there is none; an earlier model in it is replaced.
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
    folder = prepare(folder)
    method = method_of(model)
    receipts = {name: value for name, value in _fitted(model).items() if isinstance(value, Receipt)}
    if set(receipts) != {"privacy_"}:
        raise ValueError("model must be fitted and hold its receipt in privacy_. Call fit first.")
    arrays: dict[str, NDArray[Any]] = {}
    plain: dict[str, Any] = {}
    for name, value in _fitted(model).items():
        if isinstance(value, np.ndarray) and value.dtype != object:
            arrays[name] = value
        elif name not in receipts:
            plain[name] = _pack(value, name)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    receipt = model.privacy_.to_json().encode()
    description = {
        "format": _MODEL_FORMAT,
        "version": __version__,
        "method": method.name,
        "class": method.path,
        "params": {name: _pack(value, name) for name, value in model.get_params(deep=False).items()},
        "attributes": plain,
        "checksums": {"arrays.npz": _digest(buffer.getvalue()), "receipt.json": _digest(receipt)},
        "extra": dict(extra or {}),
    }
    write_atomically(folder / "arrays.npz", buffer.getvalue())
    write_atomically(folder / "receipt.json", receipt)
    write_atomically(folder / "model.json", json.dumps(description, indent=2, allow_nan=False).encode())


def load(folder: str | Path) -> Saved:
    """Read a model that `save` wrote.

    Parameters
    ----------
    folder : str or Path

    Returns
    -------
    saved : Saved
        The model, its method, and what was kept beside it.

    Raises
    ------
    ValueError
        If the folder holds no model, one of another version, or files that don't belong together.
    """
    folder = Path(folder)
    description = _read_description(folder)
    # By the name of the class alone: modules may move from one version to another.
    wanted = str(description.get("class")).rpartition(".")[2]
    method = next((method for method in METHODS if method.path.rpartition(".")[2] == wanted), None)
    if method is None:
        raise ValueError(
            f"{folder.name}: the model's method {description.get('method')!r} is not known here. "
            f"Load it with the version of dpadapt that made it: {description.get('version')}."
        )
    try:
        parts = {name: (folder / name).read_bytes() for name in ("arrays.npz", "receipt.json")}
        for name, content in parts.items():
            if _digest(content) != description["checksums"][name]:
                raise ValueError(f"{folder.name}: {name} does not belong to model.json. Make the model again.")
        model = method.estimator(**{name: _unpack(value) for name, value in description["params"].items()})
        fitted = {name: _unpack(value) for name, value in description["attributes"].items()}
        with np.load(io.BytesIO(parts["arrays.npz"]), allow_pickle=False) as arrays:
            fitted.update({name: arrays[name] for name in arrays.files})
        fitted["privacy_"] = Receipt.from_json(parts["receipt.json"].decode())
    except OSError as error:
        raise ValueError(f"{folder.name}: the model is not complete ({error.strerror}). Make it again.") from None
    except (KeyError, TypeError, AttributeError, zipfile.BadZipFile):
        raise ValueError(f"{folder.name}: the model's files are damaged. Make the model again.") from None
    for name, value in fitted.items():
        if not name.endswith("_") or name.startswith("_"):
            raise ValueError(f"{folder.name}: {name!r} is no fitted attribute. The model's files are damaged.")
        setattr(model, name, value)
    return Saved(model, method, description.get("extra", {}))


def method_of(model: Any) -> Method:
    """Return the row of the table of methods that `model` belongs to, if its parameters can be saved."""
    path = f"{type(model).__module__}.{type(model).__qualname__}"
    for method in METHODS:
        if method.path == path:
            for name, value in model.get_params(deep=False).items():
                _pack(value, name)
            return method
    raise TypeError(f"model must be of a class in dpadapt.methods.METHODS, got {type(model).__name__}.")


def prepare(folder: str | Path) -> Path:
    """Make `folder` if there is none and check that files can be written into it."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(
            f"--out {folder}: can't write there ({error.strerror}). Choose a folder you may write to."
        ) from None
    return folder


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    scratch = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files for the owner alone; give the rights that open() would have given.
        mask = os.umask(0)
        os.umask(mask)
        scratch.chmod(0o666 & ~mask)
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def _read_description(folder: Path) -> dict[str, Any]:
    try:
        description = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    except OSError:
        raise ValueError(
            f"{folder}: not a model: there is no readable model.json. Give a folder made by dpadapt fit."
        ) from None
    except ValueError:
        raise ValueError(f"{folder}: model.json is damaged. Make the model again.") from None
    if not isinstance(description, dict) or not str(description.get("format", "")).startswith("dpadapt model "):
        raise ValueError(f"{folder}: not a model of dpadapt. Give a folder made by dpadapt fit.")
    if description["format"] != _MODEL_FORMAT:
        raise ValueError(
            f"{folder}: the model has the format {description['format']!r}, this version reads {_MODEL_FORMAT!r}. "
            f"Load it with dpadapt {description.get('version')}."
        )
    return description


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
    return value


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
