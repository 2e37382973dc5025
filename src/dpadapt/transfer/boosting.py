"""Boosted trees on public rows: fitted by scikit-learn, kept as plain arrays.

As arrays, the trees can be saved without pickle, and each row is predicted by itself: its prediction does not depend on
the other rows, not even in rounding.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from dpadapt.learning.descent import softmax

Vector = NDArray[np.float64]

# Boosting stops early on a tenth of the rows from this number of rows on. With fewer, the tenth would be too small to
# judge by, and might lack a class. Chosen by hand.
_EARLY_STOPPING_ROWS = 1_000
# Least probability of a class, times the number of classes. Trees may give a class hardly any probability, which no
# correction could mend. Chosen by hand.
LEAST_CLASS_PROBABILITY = 1e-3


@dataclass(frozen=True, eq=False)
class Trees:
    """Regression trees whose values are added up.

    Parameters
    ----------
    baseline : ndarray of shape (n_outputs,)
        What the sum starts from.
    roots : ndarray of shape (n_trees,)
        Position of each tree's root; tree i adds to output i modulo `n_outputs`.
    feature, threshold, left, right, value : ndarray of shape (n_nodes,)
        Rows at most `threshold` in column `feature` go to the node at `left`, others to `right`. Leaves have -1 as
        `left`; their `value` is added.
    """

    baseline: Vector
    roots: NDArray[np.int64]
    feature: NDArray[np.int32]
    threshold: Vector
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: Vector

    @classmethod
    def of(cls, model: Any) -> "Trees":
        """Return the trees of a fitted HistGradientBoosting model without categorical columns."""
        nodes = [tree.nodes for stage in model._predictors for tree in stage]
        roots = np.concatenate([[0], np.cumsum([len(tree) for tree in nodes])]).astype(np.int64)[:-1]
        joined = np.concatenate(nodes)
        start = np.repeat(roots, [len(tree) for tree in nodes])
        leaf = joined["is_leaf"].astype(bool)
        return cls(
            np.ravel(model._baseline_prediction).astype(np.float64),
            roots,
            joined["feature_idx"].astype(np.int32),
            joined["num_threshold"].astype(np.float64),
            np.where(leaf, -1, joined["left"] + start).astype(np.int32),
            np.where(leaf, -1, joined["right"] + start).astype(np.int32),
            joined["value"].astype(np.float64),
        )

    def require_sound(self, n_features: int) -> None:
        """Raise ValueError unless every path through the trees ends, and every node looks at a column."""
        nodes = np.arange(len(self.value))
        inner = self.left >= 0
        children = np.stack([self.left[inner], self.right[inner]])
        sound = (
            all(part.shape == nodes.shape for part in (self.feature, self.threshold, self.left, self.right))
            and all(part.dtype.kind == "i" for part in (self.roots, self.feature, self.left, self.right))
            and all(part.dtype == np.float64 for part in (self.baseline, self.threshold, self.value))
            and len(self.baseline) > 0
            and bool(np.isin(self.roots, nodes).all())
            # A child comes after its parent, so that no path returns.
            and bool((children > nodes[inner]).all() and (children < len(nodes)).all())
            and bool(((self.feature[inner] >= 0) & (self.feature[inner] < n_features)).all())
        )
        if not sound:
            raise ValueError("the trees are damaged.")

    def sums(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Return the sum of the trees for each row and output."""
        columns = np.ascontiguousarray(X.T, dtype=np.float64)
        n_outputs = len(self.baseline)
        sums = np.tile(self.baseline, (X.shape[0], 1))
        everyone = np.arange(X.shape[0])
        for place, root in enumerate(self.roots):
            output = sums[:, place % n_outputs]
            waiting = [(root, everyone)]
            while waiting:
                node, rows = waiting.pop()
                if self.left[node] < 0:
                    output[rows] += self.value[node]
                    continue
                below = columns[self.feature[node]][rows] <= self.threshold[node]
                waiting.append((self.left[node], rows[below]))
                waiting.append((self.right[node], rows[~below]))
        return sums


@dataclass(frozen=True, eq=False)
class BoostedModel:
    """Boosting on public rows, as a public model of a transfer.

    Parameters
    ----------
    trees : Trees
    known : ndarray of int or None
        Codes of the classes that the trees know; None for a regression.
    n_classes : int
        Number of all classes; 1 for a regression.
    """

    trees: Trees
    known: NDArray[np.int64] | None
    n_classes: int

    def scores(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Return predictions, or centred log-probabilities of all classes."""
        sums = self.trees.sums(X)
        if self.known is None:
            return np.asarray(sums[:, 0])
        if len(self.known) == 1:
            # The trees were fitted to rows of one class.
            sums = np.zeros((len(sums), 1))
        elif sums.shape[1] == 1:
            sums = np.column_stack([np.zeros(len(sums)), sums])
        probabilities = np.zeros((len(sums), self.n_classes))
        probabilities[:, self.known] = softmax(sums)
        return centred_logs(probabilities)


def fit_boosting(X: NDArray[np.float64], y: NDArray[Any], n_classes: int) -> BoostedModel:
    """Return boosting fitted to public rows; `y` holds numbers, or class codes if there are two classes or more."""
    early = len(y) >= _EARLY_STOPPING_ROWS
    if n_classes == 1:
        model: Any = HistGradientBoostingRegressor(random_state=0, early_stopping=early).fit(X, y)
        return BoostedModel(Trees.of(model), None, 1)
    kept = np.ones(len(y), dtype=bool)
    if early:
        # Early stopping needs two rows of each class, and each class among the tenth of the rows.
        counts = np.bincount(y)
        frequent = counts >= 2
        early = 10 * int(frequent.sum()) <= int(counts[frequent].sum()) and bool(frequent.any())
        kept = frequent[y] if early else kept
    model = HistGradientBoostingClassifier(random_state=0, early_stopping=early).fit(X[kept], y[kept])
    return BoostedModel(Trees.of(model), np.asarray(model.classes_, dtype=np.int64), n_classes)


def centred_logs(probabilities: NDArray[Any]) -> NDArray[Any]:
    """Return the logarithms of class probabilities, none below a least one, less their mean over the classes."""
    least = probabilities.dtype.type(LEAST_CLASS_PROBABILITY / probabilities.shape[1])
    logs = np.log(np.maximum(probabilities, least))
    return np.asarray(logs - logs.mean(axis=1, keepdims=True))
