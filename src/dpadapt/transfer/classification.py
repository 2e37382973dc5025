"""`PrivateTransferClassifier`: a public model, corrected by private rows as far as the evidence goes."""

from copy import copy
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from dpadapt import checks
from dpadapt.accounting.ledger import Ledger, Run
from dpadapt.data import Public
from dpadapt.learning.base import ClassificationInput, LinearClassifier, class_probabilities, features_assumption
from dpadapt.learning.decisions import best_threshold, by_class, require_public, score_shift, threshold_rule
from dpadapt.learning.fit_summary import FitSummary, held_out_errors
from dpadapt.learning.logistic import PrivateLogisticRegression
from dpadapt.rows import Part, products_by_row
from dpadapt.transfer.base import (
    LINEAR_ONLY_NOTE,
    NO_LABELS_NOTE,
    Base,
    HeldOut,
    UsableLabels,
    combined,
    count_plan,
    held_out_scores,
)
from dpadapt.transfer.classification_fit import private_change
from dpadapt.transfer.classification_plan import PRIORS, Prepared, make_plan, prepared_for
from dpadapt.transfer.gate import Gain
from dpadapt.transfer.intervals import (
    Calibration,
    CalibrationPlan,
    calibrated,
    log_loss_bounds,
    log_losses,
    score_limit,
    set_plan,
)
from dpadapt.transfer.intervals import require_public as require_calibration_grid
from dpadapt.transfer.preview import Forecast, forecast_classification
from dpadapt.transfer.public_models import OFFSET_ASSUMPTION, require_shifted_labelled

_GATE_SHUT = "the gate stayed shut: no gain exceeded its noise, so the model is the public one; the budget was spent"


