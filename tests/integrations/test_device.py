"""One person's device gives one answer and refuses by the request alone; messages hold plain numbers."""

import contextlib
import math
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy.stats import binomtest

from dpadapt.errors import PrivacyError
from dpadapt.hybrid.questions import LinearHypothesis, LossQuestion
from dpadapt.integrations import device as module
from dpadapt.integrations.device import Device, Sent, pack, reply_to, request, unpack

QUESTION = LossQuestion(LinearHypothesis([1.0, -1.0]))


@pytest.fixture
def quick(monkeypatch):
    """Skip waiting for the disk, so that many devices take little time."""
    monkeypatch.setattr("os.fsync", lambda file: None)


def sent(name="first", *, coin=0, epsilon=1.0, question=QUESTION):
    return request(question, coin, epsilon, name)


def make(folder, *, x=(2.0, 0.0), y=0, epsilon=1.0):
    return Device(x, y, epsilon, folder / "answered")


def test_a_repeated_request_gets_the_same_bit(tmp_path, quick):
    for k in range(20):
        bit = make(tmp_path / str(k)).answer(sent())
        assert bit in (-1, 1)
        assert {make(tmp_path / str(k)).answer(sent()) for _ in range(3)} == {bit}


@pytest.mark.parametrize("other", [{"name": "second"}, {"coin": 1}, {"epsilon": 0.5}])
def test_any_other_request_is_refused(tmp_path, other):
    device = make(tmp_path)
    bit = device.answer(sent())
    with pytest.raises(PrivacyError, match="asked another question before"):
        device.answer(sent(**other))
    assert device.answer(sent()) == bit


def test_after_a_crash_while_answering_the_device_never_answers(tmp_path, monkeypatch):
    def crash(*told):
        assert (tmp_path / "answered").exists()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "noisy_bits", crash)
        with pytest.raises(KeyboardInterrupt):
            make(tmp_path).answer(sent())
    with pytest.raises(PrivacyError, match="interrupted while it answered"):
        make(tmp_path).answer(sent())
    with pytest.raises(PrivacyError, match="asked another question before"):
        make(tmp_path).answer(sent("second"))


def test_a_device_is_marked_as_used_on_disk_before_it_draws(tmp_path, monkeypatch):
    done, noisy, sync = [], module.noisy_bits, os.fsync
    monkeypatch.setattr(module, "noisy_bits", lambda *told: done.append("drawn") or noisy(*told))
    monkeypatch.setattr("os.fsync", lambda file: done.append("on disk") or sync(file))
    make(tmp_path).answer(sent())
    assert done[:2] == ["on disk", "drawn"]


def test_of_several_simultaneous_questions_one_is_answered(tmp_path, quick):
    said, barrier = [], threading.Barrier(8)

    def ask(name):
        barrier.wait()
        with contextlib.suppress(PrivacyError):
            said.append((name, make(tmp_path).answer(sent(name))))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, map(str, range(8))))
    assert len(said) == 1


def test_a_question_that_costs_too_much_is_refused_and_nothing_is_spent(tmp_path):
    device = make(tmp_path, epsilon=0.5)
    with pytest.raises(PrivacyError, match=r"costs epsilon=1; this person allows 0\.5"):
        device.answer(sent())
    assert device.answer(sent(epsilon=0.4)) in (-1, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        b"nonsense",
        pack({"question": QUESTION.message(), "coin": 0, "epsilon": 1.0}),
        pack({"question": "loss", "coin": 0, "epsilon": 1.0, "name": "a"}),
        pack({"question": {"kind": "steal"}, "coin": 0, "epsilon": 1.0, "name": "a"}),
        pack({"question": QUESTION.message(), "coin": 0.5, "epsilon": 1.0, "name": "a"}),
        pack({"question": QUESTION.message(), "coin": [[0]], "epsilon": 1.0, "name": "a"}),
        pack({"question": QUESTION.message(), "coin": 0, "epsilon": -1.0, "name": "a"}),
        pack({"question": QUESTION.message(), "coin": 0, "epsilon": "all", "name": "a"}),
    ],
)
def test_malformed_requests_are_refused_and_nothing_is_spent(tmp_path, wrong):
    device = make(tmp_path)
    with pytest.raises(ValueError):  # which part is wrong differs
        device.answer(wrong)
    assert device.answer(sent()) in (-1, 1)


