"""`DescentProbe`: linear probing by private gradient steps, as the paper does it, and whitened.

Section 4.2 of "On the Benefits of Public Representations for Private Transfer Learning under Distribution Shift",
arXiv:2312.15551, trains a linear head by DP-SGD with momentum and a cosine schedule.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from dpadapt import _validate
from dpadapt.accounting.calibrate import calibrate
from dpadapt.accounting.ledger import Ledger, Run
from dpadapt.data import Public
from dpadapt.learning.base import Budget
from dpadapt.learning.descent import gradient_weights
from dpadapt.learning.label_set import label_codes, label_set
from dpadapt.learning.linear_classifier import LinearClassifier
from dpadapt.learning.losses import SoftmaxLoss
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import clipped_outer_sum
from dpadapt.mechanisms.gaussian import Gaussian
from dpadapt.mechanisms.plan import Plan, Repeated, Sampled
from dpadapt.representation.probe_rows import ROWS, ProbeRows, probe_rows
from dpadapt.rows import Rows


class DescentProbe(LinearClassifier):
    """A linear head on given features, trained by private gradient steps with momentum: a baseline.

    With rows of unit length and Poisson batches this is DP-SGD as in Section 4.2 of [1]_. With whitened rows and full
    batches it is the best simple rival that was found. Both want a learning rate; `PrivateProbe` wants none.

    Privacy
    -------
    Protects one private row (see `adjacency`).
    Releases: clipped gradient sums, `n_steps` of them, Gaussian.
    Costs at most `epsilon`, `delta`; see `privacy_`. Public data is not protected.

    Parameters
    ----------
    epsilon : float, default=1.0
        Most this fit may spend. Positive.
    delta : float, default=1e-6
        Between 0 and 1, well below 1 / number of rows.
    rows : {"unit", "whitened"}, default="unit"
        Whether rows are brought to unit length, or whitened by public rows. Both centre them on public rows first.
    n_steps : int, default=100
    batch_size : int, optional
        Expected size of a Poisson batch. Default: all rows in every step.
    learning_rate : float, default=1.0
        At the start; it falls to zero along a cosine.
    momentum : float, default=0.9
        At least 0 and below 1.
    clip_norm : float, optional
        Each row's gradient is scaled down to this length. Default: that of a public row of median length whose
        residual is half as long as it can be.
    classes : array-like, optional
        All labels there can be. Default: those of the public labels; without them, those that occur in `y`, which the
        receipt then lists as assumed public.
    adjacency : {"zero-out", "add-remove", "replace-one"}, default="zero-out"
        Which data sets count as neighbours.
    n_rows : int, optional
        Under "add-remove" only: a public estimate of the number of rows, used in place of the true one.
    random_state : int, optional
        For tests only: seeds the noise, so that there is no guarantee. Default: secure noise.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, k)
        For rows in the form that `rows` names.
    intercept_ : ndarray of shape (n_classes,)
    classes_ : ndarray of shape (n_classes,)
    n_features_in_ : int
    privacy_ : Receipt

    Notes
    -----
    Public labels are not used.

    References
    ----------
    .. [1] P. Thaker, A. Setlur, Z. S. Wu, V. Smith. On the Benefits of Public Representations for Private Transfer
       Learning under Distribution Shift. 2023. arXiv:2312.15551

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import Public
    >>> from dpadapt.representation import DescentProbe
    >>> rng = np.random.default_rng(7)
    >>> X, X_public = rng.normal(size=(2000, 3)), rng.normal(size=(100, 3))
    >>> model = DescentProbe(classes=[0, 1], rows="whitened", random_state=0)
    >>> model.fit(X, (X[:, 0] > 0).astype(int), public=Public(X_public)).score(X, X[:, 0] > 0) > 0.9
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        rows: str = "unit",
        n_steps: int = 100,
        batch_size: int | None = None,
        learning_rate: float = 1.0,
        momentum: float = 0.9,
        clip_norm: float | None = None,
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

    def fit(self, X: Any, y: Any, *, public: Public | None = None, ledger: Ledger | None = None) -> "DescentProbe":
        """Fit on private `X`, `y`.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Private features.
        y : array-like of shape (n_rows,)
            Private labels.
        public : Public, optional
            Public features with the same columns; their labels, if any, only say which there are.
        ledger : Ledger, optional
            The private data set's ledger; it is charged what this fit spends.
        """
        _validate.one_of(self.rows, ROWS, "rows")
        learning_rate = _validate.positive(self.learning_rate, "learning_rate")
        number = isinstance(self.momentum, int | float) and not isinstance(self.momentum, bool)
        if not number or not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must lie in [0, 1), got {self.momentum!r}.")
        frame = X
        X, y = self._check_rows(X, y, y_numeric=False)
        X_public, y_public = self._check_public(public, frame)
        classes, source = label_set(self.classes, y_public, y)
        codes = label_codes(y, classes, "y")
        budget = self._budget(len(X))
        child = self._ledger(ledger)
        form = probe_rows(X_public, X.shape[1], self.rows)
        clip_norm = form.typical_norm / math.sqrt(2.0)
        if self.clip_norm is not None:
            clip_norm = _validate.positive(self.clip_norm, "clip_norm")
        plan = self._plan(budget)
        width = X.shape[1] if form.basis is None else form.basis.shape[1]
        solution = np.zeros((width + 1, len(classes)))
        if budget.worthwhile:
            private = Rows(form.transform(X), codes, intercept=True)
            run = child.start(plan, label="gradient")
            solution = _descend(
                run,
                private,
                solution,
                clip_norm=clip_norm,
                n_rows=budget.n_rows,
                learning_rate=learning_rate,
                momentum=float(self.momentum),
            )
        # The receipt first: an interrupted refit must not leave new coefficients under an old receipt.
        self.privacy_ = self._receipt(child, budget, [source])
        self._form: ProbeRows = form
        self.coef_, self.intercept_ = solution[:-1].T.copy(), solution[-1].copy()
        self.classes_ = classes
        return self

    def _plan(self, budget: Budget) -> Plan:
        """Return the steps with the least noise that the budget allows."""
        steps = _validate.count(self.n_steps, "n_steps")
        rate = 1.0
        if self.batch_size is not None:
            rate = min(1.0, _validate.count(self.batch_size, "batch_size") / budget.n_rows)
        noise = calibrate(self.epsilon, self.delta, steps=steps, rate=rate, adjacency=Adjacency.of(self.adjacency))
        return Repeated(Gaussian(noise), steps) if rate == 1.0 else Sampled(Gaussian(noise), rate, steps)

    def _scores(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return np.asarray(self._form.transform(X) @ self.coef_.T + self.intercept_)


def _descend(
    run: Run,
    rows: Rows,
    start: NDArray[np.float64],
    *,
    clip_norm: float,
    n_rows: float,
    learning_rate: float,
    momentum: float,
) -> NDArray[np.float64]:
    """Return the last iterate of descent with momentum along a cosine schedule."""
    current, velocity = start.copy(), np.zeros_like(start)
    sampled = isinstance(run.plan, Sampled)
    expected = n_rows * run.plan.rate if isinstance(run.plan, Sampled) else n_rows
    batches = run.batches(rows.n_rows) if sampled else iter([None] * run.plan.steps)
    for t, index in enumerate(batches):
        batch = rows if index is None else rows.take(index)
        bounded = clipped_outer_sum(batch, gradient_weights(SoftmaxLoss(), current), clip_norm)
        velocity = momentum * velocity + run.release(bounded) / expected
        current = current - learning_rate * 0.5 * (1 + math.cos(math.pi * t / run.plan.steps)) * velocity
    return current
