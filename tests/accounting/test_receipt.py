"""Receipts survive JSON and pickling, and a claimed epsilon that is too low is detected."""

import math
import pickle
from dataclasses import replace

import pytest

from dpadapt.accounting import Ledger, Receipt
from dpadapt.errors import PrivacyError
from dpadapt.mechanisms import (
    Adjacency,
    DiscreteGaussian,
    DiscreteLaplace,
    ExponentialMechanism,
    Gaussian,
    Laplace,
    NonPrivate,
    PermuteAndFlip,
    RandomizedResponse,
)
from dpadapt.mechanisms.mechanism import Repeated, Sampled

PLANS = {
    "Gaussian": [Repeated(Gaussian(20.0), 100)],
    "little noise": [Gaussian(0.05)],
    "Laplace": [Repeated(Laplace(30.0), 20)],
    "pure": [Repeated(RandomizedResponse(0.1), 100)],
    "tiny pure": [Repeated(RandomizedResponse(1e-5), 100)],
    "huge pure": [RandomizedResponse(400.0)],
    "permute and flip": [Repeated(PermuteAndFlip(0.1), 30)],
    "many choices": [Repeated(ExponentialMechanism(0.1), 100)],
    "discrete": [DiscreteGaussian(3.0), DiscreteLaplace(5.0)],
    "sampled": [Sampled(Gaussian(1.0), rate=0.02, steps=200)],
    "sampled Laplace": [Sampled(Laplace(2.0), rate=0.1, steps=5)],
    "mixture": [Repeated(RandomizedResponse(0.1), 10), Gaussian(2.0), Laplace(2.0), ExponentialMechanism(0.3)],
}


def receipt_of(plans, adjacency=Adjacency.ZERO_OUT, delta=1e-6):
    ledger = Ledger(math.inf, delta, adjacency=adjacency)
    ledger.start_all([(plan, "x") for plan in plans])
    return ledger.receipt(assumptions=["the number of rows"], warnings=["none"])


@pytest.mark.parametrize("adjacency", [Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE])
@pytest.mark.parametrize("name", PLANS)
def test_true_receipts_verify_and_too_low_claims_do_not(name, adjacency):
    receipt = receipt_of(PLANS[name], adjacency)
    verification = receipt.verify()
    assert verification.lower <= receipt.epsilon * (1 + 1e-6) + 1e-6
    assert verification.upper >= receipt.epsilon * (1 - 1e-9)
    if name != "tiny pure":  # its optimistic bound is 0 on the grid
        with pytest.raises(PrivacyError, match="but its events cost at least"):
            replace(receipt, epsilon=0.8 * receipt.epsilon).verify()


@pytest.mark.parametrize("name", ["Laplace", "pure", "many choices"])
def test_pure_receipts_verify_at_delta_zero(name):
    receipt = receipt_of(PLANS[name], delta=0.0)
    assert math.isfinite(receipt.verify().lower)
    with pytest.raises(PrivacyError):
        replace(receipt, epsilon=0.99 * receipt.epsilon).verify()


def test_leaks_and_empty_receipts_verify():
    assert receipt_of([]).verify().upper == 0.0
    leak = receipt_of([NonPrivate(), Gaussian(1.0)])
    assert leak.epsilon == leak.verify().lower == math.inf
    with pytest.raises(PrivacyError):
        replace(leak, epsilon=1.0).verify()


@pytest.mark.parametrize("name", PLANS)
def test_receipts_survive_json_and_pickling(name):
    receipt = receipt_of(PLANS[name])
    assert Receipt.from_json(receipt.to_json()) == receipt
    assert pickle.loads(pickle.dumps(receipt)) == receipt


def test_an_infinite_epsilon_survives_json():
    receipt = receipt_of([NonPrivate()])
    assert Receipt.from_json(receipt.to_json()).epsilon == math.inf


def test_a_receipt_says_what_its_epsilon_is():
    ledger = Ledger(1.0, 1e-6)
    assert ledger.receipt().meaning == "nothing was charged"
    ledger.start(Gaussian(10.0), label="a")
    assert ledger.receipt().meaning == "the cost of one plan, fixed before its first release"
    ledger.start(Gaussian(10.0), label="b")
    receipt = ledger.receipt()
    assert "2 charges" in receipt.meaning
    assert "cap of epsilon = 1" in receipt.meaning
    assert Receipt.from_json(receipt.to_json()) == receipt
    assert "if they were fixed in advance" in replace(receipt, charges=0).meaning
