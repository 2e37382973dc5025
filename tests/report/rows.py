"""Made-up public rows, and private ones whose labels follow the public rule or have moved from it."""

import numpy as np
import pytest

from dpadapt import PrivateTransferClassifier, PrivateTransferRegressor

random = np.random.default_rng(3)
X = random.uniform(-1, 1, (4000, 3))
X_public = random.uniform(-1, 1, (300, 3))
y_public = X_public @ [1.0, 0.5, -1.0] + 0.3 * random.standard_normal(300)
y = X @ [1.0, 0.5, -1.0] + 0.3 * random.standard_normal(4000)
moved = X @ [1.0, -2.0, -1.0] + 0.3 * random.standard_normal(4000)

CASES = {
    "regression": (PrivateTransferRegressor(random_state=0), y_public, y, moved),
    "classification": (PrivateTransferClassifier(random_state=0), y_public > 0, y > 0, moved > 0),
}
TASKS = pytest.mark.parametrize("task", CASES)
