"""`ProjectedDPSGD`: DP-SGD on all features or along a subspace, the comparison of the paper's Figure 3.

M. Abadi et al., "Deep Learning with Differential Privacy", 2016, as used in Section 5.4 of "On the Benefits of Public
Representations for Private Transfer Learning under Distribution Shift", arXiv:2312.15551.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt import _validate
from dpadapt.accounting.calibrate import calibrate
from dpadapt.accounting.ledger import Ledger
from dpadapt.learning.base import Budget
from dpadapt.learning.descent import gradient_weights
from dpadapt.learning.losses import SquaredLoss
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import clipped_outer_sum
from dpadapt.mechanisms.gaussian import Gaussian
from dpadapt.mechanisms.plan import Plan, Repeated, Sampled
from dpadapt.representation.projected import ProjectedRegressor
from dpadapt.rows import Rows

Vector = NDArray[np.float64]


class ProjectedDPSGD(ProjectedRegressor):
    """Linear regression by DP-SGD: on all features, along a known subspace, or along that of public tasks.

    The baselines of Section 5.4 of [1]_, with its clipping norm, learning rate and number of epochs. The last iterate
    is the solution.

    Privacy
    -------
    Protects one private row (see `adjacency`).
    Releases: clipped gradient sums of Poisson batches, Gaussian.
    Costs at most `epsilon`, `delta`; see `privacy_`. Public data is not protected.

    Parameters
    ----------
    epsilon : float, default=1.0
        Most this fit may spend. Positive.
    delta : float, default=1e-6
        Between 0 and 1, well below 1 / number of rows.
    clip_norm, learning_rate : float, default=0.5 and 0.1
        The paper's, found by a grid search on the private data, which it does not account for.
    n_epochs : int, default=50
    batch_size : int, default=250
        Expected number of rows of a batch; the paper does not say.
    n_components, method, basis
        The subspace, as in `DPAMBSSGD`.
    adjacency : {"zero-out", "add-remove", "replace-one"}, default="zero-out"
        Which data sets count as neighbours.
    n_rows : int, optional
        Under "add-remove" only: a public estimate of the number of rows, used in place of the true one.
    random_state : int, optional
        For tests only: seeds the noise, so that there is no guarantee. Default: secure noise.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float
        0: the paper's model has none.
    n_components_ : int
    n_features_in_ : int
    privacy_ : Receipt
        What was released and what it cost.

    References
    ----------
    .. [1] P. Thaker, A. Setlur, Z. S. Wu, V. Smith. On the Benefits of Public Representations for Private Transfer
       Learning under Distribution Shift. 2023. arXiv:2312.15551

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt.representation import ProjectedDPSGD
    >>> rng = np.random.default_rng(7)
    >>> X = rng.standard_normal((5000, 5))
    >>> y = X @ [1.0, -0.5, 0.0, 0.0, 0.0] + 0.5 * rng.standard_normal(5000)
    >>> model = ProjectedDPSGD(basis=np.eye(5)[:, :2], n_epochs=10, random_state=0).fit(X, y)
    >>> model.privacy_.epsilon <= 1.0
    True
    >>> model.score(X, y) > 0.7
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        clip_norm: float = 0.5,
        learning_rate: float = 0.1,
        n_epochs: int = 50,
        batch_size: int = 250,
        n_components: int | None = None,
        method: str = "moments",
        basis: Any = None,
        adjacency: str = "zero-out",
        n_rows: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.clip_norm = clip_norm
        self.learning_rate = learning_rate
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.n_components = n_components
        self.method = method
        self.basis = basis
        self.adjacency = adjacency
        self.n_rows = n_rows
        self.random_state = random_state

    def _check_parameters(self) -> None:
        _validate.positive(self.clip_norm, "clip_norm")
        _validate.positive(self.learning_rate, "learning_rate")
        _validate.count(self.n_epochs, "n_epochs")

    def _solve(self, ledger: Ledger, rows: Rows, budget: Budget) -> tuple[Vector, list[str]]:
        rate = min(1.0, self.batch_size / budget.n_rows)
        steps = max(1, round(self.n_epochs / rate))
        noise = calibrate(self.epsilon, self.delta, steps=steps, rate=rate, adjacency=Adjacency.of(self.adjacency))
        plan: Plan = Repeated(Gaussian(noise), steps) if rate == 1.0 else Sampled(Gaussian(noise), rate, steps)
        run = ledger.start(plan, label="gradient")
        current = np.zeros(rows.n_columns)
        batches = iter([None] * steps) if rate == 1.0 else run.batches(rows.n_rows)
        for index in batches:
            batch = rows if index is None else rows.take(index)
            weights = gradient_weights(SquaredLoss(), current)
            gradient = run.release(clipped_outer_sum(batch, weights, self.clip_norm)) / (rate * budget.n_rows)
            current = current - self.learning_rate * gradient
        return current, []
