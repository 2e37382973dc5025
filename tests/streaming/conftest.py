"""Rows of three blocks."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from streamed import N_COLUMNS, N_ROWS


@pytest.fixture(scope="session")
def rows():
    """Private and public rows with their labels."""
    random = np.random.default_rng(3)
    X, X_public = random.standard_normal((N_ROWS, N_COLUMNS)), random.standard_normal((200, N_COLUMNS))
    coef = np.array([0.2, 0.6, -1.0, 0.0])
    y = X @ coef + 0.3 + 0.5 * random.standard_normal(N_ROWS)
    return X, y, X_public, X_public @ (coef + 0.3) + 0.5 * random.standard_normal(200)