def plus(folder, n, **record):
    return sum(make(folder / f"{k}", **record).answer(sent()) == 1 for k in range(n))


def test_devices_answer_with_the_claimed_noise(tmp_path, quick):
    truth = math.e / (1 + math.e)
    count = plus(tmp_path, 500)  # predicted 1, labelled 0: the loss is 1
    assert binomtest(count, 500, truth).pvalue > 1e-5
    assert binomtest(count, 500, 1 - (1 - truth) / 2).pvalue < 1e-5  # half the noise


@pytest.mark.parametrize("x", [(2.0,), (math.nan, 0.0), ("not", "numbers")])
def test_a_record_on_which_the_question_fails_gets_a_random_answer(tmp_path, quick, x):
    count = plus(tmp_path, 200, x=x)
    assert 0 < count < 200


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"[1]",
        b"\x80\x04.",
        b'{"a": NaN}',
        b'{"a": {"array": "AAAA", "dtype": "<f8", "shape": [1]}}',
        b'{"a": {"array": "AAAA", "dtype": "|O", "shape": [1]}}',
        b'{"a": {"array": "!!!!", "dtype": "|u1", "shape": [3]}}',
        b'{"a": {"array": "AAAA", "dtype": "|u1", "shape": [-1, -3]}}',
        b'{"a": {"array": "AAAA", "dtype": "|u1"}}',
        b'{"a": {"array": "AAAA", "dtype": "no such", "shape": [3]}}',
        b'{"a":' + b"[" * 100_000,
    ],
)
def test_malformed_messages_are_refused(sent):
    with pytest.raises(ValueError, match="not a message"):
        unpack(sent)


SENT = Sent("m1", 7, 0, 3, "secret")


def test_a_reply_repeats_the_name_of_its_request():
    for bit in (-1, 1):
        assert SENT.read("m1", 7, reply_to(sent("secret"), bit)) == ("answer", bit)
    assert SENT.read("m1", 7, reply_to(sent("secret"), None, PrivacyError("my income is 12345"))) == ("refusal", 0)
    assert reply_to(sent("secret"), None, ValueError("12345")) == {"name": "secret", "refused": "ValueError"}
    assert reply_to(b"no request", None, ValueError()) == {"name": "", "refused": "ValueError"}


@pytest.mark.parametrize("name", ["", "secre", "secret ", "SECRET", "s" * 100_000, "secret\x00"])
def test_a_reply_without_the_name_of_the_request_is_a_strangers(name):
    assert SENT.read("m1", 7, {"name": name, "bit": 1}) == ("stranger", 0)
    assert SENT.read("m1", 7, {"name": name, "refused": "ValueError"}) == ("stranger", 0)


class Agreeable(str):
    """Equal to everything."""

    __slots__ = ()

    def __eq__(self, other):
        return True

    __hash__ = str.__hash__


JUNK = [
    None,
    True,
    1.0,
    math.nan,
    10**5000,
    -(10**5000),
    "²",
    "٣",
    "9" * 5000,
    "-1",
    "",
    "\ud800",
    b"m1",
    [],
    ["m1"],
    {},
    {"m1": 7},
    (1, 2),
    object(),
    np.int64(1),
    np.array([1, -1]),
    Agreeable("other"),
]


@pytest.mark.parametrize("junk", JUNK, ids=range(len(JUNK)))
def test_no_field_of_a_reply_makes_it_more_than_its_senders_own_bit(junk):
    good = {"name": "secret", "bit": 1}
    assert SENT.read(junk, 7, good) == ("stranger", 0)
    assert SENT.read("m1", junk, good) == ("stranger", 0)
    assert SENT.read("m1", 7, junk) == ("malformed", 0)
    assert SENT.read("m1", 7, {**good, "bit": junk}) == ("malformed", 0)
    assert SENT.read("m1", 7, {**good, "name": junk})[0] in ("stranger", "malformed")
    assert SENT.read("m1", 7, {"name": "secret", "more": junk}) == ("malformed", 0)
    assert SENT.read("m1", 7, {**good, "more": junk}) == ("malformed", 0)
    assert SENT.read("m1", 7, {"name": "secret", "refused": junk})[0] in ("refusal", "malformed")


def test_the_secret_name_of_a_request_is_not_shown():
    assert "secret" not in repr(SENT)
