"""The paper's private solver of linear regression in a subspace, `DPAMBSSGD`.

It is the algorithm of P. Varshney, A. Thakurta, P. Jain, "(Nearly) Optimal Private Linear Regression via
Adaptive Clipping", COLT 2022, as used in step 3 of Algorithm 1 and in Theorem A.3 of "On the Benefits of Public
Representations for Private Transfer Learning under Distribution Shift", arXiv:2312.15551.
"""

import math
from functools import partial
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from dpadapt import checks
from dpadapt.accounting.calibrate import calibrate
from dpadapt.accounting.cost import epsilon as cost_of
from dpadapt.accounting.ledger import Ledger
from dpadapt.data import Public
from dpadapt.errors import PrivacyError
from dpadapt.learning.base import Budget, PrivateEstimator
from dpadapt.learning.descent import released_gradient
from dpadapt.learning.losses import SquaredLoss
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import Bounded, added, histogram
from dpadapt.mechanisms.events import GaussianEvent, SampledEvent
from dpadapt.mechanisms.mechanism import Gaussian, Sampled
from dpadapt.representation.subspace import SUBSPACE_METHODS, PublicSubspace, basis_assumptions, checked_basis
from dpadapt.rows import Blocks, Part, Rows, products_by_row, row_products, rows_by_block

Vector = NDArray[np.float64]

_NOISES = ("exact", "paper")
# Residuals are counted in bins whose upper edges are powers of 2, from 2^-8 to 2^8. Smaller residuals count in the
# first bin and larger ones in the last. A wider range suits more scales of the target; more bins drown in noise
# earlier. Chosen by hand.
_LOWEST_BIN, _HIGHEST_BIN = -8, 8


class ProjectedRegressor(RegressorMixin, PrivateEstimator):  # type: ignore[misc]
    """Base: private regression without intercept on rows projected on a given subspace, a public one, or not at all."""

    _streams = True

    n_components: int | None
    method: str
    basis: Any
    batch_size: int

    def fit(self, X: Any, y: Any = None, *, public: Public | None = None, ledger: Ledger | None = None) -> Any:
        """Fit on private `X`, `y`.

        Parameters
        ----------
        {private X}
        {private target}
        public : Public, optional
            Public data with the same columns, with labels and tasks, to learn the subspace from.
        {ledger}
        """
        data = self._read_regression(X, y, public, ledger)
        basis = self._subspace(public, data.n_features)
        solution: Vector = np.zeros(basis.shape[1])
        notes: list[str] = []
        if data.budget.worthwhile:
            rows = data.rows.map(partial(_projected, basis=basis, fixed_rows=data.fixed_rows))
            solution, notes = self._solve(data.ledger, rows, basis.shape[1], data.budget)
        # The receipt first: an interrupted refit must not leave new coefficients under an old receipt.
        assumed = ["rows and target are of about unit variance", *basis_assumptions(self.basis)]
        self.privacy_ = self._receipt(data.ledger, data.budget, assumed, notes=notes)
        self.n_components_ = basis.shape[1]
        self.coef_, self.intercept_ = basis @ solution, 0.0
        return self

    def _subspace(self, public: Public | None, n_features: int) -> Vector:
        """Return orthonormal columns: `basis`, else the subspace of public tasks, else all features."""
        if self.basis is not None:
            return checked_basis(self.basis, n_features)
        if public is None:
            return np.eye(n_features)
        # Neither whitening nor intercepts, as in the paper's model.
        learned = PublicSubspace(self.n_components, method=self.method, whiten=False, fit_intercept=False)
        return np.asarray(learned.fit(public).components_.T)

    def _solve(self, ledger: Ledger, rows: Blocks[Rows], k: int, budget: Budget) -> tuple[Vector, list[str]]:
        """Return the `k` coefficients along the subspace, and notes for the receipt."""
        raise NotImplementedError

    def predict(self, X: Any) -> Vector:
        """Return predictions for rows of `X`."""
        return self._scores(X)


