"""The private part of the transfer classifier: released steps and the gate's release."""

import math
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import log_loss

from dpadapt import Ledger, PrivacyError
from dpadapt.learning.base import Budget
from dpadapt.mechanisms import clipped_sum
from dpadapt.rows import InMemory, Part
from dpadapt.transfer.classification_fit import _varying, private_change
from dpadapt.transfer.classification_plan import make_plan, prepare

random = np.random.default_rng(5)
X, X_PUBLIC = random.standard_normal((4000, 3)), random.standard_normal((300, 3))
CODES = (X @ [2.0, 0.0, -1.0] + random.logistic(size=4000) > 0).astype(np.int64)
CODES_PUBLIC = (X_PUBLIC @ [0.0, 2.0, 1.0] + random.logistic(size=300) > 0).astype(np.int64)


ROWS = InMemory([Part(X[half], CODES[half]) for half in (slice(0, 1500), slice(1500, None))], 4000)


def change(budget, codes_public=CODES_PUBLIC):
    prepared = prepare(X_PUBLIC, codes_public, 2)
    plan = make_plan(prepared, budget, "shifted")
    runs = Ledger(math.inf, 1e-6, random_state=0).start_all(plan.charges)
    found = private_change(plan, runs, prepared, budget, ROWS, fixed_rows=True)
    return prepared, found.change, found.adopted


def loss(prepared, solution):
    coef, intercept = prepared.coordinates.coefficients(solution)
    scores = X @ coef + intercept
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    return log_loss(CODES, odds / odds.sum(axis=1, keepdims=True))


def test_with_hardly_any_noise_the_whole_change_is_adopted_and_reaches_the_private_optimum():
    prepared, moved, fraction = change(Budget(100.0, 4000.0, 1.0))
    assert fraction > 0.95
    best = loss(prepared, prepared.start + moved)
    assert best < 0.8 * loss(prepared, prepared.start)
    for other in (0.8, 1.2):
        assert loss(prepared, prepared.start + other * moved) > best


def test_with_far_too_much_noise_the_gate_stays_shut():
    assert change(Budget(0.002, 4000.0, 1.0))[2] < 0.05


@pytest.mark.parametrize("mu", [0.3, 3.0])
def test_every_charged_release_is_used(mu):
    prepared = prepare(X_PUBLIC, CODES_PUBLIC, 2)
    budget = Budget(mu, 4000.0, 1.0)
    plan = make_plan(prepared, budget, "shifted")
    runs = Ledger(math.inf, 1e-6, random_state=0).start_all(plan.charges)
    private_change(plan, runs, prepared, budget, ROWS, fixed_rows=True)
    for run in runs:
        with pytest.raises(PrivacyError):
            run.release(clipped_sum(X[:, :1], 1.0))


class Fixed:
    """A run whose release does not depend on the rows."""

    def release(self, bounded):
        return np.full(bounded.value.shape, 200.0)


def test_how_much_unseen_columns_vary_depends_on_its_release_alone():
    budget = Budget(10.0, 4000.0, 1.0)
    plan = replace(make_plan(prepare(X_PUBLIC, CODES_PUBLIC, 2), budget, "shifted"), unseen_share=0.1)
    groups = [np.zeros(4000), (np.arange(4000) < 40).astype(float), np.ones(4000)]
    found = [_varying(Fixed(), InMemory([Part(group[:, None], CODES)], 4000), [0], plan, budget) for group in groups]
    # Neither limit of the estimate is reached: there, other releases would give the same.
    assert 0.5 < found[0].item() < 0.6
    assert found[0] == found[1] == found[2]
