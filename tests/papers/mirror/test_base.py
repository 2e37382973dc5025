"""The shared fit body: noise, receipts, sensitivity and leaks of all estimators, printed noise, schedule."""

import math

import numpy as np
import pytest

from dpadapt import Ledger, PrivacyError, Public
from dpadapt.papers.mirror.base import first_order_step, paper_noise_multiplier, private_share
from dpadapt.papers.mirror.estimators import PDADPMDClassifier, PDADPMDRegressor
from dpadapt.papers.mirror.mean import PDADPMDMean


def data(estimator, n=600, seed=0, d=5):
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, d)) * np.linspace(1.0, 3.0, d)
    score = X @ np.linspace(1.0, -1.0, d) + random.standard_normal(n)
    return X, score if estimator is PDADPMDRegressor else (score > 0).astype(int)


@pytest.mark.parametrize("estimator", [PDADPMDRegressor, PDADPMDClassifier, PDADPMDMean], ids=lambda e: e.__name__)
def test_the_printed_noise_costs_less_than_it_claims_and_the_receipt_says_so(estimator):
    X, y = data(estimator if estimator is not PDADPMDMean else PDADPMDRegressor, n=4000)
    model = estimator(1.0, 1e-5, noise="paper", n_steps=9, random_state=0).fit(X, y, public=Public(X[:50] + 0, y[:50]))
    assert model.privacy_.epsilon == pytest.approx(0.3563, abs=1e-4)
    event = model.privacy_.entries[0].event
    assert event.noise_multiplier == pytest.approx(math.sqrt(8 * 9 * math.log(1e5)))
    assert any("0.3563" in text for text in model.privacy_.warnings)


def test_the_printed_noise_is_refused_where_its_claim_is_false():
    true_up_to = 8 * math.log(1e5)
    paper_noise_multiplier(true_up_to, 1e-5)
    with pytest.raises(PrivacyError, match="exact"):
        paper_noise_multiplier(1.3 * true_up_to, 1e-5)
    ledger = Ledger(epsilon=1e4, delta=1e-5)
    with pytest.raises(PrivacyError, match="noise='paper'"):
        PDADPMDRegressor(150.0, 1e-5, noise="paper").fit(*data(PDADPMDRegressor), ledger=ledger)
    assert ledger.entries == []


def test_the_share_of_the_private_gradient_never_turns_negative():
    shares = [private_share(t, 50) for t in range(300)]
    assert shares[0] == 1.0
    assert min(shares) == 0.0
    assert all(share == 0.0 for share in shares[50:])
    assert shares[:50] == sorted(shares[:50], reverse=True)


def test_first_order_step_mixes_private_and_public_gradients():
    step = first_order_step(lambda theta: 2 * theta, 0.1, 3)
    share = np.cos(np.pi / 6)
    moved = step(1, np.array([1.0]), np.array([5.0]))
    assert moved == pytest.approx(1.0 - 0.1 * (share * 5.0 + (1 - share) * 2.0))
    assert step(9, np.array([1.0]), np.array([5.0])) == pytest.approx(0.8)
