"""The table of methods: what is listed here appears in `dpadapt fit`, `dpadapt demo`, their help and the batteries.

A new method joins by one line.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

Task = Literal["regression", "classification"]


@dataclass(frozen=True)
class Method:
    """One way to fit a private model.

    Parameters
    ----------
    name : str
        What `--method` calls it.
    task : {"regression", "classification"}
    path : str
        Module and class, loaded when first used.
    summary : str
        One line for `--help`.
    """

    name: str
    task: Task
    path: str
    summary: str

    def estimator(self, **params: Any) -> Any:
        """Return a new, unfitted estimator."""
        module, _, name = self.path.rpartition(".")
        return getattr(import_module(module), name)(**params)


METHODS: tuple[Method, ...] = (
    Method(
        "linear",
        "regression",
        "dpadapt.learning.linear.PrivateLinearRegression",
        "linear regression by private statistics or private descent, started from the public model",
    ),
    Method(
        "transfer",
        "regression",
        "dpadapt.learning.transfer_regression.PrivateTransferRegressor",
        "linear regression that keeps to the public model unless the private rows show that it is wrong",
    ),
    Method(
        "transfer",
        "classification",
        "dpadapt.learning.transfer_classification.PrivateTransferClassifier",
        "logistic regression that keeps to the public model unless the private rows show that it is wrong",
    ),
    Method(
        "logistic",
        "classification",
        "dpadapt.learning.logistic.PrivateLogisticRegression",
        "logistic regression (two or more classes) by private descent, started from the public model",
    ),
)

DEFAULT: dict[Task, str] = {"regression": "linear", "classification": "logistic"}


def find(name: str | None, task: Task) -> Method:
    """Return the method called `name`, or the task's default."""
    wanted = DEFAULT[task] if name is None else name
    for method in METHODS:
        if method.name == wanted and method.task == task:
            return method
    known = ", ".join(method.name for method in METHODS if method.task == task)
    raise ValueError(f"method must be one of {known} for {task}, got {wanted!r}.")
