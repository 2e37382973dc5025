"""`LeastSquaresProbe`: linear probing by least squares on class indicators, released once; a baseline."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dpadapt import checks
from dpadapt.accounting.calibrate import calibrate
from dpadapt.accounting.ledger import Ledger, Run
from dpadapt.data import Public
from dpadapt.learning.descent import SoftmaxLoss, gradient_weights
from dpadapt.learning.estimator import Budget, LinearClassifier, PrivateEstimator, label_codes, label_set, split_noise
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import clipped_gram, clipped_outer_sum
from dpadapt.mechanisms.mechanism import Mechanism, Plan, Repeated, Sampled
from dpadapt.mechanisms.noise import Gaussian
from dpadapt.rows import Block, Rows

# Rows as the baselines of linear probing take them: centred on public rows, then of unit length or whitened.


ROWS = ("unit", "whitened")
# Directions with less than this share of the average public variance are not amplified further (as in geometry.py).
_FLOOR = 1e-2


@dataclass(frozen=True, eq=False)
class ProbeRows:
    """How rows are brought into form, each by itself, from public rows alone.

    Parameters
    ----------
    center : ndarray of shape (n_features,)
    basis : ndarray of shape (n_features, k) or None
        Whitening map; None for rows of unit length.
    typical_norm : float
        Median length of a public row in this form, its constant 1 included.
    """

    center: NDArray[np.float64]
    basis: NDArray[np.float64] | None
    typical_norm: float

    def transform(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Return rows in this form; one that is too long for a float comes out not finite, without a warning."""
        with np.errstate(over="ignore", invalid="ignore"):
            rows = np.asarray(X, dtype=np.float64) - self.center
            if self.basis is not None:
                return np.asarray(rows @ self.basis)
            return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30))


def probe_rows(X_public: NDArray[np.float64] | None, n_features: int, rows: str) -> ProbeRows:
    """Return the form of rows; without public ones they are taken to be centred, and can't be whitened."""
    if X_public is None:
        if rows == "whitened":
            raise ValueError("rows='whitened' needs public rows to whiten by. Give public=, or rows='unit'.")
        return ProbeRows(np.zeros(n_features), None, np.sqrt(2.0))
    center = X_public.mean(axis=0)
    if rows == "unit":
        return ProbeRows(center, None, np.sqrt(2.0))
    values, vectors = np.linalg.eigh((X_public - center).T @ (X_public - center) / len(X_public))
    values = np.maximum(values, 0.0)
    basis = vectors / np.sqrt(values + _FLOOR * max(float(values.mean()), 1e-300))
    lengths = np.linalg.norm((X_public - center) @ basis, axis=1)
    return ProbeRows(center, basis, float(np.sqrt(np.median(lengths) ** 2 + 1.0)))


