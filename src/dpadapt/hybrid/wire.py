"""Messages between server and device: plain JSON, with arrays as bytes. Nothing that arrives is ever run as code."""

import base64
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

_TAG = "array"


def pack(message: Mapping[str, Any]) -> bytes:
    """Return a message of numbers, strings, lists, mappings and numeric arrays as bytes, always the same ones.

    Examples
    --------
    >>> unpack(pack({"kind": "loss", "coef": np.array([1.0, 2.0])}))["coef"]
    array([1., 2.])
    """
    return json.dumps(_plain(message), sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def unpack(data: bytes) -> dict[str, Any]:
    """Return the message that `pack` wrote; refuse anything else with a ValueError."""
    try:
        message = json.loads(data.decode(), parse_constant=_refuse)
        if not isinstance(message, dict):
            raise ValueError("it is not a mapping")
        return {name: _rich(value) for name, value in message.items()}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"this is not a message: {error}.") from error


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biuf":
            raise TypeError(f"only arrays of numbers can travel, not {value.dtype}. Use a list.")
        held = np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("<"))
        return {_TAG: base64.b64encode(held.tobytes()).decode(), "dtype": held.dtype.str, "shape": list(value.shape)}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        if _TAG in value:
            raise TypeError(f"a mapping that travels can't have the key {_TAG!r}.")
        return {str(name): _plain(held) for name, held in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(held) for held in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"only numbers, strings, lists, mappings and arrays can travel, not {type(value).__name__}.")


def _rich(value: Any) -> Any:
    if isinstance(value, dict):
        if _TAG in value:
            dtype, shape = np.dtype(str(value["dtype"])), [int(size) for size in value["shape"]]
            raw = base64.b64decode(value[_TAG], validate=True)
            if dtype.kind not in "biuf" or min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(raw):
                raise ValueError("an array does not have the size that it says")
            return np.frombuffer(raw, dtype=dtype).reshape(shape).copy()
        return {name: _rich(held) for name, held in value.items()}
    if isinstance(value, list):
        return [_rich(held) for held in value]
    return value


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a number")
