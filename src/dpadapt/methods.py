"""The table of methods: what is listed here appears in `dpadapt fit`, its help, saved models and the test batteries.

A new method joins by one line. Products come first and have one-word names; a published algorithm has the name of its
class in lower case, its words joined by hyphens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

Task = Literal["regression", "classification", "clustering"]


@dataclass(frozen=True)
class Method:
    """One way to fit a private model.

    `name` is what `--method` calls it, `path` names module and class, loaded when first used, and `summary` is one line
    for `--help`. `paper` is that of the five papers (PAPERS.md) which it comes from; None: it is ours. `beside` is what
    helps the private rows, public rows or people who answer for themselves; both may be left out. With `tasks` it
    learns from several public tasks, and needs to know which row belongs to which.
    """

    name: str
    task: Task
    path: str
    summary: str
    paper: int | None = None
    beside: Literal["public", "agents"] = "public"
    tasks: bool = False

    @property
    def published(self) -> bool:
        """Whether it is a published algorithm, kept for comparison, and no product."""
        return self.path.startswith("dpadapt.papers.")

    def estimator(self, **params: Any) -> Any:
        """Return a new, unfitted estimator."""
        module, _, name = self.path.rpartition(".")
        return getattr(import_module(module), name)(**params)


# For each task its products, then the published algorithms.
METHODS: tuple[Method, ...] = (
    Method(
        "transfer",
        "regression",
        "dpadapt.transfer.regression.PrivateTransferRegressor",
        "keeps the public model, a blend of linear and boosted ones, unless the private rows show that it is wrong",
    ),
    Method(
        "linear",
        "regression",
        "dpadapt.learning.linear.PrivateLinearRegression",
        "linear regression by private statistics or private descent, started from the public model, without a gate",
    ),
    Method(
        "subspace",
        "regression",
        "dpadapt.representation.subspace_regression.PrivateSubspaceRegressor",
        "linear regression in the subspace that many public tasks share; needs --tasks",
        paper=4,
        tasks=True,
    ),
    Method(
        "cnvx-adap",
        "regression",
        "dpadapt.papers.adaptation.cnvx.CnvxAdap",
        "CnvxAdap of private domain adaptation: noisy descent on private and public rows together",
        paper=1,
    ),
    Method(
        "private-best-da",
        "regression",
        "dpadapt.papers.adaptation.matching.PrivateBestDA",
        "public rows whose weights are chosen with the model, for private rows whose labels are not used",
        paper=1,
    ),
    Method(
        "reverse-adaptation",
        "regression",
        "dpadapt.papers.adaptation.private_statistics.ReverseAdaptation",
        "the reverse of adaptation: private rows help to model the public population",
        paper=1,
    ),
    Method(
        "pda-dpmd",
        "regression",
        "dpadapt.papers.mirror.estimators.PDADPMDRegressor",
        "PDA-DPMD: private mirror descent with the public loss as the mirror map",
        paper=2,
    ),
    Method(
        "transfer",
        "classification",
        "dpadapt.transfer.classification.PrivateTransferClassifier",
        "logistic regression that keeps the public model unless the private rows show that it is wrong",
    ),
    Method(
        "logistic",
        "classification",
        "dpadapt.learning.logistic.PrivateLogisticRegression",
        "logistic regression (two or more classes) by private descent, started from the public model, without a gate",
    ),
    Method(
        "hybrid",
        "classification",
        "dpadapt.hybrid.classifier.PrivateHybridClassifier",
        "logistic regression (two classes) for people who answer for themselves (--agents); the private rows are the "
        "curator's sample",
        paper=3,
        beside="agents",
    ),
    Method(
        "probe",
        "classification",
        "dpadapt.representation.probe.PrivateProbe",
        "logistic regression on the features of a frozen public encoder, in coordinates that public rows give",
        paper=4,
    ),
    Method(
        "ncnvx-adap",
        "classification",
        "dpadapt.papers.adaptation.ncnvx.NCnvxAdap",
        "NCnvxAdap of private domain adaptation: noisy descent on private and public rows together",
        paper=1,
    ),
    Method(
        "reverse-adaptation",
        "classification",
        "dpadapt.papers.adaptation.private_statistics.ReverseAdaptationClassifier",
        "the reverse of adaptation: private rows help to model the public population",
        paper=1,
    ),
    Method(
        "pda-dpmd",
        "classification",
        "dpadapt.papers.mirror.estimators.PDADPMDClassifier",
        "PDA-DPMD: private mirror descent with the public loss as the mirror map",
        paper=2,
    ),
    Method(
        "clustering",
        "clustering",
        "dpadapt.clustering.estimator.PrivateSourceTargetClustering",
        "--clusters public rows as centres, so that every public row is near a centre or near a private row",
        paper=5,
    ),
    Method(
        "nna",
        "clustering",
        "dpadapt.papers.source_target.proxies.NNA",
        "NNA of source-target clustering: noisy averages of the private rows near each public one",
        paper=5,
    ),
    Method(
        "nas",
        "clustering",
        "dpadapt.papers.source_target.proxies.NAS",
        "NAS of source-target clustering: noisy numbers of private rows near each public one",
        paper=5,
    ),
)

# The methods that predict a label.
PREDICTORS: tuple[Method, ...] = tuple(method for method in METHODS if method.task != "clustering")


def for_task(task: Task) -> Sequence[Method]:
    """Return the methods for a task; the first is its default."""
    return [method for method in METHODS if method.task == task]


def find(name: str | None, task: Task) -> Method:
    """Return the method called `name`, or the task's default."""
    known = for_task(task)
    for method in known:
        if name in (None, method.name):
            return method
    raise ValueError(f"method must be one of {', '.join(method.name for method in known)} for {task}, got {name!r}.")
