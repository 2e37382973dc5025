"""`Device`: one person's side of a survey, and the messages between server and device.

A message is plain JSON, with arrays as bytes. Nothing that arrives is ever run as code.
"""

import base64
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpadapt import checks
from dpadapt.accounting.ledger import Ledger
from dpadapt.disk import sync
from dpadapt.errors import PrivacyError
from dpadapt.hybrid.agents import noisy_bits
from dpadapt.hybrid.questions import Question, question_from
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.randomness import SecureRandom

# The key that marks an array in a message.
_ARRAY_KEY = "array"
# The fields of a reply: the secret name of the request with a bit, or with the type of the error that made the device
# refuse.
_NAME_FIELD, _BIT_FIELD, _REFUSED_FIELD = "name", "bit", "refused"


def pack(message: Mapping[str, Any]) -> bytes:
    """Return numbers, strings, lists, mappings and numeric arrays as bytes; equal messages give equal bytes."""
    return json.dumps(_plain(message), sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def unpack(data: bytes) -> dict[str, Any]:
    """Return the message that `pack` wrote; raise a ValueError for anything else."""
    try:
        message = json.loads(data.decode(), parse_constant=_refuse_constant)
        if not isinstance(message, dict):
            raise ValueError("it is not a mapping")
        return {name: _decoded(value) for name, value in message.items()}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"this is not a message: {error}.") from error


def _plain(value: Any) -> Any:
    """Return `value` as JSON can hold it."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biuf":
            raise TypeError(f"only arrays of numbers can be sent, not {value.dtype}. Use a list.")
        array = np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("<"))
        encoded = base64.b64encode(array.tobytes()).decode()
        return {_ARRAY_KEY: encoded, "dtype": array.dtype.str, "shape": list(value.shape)}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        if _ARRAY_KEY in value:
            raise TypeError(f"a mapping that is sent can't have the key {_ARRAY_KEY!r}.")
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"only numbers, strings, lists, mappings and arrays can be sent, not {type(value).__name__}.")


def _decoded(value: Any) -> Any:
    """Return what `_plain` made into JSON."""
    if isinstance(value, dict):
        if _ARRAY_KEY in value:
            dtype, shape = np.dtype(str(value["dtype"])), [int(size) for size in value["shape"]]
            data = base64.b64decode(value[_ARRAY_KEY], validate=True)
            if dtype.kind not in "biuf" or min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(data):
                raise ValueError("an array does not have its stated size")
            return np.frombuffer(data, dtype=dtype).reshape(shape).copy()
        return {name: _decoded(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    return value


def _refuse_constant(name: str) -> None:
    """Raise an error for NaN, Infinity and -Infinity, which JSON does not have."""
    raise ValueError(f"{name} is not a number")


def request(question: Question, coin: ArrayLike, epsilon: float, name: str) -> bytes:
    """Return the message to one person: the question, the person's coin, the cost, and a unique name."""
    return pack({"question": question.message(), "coin": np.asarray(coin), "epsilon": epsilon, "name": name})


def reply_to(sent: bytes, bit: int | None, error: Exception | None = None) -> dict[str, str | int]:
    """Return the fields of a device's reply: the name of the request, with a bit or with the type of an error."""
    try:
        name = unpack(sent)["name"]
    except (ValueError, KeyError):
        name = ""
    # Only the type of the error: its text may quote the record.
    answer: dict[str, str | int] = {_REFUSED_FIELD: type(error).__name__} if bit is None else {_BIT_FIELD: bit}
    return {_NAME_FIELD: str(name), **answer}


@dataclass(frozen=True)
class Sent:
    """A request that was sent, and the only place where a reply to it is read.

    Nothing in a reply is trusted: its sender may write what it likes into every field, also into those that say who
    sent it and what it replies to. So a reply counts only if it repeats the secret `name` of the request, which nobody
    but the person who was asked has seen. The transport sent the request to `node` as `message`; `Reception` numbers
    the question as `ticket` and the person.
    """

    message: str
    node: int
    ticket: int
    person: int
    name: str = field(repr=False)

    def read(self, message: Any, node: Any, fields: Any) -> tuple[str, int]:
        """Return what a reply is, and its bit: "answer" with -1 or +1; else with 0 "refusal", "malformed", "stranger".

        `message` and `node` are what the reply says that it replies to, and who sent it; `fields` is its content, None
        if that is of another kind.
        """
        # `type` and not `isinstance`: True is an int, and a subclass may compare as it likes.
        if type(message) is not str or type(node) is not int or (message, node) != (self.message, self.node):
            return "stranger", 0
        if type(fields) is not dict or len(fields) != 2:
            return "malformed", 0
        name, bit, refused = (fields.get(key) for key in (_NAME_FIELD, _BIT_FIELD, _REFUSED_FIELD))
        if type(name) is not str:
            return "malformed", 0
        if name != self.name:
            return "stranger", 0
        if type(bit) is int and bit in (-1, 1):
            return "answer", bit
        if type(refused) is str and len(refused) <= 200:  # the name of a type; what is longer is none
            return "refusal", 0
        return "malformed", 0


