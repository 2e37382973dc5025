"""`PDADPMDMean`: the mean of private rows by mirror descent in the geometry of a public covariance.

Appendix D of "Public Data-Assisted Mirror Descent for Private Model Training", arXiv:2112.00193.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from dpadapt import checks
from dpadapt.accounting.ledger import Ledger
from dpadapt.data import Public
from dpadapt.learning.base import PrivateEstimator
from dpadapt.mechanisms.bounded import clipped_sum
from dpadapt.mechanisms.mechanism import Gaussian, Repeated
from dpadapt.papers.mirror.base import MirrorNoise, noise_multiplier, paper_note

Vector = NDArray[np.float64]

# Share of public gradients that the default clipping norm leaves unclipped. A larger share biases the mean less and
# needs more noise. Chosen by hand.
_UNCLIPPED_SHARE_OF_MEAN = 0.9


class PDADPMDMean(PrivateEstimator):
    """The mean of private rows, with noise shaped by the covariance of public rows.

    Appendix D of [1]_: the loss of a candidate θ is (x - θ)' S⁻¹ (x - θ) / 2, with S the public covariance scaled to
    largest eigenvalue 1, and the public loss is the mirror map. Each step is θ - η S (g + noise), g the mean of clipped
    gradients S⁻¹ (θ - x): noise is small where public rows vary little.

    **Privacy.** Protects one private row (see `adjacency`).
    Releases: clipped gradient sums, `n_steps` of them, Gaussian.
    Costs at most `epsilon`, `delta`; see `privacy_`. Public data is not protected.

    Parameters
    ----------
    {epsilon}
    {delta}
    noise : {"exact", "paper"}, default="exact"
        As in `PDADPMDRegressor`.
    n_steps : int, default=1
        Number of private steps, averaged. One is enough unless the public mean is far off.
    learning_rate : float, default=1.0
        Step length; with 1, the first step goes to the noisy mean.
    clip_norm : float, optional
        Each row's S⁻¹ (θ - x) is scaled down to this length. Default: the 90% quantile of these lengths for public
        rows, each as if left out of S; without public rows, the root mean square length for
        uniform features on [-1, 1].
    ridge : float, optional
        Added to the eigenvalues of the public covariance, in mean eigenvalues. Default: half the columns over the
        public rows.
    {adjacency}
    {n_rows}
    {random_state}

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,)
    clip_norm_ : float
        The clipping norm that was used; from public data if not given.
    n_features_in_ : int
    privacy_ : Receipt
        What was released and what it cost.

    Notes
    -----
    Noise alone adds (clip_norm · noise / n)² tr S² to the expected squared error: the paper's G_Q² in its printed form.
    In exchange the clipping norm must be larger: S⁻¹ (θ - x) is long where S is small, about sqrt(tr S⁻¹). The product
    tr S⁻¹ tr S² is at least p tr S, that of isotropic noise on p features: if both clip at the root mean square length
    of what they clip, noise in this geometry never has less error.

    References
    ----------
    .. [1] Public Data-Assisted Mirror Descent for Private Model Training. 2021. arXiv:2112.00193

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import Public
    >>> from dpadapt.papers.mirror import PDADPMDMean
    >>> rng = np.random.default_rng(7)
    >>> X, X_public = (rng.standard_normal((n, 3)) * [1.0, 0.5, 0.2] + 2.0 for n in (4000, 100))
    >>> model = PDADPMDMean(random_state=0).fit(X, public=Public(X_public))
    >>> bool(np.max(np.abs(model.mean_ - 2.0)) < 0.1)
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        noise: MirrorNoise = "exact",
        n_steps: checks.Count = 1,
        learning_rate: checks.Scale = 1.0,
        clip_norm: checks.Scale | None = None,
        ridge: checks.Penalty | None = None,
        adjacency: str = "zero-out",
        n_rows: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.noise = noise
        self.n_steps = n_steps
        self.learning_rate = learning_rate
        self.clip_norm = clip_norm
        self.ridge = ridge
        self.adjacency = adjacency
        self.n_rows = n_rows
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any = None, *, public: Public | None = None, ledger: Ledger | None = None
    ) -> "PDADPMDMean":
        """Estimate the mean of private `X`.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Private rows.
        y : None
            Ignored.
        public : Public, optional
            Public rows with the same columns.
        {ledger}
        """
        steps, rate = int(self.n_steps), float(self.learning_rate)
        data = self._read_regression(X, None, public, ledger, needs_y=False)
        budget, child = data.budget, data.ledger
        start, shape, default_clip = public_shape(data.X_public, data.n_features, self.ridge)
        clip_norm = default_clip if self.clip_norm is None else float(self.clip_norm)
        multiplier = noise_multiplier(self.noise, self.epsilon, self.delta, steps=steps)
        notes: list[str] = []
        mean = start
        if budget.worthwhile:
            inverse = np.linalg.inv(shape)
            run = child.start(Repeated(Gaussian(multiplier), steps), label="gradient of the mean")
            current, total = start, np.zeros_like(start)
            for _ in range(steps):
                with np.errstate(all="ignore"):
                    gradients = (current - data.X) @ inverse
                gradient = run.release(clipped_sum(gradients, clip_norm)) / budget.n_rows
                current = current - rate * (shape @ gradient)
                total = total + current
            mean = total / steps
            notes = [paper_note(self.epsilon, child.spent())] if self.noise == "paper" else []
        # The receipt first: an interrupted refit must not leave a new mean under an old receipt.
        self.privacy_ = self._receipt(child, budget, [], notes=notes)
        self.clip_norm_ = clip_norm
        self.mean_ = mean
        return self


def public_shape(X: Vector | None, n_features: int, ridge: float | None) -> tuple[Vector, Vector, float]:
    """Return the public mean, the public covariance scaled to largest eigenvalue 1, and the default clipping norm."""
    if X is None:
        # Features are assumed to lie in [-1, 1]; a uniform one has mean square 1/3.
        return np.zeros(n_features), np.eye(n_features), math.sqrt(n_features / 3)
    n, k = X.shape
    mean = X.mean(axis=0)
    away = X - mean
    covariance = away.T @ away / n
    average = float(np.trace(covariance)) / k
    if not average >= checks.SMALLEST**4:
        raise ValueError("the public rows are all alike: they have no covariance. Give rows that vary.")
    covariance[np.diag_indices(k)] += (0.5 * k / n if ridge is None else ridge) * average
    top = float(np.linalg.eigvalsh(covariance)[-1])
    try:
        inner = cho_solve(cho_factor(covariance, lower=True), away.T)
    except np.linalg.LinAlgError:
        raise ValueError(
            "the public covariance is singular: there are fewer public rows than features, or public columns depend on "
            "each other. Give a positive ridge."
        ) from None
    # For a row that is part of the covariance, S⁻¹ (θ - x) is 1 - h times as long as for a new row.
    leverage = np.minimum(np.einsum("ij,ji->i", away, inner) / n, 0.9)
    lengths = top * np.linalg.norm(inner, axis=0) / (1.0 - leverage)
    return mean, covariance / top, float(np.quantile(lengths, _UNCLIPPED_SHARE_OF_MEAN))
