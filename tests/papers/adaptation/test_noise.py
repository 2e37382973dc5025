"""The true cost of the printed noise: Theorem 4.3 is violated, by formula and by audit."""

import math

import numpy as np
import pytest

from dpadapt import Adjacency, PrivacyError, audit
from dpadapt.accounting import epsilon as cost_of
from dpadapt.accounting.cost import gaussian_delta, gaussian_mu
from dpadapt.mechanisms import Gaussian, clipped_sum
from dpadapt.mechanisms.events import GaussianEvent, LaplaceEvent
from dpadapt.papers.adaptation.noise import (
    exact_spending,
    largest_valid_claim,
    paper_claim,
    paper_mu,
    paper_multiplier,
    require_valid_claim,
)

DELTA = 0.01


@pytest.mark.parametrize("n_steps", [1, 15_000])
def test_the_printed_noise_is_one_gaussian_mechanism_whatever_the_number_of_steps(n_steps):
    noise = paper_multiplier(15.0, DELTA, n_steps)
    assert math.sqrt(2 * n_steps) / noise == pytest.approx(paper_mu(15.0, DELTA), rel=1e-12)


def test_theorem_4_3_is_violated_at_epsilon_15():
    # The theorem covers epsilon up to 8 log(1 / delta) = 36.8.
    assert 8 * math.log(1 / DELTA) > 15
    claim = paper_claim(15.0, DELTA)
    assert claim.algorithm_delta == pytest.approx(0.0882, abs=1e-4)
    assert claim.algorithm_delta > 8 * DELTA
    assert claim.algorithm_epsilon == pytest.approx(19.39, abs=0.01)


def two_blocks(noise):
    """One step of the algorithm on a row that moves both blocks as far as Lemma 4.2 allows, in units of that."""
    return audit.MechanismOutputs(
        Gaussian(paper_multiplier(15.0, DELTA, 1) / math.sqrt(2)),
        lambda rows: clipped_sum(rows, math.sqrt(2)),
        seed=0,
        noise=noise,
    )


def test_an_audit_refutes_the_claim_at_epsilon_15():
    worlds = np.array([[1.0, 1.0]]) * (1 - 1e-12), np.zeros((1, 2))
    options = {"delta": DELTA, "runs": 20_000, "confidence": 0.999, "method": "gaussian"}
    bound = audit.lower_bound(two_blocks(1.0), *worlds, **options)
    assert bound.refutes(15.0)
    assert not bound.refutes(paper_claim(15.0, DELTA).algorithm_epsilon)  # the exact cost is not refuted
    # The audit can fail: with the noise that epsilon = 15 needs it finds nothing.
    enough = paper_mu(15.0, DELTA) / gaussian_mu(15.0, DELTA)
    assert not audit.lower_bound(two_blocks(enough), *worlds, **options).refutes(15.0)


def test_for_the_squared_loss_the_claim_fails_only_above_17():
    """Its two sensitivities are not attained by one pair of rows: (dg / 2G)² + (dl / B)² is at most 1.29, not 2."""
    rng = np.random.default_rng(0)
    worst = 0.0
    for reach in (0.05, 1.0, 5.0):
        G, B = 2 * (reach + 1), (reach + 1) ** 2
        x = rng.standard_normal((2, 300_000, 2))
        x *= rng.choice([0.5, 0.9, 1.0], (2, 300_000, 1)) / np.linalg.norm(x, axis=2, keepdims=True)
        y = np.clip(rng.uniform(-1.5, 1.5, (2, 300_000)), -1, 1)
        residual = reach * x[..., 0] - y
        g = 2 * x * residual[..., None]
        moved = ((g[0] - g[1]) ** 2).sum(axis=1) / (2 * G) ** 2 + ((residual[0] ** 2 - residual[1] ** 2) / B) ** 2
        worst = max(worst, float(moved.max()))
    assert 1.2 < worst < 1.287
    at = [gaussian_delta(paper_mu(e, DELTA) * math.sqrt(1.2862 / 2), e) for e in (15.0, 17.0, 18.0, 36.8)]
    assert at[0] < at[1] < DELTA < at[2] < at[3]
    assert at[3] > 0.5


def test_claims_are_refused_exactly_where_they_are_false():
    assert largest_valid_claim(DELTA, share=0.0) == pytest.approx(8.91, abs=0.01)
    assert largest_valid_claim(DELTA) == pytest.approx(19.65, abs=0.02)
    assert require_valid_claim(8.9, DELTA, share=0.0).holds
    for epsilon, share in ((9.0, 0.0), (20.0, 0.5)):
        with pytest.raises(PrivacyError, match=r"Theorem 4.3.*noise='exact'"):
            require_valid_claim(epsilon, DELTA, share=share)


def test_exact_spending_uses_the_budget_and_does_not_pass_it():
    spending = exact_spending(1.0, 0.01, 0.1, Adjacency.REPLACE_ONE)
    events = {LaplaceEvent(1 / spending.discrepancy_epsilon): 1, GaussianEvent(1 / spending.mu): 1}
    spent = cost_of(events, 0.01, adjacency=Adjacency.REPLACE_ONE)
    assert 1 - 1e-5 <= spent <= 1.0
    assert spending.discrepancy_epsilon == pytest.approx(0.1)
    assert exact_spending(2.0, 1e-5, 0.0, Adjacency.REPLACE_ONE).mu == gaussian_mu(2.0, 1e-5)
