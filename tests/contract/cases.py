"""What the contract runs on: every private estimator of the package, found by itself, with a recipe to fit it.

A recipe says which data an estimator is fitted on, what stands beside the private rows (public data, people, targets)
and which parameters keep the fit small. A class without a recipe fails `test_every_estimator.py`.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import dpadapt
from dpadapt import (
    Adjacency,
    PrivateLinearRegression,
    PrivateTransferClassifier,
    PrivateTransferRegressor,
    Public,
    Schema,
    TableModel,
)
from dpadapt.hybrid.agents import SimulatedAgents
from dpadapt.hybrid.questions import LinearHypothesis, Squares
from dpadapt.learning.base import PrivateEstimator
from dpadapt.papers.reweigh.learners import DescentLearner, OnlineLearner
from dpadapt.papers.reweigh.learners_discrete import FiniteLearner, ParityLearner, SparseLearner
from dpadapt.tables import Category, Date, Number

# Packages that need more than the core; they are searched where that is installed.
EXTRAS = ("dpadapt.networks", "dpadapt.integrations.flower")
ADJACENCIES = tuple(adjacency.value for adjacency in Adjacency)
# A release with an entry per row shows how many rows there are.
FIXED_ROWS = ("zero-out", "replace-one")
N_ROWS, N_FEATURES = 400, 4


def estimators() -> list[type]:
    """Return every private estimator of the package that can be made, also one that others derive from."""
    for module in pkgutil.walk_packages(dpadapt.__path__, "dpadapt.", onerror=lambda name: None):
        try:
            importlib.import_module(module.name)
        except ImportError:
            if not module.name.startswith(EXTRAS):
                raise
    classes, todo = set(), [PrivateEstimator]
    while todo:
        cls = todo.pop()
        todo += [child for child in cls.__subclasses__() if child.__module__.startswith("dpadapt.")]
        # A base class leaves the parameters to the classes below it.
        if any("__init__" in vars(owner) for owner in cls.__mro__ if issubclass(owner, PrivateEstimator)):
            classes.add(cls)
    return sorted(classes, key=lambda cls: cls.__name__)


@dataclass(frozen=True)
class Recipe:
    """How an estimator is fitted.

    Parameters
    ----------
    name : str
        What is special about this fit.
    rows : {"regression", "classes", "two classes", "bits", "unlabelled", "sources"}
        What the private rows are like.
    beside : callable
        Takes nothing and returns what `fit` is given besides the private rows, by name. It is called for every fit,
        because people answer once.
    params : dict
    n_rows : int
    variant : bool
        Whether only what leaves is checked: other recipes of the class show what is spent and what is refused.
    adjacencies : tuple of str
        Under which the estimator can be fitted.
    slow : bool
        Whether it takes seconds, e.g. to find the noise of yet another plan with samples.
    """

    name: str
    rows: str
    beside: Callable[[], dict[str, Any]]
    params: dict[str, Any] = field(default_factory=dict)
    n_rows: int = N_ROWS
    variant: bool = False
    adjacencies: tuple[str, ...] = ADJACENCIES
    slow: bool = False


@dataclass(frozen=True, eq=False)
class Case:
    """An estimator and one way to fit it."""

    cls: type
    recipe: Recipe

    def __str__(self) -> str:
        return f"{self.cls.__name__}, {self.recipe.name}"

    @property
    def epsilon(self) -> float:
        return self.recipe.params.get("epsilon", 2.0)

    @property
    def delta(self) -> float:
        return self.recipe.params.get("delta", 1e-5)

    def make(self, adjacency: str = "zero-out", **params: Any) -> Any:
        """Return a new estimator."""
        wanted: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-5, "random_state": 0, "adjacency": adjacency}
        if adjacency == "add-remove":
            wanted["n_rows"] = self.recipe.n_rows
        if "classes" in self.recipe.rows:
            wanted["classes"] = self.classes
        estimator = self.cls(**{"n_clusters": 3} if self.recipe.rows == "sources" else {})
        known = estimator.get_params(deep=False)
        chosen = {**wanted, **self.recipe.params, **params}
        return estimator.set_params(**{name: value for name, value in chosen.items() if name in known})

    @property
    def classes(self) -> list[int]:
        return [0, 1, 2] if self.recipe.rows == "classes" else [0, 1]

    def data(self) -> tuple[Any, ...]:
        """Return the private data: the arguments of `fit` by position."""
        X, y = made_up(self.recipe.rows, self.recipe.n_rows, seed=3)
        return (X.copy(),) if y is None else (X.copy(), y.copy())

    def fit(
        self,
        data: tuple[Any, ...],
        *,
        ledger: Any = None,
        adjacency: str = "zero-out",
        beside: dict[str, Any] | None = None,
        **params: Any,
    ) -> Any:
        """Return a fitted estimator; `beside` takes the place of what the recipe gives besides the private rows."""
        beside = self.recipe.beside() if beside is None else beside
        return self.make(adjacency, **params).fit(*data, **beside, ledger=ledger)

    def to_predict(self) -> Any:
        """Return rows to predict."""
        return self.data()[0]

    def records(self) -> list[tuple[Any, Any]]:
        """Return records that move statistics as far as they can: long rows in opposite directions, and others."""
        low, high = self.classes[0], self.classes[-1]
        if self.recipe.rows == "regression":
            low, high = -1e6, 1e6
        if self.recipe.rows == "bits":
            return [([1.0, 1.0, 0.0, 0.0], 1), ([0.0, 1.0, 1.0, 0.0], 0), ([0.0, 0.0, 0.0, 1.0], 1)]
        if self.recipe.rows == "sources":
            return [(np.full(N_FEATURES, place), None) for place in (0.5, -0.5, 0.0, 1e6)]
        return [
            (np.full(N_FEATURES, 1e6), high),
            (np.full(N_FEATURES, 1e6), low),
            (np.array([1.0, -1.0, 0.5, 0.0]), low),
            (np.full(N_FEATURES, -0.9), high),
        ]

    def stranger(self) -> tuple[Any, ...]:
        """Return other private data of the same kind, of which every row is different, and most are unlike."""
        X, y = made_up(self.recipe.rows, self.recipe.n_rows, seed=7)
        if self.recipe.rows == "bits":
            return X.copy(), 1 - y
        X = 0.3 * X + 0.4 if self.recipe.rows == "sources" else 5.0 * X + 2.0
        if y is None:
            return (X,)
        return X, 7.0 * y[::-1] + 3.0 if self.recipe.rows == "regression" else y[::-1].copy()

    def with_record(self, row: Any, label: Any) -> tuple[Any, ...]:
        """Return the private data with its last record replaced."""
        X, *y = self.data()
        X[-1] = row
        if y:
            y[0][-1] = label
        return (X, *y)


class TableCase(Case):
    """A model of tables: the same rows as data frames, with dates, categories and missing cells."""

    def make(self, adjacency: str = "zero-out", **params: Any) -> Any:
        """Return a new table model of the estimator that the recipe names."""
        inner = dict(self.recipe.params)
        made = Case(inner.pop("estimator"), replace(self.recipe, params=inner)).make(adjacency, **params)
        return TableModel(made, schema_of(self.recipe.rows), label="y")

    def fit(self, data: tuple[Any, ...], *, beside: dict[str, Any] | None = None, **options: Any) -> Any:
        """Return a fitted table model; arrays become data frames, each row by itself."""
        beside = self.recipe.beside() if beside is None else beside
        private, public = frame_of(*data), beside.get("public")
        if isinstance(public, Public):
            same = public.X is data[0]
            beside = {"public": Public(private if same else frame_of(public.X, public.y))}
        return super().fit((private,), beside=beside, **options)

    def to_predict(self) -> Any:
        """Return rows to predict."""
        return frame_of(self.data()[0])


def frame_of(X: Any, y: Any = None) -> pd.DataFrame:
    """Return rows as a messy table; what a row becomes depends on that row alone."""
    columns = dict(zip(("size", "share", "day", "kind"), np.asarray(X, dtype=np.float64).T, strict=False))
    frame = pd.DataFrame(columns)
    frame["size"] = frame["size"].mask((frame["size"] > 0.7) & (frame["size"] < 1.0))
    frame["share"] = frame["share"].astype(str)
    frame["day"] = pd.Timestamp("2020-07-01") + pd.to_timedelta((frame["day"].clip(-3, 3) * 180).round(), unit="D")
    if "kind" in frame:
        kinds = np.array(["low", "middle", "high", None, "strange"], dtype=object)
        frame["kind"] = kinds[np.digitize(frame["kind"], [-0.5, 0.5, 0.9, 1.0])]
    return frame if y is None else frame.assign(y=y)


def schema_of(rows: str) -> Schema:
    """Return the schema of these tables."""
    label = Number("y", -3.0, 3.0) if rows == "regression" else Number("y", 0, 2, (0, 1, 2)[: 3 - (rows != "classes")])
    return Schema(
        "made up",
        (
            Number("size", -1.0, 1.0, fill=0.0, missing=True),
            Number("share", -1.0, 1.0),
            Date("day", date(2020, 1, 1), date(2020, 12, 31), ("month",)),
            Category("kind", ("high", "low", "middle"), other=True, missing=True),
            label,
        ),
    )


@cache
def made_up(rows: str, n: int, seed: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Return features and targets; the targets of `unlabelled` rows and `sources` are None."""
    random = np.random.default_rng(seed)
    if rows == "bits":
        X = random.integers(0, 2, (n, N_FEATURES)).astype(float)
        return X, X[:, :2].sum(axis=1).astype(int) % 2
    X = random.uniform(-1, 1, (n, N_FEATURES))
    if rows in ("unlabelled", "sources"):
        return X, None
    score = X @ [1.0, -1.0, 0.5, 0.0] + 0.1 * random.standard_normal(n)
    cuts = {"regression": None, "classes": [-0.5, 0.5], "two classes": [0.0]}[rows]
    return X, score if cuts is None else np.digitize(score, cuts)