# `DescentProbe`: linear probing by private gradient steps, as the paper does it, and whitened.
#
# Section 4.2 of "On the Benefits of Public Representations for Private Transfer Learning under Distribution Shift",
# arXiv:2312.15551, trains a linear head by DP-SGD with momentum and a cosine schedule.


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
    {epsilon}
    {delta}
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
    {classes}
    {adjacency}
    {n_rows}
    {random_state}

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
    >>> from dpadapt.papers.subspace import DescentProbe
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
        {private X}
        {private labels}
        public : Public, optional
            Public features with the same columns; their labels, if any, only say which there are.
        {ledger}
        """
        checks.one_of(self.rows, ROWS, "rows")
        learning_rate = checks.positive(self.learning_rate, "learning_rate")
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
            clip_norm = checks.positive(self.clip_norm, "clip_norm")
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
        steps = checks.count(self.n_steps, "n_steps")
        rate = 1.0
        if self.batch_size is not None:
            rate = min(1.0, checks.count(self.batch_size, "batch_size") / budget.n_rows)
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


_GRAMS = ("public", "private")
# Of the mean eigenvalue of the Gram matrix: what is left where noise is small.
_LEAST_RIDGE = 0.01


class LeastSquaresProbe(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """A linear head by ridge regression on class indicators: a baseline that reads the rows once.

    The sum of rows per class is released, and the matrix of second moments comes from public rows or is released too.
    Rows are centred on public ones and brought to unit length.

    Privacy
    -------
    Protects one private row (see `adjacency`).
    Releases: the clipped sum of row times centred class indicator; with `gram="private"` also the clipped Gram matrix,
    each for half of the budget; Gaussian.
    Costs at most `epsilon`, `delta`; see `privacy_`. Public data is not protected.

    Parameters
    ----------
    {epsilon}
    {delta}
    gram : {"public", "private"}, default="public"
        Whose second moments to use. "public" needs public rows.
    {classes}
    {adjacency}
    {n_rows}
    {random_state}

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_features)
        For centred rows of unit length.
    intercept_ : ndarray of shape (n_classes,)
    classes_ : ndarray of shape (n_classes,)
    n_features_in_ : int
    privacy_ : Receipt

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import Public
    >>> from dpadapt.papers.subspace import LeastSquaresProbe
    >>> rng = np.random.default_rng(7)
    >>> X, X_public = rng.normal(size=(2000, 3)), rng.normal(size=(100, 3))
    >>> model = LeastSquaresProbe(classes=[0, 1], random_state=0)
    >>> model.fit(X, (X[:, 0] > 0).astype(int), public=Public(X_public)).score(X, X[:, 0] > 0) > 0.9
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        gram: str = "public",
        classes: Any = None,
        adjacency: str = "zero-out",
        n_rows: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.gram = gram
        self.classes = classes
        self.adjacency = adjacency
        self.n_rows = n_rows
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *, public: Public | None = None, ledger: Ledger | None = None) -> "LeastSquaresProbe":
        """Fit on private `X`, `y`.

        Parameters
        ----------
        {private X}
        {private labels}
        public : Public, optional
            Public features with the same columns; their labels, if any, only say which there are.
        {ledger}
        """
        own = checks.one_of(self.gram, _GRAMS, "gram") == "private"
        if public is None and not own:
            raise ValueError("gram='public' needs public rows. Give public=, or gram='private'.")
        frame = X
        X, y = self._check_rows(X, y, y_numeric=False)
        X_public, y_public = self._check_public(public, frame)
        classes, source = label_set(self.classes, y_public, y)
        codes = label_codes(y, classes, "y")
        budget = self._budget(len(X))
        child = self._ledger(ledger)
        form = probe_rows(X_public, X.shape[1], "unit")
        solution = np.zeros((X.shape[1] + 1, len(classes)))
        if budget.worthwhile:
            known = None
            if X_public is not None and not own:
                rows = np.column_stack([form.transform(X_public), np.ones(len(X_public))])
                known = rows.T @ rows / len(rows)
            private = Rows(form.transform(X), codes, intercept=True)
            solution = _solve(child, private, len(classes), budget, form, known)
        # The receipt first: an interrupted refit must not leave new coefficients under an old receipt.
        self.privacy_ = self._receipt(child, budget, [source])
        self._form: ProbeRows = form
        self.coef_, self.intercept_ = solution[:-1].T.copy(), solution[-1].copy()
        self.classes_ = classes
        return self

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the score of each class, or by how much the second leads the first if there are two."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        scores = np.asarray(self._form.transform(X) @ self.coef_.T + self.intercept_)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of the largest score of each row."""
        scores = self.decision_function(X)
        return np.asarray(self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else np.argmax(scores, axis=1)])


def _solve(
    ledger: Ledger,
    rows: Rows,
    n_classes: int,
    budget: Budget,
    form: ProbeRows,
    known: NDArray[np.float64] | None,
) -> NDArray[np.float64]:
    """Release the moments and return the ridge solution."""
    noises = split_noise(budget.mu, [1.0] if known is not None else [0.5, 0.5])
    labels = ["row per class", "Gram matrix"][: len(noises)]
    charges: list[tuple[Repeated | Sampled | Mechanism, str]] = [
        (Repeated(Gaussian(noise)), label) for noise, label in zip(noises, labels, strict=True)
    ]
    # Charged all at once: a cap too small for both raises before anything is drawn.
    runs = ledger.start_all(charges)
    identity = np.eye(n_classes) - 1.0 / n_classes

    def indicators(block: Block) -> NDArray[Any]:
        return np.asarray(identity[block.y])

    # An indicator less its mean has length below 1, so a row of length sqrt 2 is hardly ever clipped.
    cross = runs[0].release(clipped_outer_sum(rows, indicators, form.typical_norm)) / budget.n_rows
    # The ridge is as large as noise can make a direction seem: in the sums, and in the Gram matrix if that is released.
    noise = budget.noise(form.typical_norm) * math.sqrt(len(cross) * len(noises))
    gram = known
    if gram is None:
        released = runs[1].release(clipped_gram(rows, form.typical_norm)) / budget.n_rows
        gram = (released + released.T) / 2
        # The largest eigenvalue of symmetric noise with entries of this deviation is about sqrt(2 k) times it.
        noise += budget.noise(form.typical_norm**2) * math.sqrt(2.0) * math.sqrt(2.0 * len(gram))
    ridge = noise + _LEAST_RIDGE * max(float(np.trace(gram)), 0.0) / len(gram)
    values, vectors = np.linalg.eigh(gram)
    return np.asarray((vectors / (np.maximum(values, 0.0) + ridge)) @ (vectors.T @ cross))