class Device:
    """One person's device: answers one question, once, with noise of its own, and remembers the answer.

    A repeated request gets the same bit again, so that a lost reply can be requested anew; any other request is
    refused. The device is marked as used before its noise is drawn: after a crash in between it never answers.

    **Privacy.** Protects the person's record (replace-one) with the epsilon of the question it answers, at most
    `epsilon`; delta is 0. If the question fails on the record, the answer is a random bit, so that a refusal reveals
    nothing about the record.

    Parameters
    ----------
    x : array of shape (n_features,)
    y : object
        The label.
    epsilon : float
        The most that this person allows. A question that costs more is refused.
    memory : str or Path
        A file of this person's own: the digest of the request that was answered, its cost, and the answer.

    Examples
    --------
    >>> import tempfile
    >>> from dpadapt.hybrid.questions import LinearHypothesis, LossQuestion
    >>> device = Device([2.0], 1, epsilon=1.0, memory=Path(tempfile.mkdtemp()) / "answered")
    >>> sent = request(LossQuestion(LinearHypothesis([1.0])), 0, 1.0, "first")
    >>> device.answer(sent) == device.answer(sent)
    True
    """

    def __init__(self, x: ArrayLike, y: Any, epsilon: float, memory: str | Path) -> None:
        self._X, self._y = np.asarray(x)[None], np.asarray([y])
        self._epsilon = checks.positive(epsilon, "epsilon")
        # Resolved once: after a change of the working folder the device would not find its mark, and answer again.
        self._memory = Path(memory).resolve()

    def answer(self, sent: bytes) -> int:
        """Return -1 or +1, or refuse by a ValueError or PrivacyError."""
        digest = hashlib.sha256(sent).hexdigest()
        if self._memory.exists():
            return self._remembered(digest)
        question, coins, epsilon = self._read(sent)
        self._memory.parent.mkdir(parents=True, exist_ok=True)
        try:
            # "x": of two processes that get here at once, one creates the file and the other reads it.
            memory = self._memory.open("x", encoding="ascii")
        except FileExistsError:
            return self._remembered(digest)
        with memory:
            # Claim: a device gives at most 1 answer. The file that marks the budget as spent is on disk before noise is
            # drawn.
            # Not proved: a file system that loses the name of a new file in a power failure.
            print(digest, epsilon, file=memory)
            sync(memory)
            ledger = Ledger(epsilon, adjacency=Adjacency.REPLACE_ONE)
            bit = int(noisy_bits(self._value(question, coins), epsilon, ledger, SecureRandom().generator)[0])
            print(bit, file=memory)
        return bit

    def _remembered(self, digest: str) -> int:
        """Return the bit that answered this request; refuse any other request."""
        words = self._memory.read_text(encoding="ascii").split()
        if words[:1] != [digest]:
            raise PrivacyError("this device was asked another question before; each person answers one, once.")
        if len(words) < 3:
            raise PrivacyError("this device was interrupted while it answered; it can't answer any more.")
        return int(words[2])

    def _read(self, sent: bytes) -> tuple[Question, NDArray[np.int64], float]:
        """Return the question, the coin and the cost; refuse by the request alone, never by the record."""
        message = unpack(sent)
        if not {"question", "coin", "epsilon", "name"} <= message.keys() or not isinstance(message["question"], dict):
            raise ValueError("a request must have question, coin, epsilon and name.")
        epsilon = checks.positive(message["epsilon"], "epsilon")
        if epsilon > self._epsilon:
            raise PrivacyError(f"the question costs epsilon={epsilon:.4g}; this person allows {self._epsilon:.4g}.")
        coin = np.asarray(message["coin"])
        if coin.dtype.kind not in "iu" or coin.ndim > 1:
            raise ValueError("coin must be a whole number or a row of them.")
        return question_from(message["question"]), coin.astype(np.int64)[None], epsilon

    def _value(self, question: Question, coins: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the person's value, 0 if the question fails on the record."""
        try:
            with np.errstate(all="ignore"):
                value = np.asarray(question.value(self._X, self._y, coins), dtype=np.float64)
        except Exception:
            # A visible failure would tell the server that this record is one on which the question fails.
            return np.zeros(1)
        return value if value.shape == (1,) else np.zeros(1)
