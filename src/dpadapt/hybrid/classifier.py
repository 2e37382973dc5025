"""`PrivateHybridClassifier`: a curator's sample of one population, and people of another who answer for themselves.

The setting is that of R. Kohen, O. Sheffet. Transfer Learning In Differential Privacy's Hybrid-Model. ICML 2022; the
method is ours.
"""

import math
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from dpadapt import checks
from dpadapt.accounting.ledger import Ledger
from dpadapt.hybrid.agents import Agents
from dpadapt.hybrid.classifier_fit import Stages
from dpadapt.hybrid.classifier_plan import MODES, make_plan
from dpadapt.hybrid.mapped_questions import PublicMap, public_map
from dpadapt.learning.estimator import LinearClassifier, label_codes, label_set
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.rows import Rows


class PrivateHybridClassifier(LinearClassifier):
    """Logistic regression (two classes) for people who only answer questions, helped by a curator's biased sample.

    The curator releases second moments and a model of its rows. Each person of the target population answers one
    question with one noisy bit. Their means tell how they differ from the curator's rows, which are then weighted to
    look like them and fitted again, if the budget allows; their residuals correct the model. Last, people who were
    never asked before compare the result with the curator's own model, which is returned unless they rule out that the
    result is wrong more often by `tolerance`.

    Privacy
    -------
    Protects one row of the curator (see `adjacency`), and each person with the agents' own pure epsilon.
    Releases: the rows' second moments, clipped gradient sums and, if rows are weighted, weighted means and the sum of
    weights, all Gaussian.
    Costs at most `epsilon`, `delta`; see `privacy_`. Each person answers once, so nothing adds up for anybody.

    Parameters
    ----------
    epsilon : float, default=1.0
        Most this fit may spend of the curator's budget. Positive.
    {delta}
    mode : {"auto", "hybrid", "local", "curator"}, default="auto"
        "curator" uses no people, "local" nothing of the curator. "auto" decides by public numbers; see Notes.
    bounds : pair or array-like of shape (n_features, 2), optional
        The range of each column, or of all: about two standard deviations each way. Values beyond it are clipped.
        Choose it without looking at private rows. Default: (-1, 1).
    groups : sequence of sequences of int, optional
        Columns that are the indicators (0 or 1) of one category. People are then asked about a category, not a column,
        so that many levels cost no more people than few.
    tolerance : float, default=0.01
        The result may be wrong this much more often than the curator's own model, with probability 0.05 at most.
    classes : array-like of two, optional
        The labels. Default: those that occur in `y`, which the receipt then lists as assumed public.
    adjacency : {"zero-out", "add-remove", "replace-one"}, default="zero-out"
        Which data sets of the curator count as neighbours.
    n_rows : int, optional
        Under "add-remove" only: a public estimate of the number of rows.
    random_state : int, optional
        For tests only: seeds the curator's noise, so that there is no guarantee. Default: secure noise.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features)
        Of the columns brought to [-2, 2] by `bounds`.
    intercept_ : ndarray of shape (1,)
    source_coef_, source_intercept_ : ndarray
        The model of the curator's rows alone, the incumbent of the last test; zeros in mode "local".
    classes_ : ndarray of shape (2,)
    map_ : dict
        The public map that rows go through: the ranges and the groups of the columns.
    mode_ : str
        What "auto" decided.
    chosen_ : str
        "source", "source, corrected", "tilted, corrected", "people alone", or "nothing" if the budget is too small.
    estimates_ : dict of str to float
        By how much people say the result leads, the margin of that (one-sided, 95%), the noise of an asked mean, the
        size of the shift and the largest weight.
    people_asked_ : dict of str to int
        How many people each stage asked.
    n_features_in_ : int
    privacy_ : Receipt
        What was released about the curator's rows and what it cost.

    Notes
    -----
    Rows are brought to a bounded form by a public map, the same for curator and people: numbers are clipped to their
    range, a category has at most one indicator, long rows are scaled down to 1.2 times a typical length.

    Weights are tried if n_rows * mu is large against sqrt(columns), so that a weight of twice the mean keeps the noise
    of the fit below a tenth. Weighted or not, constant and slope are corrected by residuals; all coefficients are, if
    there are people enough for so many variables.

    "auto" asks nobody if there are fewer than 20,000 people (at epsilon 1; four times as many at 0.5), since no gain
    could be proven, and leaves the curator alone if there are a million, at most 10 variables and 15 columns: people
    alone do as well then.

    References
    ----------
    .. [1] R. Kohen, O. Sheffet. Transfer Learning In Differential Privacy's Hybrid-Model. ICML 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt.hybrid import PrivateHybridClassifier, SimulatedAgents
    >>> rng = np.random.default_rng(0)
    >>> X, X_people = rng.uniform(-1, 1, (4000, 3)), rng.uniform(-1, 1, (50_000, 3))
    >>> y, y_people = (X[:, 0] > 0.5).astype(int), (X_people[:, 0] > 0).astype(int)
    >>> agents = SimulatedAgents(X_people, y_people, epsilon=1.0, random_state=0)
    >>> model = PrivateHybridClassifier(classes=[0, 1], random_state=0).fit(X, y, agents=agents)
    >>> model.privacy_.epsilon <= 1.0, sum(model.people_asked_.values()) <= 50_000
    (True, True)
    >>> model.chosen_, model.score(X_people, y_people) > 0.9
    ('source, corrected', True)
    """

    # The agents and the ledger always belong to the fit, also when scikit-learn routes metadata.
    __metadata_request__fit: ClassVar[dict[str, Any]] = {"public": UNUSED, "agents": True, "ledger": True}

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        mode: str = "auto",
        bounds: Any = None,
        groups: Any = None,
        tolerance: float = 0.01,
        classes: Any = None,
        adjacency: str = "zero-out",
        n_rows: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.mode = mode
        self.bounds = bounds
        self.groups = groups
        self.tolerance = tolerance
        self.classes = classes
        self.adjacency = adjacency
        self.n_rows = n_rows
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that there are two classes."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def fit(
        self, X: Any, y: Any, *, agents: Agents | None = None, ledger: Ledger | None = None
    ) -> "PrivateHybridClassifier":
        """Fit on the curator's private `X`, `y` and the answers of `agents`.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            The curator's features.
        y : array-like of shape (n_rows,)
            The curator's labels.
        agents : Agents, optional
            People of the population that the model is for, with the same columns and labels. All who are left may be
            asked. Default: nobody; the model is then that of the curator's rows.
        ledger : Ledger, optional
            The curator's ledger; it is charged what this fit spends.
        """
        mode = checks.one_of(self.mode, MODES, "mode")
        tolerance = checks.unit(self.tolerance, "tolerance")
        if agents is not None and not isinstance(agents, Agents):
            raise TypeError(f"agents must be Agents, e.g. SimulatedAgents, got {type(agents).__name__}.")
        X, y = self._check_rows(X, y, y_numeric=False)
        classes, source = label_set(self.classes, None, y)
        if len(classes) > 2:
            # scikit-learn's words.
            raise ValueError(
                f"Only binary classification is supported. The type of the target is {type_of_target(classes)}."
            )
        codes = label_codes(y, classes, "y")
        where = public_map(X.shape[1], self.bounds, self.groups)
        if agents is not None:
            agents.check_columns(X.shape[1])
        budget = self._budget(len(X))
        plan = make_plan(mode, where, budget, agents, tolerance)
        child = self._ledger(ledger)

        rows = Rows(where.transform(X), codes.astype(np.float64), intercept=True)
        # All or nothing, before anybody is asked.
        runs = child.start_all(plan.releases(budget.mu)) if plan.shares else []
        stages = Stages(
            plan,
            where,
            budget,
            rows,
            agents,
            public_rows=Adjacency.of(self.adjacency) is not Adjacency.ADD_REMOVE,
            positive=classes.tolist()[1],
            tolerance=tolerance,
        )
        outcome = stages.carry_out(dict(zip(plan.shares, runs, strict=True)))
        assumed, notes = [source, "the bounds and groups of the columns"], []
        if agents is not None and outcome.people:
            assumed.append(agents.assumption)
            notes = agents.warnings
        # For people alone it does not matter how far the curator's budget would go.
        shown = replace(budget, mu=math.inf) if plan.mode == "local" else budget
        # The receipt first: an interrupted refit must not leave new coefficients under an old receipt.
        self.privacy_ = self._receipt(child, shown, assumed, notes=notes)
        self.map_ = where.message()
        self.coef_, self.intercept_ = outcome.coef[None, :-1].copy(), outcome.coef[-1:].copy()
        self.source_coef_, self.source_intercept_ = outcome.source[None, :-1].copy(), outcome.source[-1:].copy()
        self.classes_ = classes
        self.mode_, self.chosen_ = plan.mode, outcome.chosen
        self.estimates_, self.people_asked_ = outcome.estimates, outcome.people
        return self

    def source_scores(self, X: Any) -> NDArray[np.float64]:
        """Return the scores of the curator's own model: positive where it predicts the second class."""
        return np.asarray(self._mapped(X) @ self.source_coef_[0] + self.source_intercept_[0])

    def _scores(self, X: Any) -> NDArray[np.float64]:
        return np.asarray(self._mapped(X) @ self.coef_.T + self.intercept_)

    def _mapped(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        mapped = PublicMap.from_message(self.map_).transform(X)
        # Rows too long for their square to be a number: nothing is known of them.
        return np.nan_to_num(mapped, copy=False, nan=0.0)
