"""Private baselines of paper 4: `ProjectedDPSGD` for its subspace, `LeastSquaresProbe` for its probe.

`ProjectedDPSGD` is DP-SGD (M. Abadi et al., "Deep Learning with Differential Privacy", 2016), the baseline of Section
5.4 and Figure 3 of "On the Benefits of Public Representations for Private Transfer Learning under Distribution Shift",
arXiv:2312.15551. `LeastSquaresProbe` is ours: a ridge regression on class indicators from moments released once.
"""

import math
from functools import partial
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dpadapt import checks
from dpadapt.accounting.calibrate import calibrate
from dpadapt.accounting.ledger import Ledger
from dpadapt.data import Public
from dpadapt.learning.base import Budget, PrivateEstimator, split_noise
from dpadapt.learning.descent import released_gradient
from dpadapt.learning.losses import SquaredLoss
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import clipped_gram, clipped_outer_sum
from dpadapt.mechanisms.mechanism import Gaussian, Mechanism, Plan, Repeated, Sampled
from dpadapt.papers.subspace.probes import ProbeRows, probe_rows
from dpadapt.papers.subspace.solvers import ProjectedRegressor, Vector
from dpadapt.representation.subspace import SUBSPACE_METHODS
from dpadapt.rows import Block, Blocks, Rows

_GRAMS = ("public", "private")

# Ridge of the least-squares probe where the noise is small, as a share of the mean eigenvalue of the Gram matrix. A
# larger ridge is more stable and shrinks more. Chosen by hand.
_LEAST_PROBE_RIDGE = 0.01


class ProjectedDPSGD(ProjectedRegressor):
    """Linear regression by DP-SGD: on all features, within a given subspace, or within that of public tasks.

    These are the baselines of Section 5.4 of [1]_, with its clipping norm, learning rate and number of epochs. The last
    iterate is the solution.

    **Privacy.** Protects one private row (see `adjacency`).
    Releases: clipped gradient sums of Poisson batches, Gaussian.
    Costs at most `epsilon`, `delta`; see `privacy_`. Public data is not protected.

    Parameters
    ----------
    {epsilon}
    {delta}
    clip_norm, learning_rate : float, default=0.5 and 0.1
        The paper's values, from a grid search on the private data whose cost it does not count.
    n_epochs : int, default=50
    batch_size : int, default=250
        Expected number of rows of a batch; the paper does not give one.
    n_components, method, basis
        The subspace, as in `DPAMBSSGD`.
    {adjacency}
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

    References
    ----------
    .. [1] P. Thaker, A. Setlur, Z. S. Wu, V. Smith. On the Benefits of Public Representations for Private Transfer
       Learning under Distribution Shift. 2023. arXiv:2312.15551

    Examples
    --------
    >>> import numpy as np
    >>> from benchmarks.rivals.subspace import ProjectedDPSGD
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
        clip_norm: checks.Scale = 0.5,
        learning_rate: checks.Scale = 0.1,
        n_epochs: checks.Count = 50,
        batch_size: checks.Count = 250,
        n_components: checks.Count | None = None,
        method: Annotated[str, checks.choice(*SUBSPACE_METHODS)] = "moments",
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

    def _solve(self, ledger: Ledger, rows: Blocks[Rows], k: int, budget: Budget) -> tuple[Vector, list[str]]:
        rate = min(1.0, self.batch_size / budget.n_rows)
        steps = max(1, round(self.n_epochs / rate))
        noise = calibrate(self.epsilon, self.delta, steps=steps, rate=rate, adjacency=Adjacency.of(self.adjacency))
        plan: Plan = Repeated(Gaussian(noise), steps) if rate == 1.0 else Sampled(Gaussian(noise), rate, steps)
        run = ledger.start(plan, label="gradient")
        current = np.zeros(k)
        expected = rate * budget.n_rows
        for batch in run.batches(rows.n_rows):
            gradient = released_gradient(run, rows, SquaredLoss(), current, self.clip_norm, expected, batch=batch)
            current = current - self.learning_rate * gradient
        return current, []


class LeastSquaresProbe(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """A linear head by ridge regression on class indicators: a baseline without iterations.

    The sum of rows per class is released; the Gram matrix comes from public rows or is released too. Rows are centred
    on public rows and scaled to unit length.

    **Privacy.** Protects one private row (see `adjacency`).
    Releases: the clipped sum of row times centred class indicator; with `gram="private"` also the clipped Gram matrix,
    each for half of the budget; Gaussian.
    Costs at most `epsilon`, `delta`; see `privacy_`. Public data is not protected.

    Parameters
    ----------
    {epsilon}
    {delta}
    gram : {"public", "private"}, default="public"
        Which rows give the Gram matrix. "public" needs public rows.
    {classes}
    {adjacency}
    {n_rows}
    {random_state}

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_features)
        Coefficients of centred rows of unit length.
    intercept_ : ndarray of shape (n_classes,)
    classes_ : ndarray of shape (n_classes,)
    n_features_in_ : int
    privacy_ : Receipt

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import Public
    >>> from benchmarks.rivals.subspace import LeastSquaresProbe
    >>> rng = np.random.default_rng(7)
    >>> X, X_public = rng.normal(size=(2000, 3)), rng.normal(size=(100, 3))
    >>> model = LeastSquaresProbe(classes=[0, 1], random_state=0)
    >>> model.fit(X, (X[:, 0] > 0).astype(int), public=Public(X_public)).score(X, X[:, 0] > 0) > 0.9
    True
    """

    _streams = True

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        gram: Annotated[str, checks.choice(*_GRAMS)] = "public",
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

    def fit(
        self, X: Any, y: Any = None, *, public: Public | None = None, ledger: Ledger | None = None
    ) -> "LeastSquaresProbe":
        """Fit on private `X`, `y`.

        Parameters
        ----------
        {private X}
        {private labels}
        public : Public, optional
            Public features with the same columns; their labels, if any, are used only as the list of classes.
        {ledger}
        """
        private_gram = self.gram == "private"
        if public is None and not private_gram:
            raise ValueError("gram='public' needs public rows. Give public=, or gram='private'.")
        data = self._read_classification(X, y, public, ledger, self.classes)
        budget, classes = data.budget, data.classes
        form = probe_rows(data.X_public, data.n_features, "unit")
        solution = np.zeros((data.n_features + 1, len(classes)))
        if budget.worthwhile:
            public_gram = None
            if data.X_public is not None and not private_gram:
                rows = np.column_stack([form.transform(data.X_public), np.ones(len(data.X_public))])
                public_gram = rows.T @ rows / len(rows)
            private = data.rows.map(partial(form.private_rows, fixed_rows=data.fixed_rows))
            solution = _ridge_solution(data.ledger, private, len(classes), budget, form, public_gram)
        # The receipt first: an interrupted refit must not leave new coefficients under an old receipt.
        self.privacy_ = self._receipt(data.ledger, budget, [data.source])
        self._form: ProbeRows = form
        self.coef_, self.intercept_ = solution[:-1].T.copy(), solution[-1].copy()
        self.classes_ = classes
        return self

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the score of each class; with two classes, the score of the second minus that of the first."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        scores = np.asarray(self._form.transform(X) @ self.coef_.T + self.intercept_)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class with the largest score for each row."""
        scores = self.decision_function(X)
        return np.asarray(self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else np.argmax(scores, axis=1)])


