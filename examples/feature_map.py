"""Source and target with different columns and a known map between them: apply the map to the public rows first.

The public clinic measured in pounds and inches and recorded no body-mass index; the private clinic uses kilograms and
metres and records it. The map is known and the same for every row. Applying it to the public rows is public
preparation: it costs nothing and uses no private row. A map learned from private rows would be a release.
"""

import numpy as np

from dpadapt import Ledger, PrivateTransferRegressor, Public

rng = np.random.default_rng(0)


def clinic(n: int, effect: float) -> tuple[np.ndarray, np.ndarray]:
    """Return weight (kg), height (m), body-mass index, and blood pressure."""
    height = rng.normal(1.7, 0.1, n)
    weight = rng.normal(24.0, 4.0, n) * height**2
    index = weight / height**2
    return np.column_stack([weight, height, index]), 90.0 + effect * index + rng.normal(0.0, 5.0, n)


def to_metric(pounds_inches: np.ndarray) -> np.ndarray:
    """Return public rows in the columns of the private ones, by the known map."""
    weight, height = pounds_inches[:, 0] * 0.4536, pounds_inches[:, 1] * 0.0254
    return np.column_stack([weight, height, weight / height**2])


X, y = clinic(2000, effect=1.5)
metric, y_public = clinic(3000, effect=1.2)
X_public = np.column_stack([metric[:, 0] / 0.4536, metric[:, 1] / 0.0254])

ledger = Ledger(epsilon=3.0, delta=1e-6)  # the most that may ever be spent on X, y
model = PrivateTransferRegressor(epsilon=1.0, delta=1e-6)
model.fit(X, y, public=Public(to_metric(X_public), y_public), ledger=ledger)
X_new, y_new = clinic(1000, effect=1.5)
print(f"R² on new rows of the private clinic: {model.score(X_new, y_new):.2f}")
print(model.privacy_)
