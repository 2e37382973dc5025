"""What a private transfer classifier can be expected to do, from public data and the budget alone: spends nothing."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array

from dpadapt import _validate
from dpadapt.accounting.gaussian import gaussian_mu
from dpadapt.data import Public, wrapped
from dpadapt.learning.base import Budget
from dpadapt.learning.label_set import label_codes, label_set
from dpadapt.learning.loss_gate import Path, slope_from_change, slope_from_losses
from dpadapt.learning.transfer_classification_plan import EXCESS, PRIORS, make_plan, stride
from dpadapt.learning.transfer_classification_public import prepared_for
from dpadapt.mechanisms.adjacency import Adjacency

# Below and above these ratios of expected to needed slope, gates stayed shut and open on the sets we know.
_SHUT, _OPEN = 0.3, 2.0
# Noise in a logit: below the first nothing is lost, above the second most of what could be learned is.
_LITTLE, _MUCH = 0.1, 1.0
_GATES = {
    "open": "If the private population differs as much as is usual, they probably would be.",
    "shut": "Even if the private population differs as much as is usual, they probably would not be.",
    "undecided": "Whether they would be, if the private population differs as much as is usual, is uncertain.",
}


@dataclass(frozen=True)
class ClassificationForecast:
    """What to expect of a fit before any of it is paid for.

    Parameters
    ----------
    worthwhile : bool
        Whether anything would be released at all.
    n_directions : int
        How many coordinates the budget is shared among.
    blur : float
        Standard deviation that the noise gives to a score (logit). Reliable: it depends on public numbers only. At 0.1
        nothing is lost; at 1 most of what could be learned is.
    needed_gain : float
        The loss per row that a correction of the expected size must save before more than a harmless part of it is
        adopted; 0 without a gate.
    ratio : float
        Expected over needed slope of the gain, if the private population differs as much as the prior believes. That
        belief is a guess about data nobody has looked at: weak evidence, see `gate`.
    gate : {"open", "shut", "undecided", "none"}
        "open" above a ratio of 2, "shut" below 0.3; "none" if there is no gate. Where the populations are the same,
        "open" is too hopeful.
    """

    worthwhile: bool
    n_directions: int
    blur: float
    needed_gain: float
    ratio: float
    gate: str

    def __str__(self) -> str:
        """Say it in words."""
        if not self.worthwhile:
            return "The budget is too small for this many rows: the public model would be returned, nothing spent."
        lost = "hardly any" if self.blur <= _LITTLE else "most" if self.blur >= _MUCH else "some"
        noise = f"The noise moves a score (a logit) by about {self.blur:.2g}: {lost} of what could be learned is lost."
        if self.gate == "none":
            return f"{noise} Without public labels there is no model to keep, so no gate."
        heard = f"Private rows must save {self.needed_gain:.2g} of log-loss per row to be heard."
        return f"{noise} {heard} {_GATES[self.gate]}"


def forecast_classification(
    public: Public,
    n_private: int,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    *,
    prior: str = "shifted",
    classes: Any = None,
    adjacency: str = "zero-out",
) -> ClassificationForecast:
    """Forecast a fit of `PrivateTransferClassifier`, without private data.

    It says how much noise the budget means and how many directions it buys. It does not promise an accuracy: that
    depends on how the private population differs, which only the private rows can tell.

    Parameters
    ----------
    public : Public
        Public data, with or without labels.
    n_private : int
        Number of private rows; under "add-remove" the public estimate of it.
    epsilon, delta : float
        What the fit may spend.
    prior : {"shifted", "same-population"}, default="shifted"
        As for the estimator.
    classes : array-like, optional
        All labels there can be; needed if the public data has no labels.
    adjacency : {"zero-out", "add-remove", "replace-one"}, default="zero-out"

    Returns
    -------
    forecast : ClassificationForecast

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import Public
    >>> rng = np.random.default_rng(7)
    >>> X = rng.uniform(-1, 1, (500, 3))
    >>> public = Public(X, X[:, 0] > 0)
    >>> forecast_classification(public, 10, epsilon=0.01).worthwhile
    False
    >>> forecast_classification(public, 50_000).gate
    'open'
    """
    wrapped(public)
    _validate.one_of(prior, PRIORS, "prior")
    n_private = _validate.count(n_private, "n_private")
    mu = gaussian_mu(_validate.positive(epsilon, "epsilon"), _validate.delta(delta))
    budget = Budget(mu, float(n_private), 2.0 if Adjacency.of(adjacency) is Adjacency.REPLACE_ONE else 1.0)
    X = check_array(public.X, dtype=np.float64, ensure_min_samples=2, input_name="public X")
    labels = None if public.y is None else np.asarray(public.y).ravel()
    if labels is None and classes is None:
        raise ValueError(
            "classes must be given if the public data has no labels: how many there are decides the noise."
        )
    known, _ = label_set(classes, labels, np.zeros(0))
    prepared = prepared_for(public, X, None if labels is None else label_codes(labels, known, "public y"), known)
    if not budget.worthwhile:
        return ClassificationForecast(False, 0, math.inf, math.inf, 0.0, "shut" if prepared.warm else "none")
    plan = make_plan(prepared, budget, prior)
    used = plan.used
    if not prepared.warm:
        return ClassificationForecast(True, len(used), plan.blur, 0.0, math.inf, "none")
    n_classes = prepared.start.shape[1]
    pace = stride(prepared, plan, np.zeros((len(used), n_classes)), budget.n_rows)
    kept = pace.curvature / (pace.curvature + pace.ridge)
    # One change of the size that the prior expects after shrinkage; its direction matters little.
    drawn = np.random.default_rng(0).standard_normal((len(used), n_classes))
    drawn -= drawn.mean(axis=1, keepdims=True)
    drawn *= np.sqrt((n_classes - 1) / np.sum(drawn**2, axis=1, keepdims=True))
    change = drawn * np.sqrt(plan.expected[used] * kept)[:, None]
    path = Path(prepared.sample_scores, prepared.sample_scores + prepared.sample[:, used] @ change)
    noise = budget.noise(path.bound) / math.sqrt(plan.gate_share)
    measured = slope_from_losses(0.0, noise, path, optimism=0.0, n_rows=budget.n_rows)
    variance = EXCESS * (plan.noise / plan.weights[used]) ** 2 + pace.curvature / budget.n_rows
    own = slope_from_change(change, pace.curvature + pace.ridge, variance)
    needed = abs(plan.caution) * own.with_other(measured).scatter
    ratio = 2.0 * path.divergence(1.0) / needed
    gate = "open" if plan.caution < 0 or ratio > _OPEN else "shut" if ratio < _SHUT else "undecided"
    return ClassificationForecast(True, len(used), plan.blur, needed, ratio, gate)
