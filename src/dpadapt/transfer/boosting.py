"""Boosted trees on public rows: fitted by scikit-learn, kept as plain arrays.

As arrays, the trees can be saved without pickle, and each row is predicted by itself: its prediction does not depend on
the other rows, not even in rounding.
"""

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from dpadapt.learning.losses import softmax

Vector = NDArray[np.float64]

# Boosting stops early on a tenth of the rows from this number of rows on. With fewer, the tenth would be too small to
# judge by, and might lack a class. Chosen by hand.
_EARLY_STOPPING_ROWS = 1_000
# Least probability of a class, times the number of classes. Trees may give a class hardly any probability, which no
# correction could mend. Chosen by hand.
LEAST_CLASS_PROBABILITY = 1e-3
# Leaves of a tree: scikit-learn makes at most 31 of them, and a row's leaf is found with one bit for each.
_MOST_LEAVES = 32
# Rows that are scored at once. 16,384 rows of 20 columns by 100 trees take 32 ms; in parts of 8,192, 4,096 and 2,048
# rows they take 34, 40 and 55 ms. What belongs to more rows would not stay in the processor's cache.
_SCORED_ROWS = 16_384


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
        """Raise ValueError unless these are trees of few leaves, and every node looks at a column."""
        nodes = np.arange(len(self.value))
        inner = self.left >= 0
        children = np.stack([self.left[inner], self.right[inner]])
        sound = (
            all(part.shape == nodes.shape for part in (self.feature, self.threshold, self.left, self.right))
            and all(part.dtype.kind == "i" for part in (self.roots, self.feature, self.left, self.right))
            and all(part.dtype == np.float64 for part in (self.baseline, self.threshold, self.value))
            and all(part.ndim == 1 for part in (self.baseline, self.roots, self.value))
            and len(self.baseline) > 0
            and not np.isnan(self.threshold).any()
            and bool(np.isin(self.roots, nodes).all() and (np.diff(self.roots, prepend=-1) > 0).all())
            # A child comes after its parent, in the same tree, and has no other parent.
            and bool((children > nodes[inner]).all())
            and np.array_equal(np.union1d(children, self.roots), nodes)
            and children.size + len(self.roots) == len(nodes)
            and bool((self._tree_of(children) == self._tree_of(nodes[inner])).all())
            and bool((self._leaves()[0][self.roots] <= _MOST_LEAVES).all())
            and bool(((self.feature[inner] >= 0) & (self.feature[inner] < n_features)).all())
        )
        if not sound:
            raise ValueError("the trees are damaged.")

    def _tree_of(self, nodes: NDArray[Any]) -> NDArray[np.int64]:
        return np.asarray(np.searchsorted(self.roots, nodes, side="right") - 1)

    def sums(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Return the sum of the trees for each row and output."""
        scorer = _SCORERS.get(self)
        if scorer is None:
            scorer = _SCORERS[self] = _Scorer(self)
        sums = np.tile(self.baseline, (X.shape[0], 1))
        for start in range(0, X.shape[0], _SCORED_ROWS):
            own = slice(start, start + _SCORED_ROWS)
            scorer.add(X[own], sums[own])
        return sums

    def _leaves(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return for each node the number of leaves below it, and the number of its tree's leaves left of those."""
        counts, first = np.ones(len(self.value), np.int64), np.zeros(len(self.value), np.int64)
        inner = np.flatnonzero(self.left >= 0).tolist()
        left, right = self.left.tolist(), self.right.tolist()
        # A child comes after its parent.
        for node in reversed(inner):
            counts[node] = counts[left[node]] + counts[right[node]]
        for node in inner:
            first[left[node]] = first[node]
            first[right[node]] = first[node] + counts[left[node]]
        return counts, first


class _Scorer:
    """Tables that find a row's leaf in a tree without walking through the tree.

    The leaves of a tree are numbered from left to right, one bit each. A node whose condition a row fails excludes the
    leaves below its left child. The row's leaf is the first one that no node excludes: nodes off its path exclude only
    leaves that its path excludes too, or leaves behind it. All nodes of a tree that look at one column need one look-up
    together, because a cell fails exactly the conditions with the lowest thresholds (QuickScorer: Lucchese et al.,
    SIGIR 2015).
    """

    def __init__(self, trees: Trees) -> None:
        inner = np.flatnonzero(trees.left >= 0)
        counts, first = trees._leaves()
        below = trees.left[inner]
        # Bits of the leaves below the left child of a node.
        excluded = (((1 << counts[below]) - 1) << first[below]).astype(np.uint32)
        self._thresholds: dict[int, Vector] = {}
        ranks = np.zeros(len(inner), np.int64)
        for column in np.unique(trees.feature[inner]).tolist():
            own = trees.feature[inner] == column
            distinct, ranks[own] = np.unique(trees.threshold[inner[own]], return_inverse=True)
            # One less than a power of two, for the search by halves.
            size = 1 << len(distinct).bit_length()
            self._thresholds[column] = np.concatenate([distinct, np.full(size - 1 - len(distinct), np.inf)])
        self._allowed: list[dict[int, NDArray[np.uint32]]] = [{} for _ in trees.roots]
        facts = (trees._tree_of(inner), trees.feature[inner], ranks, excluded)
        for place, column, rank, bits in zip(*(fact.tolist() for fact in facts), strict=True):
            if column not in self._allowed[place]:
                size = len(self._thresholds[column]) + 1
                self._allowed[place][column] = np.full(size, 2**_MOST_LEAVES - 1, np.uint32)
            self._allowed[place][column][rank + 1 :] &= np.uint32(~bits & (2**_MOST_LEAVES - 1))
        leaves = np.flatnonzero(trees.left < 0)
        self._values = np.zeros((len(trees.roots), _MOST_LEAVES))
        self._values[trees._tree_of(leaves), first[leaves]] = trees.value[leaves]

    def add(self, X: NDArray[Any], sums: Vector) -> None:
        """Add the value of each tree to the sums of the rows, in the order of the trees."""
        failed = {column: _n_failed(X[:, column], thresholds) for column, thresholds in self._thresholds.items()}
        left, here = np.empty(len(X), np.uint32), np.empty(len(X), np.uint32)
        for place, (tables, values) in enumerate(zip(self._allowed, self._values, strict=True)):
            left.fill(2**_MOST_LEAVES - 1)
            for column, table in tables.items():
                # Inside the table already; "clip" only spares a copy.
                left &= np.take(table, failed[column], out=here, mode="clip")
            # The zeros below the lowest bit.
            leaf = np.bitwise_count(~left & (left - np.uint32(1)))
            sums[:, place % sums.shape[1]] += values[leaf]


# Made once for each object. Not a part of the trees: these are sent to workers and saved, and the tables are larger.
_SCORERS: WeakKeyDictionary[Trees, _Scorer] = WeakKeyDictionary()


def _n_failed(cells: NDArray[Any], thresholds: Vector) -> NDArray[np.intp]:
    """Return how many of the conditions `cell <= threshold` each cell fails; a cell that is no number fails all.

    `thresholds` are sorted, 2^k - 1 in number. A search by halves of all cells at once: `np.searchsorted` takes three
    times as long.
    """
    cells = np.ascontiguousarray(cells, dtype=np.float64)
    found = np.zeros(len(cells), np.intp)
    half = (len(thresholds) + 1) // 2
    while half:
        found += half * ~(cells <= thresholds.take(found + (half - 1)))
        half //= 2
    return found


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

    def require_sound(self, n_features: int) -> None:
        """Raise ValueError unless the trees are sound and have one output, or one for each of three or more classes."""
        self.trees.require_sound(n_features)
        n_outputs = 1 if self.known is None or len(self.known) <= 2 else len(self.known)
        if len(self.trees.baseline) != n_outputs:
            raise ValueError("the trees are damaged.")

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
