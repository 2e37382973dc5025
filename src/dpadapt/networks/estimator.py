"""`PrivateNetwork`: a scikit-learn estimator that trains a torch network on private rows, helped by public rows."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from dpadapt import checks
from dpadapt.accounting.ledger import Ledger
from dpadapt.data import Public
from dpadapt.inputs import gate
from dpadapt.learning.base import Budget, PrivateEstimator
from dpadapt.learning.losses import softmax
from dpadapt.networks.fine_tuning import WAYS, prepare_module
from dpadapt.networks.private_training import (
    OPTIMIZERS,
    SCHEDULES,
    Keeping,
    Recipe,
    carry_out,
    digest,
    digest_of_function,
    fingerprint,
    mixing_weights,
)
from dpadapt.networks.public_training import (
    PublicRows,
    as_inputs,
    as_targets,
    fit_temperature,
    outputs_of,
    split_rows,
    train_publicly,
)
from dpadapt.networks.row_gradients import Engine, RowsLoss, cross_entropy
from dpadapt.networks.trial import n_words, new_module, require_private_rows, tried_engine
from dpadapt.rows import Shares

Table = tuple[NDArray[Any], NDArray[Any]]

TRANSFERS = ("cold", "warm", "mirror", *WAYS)


def _path(value: Any, name: str) -> Any:
    """Return `value` if it is a path."""
    if not isinstance(value, str | PathLike):
        raise TypeError(f"{name} must be a path or None, got {type(value).__name__}.")
    return value


def _float32_norm(value: Any, name: str) -> float:
    """Return a clipping norm, or refuse one whose sums might not be finite in float32."""
    if not 1e-12 <= checks.positive(value, name) <= 1e12:
        raise ValueError(f"{name} must lie between 1e-12 and 1e12, got {value!r}.")
    return float(value)


def _classifies(estimator: Any) -> bool:
    """Return whether the estimator is a classifier: with a custom loss it is one only if it has classes."""
    return estimator.loss is None or estimator.classes is not None


class PrivateNetwork(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """A torch network trained by private gradient steps, from scratch or with the help of public rows.

    Each step draws a Poisson sample of the private rows, clips every row's gradient, and releases the noisy sum
    (DP-SGD). Public rows cost nothing: with "warm" the network is first trained on them, and with "mirror" their
    gradient is also mixed into each step, Eq. (1) of [2]_. The result is an average over iterates, and held-out public
    rows calibrate its probabilities.

    **Privacy.** Protects one private row (see `adjacency`): for sequences, one sequence. With `persons`, one person:
    the samples are samples of persons, and a row's clipped gradient counts one over the number of rows of its person.
    Releases: sums of clipped gradients over Poisson samples, Gaussian; all are charged before the first. Costs at most
    `epsilon`, `delta`; see `privacy_`. Public data and the module's initial weights are not protected. Under
    "add-remove" and with `persons` gradients are computed in float64, which takes longer: one more row would change how
    float32 rounds the gradients of all others.

    Parameters
    ----------
    module : Module or callable, optional
        A network, trained from its current weights, or a function without arguments that returns one. Only parameters
        that require gradients are trained: freeze the others for a probe. For classification it must return a score per
        class. Default: one hidden layer of 64 units.
    {epsilon}
    {delta}
    transfer : {"cold", "warm", "mirror", "scratch", "finetune", "probe"}, default="warm"
        How public rows are used. "cold": only to fit the temperature. "warm": also to train the network first.
        "mirror": also in each step. Without public rows all three are "cold". For a pretrained module, how its weights
        are used; public rows then only fit the temperature. "scratch": not at all, they are reinitialised. "finetune":
        as the start. "probe": as features; only the last Linear layer is trained. See `dpadapt.networks.fine_tuning`.
    loss : callable, optional
        Takes outputs and targets, returns one loss per row, shape (B,). Default: cross-entropy of classes. A custom
        loss gets the targets unchanged, unless `classes` is given too.
    n_steps : int, default=300
        Steps of the private training.
    batch_size : int, default=1000
        Expected number of rows in a Poisson sample, with `persons` that of persons. At or above the number of rows (of
        persons), every step takes all of them.
    clip_norm : float, default=1.0
        Clipping norm of a row's gradient.
    clip_released : bool, default=False
        Whether the released mean gradient, noise included, is clipped to `clip_norm` as well, as [2]_ does for images.
        It costs nothing.
    learning_rate : float, default=1.0
        Learning rate of the private steps.
    schedule : {"constant", "cosine"}, default="constant"
        "cosine" lowers the learning rate of step t from `learning_rate` to nearly 0, by the factor
        (1 + cos(pi t / n_steps)) / 2. It costs nothing. Late noise then counts less, so that `learning_rate` can be
        larger.
    optimizer : {"sgd", "adam"}, default="sgd"
        "adam" needs a learning rate of about 0.002.
    momentum : float, default=0.0
        At least 0 and below 1; 0.9 is usual for "adam".
    average : float, default=0.97
        Decay of the average over iterates; 0 keeps the last iterate.
    decay_steps : int, optional
        For "mirror": K of [2]_, the number of steps after which private gradients have weight `mixing_floor`. Default:
        twice `n_steps`.
    mixing_floor : float, default=0.0
        For "mirror": least weight of private gradients. See `dpadapt.networks.private_training`.
    public_steps : int, default=1000
        Steps of the training on public rows.
    public_batch_size : int, default=64
    public_learning_rate : float, default=0.002
        Learning rate of Adam on public rows.
    holdout : float, default=0.15
        Share of public rows held out for early stopping of the public training and for the temperature.
    {classes}
    {adjacency}
    {n_rows}
    checkpoint : path, optional
        File for the state of the training, so that a killed fit continues when it is called again with the same data.
        Needs a durable ledger. The file is removed when the fit ends.
    checkpoint_every : int, default=20
        Steps between checkpoints; at most this many steps, which are paid for, are lost in a crash.
    verbose : bool, default=False
        Show a progress bar. It shows only steps: a private loss would be a release.
    watch : callable, optional
        Called after each private step with its number and the current network, for curves on public or test rows. This
        costs nothing, because every step was released. Scores on private rows would be further releases.
    {random_state}

    Attributes
    ----------
    module_ : Module
        The trained network.
    temperature_ : float
        Divisor of the scores in `predict_proba`; 1 without labelled public rows.
    classes_ : ndarray of shape (n_classes,)
        Only for classification.
    engine_ : {"ghost", "vmap"}
        How gradients were clipped. Chosen on public or synthetic rows.
    n_features_in_ : int
    privacy_ : Receipt
        What was released and what it cost.

    References
    ----------
    .. [2] E. Amid, A. Ganesh, R. Mathews, S. Ramaswamy, S. Song, T. Steinke, V. M. Suriyakumar, O. Thakkar,
       A. Thakurta. Public Data-Assisted Mirror Descent for Private Model Training. 2022. arXiv:2112.00193

    Examples
    --------
    >>> import numpy as np
    >>> from dpadapt import Public
    >>> from dpadapt.networks import PrivateNetwork
    >>> rng = np.random.default_rng(0)
    >>> X, X_public = rng.uniform(-1, 1, (2000, 2)), rng.uniform(-1, 1, (100, 2))
    >>> y, y_public = X[:, 0] * X[:, 1] > 0, X_public[:, 0] * X_public[:, 1] > 0
    >>> model = PrivateNetwork(n_steps=20, batch_size=2000, random_state=0)
    >>> model.fit(X, y, public=Public(X_public, y_public)).privacy_.epsilon <= 1.0
    True
    >>> model.score(X, y) > 0.85
    True
    """

    def __init__(
        self,
        module: Any = None,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        transfer: Annotated[str, checks.choice(*TRANSFERS)] = "warm",
        loss: Annotated[Callable[[Any, Any], Any], checks.function] | None = None,
        n_steps: checks.Count = 300,
        batch_size: checks.Count = 1000,
        clip_norm: Annotated[float, _float32_norm] = 1.0,
        clip_released: checks.Flag = False,
        learning_rate: checks.Positive = 1.0,
        schedule: Annotated[str, checks.choice(*SCHEDULES)] = "constant",
        optimizer: Annotated[str, checks.choice(*OPTIMIZERS)] = "sgd",
        momentum: checks.Share = 0.0,
        average: checks.Share = 0.97,
        decay_steps: checks.Count | None = None,
        mixing_floor: checks.Share = 0.0,
        public_steps: Annotated[int, partial(checks.count, least=0)] = 1000,
        public_batch_size: checks.Count = 64,
        public_learning_rate: checks.Positive = 0.002,
        holdout: checks.Proportion = 0.15,
        classes: Any = None,
        adjacency: str = "zero-out",
        n_rows: int | None = None,
        checkpoint: Annotated[str | PathLike[str], _path] | None = None,
        checkpoint_every: checks.Count = 20,
        verbose: checks.Flag = False,
        watch: Annotated[Callable[[int, Any], None], checks.function] | None = None,
        random_state: int | None = None,
    ) -> None:
        self.module = module
        self.epsilon = epsilon
        self.delta = delta
        self.transfer = transfer
        self.loss = loss
        self.n_steps = n_steps
        self.batch_size = batch_size
        self.clip_norm = clip_norm
        self.clip_released = clip_released
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.optimizer = optimizer
        self.momentum = momentum
        self.average = average
        self.decay_steps = decay_steps
        self.mixing_floor = mixing_floor
        self.public_steps = public_steps
        self.public_batch_size = public_batch_size
        self.public_learning_rate = public_learning_rate
        self.holdout = holdout
        self.classes = classes
        self.adjacency = adjacency
        self.n_rows = n_rows
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.verbose = verbose
        self.watch = watch
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any, *, public: Public | None = None, persons: Any = None, ledger: Ledger | None = None
    ) -> "PrivateNetwork":
        """Fit on private `X`, `y`.

        Parameters
        ----------
        X : array-like of shape (n_rows, ...)
            Private rows: features, images or word numbers.
        y : array-like of shape (n_rows,) or (n_rows, ...)
            Private labels, or the targets of a custom loss.
        public : Public, optional
            Public rows of the same shape, with labels.
        {persons}
        {ledger}
        """
        frame, classifies = X, _classifies(self)
        shapes = {"allow_nd": True, "multi_output": not classifies}
        X, y = gate.private_arrays(self, X, y, y_numeric=False, fixed_rows=persons is None, **shapes)
        X_public, y_public = gate.public_rows(public, frame, **shapes)
        gate.require_width(X_public, self.n_features_in_)
        if X_public is not None and X_public.shape[1:] != X.shape[1:]:
            raise ValueError(f"public rows must have shape {X.shape[1:]} like private rows, got {X_public.shape[1:]}.")
        if X_public is not None and y_public is None:
            raise ValueError("public must have labels: a network learns nothing from rows without them. Omit public.")
        uses_weights = self.transfer in ("finetune", "probe")
        assumed = ["the weights of the module: they were made without the private rows"] if uses_weights else []
        classes = None
        if classifies:
            classes, source = gate.label_set(self.classes, y_public, y)
            assumed, y = [source, *assumed], gate.label_codes(y, classes, "y")
            y_public = None if y_public is None else gate.label_codes(y_public, classes, "public y")
        shares = None if persons is None else gate.unit_shares(persons, len(X), self.adjacency)
        budget, child = self._spending(ledger, len(X), shares)
        generator = np.random.default_rng(self.random_state)
        public_table = None if X_public is None else (X_public, y_public)
        with _torch_seed(generator):
            trained = self._trained((X, y), public_table, classes, shares, budget, child, ledger, generator)
        module, engine, public_rows = trained
        temperature = 1.0
        if classifies and public_rows is not None:
            held_out = public_rows.held_out[0]
            held_out = held_out.float() if held_out.is_floating_point() else held_out
            scores = outputs_of(module, held_out).astype(np.float64)
            temperature = fit_temperature(scores, public_rows.held_out[1].numpy())
        # The receipt first: an interrupted refit must not leave a new network under an old receipt.
        self.privacy_ = self._receipt(child, budget, assumed)
        self.module_, self.temperature_, self.engine_ = module.eval(), temperature, engine.name
        if classes is not None:
            self.classes_ = classes
        if self.checkpoint is not None:
            Path(self.checkpoint).unlink(missing_ok=True)
        return self

    def _trained(
        self,
        private: Table,
        public: Table | None,
        classes: NDArray[Any] | None,
        shares: Shares | None,
        budget: Budget,
        child: Ledger,
        ledger: Ledger | None,
        generator: np.random.Generator,
    ) -> tuple[Any, Engine, PublicRows | None]:
        """Return the trained module, the engine that clipped its gradients, and the public rows as they were split."""
        (X, y), n_scores = private, None if classes is None else len(classes)
        module = prepare_module(new_module(self.module, X.shape[1:], n_scores), self.transfer, n_scores)
        words = n_words(module)
        # A further row changes how float32 rounds the gradients of all others (see `clipped_term_sum`).
        dtype = np.float32 if child.fixed_rows else np.float64
        rows = as_inputs(X, words, "X", dtype=dtype), as_targets(y, "y", dtype=dtype)
        public_rows = None
        if public is not None:
            inputs, targets = public
            labelled = as_inputs(inputs, words, "public X", dtype=dtype), as_targets(targets, "public y", dtype=dtype)
            public_rows = split_rows(*labelled, float(self.holdout), generator)
        recipe = self._recipe(budget, public=public_rows is not None)
        trained = copy.deepcopy(module)
        trained = trained.double() if dtype is np.float64 else trained
        rows_loss = RowsLoss(trained, cross_entropy if self.loss is None else self.loss)
        training = None if public_rows is None else public_rows.training
        engine = tried_engine(rows_loss, rows, training, classes)
        if self.module is not None or self.loss is not None:
            require_private_rows(rows_loss, rows)
        prepare = partial(self._prepare, rows_loss, public_rows, generator)
        if not budget.worthwhile:
            prepare()
        else:
            # The facts do not include the true number of rows, which is private under add-remove and with persons.
            fixed = [weights for weights in module.parameters() if not weights.requires_grad]
            fixed = [weights.detach().double().numpy() for weights in (*fixed, *module.buffers())]
            facts = [budget.n_rows, X.shape[1:], y.shape[1:], classes, str(module)]
            facts += [digest(*((None, None) if public is None else public)), digest(*fixed)]
            carry_out(
                child,
                engine,
                recipe,
                rows,
                shares=shares,
                prepare=prepare,
                public=training,
                public_batch_size=self.public_batch_size,
                generator=generator,
                keeping=self._keeping(facts, ledger),
                verbose=self.verbose,
                look=None if self.watch is None else partial(self._look, RowsLoss(module, rows_loss.loss)),
            )
        # The trained parameters are put into a fresh module: the trained one may have stored private rows.
        RowsLoss(module, rows_loss.loss).put(rows_loss.get())
        return module, engine, public_rows

    @available_if(_classifies)  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the score of each class; with two classes, the score of the second minus that of the first."""
        scores = self._outputs(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    @available_if(_classifies)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class."""
        return softmax(self._outputs(X) / self.temperature_)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each row, or the outputs of the network if the loss is custom."""
        outputs = self._outputs(X)
        return np.asarray(self.classes_[np.argmax(outputs, axis=1)]) if _classifies(self) else outputs

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy, or minus the mean of a custom loss."""
        if _classifies(self):
            return float(super().score(X, y, sample_weight))
        outputs = torch.from_numpy(self._outputs(X).astype(np.float32))
        losses = self.loss(outputs, as_targets(np.asarray(y), "y"))  # type: ignore[misc]
        return -float(np.average(losses.numpy(), weights=sample_weight))

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: rows may have any shape, and a custom loss makes it no classifier."""
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        if not _classifies(self):
            tags.estimator_type, tags.classifier_tags = None, None
        return tags

    def _outputs(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], allow_nd=True, reset=False)
        return outputs_of(self.module_, as_inputs(X, n_words(self.module_), "X")).astype(np.float64)

    def _recipe(self, budget: Budget, *, public: bool) -> Recipe:
        n_steps = int(self.n_steps)
        mixing = np.ones(n_steps)
        if self.transfer == "mirror":
            mixing = mixing_weights(n_steps, decay_steps=self.decay_steps, floor=self.mixing_floor)
        return Recipe(
            rate=min(1.0, self.batch_size / budget.n_rows),
            n_rows=budget.n_rows,
            clip_norm=float(self.clip_norm),
            learning_rate=float(self.learning_rate),
            optimizer=self.optimizer,
            momentum=float(self.momentum),
            average=float(self.average),
            # Without public rows there is nothing to mix in.
            mixing=mixing if public else np.ones(n_steps),
            clip_released=bool(self.clip_released),
            schedule=self.schedule,
        )

    def _prepare(self, rows_loss: RowsLoss, public_rows: PublicRows | None, generator: np.random.Generator) -> None:
        """Train on the public rows first, if the transfer is "warm" or "mirror"."""
        if public_rows is not None and self.transfer in ("warm", "mirror") and self.public_steps:
            train_publicly(
                rows_loss,
                public_rows.training,
                public_rows.held_out,
                n_steps=int(self.public_steps),
                batch_size=int(self.public_batch_size),
                learning_rate=float(self.public_learning_rate),
                generator=generator,
            )

    def _look(self, fresh: RowsLoss, step: int, weights: NDArray[np.float32]) -> None:
        """Call `watch` with the current parameters in a module that has never seen a private row."""
        fresh.put(weights)
        self.watch(step, fresh.module.eval())  # type: ignore[misc]

    def _keeping(self, facts: list[Any], ledger: Ledger | None) -> Keeping | None:
        """Return where and how often checkpoints are written, or None."""
        if self.checkpoint is None:
            return None
        if ledger is None:
            raise ValueError("checkpoint needs a durable ledger, which records spending: ledger=Ledger.open(path).")
        if self.random_state is not None:
            raise ValueError(
                "checkpoint needs random_state=None: after a crash, a seed would repeat the same noise in other steps."
            )
        # Parameters that may differ between the calls, or that the facts and the digest of the loss stand for.
        left_out = {"module", "loss", "checkpoint", "checkpoint_every", "verbose", "watch", "random_state"}
        params = {name: value for name, value in self.get_params(deep=False).items() if name not in left_out}
        loss = None if self.loss is None else digest_of_function(self.loss, "loss")
        return Keeping(Path(self.checkpoint), int(self.checkpoint_every), fingerprint([*facts, params, loss]))


@contextmanager
def _torch_seed(generator: np.random.Generator) -> Iterator[None]:
    """Seed torch during a fit, and restore its global stream afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(generator.integers(2**63)))
        yield
