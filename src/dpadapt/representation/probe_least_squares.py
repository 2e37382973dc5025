"""`LeastSquaresProbe`: linear probing by least squares on class indicators, released once; a baseline."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dpadapt import _validate
from dpadapt.accounting.ledger import Ledger
from dpadapt.data import Public
from dpadapt.learning.base import Budget, PrivateEstimator, split_noise
from dpadapt.learning.label_set import label_codes, label_set
from dpadapt.mechanisms.bounded import clipped_gram, clipped_outer_sum
from dpadapt.mechanisms.gaussian import Gaussian
from dpadapt.mechanisms.mechanism import Mechanism
from dpadapt.mechanisms.plan import Repeated, Sampled
from dpadapt.representation.probe_rows import ProbeRows, probe_rows
from dpadapt.rows import Block, Rows

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
    epsilon : float, default=1.0
        Most this fit may spend. Positive.
    delta : float, default=1e-6
        Between 0 and 1, well below 1 / number of rows.
    gram : {"public", "private"}, default="public"
        Whose second moments to use. "public" needs public rows.
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
    >>> from dpadapt.representation import LeastSquaresProbe
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
        X : array-like of shape (n_rows, n_features)
            Private features.
        y : array-like of shape (n_rows,)
            Private labels.
        public : Public, optional
            Public features with the same columns; their labels, if any, only say which there are.
        ledger : Ledger, optional
            The private data set's ledger; it is charged what this fit spends.
        """
        own = _validate.one_of(self.gram, _GRAMS, "gram") == "private"
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
