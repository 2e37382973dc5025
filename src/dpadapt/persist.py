"""Saving fitted models as JSON and plain arrays, and loading them again. Never pickle: loading runs no code.

A model is a folder of three files:

`model.json`
    Format and version, method, parameters, small attributes, checksums of the other two files, and what the caller
    keeps beside the model, such as the schema of its table.
`arrays.npz`
    The other attributes, one array each; the public models of a transfer and the calibration of its intervals,
    several arrays each.
`receipt.json`
    What the fit released and what it cost.

The folder may hold other files too, such as a report; `save` leaves them alone. After a crash it may hold

`.saved/`
    Those files of a complete model that have not reached their place. They count; files of the same name beside
    this folder are those of the model before.
`.saving-*/`
    An incomplete model. It counts for nothing, and the next `save` removes it.

So `load` gives either the model before or the new one, complete, wherever a `save` was interrupted: the new model is
written whole into `.saving-*`, and one `rename` to `.saved` replaces the model before. A folder that was mixed from
two models in another way is refused.
"""

import errno
import hashlib
import io
import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from dpadapt import __version__
from dpadapt.accounting.receipt import Receipt
from dpadapt.methods import METHODS, Method
from dpadapt.tables.model import TableModel
from dpadapt.tables.schema import Schema
from dpadapt.transfer.base import Base
from dpadapt.transfer.intervals import Calibration

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_MODEL_FORMAT = "dpadapt model 1"
_MODEL_FILES = ("arrays.npz", "receipt.json", "model.json")
_SAVED, _SAVING = ".saved", ".saving-"
# Columns of a model of tables that are no features: they are kept, so that an evaluation protects the same unit.
_COLUMNS_BESIDE = ("person", "weight")
# Attributes of several arrays each.
_PARTS: dict[str, type[Base] | type[Calibration]] = {"public_base_": Base, "calibration_": Calibration}

# Bytes that `prepare` writes as a trial. More than a model of a thousand columns and its report take, so that a full
# disk is found before a budget is spent.
_TRIAL_BYTES = 2**20
# Seconds for which `save` and `load` wait while others save into the same folder; a save takes some milliseconds.
_PATIENCE_WITH_OTHERS = 10.0
# How often, and after how many seconds, `load` reads a folder again whose files don't belong together. Readings during
# which another process saved are not counted, but end after `_PATIENCE_WITH_OTHERS`.
_READINGS, _BETWEEN_READINGS = 3, 0.05


@dataclass(frozen=True)
class Saved:
    """What `load` found.

    Parameters
    ----------
    model : estimator
        Fitted, ready to predict; a `TableModel` if it was saved with the schema of its table.
    method : Method
        The estimator's row in the table of methods.
    extra : dict
        What was given to `save` beside the model.
    """

    model: Any
    method: Method
    extra: dict[str, Any]


