"""The table of baselines that private domain adaptation is compared with: name, task, private or not.

All are estimators with `fit(X, y, *, public=Public(X_source, y_source), ledger=None)`, `X`, `y` being the target; only
`reverse` protects the source instead. Those that are not private say so on their receipts.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

Task = Literal["regression", "classification"]


@dataclass(frozen=True)
class Baseline:
    """One baseline.

    Parameters
    ----------
    name : str
        What tables call it.
    task : {"regression", "classification"}
    private : bool
        Whether it takes epsilon and delta and protects the private rows.
    path : str
        Module and class, loaded when first used.
    params : tuple of (str, value) pairs
        What makes this baseline of that class.
    """

    name: str
    task: Task
    private: bool
    path: str
    params: tuple[tuple[str, Any], ...] = ()

    def estimator(self, **params: Any) -> Any:
        """Return a new, unfitted estimator."""
        module, _, name = self.path.rpartition(".")
        return getattr(import_module(f"dpadapt.{module}"), name)(**{**dict(self.params), **params})


BASELINES: tuple[Baseline, ...] = (
    Baseline("train source", "regression", False, "adaptation.mixtures.AlphaMixture", (("alpha", 1.0),)),
    Baseline("train target", "regression", False, "adaptation.mixtures.AlphaMixture", (("alpha", 0.0),)),
    Baseline("mixture", "regression", False, "adaptation.mixtures.AlphaMixture", (("alpha", 0.5),)),
    Baseline("SBest", "regression", False, "adaptation.sbest.SBest"),
    Baseline("exact (6)", "regression", False, "adaptation.sbest.SBest", (("form", "convex"),)),
    Baseline("KMM", "regression", False, "adaptation.matching.KernelMeanMatching"),
    Baseline("DM", "regression", False, "adaptation.matching.DiscrepancyMinimization"),
    Baseline("noisy SGD", "regression", True, "adaptation.noisy_sgd.NoisySGD"),
    Baseline("private DM", "regression", True, "adaptation.private_dm.PrivateDiscrepancyMinimization"),
    Baseline("statistics", "regression", True, "learning.linear.PrivateLinearRegression", (("solver", "statistics"),)),
    Baseline("private mixture", "regression", True, "adaptation.private_mixture.PrivateMixture"),
    Baseline("reverse", "regression", True, "adaptation.reverse.ReverseAdaptation"),
    Baseline("train source", "classification", False, "adaptation.mixtures.AlphaMixtureClassifier", (("alpha", 1.0),)),
    Baseline("train target", "classification", False, "adaptation.mixtures.AlphaMixtureClassifier", (("alpha", 0.0),)),
    Baseline("mixture", "classification", False, "adaptation.mixtures.AlphaMixtureClassifier", (("alpha", 0.5),)),
    Baseline("SBest", "classification", False, "adaptation.sbest.SBestClassifier"),
    Baseline("KMM", "classification", False, "adaptation.matching.KernelMeanMatchingClassifier"),
)


def baseline(name: str, task: Task = "regression") -> Baseline:
    """Return the baseline called `name`.

    Examples
    --------
    >>> baseline("DM").private
    False
    >>> baseline("noisy SGD").estimator(epsilon=4.0)
    NoisySGD(epsilon=4.0)
    """
    for found in BASELINES:
        if found.name == name and found.task == task:
            return found
    known = ", ".join(repr(found.name) for found in BASELINES if found.task == task)
    raise ValueError(f"name must be one of {known} for {task}, got {name!r}.")
