"""The contract where the gate is half open: with a shut gate the public model is returned, and nothing else would show.

Public and private rows contradict each other, so that a part of the private correction is adopted. How large a part
depends on everything that the gate is given.
"""

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


# The epsilon at which a gate is half open.
CASES = [
    pytest.param(case_of(cls, rows, epsilon), adjacency, id=f"{cls.__name__}, {adjacency}")
    for cls, rows, epsilons in (
        (PrivateTransferRegressor, "regression", {"zero-out": 0.3, "add-remove": 0.3, "replace-one": 0.6}),
        (PrivateTransferClassifier, "classes", {"zero-out": 0.5, "add-remove": 0.5, "replace-one": 1.0}),
    )
    for adjacency, epsilon in epsilons.items()
]


@pytest.mark.parametrize(("case", "adjacency"), CASES)
def test_nothing_but_releases_passes_a_half_open_gate(case, adjacency):
    model = recorded(case, adjacency).result
    assert 0.05 < model.adopted_ < 0.95
    assert not np.allclose(model.coef_, model.public_only().coef_, rtol=0.1)
    nothing_depends_on_private_rows_except_through_releases(case, adjacency)
    no_record_moves_a_release_further_than_its_noise_assumes(case, adjacency)


@pytest.mark.parametrize("adjacency", ["zero-out", "add-remove", "replace-one"])
def test_nothing_but_releases_decides_about_the_calibration_where_its_second_moment_is_measured(adjacency):
    """At small budgets the gate assumes a second moment; from a larger one on it uses the release."""
    case = case_of(PrivateTransferRegressor, "regression", 6.0 if adjacency == "replace-one" else 3.0, size=0.1)
    assert 0.5 < recorded(case, adjacency).result.adopted_ < 1.0
    nothing_depends_on_private_rows_except_through_releases(case, adjacency)


@pytest.mark.parametrize("size", [1e-6, 1e6])
@pytest.mark.parametrize(("case", "adjacency"), [case for case in CASES if "Regressor" in case.id])
def test_the_size_of_private_residuals_passes_only_through_releases(case, adjacency, size):
    """What a gate demands may hardly change with the error of private rows; errors so far apart would still show."""
    X, y = case.stranger()
    played = audit.replay(
        fit_of(case, adjacency), (X, size * y), recorded(case, adjacency), adjacency=Adjacency.of(adjacency)
    )
    assert differing(recorded(case, adjacency).result, played.result) == []
