"""`PrivateHybridClassifier`: learns from a curator's biased sample and from people who answer for themselves.

The setting is that of R. Kohen, O. Sheffet. Transfer Learning In Differential Privacy's Hybrid-Model. ICML 2022; the
method is ours.
"""

import math
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from dpadapt import checks
from dpadapt.accounting.ledger import Ledger
from dpadapt.hybrid.agents import Agents
from dpadapt.hybrid.classifier_fit import fit_plan
from dpadapt.hybrid.classifier_plan import MODES, make_plan
from dpadapt.hybrid.mapped_questions import PublicMap, public_map
from dpadapt.learning.base import LinearClassifier
from dpadapt.learning.fit_summary import FitSummary, People
from dpadapt.rows import Rows


class PrivateHybridClassifier(LinearClassifier):
    """Logistic regression (two classes) for people who only answer questions, from a curator's biased sample.

    The curator releases second moments and a model of its rows, the source model. Each person of the target population
    answers one question with one noisy bit. The first people are asked whether their label can be read. If the budget
    allows, the curator's rows are weighted to have the people's means, and fitted again; then people's residuals
    correct the model. Last, people who have not been asked before test the candidates: the source model, the corrected
    model, a constant label and, if there are many people, a model of their answers alone. The one with the least
    estimated error is returned.

    **Privacy.** Protects one row of the curator (see `adjacency`), and each person with the agents' own pure epsilon.
    Releases: the rows' second moments, clipped gradient sums and, if rows are weighted, weighted means and the sum of
    weights, all Gaussian.
    Costs at most `epsilon`, `delta`; see `privacy_`. Each person answers once, so that a person's costs don't add up.

    Parameters
    ----------
    epsilon : float, default=1.0
        The most that this fit may spend of the curator's budget. Positive.
    {delta}
    mode : {"auto", "hybrid", "local", "curator"}, default="auto"
        "curator" uses the curator's rows alone and "local" the people alone; neither is tested. "hybrid" makes all
        candidates and tests them. "auto" does too, except with too few people; see Notes.
    bounds : pair or array-like of shape (n_features, 2), optional
        The range of each column, or of all: about two standard deviations each way. Values beyond it are clipped.
        Choose it without looking at private rows. Default: (-1, 1).
    groups : sequence of sequences of int, optional
        Columns that are the indicators (0 or 1) of one category. People are then asked about a category instead of a
        column, so that a category with many levels needs no more people than one with few.
    tolerance : float, default=0.01
        The difference between two candidates' errors that the test should resolve. It asks as many people as make the
        standard deviation of an estimated difference half of this, but no more than a quarter of all.
    classes : array-like of two, optional
        The labels. Default: those that occur in `y`, which the receipt then lists as assumed public.
    {adjacency}
    {n_rows}
    {random_state}

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features)
        Coefficients of the mapped columns, which `bounds` bring to [-2, 2].
    intercept_ : ndarray of shape (1,)
    source_coef_, source_intercept_ : ndarray
        The source model, which is that of the curator's rows alone; zeros in mode "local".
    classes_ : ndarray of shape (2,)
    map_ : dict
        The public map that is applied to rows: the ranges and the groups of the columns.
    mode_ : str
        The mode that was used.
    chosen_ : str
        Which model was returned: "source"; "source, corrected"; "tilted, corrected" (fitted on weighted rows, then
        corrected); "people alone"; "constant"; or "nothing" if the budget is too small and nobody was asked.
    estimates_ : dict of str to float
        The error of each candidate as people's noisy answers estimate it, with its standard deviation; the noise of a
        mean that people were asked for, the size of the shift and the largest weight. A person whose label can't be
        read counts as half an error of every candidate.
    usable_share_ : tuple of float or None
        The share of people whose label is one of the classes: an estimate, and the ends of a 90% interval, from noisy
        answers of the people who are asked first. If it does not exceed its noise, nobody else is asked, and the model
        is the source model. None if nobody was asked.
    people_asked_ : dict of str to int
        How many people each stage asked.
    n_features_in_ : int
    privacy_ : Receipt
        What was released about the curator's rows and what it cost.

    Notes
    -----
    Curator and people apply the same public map to their rows: numbers are clipped to their range, a category has at
    most one indicator, and long rows are scaled down to 1.2 times a typical length.

    Rows are weighted if n_rows * mu is so large against sqrt(columns) that a weight of twice the mean keeps the noise
    of the fit below a tenth. Weighted or not, residuals correct first the constant, then all coefficients, as far as
    their noise allows.

    "auto" means "curator" if there are fewer than 20,000 people (at epsilon 1; four times as many at 0.5), because
    their test could not tell candidates apart. If the curator's budget is too small to release anything, "auto" and
    "hybrid" make a model of the people alone and test it against a constant label. The receipt says what was decided
    and why.

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

    # `agents` and `ledger` always belong to `fit`, also when scikit-learn routes metadata.
    __metadata_request__fit: ClassVar[dict[str, Any]] = {"public": UNUSED, "agents": True, "ledger": True}

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        mode: Annotated[str, checks.choice(*MODES)] = "auto",
        bounds: Any = None,
        groups: Any = None,
        tolerance: checks.Proportion = 0.01,
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
            People of the population that the model is for, with the same columns and labels. All who have not been
            asked before may be asked. Default: nobody; the model is then that of the curator's rows.
        ledger : Ledger, optional
            The curator's ledger, to which this fit is charged.
        """
        # Prepare; everything but X and y is public.
        if agents is not None and not isinstance(agents, Agents):
            raise TypeError(f"agents must be Agents, e.g. SimulatedAgents, got {type(agents).__name__}.")
        data = self._read_classification(X, y, None, ledger, self.classes)
        if len(data.classes) > 2:
            # The wording that scikit-learn's checks expect.
            raise ValueError(
                f"Only binary classification is supported. The type of the target is {type_of_target(data.classes)}."
            )
        fixed, X, codes = data.fixed_rows, data.X, data.codes.astype(np.float64)
        where = public_map(data.n_features, self.bounds, self.groups)
        rows = Rows(where.transform(X), codes, intercept=True, fixed_rows=fixed)

        # Plan.
        plan = make_plan(
            self.mode,
            where,
            data.budget,
            agents,
            tolerance=float(self.tolerance),
            classes=data.classes.tolist(),
            exact_rows=fixed,
        )

        # Charge: all or nothing, before anybody is asked.
        charges = [(release, name) for name, release in plan.releases.items()]
        runs = dict(zip(plan.releases, data.ledger.start_all(charges) if charges else [], strict=True))

        # Release, ask people, and let others of them choose.
        outcome = fit_plan(plan, runs, rows, agents)

        ranges = "bounds (-1 to 1, the default)" if self.bounds is None else "bounds"
        # The receipt first: an interrupted refit must not leave new coefficients under an old receipt.
        assumed = [data.source, f"the {ranges} and groups of the columns"]
        decided = f"mode {plan.mode!r} was used, because {plan.reason}" if plan.reason else ""
        notes = [text for text in (decided, outcome.decision) if text]
        if agents is not None and outcome.people:
            assumed.append(agents.assumption)
            notes += agents.warnings
        # A model of people alone does not depend on the curator's budget: no warning that it is too small.
        shown = replace(data.budget, mu=math.inf) if plan.mode == "local" else data.budget
        self.privacy_ = self._receipt(data.ledger, shown, assumed, notes=notes)
        self.map_ = where.message()
        self.coef_, self.intercept_ = outcome.coef[None, :-1].copy(), outcome.coef[-1:].copy()
        self.source_coef_, self.source_intercept_ = outcome.source[None, :-1].copy(), outcome.source[-1:].copy()
        self.classes_ = data.classes
        self.mode_, self.chosen_ = plan.mode, outcome.chosen
        self.estimates_, self.people_asked_ = outcome.estimates, outcome.people
        self.usable_share_ = None if outcome.usable is None else outcome.usable.interval()
        return self

    def summary(self) -> FitSummary:
        """Return what this fit released, adopted, estimated and assumed: what reports are drawn from."""
        error = self.estimates_.get(f"error of {self.chosen_}")
        tested = None if error is None else (float(error), float(self.estimates_["noise of an error"]))
        people = People(self.people_asked_, self.chosen_, tested)
        return replace(super().summary(), readable_labels=self.usable_share_, people=people)

    def source_scores(self, X: Any) -> NDArray[np.float64]:
        """Return the scores of the source model: positive where it predicts the second class."""
        return np.asarray(self._mapped(X) @ self.source_coef_[0] + self.source_intercept_[0])

    def _scores(self, X: Any) -> NDArray[np.float64]:
        return np.asarray(self._mapped(X) @ self.coef_.T + self.intercept_)

    def _mapped(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        mapped = PublicMap.from_message(self.map_).transform(X)
        # A row whose squared length overflows has no features.
        return np.nan_to_num(mapped, copy=False, nan=0.0)
