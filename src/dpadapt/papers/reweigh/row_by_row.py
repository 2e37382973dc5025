"""Hypotheses that a user brings: each must label a row by that row alone (`dpadapt.learning.row_by_row`)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpadapt.hybrid.questions import (
    ConstantHypothesis,
    EllipsoidHypothesis,
    Hypothesis,
    LinearHypothesis,
    ParityHypothesis,
)
from dpadapt.learning.row_by_row import on_private_rows, require_row_by_row, silenced, try_on_made_up_rows

# What messages call a hypothesis.
_HYPOTHESIS = "predict of a hypothesis"

# Hypotheses that treat each row by itself by construction: they need no trial, which would take long for long lists.
_ROW_BY_ROW = (LinearHypothesis, ConstantHypothesis, EllipsoidHypothesis, ParityHypothesis)


def require_hypothesis(hypothesis: Hypothesis, X: NDArray[Any]) -> None:
    """Raise a ValueError if a hypothesis can't label the private rows, each by itself; before anything is charged."""
    if type(hypothesis) in _ROW_BY_ROW:
        try_on_made_up_rows(hypothesis.predict, np.zeros((2, X.shape[1]), dtype=X.dtype), _HYPOTHESIS, 1)
    else:
        labels_of(hypothesis, X)


def labels_of(hypothesis: Hypothesis, X: NDArray[Any]) -> NDArray[Any]:
    """Return the label that a hypothesis gives each private row, from that row alone."""
    if type(hypothesis) in _ROW_BY_ROW:
        with silenced():
            return np.asarray(hypothesis.predict(X))
    require_row_by_row(hypothesis.predict, X.shape[1], X.dtype, _HYPOTHESIS)
    return on_private_rows(hypothesis.predict, X, _HYPOTHESIS)
