"""`rehearse`: run whole private fits on public data, to estimate the error at each epsilon. Spends nothing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.metrics import log_loss

from dpadapt import checks, notebook
from dpadapt.accounting.closed_forms import gaussian_epsilon, gaussian_mu
from dpadapt.data import Public
from dpadapt.inputs.arrays import public_labels, public_table

# A budget at which every estimator returns what the public data alone gives.
PUBLIC_ONLY_BUDGET = {"epsilon": 1e-9, "delta": 1e-15}


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """Errors of private fits in which some public rows took the role of private rows.

    Parameters
    ----------
    metric : str
        Error that was measured on held-out rows of the same part of the data: smaller is better.
    epsilons : tuple of float
    errors : ndarray of shape (n_repeats, n_epsilons)
    public_only : ndarray of shape (n_repeats,)
        Error of the estimator without any budget: that of the other public rows alone.
    fewer_rows : bool
        Whether there were fewer public rows than private ones will be. The noise is then that of the private rows (the
        budget was raised by as much), but the sampling error is larger: the errors are pessimistic.
    """

    metric: str
    epsilons: tuple[float, ...]
    errors: NDArray[np.float64]
    public_only: NDArray[np.float64]
    fewer_rows: bool

    def __str__(self) -> str:
        """Show mean and spread at each epsilon."""
        note = " (fewer rows than planned: these errors are pessimistic)" if self.fewer_rows else ""
        lines = [f"{self.metric}, rehearsed on public rows{note}", f"  public only    {_spread(self.public_only)}"]
        lines += [f"  epsilon {e:<6g} {_spread(self.errors[:, i])}" for i, e in enumerate(self.epsilons)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = [["public only", _spread(self.public_only)]]
        rows += [[f"epsilon = {e:g}", _spread(self.errors[:, i])] for i, e in enumerate(self.epsilons)]
        splits = len(self.public_only)
        notes = [
            f"Mean ± standard deviation over {splits} split{'s' * (splits != 1)} of the public rows. Nothing spent."
        ]
        if self.fewer_rows:
            notes.append("There were fewer public rows than private ones are planned: these errors are pessimistic.")
        table = notebook.table(["", self.metric], rows)
        return notebook.card("Rehearsal on public rows", table, *map(notebook.note, notes))


def rehearse(
    estimator: Any,
    public: Public,
    n_private: int,
    *,
    epsilons: Sequence[float] = (0.1, 0.3, 1.0, 3.0, 10.0),
    repeats: int = 5,
    split_by: Any = None,
    use_public: bool = True,
    random_state: int | None = None,
    done: Callable[[], None] | None = None,
) -> Rehearsal:
    """Fit `estimator` on public data alone: part of it takes the role of private rows, part is held out.

    It estimates the error at each epsilon before anything is spent. A random split contains no shift between public and
    private data; `split_by` mimics one. If the public rows come from several tasks, one of the tasks takes the role of
    the private rows in each split.

    Parameters
    ----------
    estimator : private estimator
        Unfitted; its epsilon is replaced by each of `epsilons`.
    public : Public
        Labelled.
    n_private : int
        How many private rows there will be.
    epsilons : sequence of float
    repeats : int, default=5
        How many random splits.
    split_by : array-like of shape (n_public_rows,), optional
        Rows with larger values, e.g. of an age or a date, take the role of private rows (half of all rows).
    use_public : bool, default=True
        Whether the rest of the public rows is given to the fit; False rehearses a fit on private rows alone.
    random_state : int, optional
        Seeds the splits and the noise; equal seeds give equal splits to any estimator. Default: fresh.
    done : callable, optional
        Called without arguments after each split.

    Returns
    -------
    Rehearsal

    Examples
    --------
    >>> from dpadapt import PrivateLinearRegression
    >>> X = np.linspace(-1, 1, 600).reshape(200, 3) % 0.7
    >>> public = Public(X, X @ [1.0, 2.0, 3.0])
    >>> rehearsal = rehearse(PrivateLinearRegression(), public, 500, epsilons=(1.0,), repeats=2, random_state=0)
    >>> rehearsal.errors.shape
    (2, 1)
    """
    if not isinstance(public, Public) or public.y is None:
        raise ValueError("public must be a labelled Public to rehearse on: public=Public(X_public, y_public).")
    n_private = checks.count(n_private, "n_private", least=2)
    repeats = checks.count(repeats, "repeats")
    if not np.iterable(epsilons):
        raise ValueError(f"epsilons must be a list of numbers, got {epsilons!r}.")
    epsilons = [checks.positive(epsilon, "each of epsilons") for epsilon in epsilons]
    X = public_table(public.X)
    y = public_labels(public.y, len(X))
    if public.unseen is not None and public.tasks is None and split_by is None:
        # Rows that a fitted public model has seen can't take the role of private ones.
        X, y = (part[np.broadcast_to(public.unseen, len(y))] for part in (X, y))
    if len(y) < 12:
        raise ValueError(f"public must have at least 12 rows to rehearse on, got {len(y)}.")
    tasks = None if public.tasks is None else np.asarray(public.tasks).ravel()
    if tasks is not None:
        if split_by is not None:
            raise ValueError(
                "split_by must be left out if public has tasks: one task takes the role of the private rows."
            )
        if len(np.unique(tasks)) < 2 or np.unique(tasks, return_counts=True)[1].min() < 3:
            raise ValueError("public must have at least 2 tasks of at least 3 rows each to rehearse on.")
    random, noise = np.random.default_rng(random_state).spawn(2)
    classifier = is_classifier(estimator)
    base = clone(estimator)
    if classifier and base.get_params().get("classes", y) is None:
        base.set_params(classes=np.unique(y))
    errors, alone, fewer = np.empty((repeats, len(epsilons))), np.empty(repeats), False
    for i in range(repeats):
        rest, other = _split(len(y), split_by, random) if tasks is None else _without_one(tasks, random)
        held, pool = other[: len(other) // 3], other[len(other) // 3 :]
        fewer |= len(pool) < n_private
        private = random.choice(pool, min(n_private, len(pool)), replace=False)
        kept = None if tasks is None else tasks[rest]
        given = Public(X[rest], y[rest], tasks=kept, unseen=True if public.unseen is not None else None)
        # With fewer rows the noise in a mean would be larger; a larger budget makes up for it.
        raised = [
            {"epsilon": _for_fewer_rows(e, base.get_params()["delta"], n_private / len(private))} for e in epsilons
        ]
        for k, budget in enumerate([PUBLIC_ONLY_BUDGET, *raised]):
            model = clone(base).set_params(random_state=int(noise.integers(2**31)), **budget)
            model.fit(X[private], y[private], public=given if use_public else None)
            error = _error(model, X[held], y[held], classifier)
            if k == 0:
                alone[i] = error
            else:
                errors[i, k - 1] = error
        if done is not None:
            done()
    metric = "log-loss" if classifier else "mean squared error over variance"
    return Rehearsal(metric, tuple(epsilons), errors, alone, bool(fewer))


def _for_fewer_rows(epsilon: float, delta: float, factor: float) -> float:
    """Return the epsilon of a Gaussian mechanism with `factor` times less noise."""
    if factor <= 1.0 or not delta > 0:
        return epsilon * factor
    return gaussian_epsilon(factor * gaussian_mu(epsilon, delta), delta)


def _split(n: int, split_by: Any, random: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows that stay public, and the other rows, shuffled."""
    order = random.permutation(n)
    if split_by is not None:
        try:
            key = np.asarray(split_by).ravel().astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError("split_by must hold numbers or dates; turn texts into either first.") from None
        if len(key) != n:
            raise ValueError(f"split_by must have one entry per public row: {n}, got {len(key)}.")
        # Shuffled first, so that ties fall at random.
        order = order[np.argsort(key[order], kind="stable")]
    return order[: n // 2], random.permutation(order[n // 2 :])


def _without_one(tasks: NDArray[Any], random: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows that stay public, and the rows of one task, shuffled."""
    alone = tasks == random.choice(np.unique(tasks))
    return np.flatnonzero(~alone), random.permutation(np.flatnonzero(alone))


def _error(model: Any, X: NDArray[np.float64], y: NDArray[Any], classifier: bool) -> float:
    if classifier:
        return float(log_loss(y, model.predict_proba(X), labels=model.classes_))
    return float(np.mean((model.predict(X) - y) ** 2) / max(float(np.var(y)), 1e-300))


def _spread(values: NDArray[np.float64]) -> str:
    return f"{values.mean():.4f} ± {values.std():.4f}"