def _ridge_solution(
    ledger: Ledger,
    rows: Blocks[Rows],
    n_classes: int,
    budget: Budget,
    form: ProbeRows,
    public_gram: NDArray[np.float64] | None,
) -> NDArray[np.float64]:
    """Release the moments and return the ridge solution; without `public_gram` the Gram matrix is released too."""
    noises = split_noise(budget.mu, [1.0] if public_gram is not None else [0.5, 0.5])
    labels = ["row per class", "Gram matrix"][: len(noises)]
    charges: list[tuple[Repeated | Sampled | Mechanism, str]] = [
        (Repeated(Gaussian(noise)), label) for noise, label in zip(noises, labels, strict=True)
    ]
    # Charged together: a cap too small for both raises before any noise is drawn.
    runs = ledger.start_all(charges)
    centred = np.eye(n_classes) - 1.0 / n_classes

    def indicators(block: Block) -> NDArray[Any]:
        return np.asarray(centred[block.y])

    # A centred indicator has length below 1, so a row of length sqrt 2 is hardly ever clipped.
    cross = runs[0].release(clipped_outer_sum(rows, indicators, form.typical_norm)) / budget.n_rows
    # The ridge is as large as the noise of one direction: in the sums, and in the Gram matrix if that is released.
    noise = budget.noise(form.typical_norm) * math.sqrt(len(cross) * len(noises))
    gram = public_gram
    if gram is None:
        released = runs[1].release(clipped_gram(rows, form.typical_norm)) / budget.n_rows
        gram = (released + released.T) / 2
        # The largest eigenvalue of k x k symmetric noise is about sqrt(2 k) times the deviation of its entries.
        noise += budget.noise(form.typical_norm**2) * math.sqrt(2.0) * math.sqrt(2.0 * len(gram))
    ridge = noise + _LEAST_PROBE_RIDGE * max(float(np.trace(gram)), 0.0) / len(gram)
    values, vectors = np.linalg.eigh(gram)
    return np.asarray((vectors / (np.maximum(values, 0.0) + ridge)) @ (vectors.T @ cross))
