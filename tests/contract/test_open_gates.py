"""The contract where the gate is open: with a shut gate the public model is returned, and nothing else would show.

Public and private rows contradict each other, so that the private correction is adopted.
"""

from functools import partial

import numpy as np
import pytest
from cases import ADJACENCIES, Case, Recipe, made_up
from requirements import (
    no_record_moves_a_release_further_than_its_noise_assumes,
    nothing_depends_on_private_rows_except_through_releases,
    recorded,
)

from dpadapt import PrivateTransferClassifier, PrivateTransferRegressor, Public


def contradicting(rows):
    X, y = made_up(rows, 150, seed=4)
    other = y + 3.0 * X[:, 0] - 2.0 * X[:, 3] + 1.0 if rows == "regression" else (y + (X[:, 3] > 0)) % 3
    return {"public": Public(X, other)}


def case_of(cls, rows):
    return Case(cls, Recipe("open gate", rows, partial(contradicting, rows), {"epsilon": 20.0}))


CASES = [
    case_of(PrivateTransferRegressor, "regression"),
    case_of(PrivateTransferClassifier, "classes"),
]


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_nothing_but_releases_passes_an_open_gate(case, adjacency):
    adopted = recorded(case, adjacency).result.adopted_
    assert adopted > 0.5
    nothing_depends_on_private_rows_except_through_releases(case, adjacency)
    no_record_moves_a_release_further_than_its_noise_assumes(case, adjacency)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_model_behind_an_open_gate_is_not_the_public_one(case):
    model = recorded(case).result
    assert not np.allclose(model.coef_, model.public_model().coef_, rtol=0.1)