class PrivateTransferClassifier(LinearClassifier):
    """A classifier that starts from public data and is corrected by private rows.

    A softmax model and boosting are fitted to the labelled public rows and blended, or the user gives a model of any
    kind. The private rows correct the blend by clipped full-batch gradient steps in public coordinates: the budget is
    shared among directions where a change is expected to exceed its noise, and the others stay as they are. A gate then
    adopts a share of the correction, from 0 (exactly the public model) to 1, by an estimate of what it gains and a
    bound on the harm. There is nothing to tune.

    With unlabelled public data only the coordinates come from it, the start is zero and there is no gate. Without
    public data this is `PrivateLogisticRegression`.

    **Privacy.** Protects one private row (see `adjacency`).
    Releases: the number of rows with a readable label, clipped gradient sums and, with labelled public data, one sum of
    clipped pairs: how much each row's loss falls, and how far its probabilities move; if columns are constant in
    public rows, also the sums of their squares; with `intervals`, also how many rows' classes have a probability below
    each of some public numbers. All Gaussian.
    Costs at most `epsilon`, `delta`; see `privacy_`. All of it is charged before the first release. Public data is not
    protected.

    Parameters
    ----------
    {epsilon}
    {delta}
    prior : {"shifted", "same-population"}, default="shifted"
        What is assumed about labelled public data. "shifted": the private population may differ, and the public model
        is changed only on evidence. "same-population": it does not differ, so private rows only correct the sampling
        error of the public model, and smaller corrections are adopted at smaller budgets.
    {classes}
    {class_weight}
    {decision_threshold}
    public_model : estimator or "linear", optional
        A model of any kind with `predict_proba`, such as a pipeline or a neural network, instead of the blend. An
        unfitted one is fitted to the public rows. A fitted one is used as it is; mark public rows that it has not seen
        by `Public(X, y, unseen=...)`, or a copy of it is fitted to parts of the public rows to measure its errors. It
        must treat each row by itself. Probabilities below 0.001 / n_classes are raised to that. "linear" is the softmax
        model: the whole model is then linear, and `coef_` describes it. With fewer than 50 public rows, or one class
        among them, it takes the place of the blend, and the receipt says so.
    {max_weight}
    {mean_weight}
    intervals : bool, default=False
        Whether to spend 2 to 5% of the budget on the calibration of prediction sets; see `predict_set`. It needs
        public data.
    {adjacency}
    {n_rows}
    {random_state}

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Coefficients of the correction, for cells that are not clipped, without what it changes of the blend's scores.
        If the public model is linear: of the whole model.
    intercept_ : ndarray of shape (1,) or (n_classes,)
    public_base_ : Base or None
        The public models, and the weights of their blend. None without public labels, and where the public model is
        linear.
    score_coef_ : ndarray of shape (1, n_classes) or (n_classes, n_classes), or None
        Coefficients of the blend's centred log-probabilities in the correction: 0 changes nothing.
    classes_ : ndarray of shape (n_classes,)
    decision_threshold_ : float or None
        Probability from which on `predict` answers the second of two classes; None: the most probable class.
    public_by_class_ : dict or None
        Recall and precision of each class on public rows, of this model and of the public model, with scores of public
        models that were not fitted to these rows, and the number of rows ("support"). None without public labels.
    own_effect_ : ndarray of shape (n_features,)
        For each column that is constant in public rows, such as the indicator of a category that these lack: how much
        of its own effect was kept, from 0 (predicted at the overall level) to 1. It is shrunk by the noise that it
        carries. NaN for the other columns. Computed from releases and public data.
    adopted_ : float
        How much of the private correction was adopted, 0 (the public model exactly) to 1: the factor that the gate
        multiplied it by, so that a correction halved has 0.5. Computed from releases; 1 where there is no gate. The
        regressor's `adopted_` is a share of energy instead.
    estimated_gain_ : tuple of float or None
        By how much the mean log-loss on the private population is less than that of the public model: an estimate, and
        the ends of a 90% interval. Computed from what was released anyway. It holds under the assumptions of the gate
        (see Notes). None where there is no gate.
    usable_share_ : tuple of float or None
        The share of private rows with a readable label: an estimate, and the ends of a 90% interval, as released. If it
        does not exceed its noise, the model is the public one. None without public data, or if nothing was released.
    public_coef_, public_intercept_ : ndarray
        The public linear model; 0 where there is a blend, None without public labels. See `public_only`.
    public_errors_ : dict or None
        Errors on public rows, of no model and of the public model, which was not fitted to the rows that it predicts.
        None without public labels, or with few rows.
    calibration_ : Calibration or None
        How probable the model finds the classes of private rows, as released; None without `intervals`.
    n_features_in_ : int
    privacy_ : Receipt
        What was released and what it cost.

    See Also
    --------
    dpadapt.forecast : What to expect, before anything is spent.

    Notes
    -----
    Not worse than the public model: if the gain's slope lies above its lower bound (2.5 standard deviations), the mean
    loss on the private population rises by at most 0.5% of what the public model expects of itself, provided that the
    loss bends along the correction as it does on public rows. This is about log-loss; accuracy usually follows, but
    has no guard of its own.
    The public preparation is kept for as long as the `Public` object lives and its content stays the same.

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import PrivateTransferClassifier, Public
    >>> rng = np.random.default_rng(7)
    >>> X, X_public = rng.uniform(-1, 1, (2000, 3)), rng.uniform(-1, 1, (200, 3))
    >>> y, y_public = X[:, 0] > 0.2, X_public[:, 0] > X_public[:, 1]
    >>> model = PrivateTransferClassifier(random_state=0).fit(X, y, public=Public(X_public, y_public))
    >>> model.privacy_.epsilon <= 1.0
    True
    >>> model.score(X, y) > 0.9
    True

    With prediction sets:

    >>> model = PrivateTransferClassifier(intervals=True, random_state=0)
    >>> model.fit(X, y, public=Public(X_public, y_public)).predict_set(X[:3], coverage=0.8).shape
    (3, 2)
    """

    calibration_: Calibration | None

    # Without public rows, see `declared_geometry`.
    _assumes_unit_features = True
    _streams = True

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        prior: Annotated[str, checks.choice(*PRIORS)] = "shifted",
        classes: Any = None,
        class_weight: Any = None,
        decision_threshold: Any = None,
        public_model: Any = None,
        max_weight: float | None = None,
        mean_weight: float | None = None,
        intervals: checks.Flag = False,
        adjacency: str = "zero-out",
        n_rows: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.prior = prior
        self.classes = classes
        self.class_weight = class_weight
        self.decision_threshold = decision_threshold
        self.public_model = public_model
        self.max_weight = max_weight
        self.mean_weight = mean_weight
        self.intervals = intervals
        self.adjacency = adjacency
        self.n_rows = n_rows
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        public: Public | None = None,
        persons: Any = None,
        sample_weight: Any = None,
        ledger: Ledger | None = None,
    ) -> "PrivateTransferClassifier":
        """Fit on private `X`, `y`.

        Parameters
        ----------
        {private X}
        {private labels}
        {public}
        {persons}
        {sample_weight}
        {ledger}
        """
        data = self._read_classification(
            X, y, public, ledger, self.classes, persons=persons, sample_weight=sample_weight
        )
        return self.fit_to(data, public)

    def fit_to(self, data: ClassificationInput, public: Public | None) -> "PrivateTransferClassifier":
        """Fit to rows that were read before; for estimators whose head this is."""
        prior, self.n_features_in_ = self.prior, data.n_features
        if self.public_model is not None:
            require_shifted_labelled(self.public_model, prior, data.codes_public)
        shift, rule = np.zeros(1), None
        if self.class_weight is not None:
            shift = score_shift(self.class_weight, data.classes, data.codes_public)
        if self.decision_threshold is not None:
            rule = threshold_rule(self.decision_threshold, len(data.classes), weighted=self.class_weight is not None)
            require_public(rule, data.X_public)
        calibration: CalibrationPlan | None = None
        if self.intervals:
            require_calibration_grid(public, "public data")
            calibration = set_plan(data.budget)
            # Everything else is planned with what the calibration leaves.
            data = replace(data, budget=calibration.budget)
        budget = data.budget
        held_out: HeldOut | None = None
        own_effect = np.full(data.n_features, np.nan)
        notes, assumed = list[str](), list[str]()
        base: Base | None = None
        gain: Gain | None = None
        usable: UsableLabels | None = None
        run: Run | None = None
        public_coef: NDArray[np.float64] | None = None
        public_intercept: NDArray[np.float64] | None = None
        if public is None or data.X_public is None:
            coef, intercept = self._alone(data)
            adopted = float(budget.worthwhile)
        else:
            prepared, public_base = prepared_for(
                public, data.X_public, data.codes_public, data.classes, prior=prior, model=self.public_model
            )
            base = None if public_base is None else public_base.base
            if base is not None:
                own_effect[base.columns.constant] = 0.0
            held_out = held_out_scores(public, data.X_public, data.codes_public, len(data.classes), public_base)
            assumed = [OFFSET_ASSUMPTION] if base is not None and base.given else []
            change, adopted = np.zeros_like(prepared.start), 0.0
            gain = Gain() if prepared.warm else None
            count = count_plan(budget)
            budget = count.budget
            if budget.worthwhile:
                # Before anything is charged: a model that the user gave may fail.
                rows = data.rows
                if base is not None:
                    rows = rows.map(partial(_beside_scores, base=base, fixed_rows=data.fixed_rows))
                plan = make_plan(prepared, budget, prior)
                charges = [*count.charges, *plan.charges, *([] if calibration is None else calibration.charges)]
                counted, *runs = data.ledger.start_all(charges)
                run = None if calibration is None else runs.pop()
                usable = count.usable_labels(counted, data.rows)
                if usable.none:
                    notes = [NO_LABELS_NOTE]
                else:
                    own_budget = usable.budget(budget)
                    plan = replace(plan, noise=plan.noise * budget.n_rows / own_budget.n_rows)
                    # Rows beside scores are shortened to the length of public ones.
                    fixed = base is not None or data.fixed_rows
                    found = private_change(plan, runs, prepared, own_budget, rows, fixed_rows=fixed)
                    change, adopted, gain = found.change, found.adopted, found.gain
                    own_effect[list(prepared.unseen)] = found.own_effect
                    notes = [_GATE_SHUT] if adopted == 0.0 else []
            if base is None and data.codes_public is not None and self.public_model is None and prior == "shifted":
                notes = [*notes, LINEAR_ONLY_NOTE]
            coef, intercept = corrected(prepared, change, adopted)
            if prepared.warm:
                public_coef, public_intercept = corrected(prepared, change, 0.0)
        # The receipt first: an interrupted refit must not leave new coefficients under an old receipt.
        assumed = [data.source, *features_assumption(data.X_public), *assumed]
        self.privacy_ = self._receipt(data.ledger, budget, assumed, notes=notes)
        self.calibration_ = None
        self.public_base_ = base
        self.score_coef_: NDArray[np.float64] | None = None
        self.public_coef_: NDArray[np.float64] | None = public_coef
        if base is not None:
            # The correction is linear in standardised cells and in the scores of the base.
            coef, self.score_coef_ = coef[:, : data.n_features] / base.columns.scale, coef[:, data.n_features :].copy()
            coef *= np.where(base.columns.constant, own_effect, 1.0)
            intercept = intercept - coef @ base.columns.center
            self.public_coef_ = np.zeros_like(coef)
        self.coef_, self.own_effect_ = coef, own_effect
        self.intercept_, self.adopted_ = intercept + shift, adopted
        self.public_intercept_ = None if public_intercept is None else public_intercept + shift
        self.estimated_gain_ = None if gain is None else gain.interval()
        self.usable_share_ = None if usable is None else usable.interval()
        self.classes_ = data.classes
        self._judge(data.X_public, held_out, rule, shift)
        if run is not None and calibration is not None:
            bounds, relation = log_loss_bounds(), data.ledger.adjacency
            own_losses = partial(self.without_seed()._own_losses, base=base)
            self.calibration_ = calibrated(run, bounds, own_losses, rows, plan=calibration, adjacency=relation)
        return self

    def _own_losses(self, part: Part, *, base: Base | None) -> NDArray[np.float64]:
        """Return how improbable the model finds the classes of private rows; beside these, the scores of the base."""
        if base is None:
            scores = products_by_row(part.X, self.coef_.T) + self.intercept_
        else:
            scores = self._corrected(base, part.X[:, : self.n_features_in_], part.X[:, self.n_features_in_ :])
        return log_losses(class_probabilities(scores)[np.arange(len(part.y)), part.y])

    def _judge(
        self,
        X_public: NDArray[np.float64] | None,
        held_out: HeldOut | None,
        rule: float | str | None,
        shift: NDArray[np.float64],
    ) -> None:
        """Choose the threshold, and keep recall and precision of each class, by public rows and releases alone."""
        self.public_by_class_: dict[str, Any] | None = None
        self.public_errors_: dict[str, Any] | None = None
        start = self.public_only()
        if held_out is None or start is None:
            self.decision_threshold_ = best_threshold(rule, self._linear_probabilities(X_public))
            return
        known = {"this model": self, "public model": start}
        found = {name: class_probabilities(model._of_held_out(held_out, shift)) for name, model in known.items()}
        self.decision_threshold_ = None if rule is None else best_threshold(rule, found["this model"])
        n_classes = len(self.classes_)
        self.public_by_class_ = {
            "support": np.bincount(held_out.codes, minlength=n_classes).tolist(),
            **{name: by_class(held_out.codes, self._decided(p), n_classes) for name, p in found.items()},
        }
        self.public_errors_ = held_out_errors(held_out.codes, class_probabilities(held_out.scores))

    def _of_held_out(self, held_out: HeldOut, shift: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the scores of public rows, with public models that were not fitted to them."""
        if self.public_base_ is not None:
            return self._corrected(self.public_base_, held_out.rows, held_out.scores)
        own = _own_scores(held_out.scores) + shift
        if self.public_coef_ is None or self.public_intercept_ is None:
            return np.asarray(own)
        change = held_out.rows @ (self.coef_ - self.public_coef_).T + (self.intercept_ - self.public_intercept_)
        return np.asarray(own + change)

    def public_only(self) -> "PrivateTransferClassifier | None":
        """Return the model that the public rows alone gave, as a fitted copy; None without public labels.

        The copy keeps the receipt of the fit, though the public model itself costs nothing.
        """
        check_is_fitted(self)
        # Models saved by version 0.1 have no public model.
        coef, intercept = getattr(self, "public_coef_", None), getattr(self, "public_intercept_", None)
        if coef is None or intercept is None:
            return None
        model = copy(self)
        model.calibration_ = None  # it belongs to the corrected model
        model.coef_, model.intercept_, model.adopted_ = coef.copy(), intercept.copy(), 0.0
        model.estimated_gain_ = Gain().interval()
        if getattr(self, "score_coef_", None) is not None:
            model.score_coef_ = np.zeros_like(self.score_coef_)
        return model

    def summary(self) -> FitSummary:
        """Return what this fit released, adopted, estimated and assumed: what reports are drawn from."""
        base, public_model = self.public_base_, self.public_only()
        return replace(
            super().summary(),
            adopted=None if self.estimated_gain_ is None else self.adopted_,
            gain=self.estimated_gain_,
            readable_labels=self.usable_share_,
            public_model=public_model,
            public_errors=self.public_errors_,
            own_effect=self.own_effect_,
            beside_public_model=base is not None and base.linear is None,
            by_class=self.public_by_class_,
            has_intervals=self.calibration_ is not None,
        )

    def forecast(self, public: Public, n_private: int) -> Forecast:
        """Return what public data says about a fit on `n_private` rows; nothing private is read, nothing spent.

        Parameters
        ----------
        public : Public
            With or without labels; without them, the estimator's `classes` must be given.
        n_private : int
            Number of private rows; under "add-remove" a public estimate of it.
        """
        return forecast_classification(
            public,
            n_private,
            self.epsilon,
            self.delta,
            prior=self.prior,
            classes=self.classes,
            adjacency=self.adjacency,
            public_model=self.public_model,
            intervals=self.intervals,
        )

    def predict_set(self, X: Any, *, coverage: float = 0.9) -> NDArray[np.bool_]:
        """Return which classes belong to the prediction set of each row of `X`.

        A set holds the classes whose probability is large enough. About the share `coverage` of new rows have their
        class in the set, on average, if they come from the population of the private rows. Any coverage may be asked
        for, at no further cost. A set may be empty: where the model is usually surer than it is of this row. Where the
        budget is too small for a coverage, sets hold most classes or all, with a `CalibrationWarning`.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
        coverage : float, default=0.9
            Between 0 and 1.

        Returns
        -------
        ndarray of bool, of shape (n_rows, n_classes)
            In the order of ``classes_``.
        """
        check_is_fitted(self)
        # Models saved by earlier versions have no calibration.
        limit = score_limit(getattr(self, "calibration_", None), coverage, asked=self.intervals)
        return np.asarray(log_losses(self.predict_proba(X)) <= limit)

    def _scores(self, X: Any) -> NDArray[np.float64]:
        # Models saved by earlier versions have no base.
        base = getattr(self, "public_base_", None)
        if base is None or self.score_coef_ is None:
            return super()._scores(X)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return self._corrected(base, base.columns.standardise(X), combined(base.scores(X), base.weights))

    def _corrected(self, base: Base, rows: NDArray[Any], scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the scores after the correction, given standardised rows and the scores of the blend."""
        moved = products_by_row(rows, (self.coef_ * base.columns.scale).T)
        moved += products_by_row(scores, np.asarray(self.score_coef_).T)
        return np.asarray(_own_scores(scores) + moved + (self.intercept_ + self.coef_ @ base.columns.center))

    def _alone(self, data: ClassificationInput) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Fit without public data."""
        alone = PrivateLogisticRegression(
            self.epsilon,
            self.delta,
            classes=np.arange(len(data.classes)),
            max_weight=self.max_weight,
            mean_weight=self.mean_weight,
            adjacency=self.adjacency,
            n_rows=self.n_rows,
            random_state=self.random_state,
        )
        alone.fit_to(
            replace(data, classes=np.arange(len(data.classes)), ledger=alone._ledger(data.ledger, data.ledger.unit))
        )
        return alone.coef_, alone.intercept_


def _own_scores(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the scores of a model by its coefficients: of two classes, that of the second alone."""
    return np.asarray(scores[:, 1:] - scores[:, :1] if scores.shape[1] == 2 else scores)


def corrected(
    prepared: Prepared, change: NDArray[np.float64], fraction: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return coefficients and intercepts after a fraction of a change, of the correction alone if there is an offset.

    A fraction of 0 gives exactly the public model.
    """
    coef, intercept = prepared.coef, prepared.intercept
    if fraction > 0.0:
        coef, intercept = prepared.coordinates.coefficients(prepared.start + fraction * change)
    elif prepared.offset:
        # The offset itself is no part of the coefficients.
        coef = np.zeros_like(coef)
    if coef.shape[1] == 2:
        coef, intercept = coef[:, 1:] - coef[:, :1], intercept[1:] - intercept[:1]
    return coef.T.copy(), intercept.copy()


def _beside_scores(part: Part, *, base: Base, fixed_rows: bool) -> Part:
    """Return standardised private rows, with the scores of the base as further columns."""
    scores = combined(base.private_scores(part.X, fixed_rows=fixed_rows), base.weights)
    return Part(np.column_stack([base.private_rows(part.X), scores]), part.y, part.shares)
