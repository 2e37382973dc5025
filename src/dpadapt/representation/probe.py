"""`PrivateProbe`: a private linear classifier on the features of a frozen public encoder.

This is linear probing, Section 4 of "On the Benefits of Public Representations for Private Transfer Learning under
Distribution Shift", arXiv:2312.15551, with a solver that needs no tuning.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dpadapt import checks
from dpadapt.accounting.ledger import Ledger
from dpadapt.data import Public
from dpadapt.errors import PrivacyError
from dpadapt.inputs.gate import declared_public, in_chunks, label_set, public_table
from dpadapt.learning.base import Budget, ClassificationInput, LinearClassifier
from dpadapt.learning.fit_summary import FitSummary
from dpadapt.representation.encoders import as_encoder, encoder_name, features_of, try_encoder
from dpadapt.representation.feature_moments import (
    MomentPlan,
    estimate,
    plan_moments,
    public_estimate,
    recoloured,
    release_moments,
)
from dpadapt.transfer.base import NO_LABELS_NOTE, CountPlan, count_plan
from dpadapt.transfer.classification import PrivateTransferClassifier, corrected
from dpadapt.transfer.classification_fit import private_change
from dpadapt.transfer.classification_plan import PRIORS, make_plan
from dpadapt.transfer.preview import Forecast, forecast_of_scores


class PrivateProbe(LinearClassifier):
    """A linear classifier on the features of a frozen encoder, private in the classifier's rows.

    The encoder is public: it was trained on other data, and perhaps for another task. It encodes each private row by
    itself, and a linear head is fitted to the features. Public rows, which need no labels, show in which directions the
    features vary. They may be of another kind than the private rows: 5% of the budget goes into the mean and the
    variances of the private features, and the public rows are recoloured to these before the head is fitted. How many
    directions the head uses follows from that, the number of private rows and epsilon. Nothing needs tuning.

    With few private rows or a small epsilon (n mu < 250), with labelled public rows and without public rows, the head
    has the whole budget: it is a `PrivateTransferClassifier` on the features.

    **Privacy.** Protects one private row (see `adjacency`), be it an image, a text or numbers.
    Releases: the number of rows with a readable label, a histogram of the lengths of the rows' features, a Gram matrix
    of their directions, and clipped gradient sums. With labelled public data: that number, clipped gradient sums, and
    one sum of clipped pairs for the gate. All Gaussian.
    Costs at most `epsilon`, `delta`; see `privacy_`. Public data and the encoder are not protected.

    Parameters
    ----------
    {epsilon}
    {delta}
    encoder : str, transformer, torch Module or callable, optional
        Turns rows into features, each row by itself, and must not have been made from the private rows. A str names a
        ready encoder: "efficientnet-lite0", "minilm" or "wordllama". Default: rows are features already.
    prior : {"shifted", "same-population"}, default="shifted"
        What is assumed about labelled public data; see `PrivateTransferClassifier`.
    {classes}
    {adjacency}
    {n_rows}
    {random_state}

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Coefficients of the features.
    intercept_ : ndarray of shape (1,) or (n_classes,)
    classes_ : ndarray of shape (n_classes,)
    adopted_ : float
        Share of the private correction that was adopted; without public labels 1, or 0 if no label could be read.
    usable_share_ : tuple of float or None
        The share of private rows with a readable label: an estimate, and the ends of a 90% interval, as released. None
        without public rows, or if nothing was released.
    n_features_in_ : int
        Number of features of the encoder's output.
    privacy_ : Receipt
        What was released and what it cost.

    See Also
    --------
    dpadapt.representation.encoders : Encoders and their requirements.
    dpadapt.representation.feature_moments : The private moments, and how public rows are recoloured to them.
    dpadapt.papers.subspace : `DescentProbe`, the paper's.

    References
    ----------
    .. [1] P. Thaker, A. Setlur, Z. S. Wu, V. Smith. On the Benefits of Public Representations for Private Transfer
       Learning under Distribution Shift. 2023. arXiv:2312.15551

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import Public
    >>> from dpadapt.representation import PrivateProbe
    >>> rng = np.random.default_rng(7)
    >>> X, X_public = rng.uniform(-1, 1, (2000, 2)), rng.uniform(-1, 1, (200, 2))
    >>> y = (X[:, 0] * X[:, 1] > 0).astype(int)
    >>> def products(X):
    ...     return np.column_stack([X, X[:, 0] * X[:, 1]])
    >>> model = PrivateProbe(encoder=products, classes=[0, 1], random_state=0).fit(X, y, public=Public(X_public))
    >>> model.score(X, y) > 0.9
    True
    >>> model.privacy_.assumptions[-1]
    'the encoder (products): it was made without the private rows and treats each row by itself'
    """

    _streams = True

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        encoder: Any = None,
        prior: Annotated[str, checks.choice(*PRIORS)] = "shifted",
        classes: Any = None,
        adjacency: str = "zero-out",
        n_rows: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.encoder = encoder
        self.prior = prior
        self.classes = classes
        self.adjacency = adjacency
        self.n_rows = n_rows
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any = None, *, public: Public | None = None, persons: Any = None, ledger: Ledger | None = None
    ) -> "PrivateProbe":
        """Fit on private `X`, `y`.

        Parameters
        ----------
        X : array-like of shape (n_rows, ...)
            Private rows, as the encoder takes them: features, images or texts.
        {private labels}
        public : Public, optional
            Public rows of the same kind, with or without labels.
        {persons}
        {ledger}
        """
        assumed = []
        if self.encoder is not None and in_chunks(X):
            raise ValueError("encoder must be left out where private rows are read in chunks. Give their features.")
        if self.encoder is not None:
            X, public = self._encoded(X, public)
            name = encoder_name(self.encoder)
            assumed = [f"the encoder ({name}): it was made without the private rows and treats each row by itself"]
        data = self._read_classification(X, y, public, ledger, self.classes, persons=persons)
        count, plan = count_plan(data.budget), None
        if public is not None and data.X_public is not None and data.codes_public is None:
            plan = plan_moments(public, data.X_public, count.budget)
        if plan is None:
            return self._fit_head(public, data, assumed)
        return self._fit_moments_first(count, plan, data, assumed)

    def _fit_head(self, public: Public | None, data: ClassificationInput, assumed: Sequence[str]) -> "PrivateProbe":
        """Fit the head with the whole budget."""
        ledger, head = data.ledger, self._head()
        head.fit_to(replace(data, ledger=head._ledger(ledger, ledger.unit)), public)
        # The receipt first: an interrupted refit must not leave new coefficients under an old receipt.
        receipt = head.privacy_
        self.privacy_ = ledger.receipt(assumptions=[*receipt.assumptions, *assumed], warnings=list(receipt.warnings))
        self.coef_, self.intercept_, self.adopted_ = head.coef_, head.intercept_, head.adopted_
        self.classes_, self.usable_share_ = head.classes_, head.usable_share_
        return self

    def _fit_moments_first(
        self, count: CountPlan, plan: MomentPlan, data: ClassificationInput, assumed: Sequence[str]
    ) -> "PrivateProbe":
        """Release the private moments, recolour the public rows to them, and fit the head with what is left."""
        counted, *runs = data.ledger.start_all([*count.charges, *plan.charges])
        usable = count.usable_labels(counted, data.rows)
        moments = estimate(plan, release_moments(plan, runs[:2], data.rows))
        prepared = recoloured(plan.frame, moments, len(data.classes))
        change, adopted = np.zeros_like(prepared.start), 0.0
        if not usable.none:
            own = usable.budget(plan.head)
            head = make_plan(prepared, plan.head, self.prior)
            head = replace(head, noise=head.noise * plan.head.n_rows / own.n_rows)
            fixed = data.fixed_rows
            private = private_change(head, runs[2:], prepared, own, data.rows, fixed_rows=fixed)
            change, adopted = private.change, private.adopted
        # The receipt first, as above.
        notes = [NO_LABELS_NOTE] if usable.none else []
        self.privacy_ = self._receipt(data.ledger, data.budget, [data.source, *assumed], notes=notes)
        self.coef_, self.intercept_ = corrected(prepared, change, adopted)
        self.adopted_, self.classes_, self.usable_share_ = adopted, data.classes, usable.interval()
        return self

    def summary(self) -> FitSummary:
        """Return what this fit released, adopted, estimated and assumed: what reports are drawn from."""
        return replace(super().summary(), adopted=self.adopted_, readable_labels=self.usable_share_)

    def forecast(self, public: Public, n_private: int) -> Forecast:
        """Return the forecast of a fit on `n_private` rows, from public data alone; nothing is spent.

        Parameters
        ----------
        public : Public
            With or without labels; without them, the estimator's `classes` must be given.
        n_private : int
            Number of private rows; under "add-remove" a public estimate of it.
        """
        self._check_parameters(public)
        if self.encoder is not None:
            encoder = as_encoder(self.encoder)
            rows = features_of(encoder, declared_public(public).X, name="public X", private=False)
            public = Public(rows, public.y)
        if declared_public(public).y is None and self.classes is not None:
            X = public_table(public.X, ensure_min_samples=2)
            budget = Budget.of(self.epsilon, self.delta, checks.count(n_private, "n_private"), self.adjacency)
            plan = plan_moments(public, X, count_plan(budget).budget)
            if plan is not None:
                # As if the private rows had the moments of the public ones.
                prepared = recoloured(
                    plan.frame, public_estimate(plan.frame), len(label_set(self.classes, None, np.zeros(0))[0])
                )
                head = make_plan(prepared, plan.head, self.prior)
                return forecast_of_scores(self.epsilon, n_private, n_directions=len(head.used), blur=head.blur)
        return self._head().forecast(public, n_private)

    def _head(self) -> PrivateTransferClassifier:
        """Return the classifier that is fitted to the features."""
        return PrivateTransferClassifier(
            self.epsilon,
            self.delta,
            prior=self.prior,
            classes=self.classes,
            # The head of a representation is linear.
            public_model="linear",
            adjacency=self.adjacency,
            n_rows=self.n_rows,
            random_state=self.random_state,
        )

    def _encoded(self, X: Any, public: Public | None) -> tuple[NDArray[Any], Public | None]:
        """Try the encoder, then return the features of private and public rows."""
        encoder = as_encoder(self.encoder)
        if public is None:
            try_encoder(encoder, X)
            return features_of(encoder, X), None
        if declared_public(public).X is X:
            raise PrivacyError("public holds the private X itself, which would not be protected. Give other rows.")
        try_encoder(encoder, public.X, private=False)
        encoded_public = Public(features_of(encoder, public.X, name="public X", private=False), public.y)
        return features_of(encoder, X), encoded_public

    def _scores(self, X: Any) -> NDArray[np.float64]:
        if self.encoder is None:
            return super()._scores(X)
        return super()._scores(features_of(as_encoder(self.encoder), X))
