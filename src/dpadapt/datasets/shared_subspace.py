"""Regression tasks whose coefficients share a subspace: the simulation of the public-representations paper.

Sections 5.1 and 5.4 of "On the Benefits of Public Representations for Private Transfer Learning under Distribution
Shift", arXiv:2312.15551.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dpadapt._validate import count, positive
from dpadapt.data import Public

_Vector = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SharedSubspace:
    """Public rows of many tasks, private rows of one more, and the truth.

    Parameters
    ----------
    public : Public
        Labelled, with tasks.
    X, y : ndarray
        Private rows and labels.
    basis : ndarray of shape (n_features, n_components)
        Orthonormal columns that span all coefficients.
    public_coef : ndarray of shape (n_tasks, n_features)
    private_coef : ndarray of shape (n_features,)
    """

    public: Public
    X: _Vector = field(repr=False)
    y: _Vector = field(repr=False)
    basis: _Vector = field(repr=False)
    public_coef: _Vector = field(repr=False)
    private_coef: _Vector = field(repr=False)


def shared_subspace(
    n_public: int,
    n_private: int,
    *,
    n_features: int = 25,
    n_components: int = 5,
    n_tasks: int = 100,
    task_norm: float = 1.0,
    noise: float = 1.0,
    seed: int,
) -> SharedSubspace:
    """Draw public rows of `n_tasks` tasks and private rows of another task of the same subspace.

    Features and noise are Gaussian with mean 0; features have variance 1. Subspace and directions of tasks are uniform.

    Parameters
    ----------
    n_public, n_private : int
        Numbers of rows; public ones over all tasks, as equally as can be.
    n_features, n_components, n_tasks : int
        Defaults: those of Section 5.4.
    task_norm : float, default=1.0
        Length of each task's coefficients; the paper does not say.
    noise : float, default=1.0
        Standard deviation of labels given features.
    seed : int
        Seed of the generator.

    Examples
    --------
    >>> drawn = shared_subspace(500, 200, seed=0)
    >>> drawn.public, drawn.X.shape, drawn.basis.shape
    (Public(labelled, with tasks), (200, 25), (25, 5))
    """
    d, k, t = count(n_features, "n_features"), count(n_components, "n_components"), count(n_tasks, "n_tasks")
    if k > d:
        raise ValueError(f"n_components must be at most n_features, {d}, got {k}.")
    n_public, n_private = count(n_public, "n_public"), count(n_private, "n_private")
    norm, noise = positive(task_norm, "task_norm"), positive(noise, "noise")
    random = np.random.default_rng(count(seed, "seed", least=0))
    basis = np.linalg.qr(random.standard_normal((d, k)))[0]
    inside = random.standard_normal((t + 1, k))
    coef = norm * inside / np.linalg.norm(inside, axis=1, keepdims=True) @ basis.T
    tasks = np.arange(n_public) % t
    X_public, X = random.standard_normal((n_public, d)), random.standard_normal((n_private, d))
    y_public = np.einsum("nd,nd->n", X_public, coef[tasks]) + noise * random.standard_normal(n_public)
    y = X @ coef[t] + noise * random.standard_normal(n_private)
    return SharedSubspace(Public(X_public, y_public, tasks=tasks), X, y, basis, coef[:t], coef[t])
