"""Reads and rewrites the file of a saved model, as a careful forger would."""

import io
import json
import zipfile

import numpy as np

from dpadapt.persist import MODEL_FILE


def members(path):
    """Return what the file of a model holds, by name; `path` may be its folder."""
    with zipfile.ZipFile(path / MODEL_FILE if path.is_dir() else path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def json_of(path, name="model.json"):
    return json.loads(members(path)[name])


def arrays_of(path):
    """Return the arrays of a model, by name."""
    parts = {name: content for name, content in members(path).items() if name.endswith(".npy")}
    return {name[len("arrays/") : -len(".npy")]: np.load(io.BytesIO(content)) for name, content in parts.items()}


def rewrite(path, contents):
    """Put other contents (bytes, text, or a value for JSON) in the place of parts of a model; None removes a part."""
    parts = members(path)
    for name, content in contents.items():
        parts[name] = content if isinstance(content, str | bytes | None) else json.dumps(content)
    with zipfile.ZipFile(path / MODEL_FILE if path.is_dir() else path, "w") as archive:
        for name, content in parts.items():
            if content is not None:
                archive.writestr(name, content)