def labelled(rows: str) -> Callable[[], dict[str, Any]]:
    X, y = made_up(rows, 150, seed=4)
    # Tasks are for those that learn from several; the others pass them over.
    public = Public(X, y, tasks=np.arange(len(X)) % 5)
    return lambda: {"public": public}


def shifted(rows: str) -> Callable[[], dict[str, Any]]:
    """Return public data in which other columns matter, so that a correction of its model is worthwhile."""
    X, y = made_up(rows, 150, seed=4)
    public = Public(X[:, ::-1].copy(), y)
    return lambda: {"public": public}


def lacking(rows: str) -> Callable[[], dict[str, Any]]:
    """Return public data in which the last column is constant, such as the indicator of a group that it lacks."""
    X, y = made_up(rows, 150, seed=4)
    X = X[:, [1, 0, 2, 3]] * [1.0, 1.0, 1.0, 0.0]
    public = Public(X, y)
    return lambda: {"public": public}


def unlabelled() -> dict[str, Any]:
    return {"public": Public(made_up("unlabelled", 150, seed=4)[0])}


def targets() -> dict[str, Any]:
    return {"public": Public(made_up("sources", 60, seed=5)[0])}


def nothing() -> dict[str, Any]:
    return {}


def people(
    n: int, epsilon: float = 3.0, *, rows: str = "two classes", shift: float = 0.0
) -> Callable[[], dict[str, Any]]:
    """Return people who contradict the private rows, so that no test is passed and every stage is reached."""
    X, y = made_up(rows, 2000, seed=6)
    X = X + shift * (np.arange(X.shape[1]) == 0)
    labels = np.arange(len(X)) % 2 if rows == "bits" else np.where(X[:, 3] > 0, y, 1 - y)
    return lambda: {"agents": SimulatedAgents(X, labels, epsilon, n_people=n, random_state=1)}


