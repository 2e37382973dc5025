"""Rows of three blocks, and models that read them from everywhere."""

import numpy as np
import pytest

from dpadapt import PrivateTransferClassifier, PrivateTransferRegressor, Public
from dpadapt.rows import BLOCK_ROWS

N_ROWS, N_COLUMNS = 2 * BLOCK_ROWS + 777, 4


@pytest.fixture(scope="session")
def rows():
    """Private and public rows with their labels."""
    random = np.random.default_rng(3)
    X, X_public = random.standard_normal((N_ROWS, N_COLUMNS)), random.standard_normal((200, N_COLUMNS))
    coef = np.array([0.2, 0.6, -1.0, 0.0])
    y = X @ coef + 0.3 + 0.5 * random.standard_normal(N_ROWS)
    return X, y, X_public, X_public @ (coef + 0.3) + 0.5 * random.standard_normal(200)


def regressor(**options):
    return PrivateTransferRegressor(random_state=0, public_model="linear", **options)


def classifier(**options):
    return PrivateTransferClassifier(random_state=0, public_model="linear", **options)


MAKERS = {"regressor": regressor, "classifier": classifier}


def data_of(kind, rows):
    """Return private rows, their labels, and public data for a kind of model."""
    X, y, X_public, y_public = rows
    if kind == "classifier":
        y, y_public = (y > 0).astype(int), (y_public > 0).astype(int)
    return X, y, Public(X_public, y_public)


def assert_same(model, other):
    """Two fits gave the same arrays, bit for bit, and the same receipt."""
    numbers = {name: value for name, value in vars(model).items() if isinstance(value, np.ndarray)}
    assert {"coef_"} <= numbers.keys()
    for name, value in numbers.items():
        assert np.array_equal(value, vars(other)[name], equal_nan=value.dtype.kind == "f"), name
    assert model.privacy_.assumptions == other.privacy_.assumptions
    assert model.privacy_.entries == other.privacy_.entries
    assert model.adopted_ == other.adopted_
