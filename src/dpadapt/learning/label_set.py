"""The label set of a private classifier and the codes of labels in it."""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets


def label_set(declared: Any, y_public: Any, y: NDArray[Any]) -> tuple[NDArray[Any], str]:
    """Return the sorted classes and how they came to be known."""
    if declared is not None:
        classes, source = np.unique(np.asarray(declared)), "the label set (declared)"
    elif y_public is not None:
        classes, source = np.unique(y_public), "the label set (that of the public labels)"
    else:
        classes, source = _read_off(y), "the label set: it was read off y; declare it with classes="
    if len(classes) < 2:
        raise ValueError("there must be at least two classes, got one class. Declare all of them with classes=.")
    return classes, source


def _read_off(y: NDArray[Any]) -> NDArray[Any]:
    with warnings.catch_warnings():
        # A warning about many or huge labels would tell of private ones.
        warnings.simplefilter("ignore")
        try:
            check_classification_targets(y)
            return np.unique(y)
        except TypeError:
            raise ValueError(
                "y must hold labels of one kind, all numbers or all text. Declare them with classes=."
            ) from None


def label_codes(labels: Any, classes: NDArray[Any], name: str) -> NDArray[np.int64]:
    """Return the place of each label among the sorted `classes`; a label that is not there is refused, not shown."""
    labels = np.asarray(labels)
    try:
        codes = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
        known = bool(np.all(classes[codes] == labels))
    except TypeError:
        known = False
    if not known:
        raise ValueError(f"{name} holds a label that is not among the classes. Declare all of them with classes=.")
    return np.asarray(codes, dtype=np.int64)
