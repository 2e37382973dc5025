"""`forecast`: what a private fit could do, told from public data and the budget alone. Spends nothing."""

from typing import Any

from dpadapt import _validate
from dpadapt.data import Public, wrapped


def forecast(estimator: Any, public: Public, n_private: int) -> Any:
    """Return what `estimator` could do with `n_private` private rows, before any of them is read.

    It is a go / no-go signal and no error bar: how far the private population differs from the public one, only the
    private rows can tell. `rehearse` goes further where public data can mimic that difference.

    Parameters
    ----------
    estimator : PrivateTransferRegressor or PrivateTransferClassifier
        Unfitted; its own epsilon, delta, prior and adjacency are used.
    public : Public
        Public data; labelled for a regression.
    n_private : int
        How many private rows there will be; under "add-remove" a public estimate of it.

    Returns
    -------
    TransferForecast or ClassificationForecast
        Both say whether it is `worthwhile` and over how many directions (`n_directions`) the budget is spread.

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import PrivateTransferRegressor
    >>> X = np.random.default_rng(7).uniform(-1, 1, (300, 3))
    >>> public = Public(X, X @ [1.0, 0.5, -1.0])
    >>> forecast(PrivateTransferRegressor(epsilon=0.1), public, n_private=20).worthwhile
    False
    """
    if not hasattr(estimator, "forecast"):
        raise TypeError(f"estimator must have a forecast, as the transfer estimators do; {type(estimator).__name__} "
                        f"has none. Use rehearse.")  # fmt: skip
    return estimator.forecast(wrapped(public), _validate.count(n_private, "n_private"))
