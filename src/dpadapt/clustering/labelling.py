"""`select_for_labelling`: which public targets to label when the labelled source is private."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.accounting.ledger import Ledger
from dpadapt.clustering.private import PrivateSourceTargetClustering
from dpadapt.data import Public


def select_for_labelling(
    S: Any,
    T: Any,
    k: int,
    *,
    epsilon: float = 1.0,
    adjacency: str = "add-remove",
    ledger: Ledger | None = None,
    random_state: int | None = None,
) -> NDArray[np.int64]:
    """Return the rows of `T` to label: `k` centres, given that the labelled private rows `S` serve as centres already.

    The use that motivates paper 5 (after de Mathelin et al., 2022): a target is easy to predict if a labelled row is
    near. The columns must be on scales in which that is true; scale them by `T`.

    Parameters
    ----------
    S : array-like of shape (n_sources, n_features)
        Features of the private rows. Their labels are not used.
    T : array-like of shape (n_targets, n_features)
        Features of the public rows that may be labelled.
    k : int
        How many to label.
    epsilon : float, default=1.0
        What the choice may spend, besides what a model on `S` spends.
    adjacency : {"add-remove", "zero-out", "replace-one"}, default="add-remove"
        Which data sets count as neighbours.
    ledger : Ledger, optional
        The private data set's ledger; it is charged what the choice spends.
    random_state : int, optional
        For tests only: seeds the noise, so that there is no guarantee.

    Returns
    -------
    ndarray of shape (k,)
        Row numbers of `T`.

    Notes
    -----
    A source counts as a labelled row here. A private model knows less of a single source than that, so where the budget
    of the model is small the rows that `baselines.cluster_t` chooses may serve as well, for free: docs/clustering.md
    has the figures.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> S, T = rng.standard_normal((500, 2)), rng.standard_normal((200, 2)) + 2.0
    >>> len(select_for_labelling(S, T, 10, random_state=0))
    10
    """
    model = PrivateSourceTargetClustering(k, epsilon, adjacency=adjacency, random_state=random_state)
    return np.asarray(model.fit(S, public=Public(T), ledger=ledger).centers_)
