"""Public tasks that do not predict the private labels but share a subspace with the private task (paper 4).

The simulation of the paper's Section 5.4: 100 public tasks whose coefficients lie in 5 of 25 dimensions, and a private
task that shares only the subspace with them. The truth is known, so errors can be shown without a release.
"""

import numpy as np

from dpadapt import Ledger, Public
from dpadapt.papers.subspace.solvers import DPAMBSSGD
from dpadapt.representation import PrivateSubspaceRegressor, PublicSubspace, subspace_distance

random = np.random.default_rng(0)
basis = np.linalg.qr(random.standard_normal((25, 5)))[0]
inside = random.standard_normal((101, 5))
coef = inside / np.linalg.norm(inside, axis=1, keepdims=True) @ basis.T  # the last one is that of the private task
tasks = np.arange(5000) % 100
X_public, X = random.standard_normal((5000, 25)), random.standard_normal((1000, 25))
public = Public(X_public, (X_public * coef[tasks]).sum(axis=1) + random.standard_normal(5000), tasks=tasks)
y = X @ coef[-1] + random.standard_normal(1000)
print(f"{len(X_public):,} public rows of 100 tasks, {len(y):,} private rows of another task")

print("\nDistance of the estimated subspace from the true one (sine of the largest angle):")
for method in ("moments", "pairs", "em"):
    learned = PublicSubspace(5, method=method).fit(public)
    print(f"{method:8} {subspace_distance(learned.components_.T, basis):.3f}")
print(f"dimension chosen by cross-validation: {PublicSubspace().fit(public).n_components_}")
print(f"how well the tasks span it: {learned.diversity_}")

print("\nError of the private task's coefficients, whose length is 1:")
budget = {"epsilon": 1.1, "delta": 1e-5}
models = {
    "DP-AMBSSGD on all features": DPAMBSSGD(**budget, adjacency="zero-out"),
    "paper, subspace by moments": DPAMBSSGD(**budget, n_components=5, adjacency="zero-out"),
    "ours, within the subspace": PrivateSubspaceRegressor(**budget, projection="hard"),
    "ours": PrivateSubspaceRegressor(**budget),
}
ledger = Ledger(epsilon=5.0, delta=1e-4)
for name, model in models.items():
    helped = name != "DP-AMBSSGD on all features"
    model.fit(X, y, public=public if helped else None, ledger=ledger)
    print(f"{name:28} {np.linalg.norm(model.coef_ - coef[-1]):.3f}")
print(f"error of ours, predicted from public rows: {np.sqrt(models['ours'].predicted_excess_):.3f}")
print(f"spent by all fits together: epsilon {ledger.spent():.2f} of {ledger.epsilon:g}")
print(models["ours"].privacy_)
