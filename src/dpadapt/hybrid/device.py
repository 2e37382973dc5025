"""The person's side: a value becomes a sign by chance, the sign a noisy bit through a ledger of the person's own."""

import base64
import hashlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpadapt import checks
from dpadapt.accounting.ledger import Ledger
from dpadapt.errors import PrivacyError
from dpadapt.hybrid.questions import Question, question_from
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import responses
from dpadapt.mechanisms.choices import RandomizedResponse
from dpadapt.mechanisms.randomness import SecureRandom

# Messages between server and device: plain JSON, with arrays as bytes. Nothing that arrives is ever run as code.


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


_LABEL = "one bit about the person's own record"


def noisy_bits(values: ArrayLike, epsilon: float, ledger: Ledger, random: np.random.Generator) -> NDArray[np.int8]:
    """Round each person's value to a sign at random, then release the signs by randomized response.

    The mean of a bit is the value over `bit_scale(epsilon)`. The ledger is each person's own: one may stand for many
    people who have answered nothing yet, because all are charged the same.
    """
    held = np.asarray(values, dtype=np.float64)
    held = np.clip(np.where(np.isfinite(held), held, 0.0), -1.0, 1.0)
    # P(up) = (1 + value) / 2: never at -1 and always at 1, because random() lies in [0, 1).
    up = random.random(held.shape) < (1.0 + held) / 2.0
    # A person's record decides that person's entry alone, and an entry is one of two answers: replacing the record
    # changes the probability of either by a factor e^epsilon at most.
    released = ledger.release(RandomizedResponse(epsilon), responses(up, 2), label=_LABEL)
    return np.asarray(2 * released - 1, dtype=np.int8)


def request(question: Question, coin: ArrayLike, epsilon: float, name: str) -> bytes:
    """Return what is sent to one person: the question, the person's coin, the cost, and the question's unique name."""
    return pack({"question": question.message(), "coin": np.asarray(coin), "epsilon": epsilon, "name": name})


class Device:
    """One person's device: answers one question, once, with noise of its own, and remembers what it said.

    Asked the same again it gives the same bit, so that a lost reply can be asked for anew; asked anything else it
    refuses. It counts as used from before its noise is drawn: after a crash in between it never answers.

    Privacy
    -------
    Protects the person's record (replace-one) with the epsilon of the question it answers, at most `epsilon`; delta is
    0. A record that the question fails on is answered for at random, so that a refusal never tells of the record.

    Parameters
    ----------
    x : array of shape (n_features,)
    y : object
        The label.
    epsilon : float
        The most that this person allows. A question that costs more is refused.
    memory : str or Path
        A file of this person's own: which question was answered, at what cost, and the bit that was said.

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
        self._memory = Path(memory)

    def answer(self, sent: bytes) -> int:
        """Return -1 or +1; raise a ValueError or PrivacyError to refuse."""
        digest = hashlib.sha256(sent).hexdigest()
        if self._memory.exists():
            return self._remembered(digest)
        question, coins, epsilon = self._read(sent)
        self._memory.parent.mkdir(parents=True, exist_ok=True)
        try:
            # "x": of two processes that get here at once, one makes the file and the other remembers.
            memory = self._memory.open("x", encoding="ascii")
        except FileExistsError:
            return self._remembered(digest)
        with memory:
            # On disk before noise is drawn: this file is the mark that the budget is gone.
            print(digest, epsilon, file=memory, flush=True)
            os.fsync(memory.fileno())
            ledger = Ledger(epsilon, adjacency=Adjacency.REPLACE_ONE)
            bit = int(noisy_bits(self._value(question, coins), epsilon, ledger, SecureRandom().generator)[0])
            print(bit, file=memory)
        return bit

    def _remembered(self, digest: str) -> int:
        """Return the bit that was said to this question; refuse any other."""
        words = self._memory.read_text(encoding="ascii").split()
        if words[:1] != [digest]:
            raise PrivacyError("this device was asked another question before; each person answers one, once.")
        if len(words) < 3:
            raise PrivacyError("this device was interrupted while it answered; it never will.")
        return int(words[2])

    def _read(self, sent: bytes) -> tuple[Question, NDArray[np.int64], float]:
        """Return the question, the coin and the cost; refuse by what was sent alone, never by the record."""
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
        try:
            with np.errstate(all="ignore"):
                value = np.asarray(question.value(self._X, self._y, coins), dtype=np.float64)
        except Exception:
            # To fail visibly would tell the server that this record is one on which the question fails.
            return np.zeros(1)
        return value if value.shape == (1,) else np.zeros(1)
