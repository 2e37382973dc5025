"""The contract where the gate is half open: with a shut gate the public model is returned, and nothing else would show.

Public and private rows contradict each other, so that a part of the private correction is adopted. How large a part
depends on everything that the gate is given.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from cases import Case, Recipe, made_up
from requirements import (
    differing,
    fit_of,
    no_record_moves_a_release_further_than_its_noise_assumes,
    nothing_depends_on_private_rows_except_through_releases,
    recorded,
)

from dpadapt import PrivateTransferClassifier, PrivateTransferRegressor, Public, audit
from dpadapt.mechanisms.adjacency import Adjacency


def contradicting(rows, size=1.0):
    X, y = made_up(rows, 150, seed=4)
    shift = size * (3.0 * X[:, 0] - 2.0 * X[:, 3] + 1.0)
    return {"public": Public(X, y + shift if rows == "regression" else (y + (X[:, 3] > 0)) % 3)}


def case_of(cls, rows, epsilon, size=1.0):
    return Case(cls, Recipe("half-open gate", rows, partial(contradicting, rows, size), {"epsilon": epsilon}))


# Budgets and sizes of a shift at which a gate is half open. The regressor corrects the level alone, then also slope and
# mix, then also directions.
CASES = [
    pytest.param(case_of(cls, rows, epsilon, size), adjacency, id=f"{cls.__name__}, {adjacency}, {epsilon:g}")
    for cls, rows, cells in (
        (PrivateTransferRegressor, "regression", ((0.3, 0.1), (0.5, 0.06), (3.0, 0.02))),
        (PrivateTransferClassifier, "classes", ((0.5, 1.0),)),
    )
    for epsilon, size in cells
    for adjacency in ("zero-out", "add-remove", "replace-one")
]


def half_open(case, adjacency):
    """Return the case with twice the epsilon under replace-one, where the sensitivity is twice as large."""
    twice = {"epsilon": case.recipe.params["epsilon"] * (2 if adjacency == "replace-one" else 1)}
    return Case(case.cls, replace(case.recipe, params=twice))


@pytest.mark.parametrize(("case", "adjacency"), CASES)
def test_nothing_but_releases_passes_a_half_open_gate(case, adjacency):
    case = half_open(case, adjacency)
    model = recorded(case, adjacency).result
    assert 0.05 < model.adopted_ < 0.95
    X, _ = case.stranger()
    assert not np.allclose(score(model, X), score(model.public_only(), X), rtol=0.01)
    nothing_depends_on_private_rows_except_through_releases(case, adjacency)
    no_record_moves_a_release_further_than_its_noise_assumes(case, adjacency)


def score(model, X):
    return model.decision_function(X) if hasattr(model, "decision_function") else model.predict(X)


@pytest.mark.parametrize("size", [1e-6, 1e6])
@pytest.mark.parametrize(("case", "adjacency"), [case for case in CASES if "Regressor" in case.id])
def test_the_size_of_private_residuals_passes_only_through_releases(case, adjacency, size):
    """What a gate demands may hardly change with the error of private rows; errors so far apart would still show."""
    case = half_open(case, adjacency)
    X, y = case.stranger()
    played = audit.replay(
        fit_of(case, adjacency), (X, size * y), recorded(case, adjacency), adjacency=Adjacency.of(adjacency)
    )
    assert differing(recorded(case, adjacency).result, played.result) == []
