"""The paper's linear probe, `DescentProbe`, which `PrivateProbe` is compared with.

It trains a linear head by DP-SGD with momentum and a cosine schedule, as in Section 4.2 of "On the Benefits of Public
Representations for Private Transfer Learning under Distribution Shift", arXiv:2312.15551.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from dpadapt import checks
from dpadapt.accounting.calibrate import calibrate
from dpadapt.accounting.ledger import Ledger, Run
from dpadapt.data import Public
from dpadapt.learning.base import Budget, LinearClassifier
from dpadapt.learning.descent import released_gradient
from dpadapt.learning.losses import SoftmaxLoss
from dpadapt.learning.scaling import WHITENING_FLOOR
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.mechanism import Gaussian, Plan, Repeated, Sampled
from dpadapt.rows import Blocks, Part, Rows, row_products

ROWS = ("unit", "whitened")


@dataclass(frozen=True, eq=False)
class ProbeRows:
    """How rows are transformed: centred on public rows, then scaled to unit length or whitened; each row by itself.

    Parameters
    ----------
    center : ndarray of shape (n_features,)
    basis : ndarray of shape (n_features, k) or None
        Whitening map; None for rows of unit length.
    typical_norm : float
        Median length of a transformed public row, its constant 1 included.
    """

    center: NDArray[np.float64]
    basis: NDArray[np.float64] | None
    typical_norm: float

    def transform(self, X: NDArray[Any], *, fixed_rows: bool = True) -> NDArray[np.float64]:
        """Return transformed rows; a row that overflows becomes non-finite, without a warning."""
        with np.errstate(all="ignore"):
            rows = np.asarray(X, dtype=np.float64) - self.center
            if self.basis is not None:
                return row_products(rows, self.basis, fixed_rows=fixed_rows)
            return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30))

    def private_rows(self, part: Part, *, fixed_rows: bool) -> Rows:
        """Return private rows, transformed, each with the constant 1."""
        Z = self.transform(part.X, fixed_rows=fixed_rows)
        return Rows(Z, part.y, intercept=True, shares=part.shares, fixed_rows=fixed_rows)


def probe_rows(X_public: NDArray[np.float64] | None, n_features: int, rows: str) -> ProbeRows:
    """Return the transformation of rows. Without public rows the centre is 0, and whitening is refused."""
    if X_public is None:
        if rows == "whitened":
            raise ValueError("rows='whitened' needs public rows. Give public=, or rows='unit'.")
        return ProbeRows(np.zeros(n_features), None, np.sqrt(2.0))
    center = X_public.mean(axis=0)
    if rows == "unit":
        return ProbeRows(center, None, np.sqrt(2.0))
    values, vectors = np.linalg.eigh((X_public - center).T @ (X_public - center) / len(X_public))
    values = np.maximum(values, 0.0)
    basis = vectors / np.sqrt(values + WHITENING_FLOOR * max(float(values.mean()), 1e-300))
    lengths = np.linalg.norm((X_public - center) @ basis, axis=1)
    return ProbeRows(center, basis, float(np.sqrt(np.median(lengths) ** 2 + 1.0)))


class DescentProbe(LinearClassifier):
    """A linear head on given features, trained by private gradient steps with momentum: a baseline.

    With rows of unit length and Poisson batches this is DP-SGD as in Section 4.2 of [1]_. With whitened rows and full
    batches it is the strongest simple baseline that we know. Both need a learning rate; `PrivateProbe` needs none.

    **Privacy.** Protects one private row (see `adjacency`).
    Releases: clipped gradient sums, `n_steps` of them, Gaussian.
    Costs at most `epsilon`, `delta`; see `privacy_`. Public data is not protected.

    Parameters
    ----------
    {epsilon}
    {delta}
    rows : {"unit", "whitened"}, default="unit"
        Whether rows are scaled to unit length, or whitened by public rows. In both cases they are centred on public
        rows first.
    n_steps : int, default=100
    batch_size : int, optional
        Expected size of a Poisson batch. Default: all rows in every step.
    learning_rate : float, default=1.0
        Initial learning rate; it falls to zero along a cosine.
    momentum : float, default=0.9
        At least 0 and below 1.
    clip_norm : float, optional
        Clipping norm of a row's gradient. Default: the gradient norm of a public row of median length whose residual is
        half as long as it can be.
    {classes}
    {adjacency}
    {n_rows}
    {random_state}

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, k)
        Coefficients of rows transformed according to `rows`.
    intercept_ : ndarray of shape (n_classes,)
    classes_ : ndarray of shape (n_classes,)
    n_features_in_ : int
    privacy_ : Receipt

    Notes
    -----
    Public labels are used only as the list of classes.

    References
    ----------
    .. [1] P. Thaker, A. Setlur, Z. S. Wu, V. Smith. On the Benefits of Public Representations for Private Transfer
       Learning under Distribution Shift. 2023. arXiv:2312.15551

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import Public
    >>> from dpadapt.papers.subspace import DescentProbe
    >>> rng = np.random.default_rng(7)
    >>> X, X_public = rng.normal(size=(2000, 3)), rng.normal(size=(100, 3))
    >>> model = DescentProbe(classes=[0, 1], rows="whitened", random_state=0)
    >>> model.fit(X, (X[:, 0] > 0).astype(int), public=Public(X_public)).score(X, X[:, 0] > 0) > 0.9
    True
    """

    _streams = True

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        rows: Annotated[str, checks.choice(*ROWS)] = "unit",
        n_steps: checks.Count = 100,
        batch_size: checks.Count | None = None,
        learning_rate: checks.Scale = 1.0,
        momentum: checks.Share = 0.9,
        clip_norm: checks.Scale | None = None,
        classes: Any = None,
        adjacency: str = "zero-out",
        n_rows: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.rows = rows
        self.n_steps = n_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.clip_norm = clip_norm
        self.classes = classes
        self.adjacency = adjacency
        self.n_rows = n_rows
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any = None, *, public: Public | None = None, ledger: Ledger | None = None
    ) -> "DescentProbe":
        """Fit on private `X`, `y`.

        Parameters
        ----------
        {private X}
        {private labels}
        public : Public, optional
            Public features with the same columns; their labels, if any, are used only as the list of classes.
        {ledger}
        """
        data = self._read_classification(X, y, public, ledger, self.classes)
        budget, classes = data.budget, data.classes
        form = probe_rows(data.X_public, data.n_features, self.rows)
        clip_norm = form.typical_norm / math.sqrt(2.0)
        if self.clip_norm is not None:
            clip_norm = float(self.clip_norm)
        plan = self._plan(budget)
        width = data.n_features if form.basis is None else form.basis.shape[1]
        solution = np.zeros((width + 1, len(classes)))
        if budget.worthwhile:
            private = data.rows.map(partial(form.private_rows, fixed_rows=data.fixed_rows))
            run = data.ledger.start(plan, label="gradient")
            solution = _descend(
                run,
                private,
                solution,
                clip_norm=clip_norm,
                n_rows=budget.n_rows,
                learning_rate=float(self.learning_rate),
                momentum=float(self.momentum),
            )
        # The receipt first: an interrupted refit must not leave new coefficients under an old receipt.
        self.privacy_ = self._receipt(data.ledger, budget, [data.source])
        self._form: ProbeRows = form
        self.coef_, self.intercept_ = solution[:-1].T.copy(), solution[-1].copy()
        self.classes_ = classes
        return self

    def _plan(self, budget: Budget) -> Plan:
        """Return the plan of all steps, with the least noise that the budget allows."""
        steps, rate = int(self.n_steps), 1.0
        if self.batch_size is not None:
            rate = min(1.0, self.batch_size / budget.n_rows)
        noise = calibrate(self.epsilon, self.delta, steps=steps, rate=rate, adjacency=Adjacency.of(self.adjacency))
        return Repeated(Gaussian(noise), steps) if rate == 1.0 else Sampled(Gaussian(noise), rate, steps)

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the score of each class; with two classes, the score of the second minus that of the first."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def _scores(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return np.asarray(self._form.transform(X) @ self.coef_.T + self.intercept_)


def _descend(
    run: Run,
    rows: Blocks[Rows],
    start: NDArray[np.float64],
    *,
    clip_norm: float,
    n_rows: float,
    learning_rate: float,
    momentum: float,
) -> NDArray[np.float64]:
    """Return the last iterate of gradient descent with momentum and a cosine schedule."""
    current, velocity = start.copy(), np.zeros_like(start)
    expected = n_rows * run.plan.rate if isinstance(run.plan, Sampled) else n_rows
    for t, batch in enumerate(run.batches(rows.n_rows)):
        gradient = released_gradient(run, rows, SoftmaxLoss(), current, clip_norm, expected, batch=batch)
        velocity = momentum * velocity + gradient
        current = current - learning_rate * 0.5 * (1 + math.cos(math.pi * t / run.plan.steps)) * velocity
    return current