class DPAMBSSGD(ProjectedRegressor):
    """Linear regression by one private pass of stochastic gradient descent with adaptive clipping.

    In each step one batch releases a histogram of the sizes of its residuals, which sets the clipping norm; a second
    batch then releases its clipped gradient. On average every row takes part once in each kind of release. The last
    half of the iterates is averaged. With public tasks this is Algorithm 1 of [1]_ as printed: subspace by moments,
    projection, DP-AMBSSGD.

    **Privacy.** Protects one private row (see `adjacency`).
    Releases: histograms of residuals and clipped gradient sums of Poisson batches, Gaussian.
    Costs at most `epsilon`, `delta`; see `privacy_`. Public data is not protected.

    Parameters
    ----------
    {epsilon}
    {delta}
    noise : {"exact", "paper"}, default="exact"
        "exact" adds the least Gaussian noise that the budget allows. "paper" adds the noise of Theorem A.3, with noise
        multiplier sqrt(8 ln(1/δ)) / ε per release; the receipt then shows its true cost.
    batch_size : int, default=250
        Expected number of rows of a batch; the paper does not give one.
    learning_rate : float, optional
        Default: 1 / (4 k) for k coordinates, as in Theorem A.3.
    n_components, method, basis
        The subspace, as in `PrivateSubspaceRegressor`; by default estimated by "moments", as in the paper. Without
        `basis` and public tasks all features are used.
    adjacency : {"replace-one", "zero-out", "add-remove"}, default="replace-one"
        Which data sets are neighbours; in the paper one row is replaced.
    {n_rows}
    {random_state}

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float
        0: the paper's model has no intercept.
    n_components_ : int
    n_features_in_ : int
    privacy_ : Receipt
        What was released and what it cost.

    Notes
    -----
    Written from the description; the authors' code is not public. Rows are assumed to have second moment about 1. The
    clipping norm is twice the upper edge of the fullest bin of residuals, times sqrt(k), the typical length of a row.

    The paper splits the rows into disjoint batches, each used once. Here batches are Poisson samples of the same
    expected size and number: the ledger can account for them, and the same noise then costs less.

    References
    ----------
    .. [1] P. Thaker, A. Setlur, Z. S. Wu, V. Smith. On the Benefits of Public Representations for Private Transfer
       Learning under Distribution Shift. 2023. arXiv:2312.15551

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt.papers.subspace import DPAMBSSGD
    >>> rng = np.random.default_rng(7)
    >>> X = rng.standard_normal((5000, 2))
    >>> y = X @ [1.0, -0.5] + 0.5 * rng.standard_normal(5000)
    >>> model = DPAMBSSGD(learning_rate=0.5, random_state=0).fit(X, y)
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
        noise: Annotated[str, checks.choice(*_NOISES)] = "exact",
        batch_size: checks.Count = 250,
        learning_rate: checks.Scale | None = None,
        n_components: checks.Count | None = None,
        method: Annotated[str, checks.choice(*SUBSPACE_METHODS)] = "moments",
        basis: Any = None,
        adjacency: str = "replace-one",
        n_rows: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.noise = noise
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.n_components = n_components
        self.method = method
        self.basis = basis
        self.adjacency = adjacency
        self.n_rows = n_rows
        self.random_state = random_state

    def _solve(self, ledger: Ledger, rows: Blocks[Rows], k: int, budget: Budget) -> tuple[Vector, list[str]]:
        steps = max(2, round(budget.n_rows / self.batch_size))
        plan = Sampled(Gaussian(self._multiplier(steps)), 1.0 / steps, steps)
        sizes, gradients = ledger.start_all([(plan, "sizes of residuals"), (plan, "gradient")])
        length = 1.0 / (4 * k) if self.learning_rate is None else float(self.learning_rate)
        expected = budget.n_rows / steps
        current, total = np.zeros(k), np.zeros(k)
        pairs = zip(sizes.batches(rows.n_rows), gradients.batches(rows.n_rows), strict=True)
        for t, (first, second) in enumerate(pairs):
            counts = sizes.release(first.of(partial(_batch_sizes, rows, current)))
            # Most residuals of a bell-shaped distribution are below twice the upper edge of the fullest bin.
            clip_norm = 2 * math.sqrt(k) * 2.0 ** (int(np.argmax(counts)) + _LOWEST_BIN)
            gradient = released_gradient(gradients, rows, SquaredLoss(), current, clip_norm, expected, batch=second)
            current = current - length * gradient
            if t >= steps // 2:
                total += current
        notes = []
        if self.noise == "paper":
            notes.append(
                f"the paper's noise was used, which claims epsilon = {self.epsilon:.4g}; exact accounting finds "
                f"{ledger.spent():.4g}"
            )
        return total / (steps - steps // 2), notes

    def _multiplier(self, steps: int) -> float:
        """Return the noise multiplier of each release."""
        adjacency = Adjacency.of(self.adjacency)
        if self.noise == "exact":
            # Histograms and gradients have the same noise multiplier: 2 * steps releases.
            return calibrate(self.epsilon, self.delta, steps=2 * steps, rate=1.0 / steps, adjacency=adjacency)
        printed = math.sqrt(8 * math.log(1 / self.delta)) / self.epsilon
        event = SampledEvent(GaussianEvent(printed), 1.0 / steps)
        true_cost = cost_of({event: 2 * steps}, self.delta, adjacency=adjacency)
        if true_cost > self.epsilon:
            raise PrivacyError(
                f"noise='paper' claims epsilon={self.epsilon:.4g}, but that noise costs {true_cost:.4g} at "
                f"delta={self.delta:.3g}. Use noise='exact'."
            )
        return printed


def _projected(part: Part, *, basis: Vector, fixed_rows: bool) -> Rows:
    """Return rows in the coordinates of the subspace."""
    with np.errstate(all="ignore"):
        Z = np.asarray(row_products(part.X, basis, fixed_rows=fixed_rows), dtype=np.float64)
    return Rows(Z, part.y, shares=part.shares, fixed_rows=fixed_rows)


def _batch_sizes(rows: Blocks[Rows], solution: Vector, index: Any) -> Bounded:
    """Return the `_residual_sizes` of the rows at `index`."""
    # Each row is in one block.
    return added(rows.results(partial(_residual_sizes, solution=solution), rows_by_block(index, rows.n_rows)))


def _residual_sizes(rows: Rows, index: Any, *, solution: Vector) -> Bounded:
    """Return how many residuals of the rows at `index` lie in each bin; rows that are not finite are not counted."""
    rows = rows.take(index)
    with np.errstate(all="ignore"):
        # Row by row: on samples of another size, rows would change their bins by rounding alone.
        sizes = np.abs(rows.y - products_by_row(rows.X, solution))
        exponents = np.ceil(np.log2(np.maximum(sizes, 2.0**_LOWEST_BIN)))
        codes = np.clip(exponents, _LOWEST_BIN, _HIGHEST_BIN) - _LOWEST_BIN
    codes = np.where(np.isfinite(sizes) & np.isfinite(rows.norms), codes, -1.0)
    return histogram(codes, _HIGHEST_BIN - _LOWEST_BIN + 1, rows.shares)
