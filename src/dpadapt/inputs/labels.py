"""The label set of a classifier, and the index of each label in it; no refusal shows a private label."""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets

from dpadapt import checks
from dpadapt.inputs.arrays import Refused, require_plain


def label_set(declared: Any, y_public: Any, y: NDArray[Any]) -> tuple[NDArray[Any], str]:
    """Return the sorted classes, and for the receipt where they come from."""
    if declared is not None:
        classes, source = _distinct(declared, "classes"), "the label set (declared)"
    elif y_public is not None:
        classes, source = _distinct(y_public, "public y"), "the label set (that of the public labels)"
    else:
        classes, source = _distinct(y, "y"), "the label set: it was taken from y; declare it with classes="
    if len(classes) < 2:
        raise ValueError("there must be at least two classes, got one class. Declare all of them with classes=.")
    return classes, source


def _distinct(labels: Any, name: str) -> NDArray[Any]:
    """Return the sorted distinct labels, or refuse labels that can't be sorted; no label is shown."""
    refusal = f"{name} must hold labels of one kind, all numbers or all text. Declare them with classes=."
    with warnings.catch_warnings():
        # A warning about many or huge labels would reveal something about private labels.
        warnings.simplefilter("ignore")
        try:
            labels = checks.cells(labels)
            require_plain(labels, name)
            classes = np.unique(labels)
            # The classes are public, so they may have one type, unless it changes them.
            typed = np.asarray(classes.tolist())
            classes = typed if typed.tolist() == classes.tolist() and typed.dtype.kind != "S" else classes
            kind = classes.dtype.kind
            whole = all(label == label for label in classes.tolist())  # NaN differs from itself
            if whole and labels.ndim == 1 and (kind in "biuOSU" or (kind == "f" and np.isfinite(classes).all())):
                if name == "y":
                    check_classification_targets(classes)
                return classes
        except Refused as error:
            refusal = str(error)
        except ValueError as error:
            # scikit-learn says of which type the labels are, as a whole.
            refusal = str(error) if str(error).startswith("Unknown label type") else refusal
        except Exception:
            pass
    # Outside the handler: the original error may quote a label and would stay attached as the context of this one.
    raise ValueError(refusal)


def label_codes(labels: Any, classes: NDArray[Any], name: str) -> NDArray[np.int64]:
    """Return the index of each label in the sorted `classes`; an unknown label is refused and not shown."""
    # Each label by itself, and equal numbers are one class, whatever their types.
    positions = {label: code for code, label in enumerate(classes.tolist())}
    try:
        codes = [positions.get(label, -1) for label in np.asarray(checks.cells(labels)).tolist()]
    except TypeError:  # a list is no label
        codes = [-1]
    if -1 in codes:
        raise ValueError(f"{name} holds a label that is not among the classes. Declare all of them with classes=.")
    return np.asarray(codes, dtype=np.int64)