def with_every_public(rows: str, **params: Any) -> list[Recipe]:
    """Return recipes with labelled, unlabelled and no public data."""
    alone = "two classes" if rows == "classes" else rows
    return [
        Recipe("labelled public", rows, labelled(rows), params),
        Recipe("unlabelled public", rows, unlabelled, params),
        Recipe("no public", alone, nothing, params),
    ]


def variant(name: str, rows: str, beside: Callable[..., Any], **params: Any) -> Recipe:
    """Return a further recipe; `labelled`, `shifted` and `lacking` are told which rows."""
    given = beside(rows) if beside in (labelled, shifted, lacking) else beside
    return Recipe(name, rows, given, params, variant=True)


def encoder(rows: np.ndarray) -> np.ndarray:
    """Return features of each row by itself."""
    return np.tanh(rows)


TREE = DecisionTreeRegressor(max_depth=3, random_state=0)
CLASSIFIER_TREE = DecisionTreeClassifier(max_depth=3, random_state=0)
LISTED = [LinearHypothesis([1.0, -1.0, 0.0, 0.0], cut) for cut in np.linspace(-1, 1, 5)]
ROUNDS: dict[str, Any] = {"n_rounds": 3, "alpha": 0.05}
SAMPLED_DESCENT = DescentLearner(n_steps=5, sampling_rate=0.3)