def save(model: Any, folder: str | Path, *, extra: Mapping[str, Any] | None = None, stale: Sequence[str] = ()) -> None:
    """Write a fitted model to `folder`.

    An earlier model in the folder is replaced at one instant. If the process is killed before it, `load` gives the
    earlier model; if it is killed after it, `load` gives the new one.

    Parameters
    ----------
    model : estimator
        Of a class in `dpadapt.methods`, or a `TableModel` of such an estimator, with which its schema is saved.
    folder : str or Path
        Made if there is none. The module's documentation says what it holds.
    extra : mapping, optional
        JSON-ready facts to keep beside the model, such as the schema of its table.
    stale : sequence of str
        Names of other files in the folder that describe the earlier model, such as its report. They are removed.

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
    contents = _contents(model, extra)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with _alone_in(folder):
        _finish(folder)
        _remove_leftovers(folder)
        scratch = _scratch_folder(folder)
        try:
            for name, content in contents.items():
                _write(scratch / name, content)
            _sync_folder(scratch)
            # From here on the new model counts. All of it is on the disk.
            os.rename(scratch, folder / _SAVED)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        _sync_folder(folder)
        _finish(folder, stale)


def _contents(model: Any, extra: Mapping[str, Any] | None) -> dict[str, bytes]:
    """Return the files of a model."""
    if isinstance(model, TableModel):
        if "model_" not in vars(model):
            raise ValueError("model must be fitted and hold its receipt in privacy_. Call fit first.")
        known = {"schema": model.schema.to_dict(), "label": model.label, "task": model.task}
        known |= {name: getattr(model, name) for name in _COLUMNS_BESIDE if getattr(model, name) is not None}
        model, extra = model.model_, {**known, **(extra or {})}
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
    return {
        "arrays.npz": buffer.getvalue(),
        "receipt.json": receipt,
        "model.json": json.dumps(description, indent=2, allow_nan=False).encode(),
    }


def _finish(folder: Path, stale: Sequence[str] = ()) -> None:
    """Move the files of a complete model to their places; a killed `save` may have left this to be done."""
    saved = folder / _SAVED
    if not saved.is_dir():
        return
    for name in stale:
        (folder / name).unlink(missing_ok=True)
    for name in _MODEL_FILES:
        with suppress(FileNotFoundError):  # already at its place
            os.replace(saved / name, folder / name)
    _sync_folder(folder)
    saved.rmdir()


def _remove_leftovers(folder: Path) -> None:
    """Remove what killed processes left: incomplete models, and the scratch files of `write_atomically`."""
    for path in folder.glob(f"{_SAVING}*"):
        shutil.rmtree(path, ignore_errors=True)
    for name in (*_MODEL_FILES, "report.html", "chosen.csv"):
        for path in folder.glob(f".{name}.{'[a-z0-9_]' * 8}"):
            path.unlink(missing_ok=True)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Wait until no other process saves into the folder, and keep the others waiting."""
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        end = time.monotonic() + _PATIENCE_WITH_OTHERS
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise TimeoutError(f"another process keeps saving into {folder.name}") from None
                time.sleep(0.01)
            except OSError:  # a file system without locks
                break
        yield
    finally:
        os.close(handle)


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
    description, arrays_file, receipt_file = _read_files(folder)
    # By the name of the class alone: modules may move from one version to another.
    wanted = str(description.get("class")).rpartition(".")[2]
    method = next((method for method in METHODS if method.path.rpartition(".")[2] == wanted), None)
    if method is None:
        raise ValueError(
            f"{folder.name}: the model's method {_short(description.get('method'))} is not known here. "
            f"Load it with the version of dpadapt that made it: {_short(description.get('version'))}."
        )
    extra = description.get("extra", {})
    try:
        model = method.estimator(**{name: _unpack(value) for name, value in description["params"].items()})
        fitted = {name: _unpack(value) for name, value in description["attributes"].items()}
        with np.load(io.BytesIO(arrays_file), allow_pickle=False) as arrays:
            fitted.update({name: arrays[name] for name in arrays.files if "/" not in name})
            parts: dict[str, dict[str, NDArray[Any]]] = {}
            for name in arrays.files:
                attribute, slash, part = name.partition("/")
                if slash:
                    parts.setdefault(attribute, {})[part] = arrays[name]
            fitted |= {name: _PARTS[name].from_arrays(own) for name, own in parts.items()}
        fitted["privacy_"] = Receipt.from_json(receipt_file.decode())
        # Without the base to which it belongs, a correction would predict alone.
        baseless = "score_coef_" in fitted and "public_base_" not in fitted
        damaged = not isinstance(extra, dict) or baseless
    except Exception:
        # Whatever JSON and arrays can hold may stand where something else is expected; each fails in its own way.
        damaged = True
    if damaged:
        raise ValueError(f"{folder.name}: the model's files are damaged. Make the model again.")
    for name, value in fitted.items():
        if not name.endswith("_") or name.startswith("_"):
            raise ValueError(f"{folder.name}: {_short(name)} is no fitted attribute. The model's files are damaged.")
        setattr(model, name, value)
    return Saved(_with_schema(model, extra, folder), method, extra)


def _with_schema(model: Any, extra: Mapping[str, Any], folder: Path) -> Any:
    """Return the model as one of tables, if the schema of its table was saved with it."""
    schema, label = extra.get("schema"), extra.get("label")
    if not isinstance(schema, dict) or "columns" not in schema or not isinstance(label, str | None):
        return model
    beside = {name: extra[name] for name in _COLUMNS_BESIDE if isinstance(extra.get(name), str)}
    of_table = TableModel(model, Schema.from_dict(schema, origin=f"{folder}, model.json"), label=label, **beside)
    of_table.model_, of_table.notes_ = model, []
    return of_table