RECIPES: dict[str, list[Recipe]] = {
    # Regression.
    "PrivateTransferRegressor": [
        *with_every_public("regression"),
        variant("shifted public", "regression", shifted, epsilon=8.0),
        variant("same population", "regression", labelled, prior="same-population"),
        variant("unseen column", "regression", lacking, epsilon=8.0),
        variant("public model", "regression", shifted, epsilon=8.0, public_model=TREE),
        variant("linear public model", "regression", shifted, epsilon=8.0, public_model="linear"),
        variant("intervals", "regression", shifted, epsilon=8.0, intervals=True),
        variant("intervals, same population", "regression", labelled, prior="same-population", intervals=True),
    ],
    "PrivateLinearRegression": [
        *with_every_public("regression"),
        variant("statistics", "regression", nothing, solver="statistics"),
        # The budget is large enough for ranges.
        variant("descent with ranges", "regression", nothing, solver="descent", epsilon=8.0),
        variant("statistics with ranges", "regression", nothing, solver="statistics", epsilon=8.0),
        variant("statistics, labelled public", "regression", labelled, solver="statistics"),
    ],
    "PrivateSubspaceRegressor": [
        *with_every_public("regression"),
        variant("within the subspace", "regression", labelled, projection="hard", n_components=2),
        variant("known subspace", "regression", nothing, basis=np.eye(4)[:, :2]),
        variant("no intercepts", "regression", labelled, fit_intercept=False),
    ],
    "CnvxAdap": [
        *with_every_public("regression", n_steps=20),
        variant("discrepancy", "regression", labelled, n_steps=20, discrepancy_share=0.3),
        replace(
            variant(
                "paper's noise", "regression", labelled, n_steps=20, noise="paper", kappa2=0.5, discrepancy_share=0.0
            ),
            adjacencies=FIXED_ROWS,
            n_rows=60,  # with few rows the weights move
        ),
    ],
    "FeatureMapAdaptation": [
        *with_every_public("regression", n_steps=20),
        variant("known map", "regression", labelled, n_steps=20, map_radius=0.0),
    ],
    "PrivateBestDA": [
        *with_every_public("regression"),
        variant("local", "regression", labelled, local_radius=1.0, lambda2=0.1, lambda_inf=0.1),
    ],
    "ReverseAdaptation": [
        *with_every_public("regression"),
        variant("given alpha", "regression", labelled, alpha=0.5),
    ],
    "ReverseAdaptationClassifier": [
        *with_every_public("two classes"),
        variant("three classes", "classes", labelled),
        variant("given alpha", "two classes", labelled, alpha=0.5),
    ],
    "PDADPMDRegressor": [
        *with_every_public("regression", n_steps=20),
        variant("first-order steps", "regression", labelled, n_steps=20, step="first-order"),
        variant("raw features", "regression", labelled, n_steps=20, standardise=False, fit_intercept=False),
    ],
    "DPAMBSSGD": [
        Recipe("Poisson samples", "regression", nothing, {"batch_size": 100}),
        variant("public tasks", "regression", labelled, batch_size=100, n_components=2),
        variant("paper's noise, Poisson", "regression", nothing, batch_size=100, noise="paper"),
    ],
    # A mean.
    "PDADPMDMean": [
        Recipe("public", "unlabelled", unlabelled, {"n_steps": 3}),
        Recipe("no public", "unlabelled", nothing),
        variant("paper's noise", "unlabelled", unlabelled, n_steps=3, noise="paper"),
    ],
    # Classification.
    "PrivateTransferClassifier": [
        *with_every_public("classes"),
        variant("shifted public", "classes", shifted, epsilon=8.0),
        variant("same population", "classes", labelled, prior="same-population"),
        variant("unseen column", "classes", lacking, epsilon=8.0),
        variant("public model", "classes", shifted, epsilon=8.0, public_model=CLASSIFIER_TREE),
        variant("linear public model", "classes", shifted, epsilon=8.0, public_model="linear"),
        variant("intervals", "classes", shifted, epsilon=8.0, intervals=True),
        variant("intervals, unlabelled public", "classes", unlabelled, intervals=True),
    ],
    "PrivateLogisticRegression": [
        *with_every_public("classes"),
        variant("range", "two classes", nothing, epsilon=8.0),
        variant("three classes alone", "classes", nothing),
        variant("two classes, labelled public", "two classes", labelled),
    ],
    "PrivateProbe": [
        *with_every_public("classes"),
        # Enough of a budget for the private moments of the features.
        Recipe("private moments", "classes", unlabelled, {"epsilon": 8.0}),
        Recipe("encoder", "classes", labelled("classes"), {"encoder": encoder}),
        variant("encoder alone", "two classes", nothing, encoder=encoder),
    ],
    "NCnvxAdap": [
        *with_every_public("classes", n_steps=20),
        variant("discrepancy", "classes", labelled, n_steps=20, discrepancy_share=0.3),
        variant("tail", "classes", labelled, n_steps=20, average="tail"),
        replace(
            variant(
                "paper's noise", "classes", labelled, n_steps=20, noise="paper", lambda2=0.5, discrepancy_share=0.0
            ),
            adjacencies=FIXED_ROWS,
        ),
    ],
    "PDADPMDClassifier": with_every_public("classes", n_steps=20),
    "DescentProbe": [
        Recipe("whitened", "classes", unlabelled, {"rows": "whitened", "n_steps": 10}),
        variant("Poisson samples", "two classes", nothing, n_steps=8, batch_size=100),
    ],
    "PrivateHybridClassifier": [
        Recipe("nobody", "two classes", nothing),
        Recipe("people", "two classes", people(20_000)),
        # The budget is large enough for weights, so that all kinds of releases are made.
        Recipe("people and weights", "two classes", people(20_000, shift=0.5), {"mode": "hybrid", "epsilon": 60.0}),
        variant("categories", "two classes", nothing, groups=[[1, 2, 3]]),
    ],
    "SubsampleTestReweigh": [
        Recipe("nobody", "two classes", nothing),
        Recipe("people", "two classes", people(20_000), {**ROUNDS, "learner": DescentLearner(n_steps=5)}),
        variant("mapped rows", "two classes", nothing, learner=DescentLearner(Squares(0.5), n_steps=5)),
        replace(
            variant("Poisson samples", "two classes", people(20_000), **ROUNDS, learner=SAMPLED_DESCENT), slow=True
        ),
        variant("online", "two classes", nothing, learner=OnlineLearner(n_steps=40), density=0.05),
        variant(
            "weights by losses",
            "two classes",
            people(20_000),
            **ROUNDS,
            learner=OnlineLearner(n_steps=5),
            density=0.5,
            reweigh_by="losses",
            epsilon=8.0,
        ),
        variant("listed hypotheses", "two classes", people(20_000), **ROUNDS, learner=FiniteLearner(LISTED)),
        Recipe("listed hypotheses, pure", "two classes", nothing, {"learner": FiniteLearner(LISTED), "delta": 0.0}),
        variant(
            "rounds of listed hypotheses, pure",
            "two classes",
            people(20_000),
            **ROUNDS,
            learner=FiniteLearner(LISTED),
            delta=0.0,
        ),
        variant("ellipsoids", "two classes", nothing, learner=SparseLearner(most=2, passes=1, scale=0.5)),
        variant(
            "ellipsoids of known size",
            "two classes",
            nothing,
            learner=SparseLearner(most=2, exactly=True, inside=1, scale=0.5),
        ),
        variant(
            "paper's weights",
            "two classes",
            people(60_000),
            **ROUNDS,
            learner=DescentLearner(n_steps=5),
            constants="paper",
            density=0.3,
        ),
        variant("parities", "bits", nothing, learner=ParityLearner(), classes=[0, 1], delta=0.0),
    ],
    # Clustering.
    "PrivateSourceTargetClustering": [
        Recipe("Laplace", "sources", targets, {"delta": 0.0}),
        variant("Gaussian", "sources", targets, noise="gaussian"),
        variant("bound on the cost", "sources", targets, delta=0.0, certificate_share=0.3, n_clusters=[2, 3]),
    ],
    "NNA": [
        variant("paper's constants", "sources", targets, delta=0.0, constants="paper", threshold="paper"),
        variant("all targets", "sources", targets, delta=0.0, coreset_distance=None),
        Recipe("Laplace", "sources", targets, {"delta": 0.0}),
        variant("Gaussian", "sources", targets),
    ],
    "NAS": [
        # More neighbours than sources: a further source then moves the average around every target.
        Recipe("Laplace", "sources", targets, {"delta": 0.0, "n_neighbours": 70}, n_rows=60),
        replace(variant("Gaussian", "sources", targets, n_neighbours=70), n_rows=60),
        replace(variant("paper's composition", "sources", targets, n_neighbours=70, constants="paper"), n_rows=60),
    ],
    # Tables.
    "TableModel": [
        *(
            replace(recipe, params={"estimator": PrivateTransferRegressor})
            for recipe in with_every_public("regression")
        ),
        *(
            replace(recipe, params={"estimator": PrivateTransferClassifier}, name=f"classes, {recipe.name}")
            for recipe in with_every_public("classes")
        ),
        variant("shifted public", "regression", shifted, estimator=PrivateTransferRegressor, epsilon=8.0),
        variant("linear", "regression", nothing, estimator=PrivateLinearRegression),
    ],
    # Networks, where torch is installed.
    "PrivateNetwork": [
        Recipe("labelled public", "classes", labelled("classes"), {"n_steps": 3, "public_steps": 5, "batch_size": 400}),
        variant("Poisson samples", "two classes", nothing, n_steps=8, batch_size=100),
        variant("mirror", "classes", labelled, transfer="mirror", n_steps=8, public_steps=5, batch_size=100),
    ],
}


CASES = [
    (TableCase if cls is TableModel else Case)(cls, recipe)
    for cls in estimators()
    for recipe in RECIPES.get(cls.__name__, [])
]