def _read_files(folder: Path) -> tuple[dict[str, Any], bytes, bytes]:
    """Return model.json, parsed, and the two other files, which belong to it."""
    end, unchanged = time.monotonic() + _PATIENCE_WITH_OTHERS, 0
    while True:
        before = _last_change(folder)
        try:
            description = _read_description(folder)
            parts = []
            for name in ("arrays.npz", "receipt.json"):
                parts.append(_read(folder, name))
                sums = description.get("checksums")
                if not isinstance(sums, dict) or not isinstance(sums.get(name), str):
                    raise ValueError(f"{folder.name}: the model's files are damaged. Make the model again.")
                if _digest(parts[-1]) != sums[name]:
                    raise ValueError(f"{folder.name}: {name} does not belong to model.json. Make the model again.")
            return description, parts[0], parts[1]
        except OSError as error:
            refusal = ValueError(f"{folder.name}: the model is not complete ({error.strerror}). Make it again.")
        except ValueError as error:
            refusal = error
        # No lock: readers must not keep a save waiting, and may lack the right to lock.
        unchanged += _last_change(folder) == before
        if unchanged == _READINGS or time.monotonic() > end:
            raise refusal
        time.sleep(_BETWEEN_READINGS)


def _last_change(folder: Path) -> int | None:
    """Return when a name in the folder was last made, moved or removed; every save does that."""
    with suppress(OSError, ValueError):  # ValueError: a path that no system has
        return folder.stat().st_mtime_ns
    return None


def _read(folder: Path, name: str) -> bytes:
    """Return a file of a model: from the complete model on its way to its place, if it has not arrived."""
    # In this order: a file that arrives in between is then found at its place.
    with suppress(FileNotFoundError, NotADirectoryError):
        return (folder / _SAVED / name).read_bytes()
    return (folder / name).read_bytes()


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
        scratch = _scratch_folder(folder)
        try:
            _write(scratch / "trial", bytes(_TRIAL_BYTES))
            os.replace(scratch / "trial", scratch / "renamed")
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        in_the_way = [file for file in _MODEL_FILES if (folder / file).is_dir()]
    except OSError as error:
        raise ValueError(
            f"{name} {folder}: can't write there ({error.strerror}). Choose a folder you may write to, with room for a "
            f"model."
        ) from None
    if in_the_way:
        raise ValueError(f"{name} {folder}: {in_the_way[0]} is a folder there. Choose another folder.")
    return folder


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, as `atomic_file` does."""
    with atomic_file(path) as file:
        file.write(content)


@contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file to write that takes its place when the block ends, and leaves nothing behind if the block fails.

    A terminal or another device, such as /dev/stdout or /dev/null, is written to; a file in its place would break it.
    """
    if path.is_char_device():
        with path.open("wb") as file:
            yield file
        return
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    scratch = Path(name)
    try:
        with scratch.open("wb") as file:
            yield file
            _sync(file)
        # mkstemp makes files for the owner alone; give the rights that open() would have given.
        scratch.chmod(0o666 & ~_umask())
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)


def _scratch_folder(folder: Path) -> Path:
    scratch = Path(tempfile.mkdtemp(prefix=_SAVING, dir=folder))
    # mkdtemp makes folders for the owner alone; give the rights that mkdir() would have given.
    scratch.chmod(0o777 & ~_umask())
    return scratch


def _write(path: Path, content: bytes) -> None:
    """Write a file through to the disk."""
    with path.open("wb") as file:
        file.write(content)
        _sync(file)


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Write the names in a folder through to the disk, where the system can."""
    with suppress(PermissionError):  # Windows opens no folders
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _read_description(folder: Path) -> dict[str, Any]:
    try:
        content = _read(folder, "model.json")
    except (OSError, ValueError):  # ValueError: a path that no system has
        raise ValueError(
            f"{folder}: not a model: there is no readable model.json. Give a folder made by dpadapt fit."
        ) from None
    try:
        description = json.loads(content.decode())
    except (ValueError, RecursionError):
        raise ValueError(f"{folder}: model.json is damaged. Make the model again.") from None
    form = description.get("format") if isinstance(description, dict) else None
    if not isinstance(form, str) or not form.startswith("dpadapt model "):
        raise ValueError(f"{folder}: not a model of dpadapt. Give a folder made by dpadapt fit.")
    if form != _MODEL_FORMAT:
        raise ValueError(
            f"{folder}: the model has the format {_short(form)}, this version reads {_MODEL_FORMAT!r}. "
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


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
