"""THE DOOR: nothing computed from private rows leaves except through `Ledger.release` and `Run.release`.

Both check the caps, record the event, and only then draw noise. A crash in between leaves the budget spent, never the
data exposed.
"""

import math
import os
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from dpadapt import checks
from dpadapt.accounting.closed_forms import gaussian_epsilon, gaussian_mu
from dpadapt.accounting.cost import epsilon as cost_of
from dpadapt.accounting.cost import gaussian_part
from dpadapt.accounting.receipt import Entry, Receipt
from dpadapt.accounting.store import ChildStore, FileStore, MemoryStore, Store, Tally, Terms
from dpadapt.errors import BudgetExceeded, LedgerError, PrivacyError
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import Bounded
from dpadapt.mechanisms.mechanism import GaussianEvent, Mechanism, Plan, Repeated, Sampled, as_plan
from dpadapt.mechanisms.randomness import Random, random_source

# A plan that was charged, and how much of it is left: the half of the door that opens several times.


Draw = Callable[[Mechanism, Bounded, float, Random], Any]


class Run:
    """A plan that was charged: it may release as often as was paid for, and draws its own samples.

    A resumable run has a `mark`, by which `Ledger.resume` finds it; any other has none.
    """

    def __init__(
        self,
        plan: Plan,
        adjacency: Adjacency,
        random: Random,
        draw: Draw,
        *,
        mark: str = "",
        record: Callable[[str, int], None] | None = None,
    ) -> None:
        self.plan = plan
        self.mark = mark
        self._record = record
        self._reserved = 0
        self._adjacency = adjacency
        self._random = random
        self._draw = draw
        self._left = plan.steps
        self._batch_ready = isinstance(plan, Repeated)
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def batches(self, n_rows: int) -> Iterator[NDArray[np.int64]]:
        """Yield the indices of each step's Poisson sample of range(n_rows); release once per batch."""
        if not isinstance(self.plan, Sampled):
            raise TypeError("this run uses all rows in every step; only a Sampled plan has batches.")
        for _ in range(self._left):
            if self._batch_ready:
                raise PrivacyError(
                    "the last batch was not released. Every batch counts, an empty one too: skipping some would be "
                    "choosing among samples by what is in them."
                )
            with self._lock:
                # Recorded before it is drawn: resuming must not be a way to draw a sample anew until it suits.
                self._use_one()
                self._batch_ready = True
            yield self._random.poisson_sample(n_rows, self.plan.rate)

    def release(self, bounded: Bounded) -> Any:
        """Draw: the noisy value of `bounded`."""
        mechanism, sampled = self.plan.mechanism, isinstance(self.plan, Sampled)
        scale = mechanism.scale(bounded, self._adjacency, sampled=sampled)
        with self._lock:
            if self._pid != os.getpid():
                raise PrivacyError("a run can't be shared by processes: each would use what was charged once.")
            if self._left <= 0:
                raise PrivacyError(f"this run was charged for {self.plan.steps} releases and has made them all.")
            if not self._batch_ready:
                raise PrivacyError("a sampled run releases once per batch: take the next one from run.batches(n_rows).")
            if not sampled:
                self._use_one()
            self._left -= 1
            self._batch_ready = not sampled
        return self._draw(mechanism, bounded, scale, self._random)

    def _use_one(self) -> None:
        """Record durably, where the run may be resumed, that one more release may have been made."""
        if self._record is None:
            return
        if self._reserved == 0:
            self._record(self.mark, 1)
            self._reserved = 1
        self._reserved -= 1

    def reserve(self, steps: int) -> None:
        """Record durably that the next `steps` releases may have been made: cheaper than before each of them.

        After a crash the reserved ones count as made, whether they were or not.
        """
        if self._record is None:
            raise PrivacyError("this run can't be resumed, so it reserves nothing. Start it with resumable=True.")
        steps = checks.count(steps, "steps")
        with self._lock:
            self._record(self.mark, steps)
            self._reserved += steps

    @property
    def left(self) -> int:
        """How many releases are paid for and not yet made."""
        return self._left

    def __copy__(self) -> NoReturn:
        """Refuse: two copies would make twice the releases that were paid for."""
        raise PrivacyError("a run can't be copied or pickled: the copy's releases would not be paid for.")

    def __deepcopy__(self, memo: Any) -> NoReturn:
        """Refuse, as `__copy__` does."""
        self.__copy__()

    def __reduce__(self) -> NoReturn:
        """Refuse, as `__copy__` does."""
        self.__copy__()


__all__ = ["Ledger", "Run"]

# Calibrated noise meets its target to 1e-10; a cap is not exceeded by rounding.
_ROUNDING = 1e-9


class Ledger:
    """The budget of one private data set, and the only way out of it.

    Parameters
    ----------
    epsilon, delta : float
        The cap on everything ever released about this data set: a limit, not a target.
    adjacency : Adjacency, default=Adjacency.ZERO_OUT
        Which data sets count as neighbours.
    random_state : int, optional
        For tests only: seeds the noise and marks every entry, because there is no guarantee then.

    Notes
    -----
    A ledger can't be copied, and one in memory can't be pickled: a copy would be charged while the original forgets.
    For several processes use `Ledger.open`.

    Examples
    --------
    >>> from dpadapt.mechanisms import Gaussian, clipped_sum
    >>> ledger = Ledger(epsilon=1.0, delta=1e-6, random_state=0)
    >>> noisy = ledger.release(Gaussian(10.0), clipped_sum([[0.5], [0.25]], clip_norm=1.0), label="a sum")
    >>> round(ledger.spent(), 2)
    0.4
    """

    def __init__(
        self,
        epsilon: float,
        delta: float = 0.0,
        *,
        adjacency: Adjacency = Adjacency.ZERO_OUT,
        random_state: int | None = None,
    ) -> None:
        self._setup(MemoryStore(), epsilon, delta, adjacency, random_source(random_state))

    def _setup(self, store: Store, epsilon: float, delta: float, adjacency: Adjacency, random: Random) -> None:
        self._epsilon = checks.positive(epsilon, "epsilon", infinite=True)
        self._delta = checks.delta(delta)
        self._adjacency = Adjacency.of(adjacency)
        self.dataset = ""
        self._store = store
        self._random = random
        self._draw: Draw = _draw

    @property
    def epsilon(self) -> float:
        """The cap; it can't be changed."""
        return self._epsilon

    @property
    def delta(self) -> float:
        """The delta that goes with the cap; it can't be changed."""
        return self._delta

    @property
    def adjacency(self) -> Adjacency:
        """Which data sets count as neighbours."""
        return self._adjacency

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        adjacency: Adjacency | None = None,
        dataset: str | None = None,
    ) -> "Ledger":
        """Open the durable ledger at `path`, or make it if there is none.

        Parameters
        ----------
        path : str or Path
            An SQLite file, safe to share between processes of one machine.
        epsilon, delta : float, optional
            The cap. Needed to make a new ledger; for an existing one they must agree with it.
        adjacency : Adjacency, optional
            Default for a new ledger: Adjacency.ZERO_OUT.
        dataset : str, optional
            A name for the private data set. An existing ledger of another name is refused.
        """
        path = Path(path)
        if not path.exists():
            if epsilon is None or delta is None:
                raise ValueError(f"there is no ledger {path.name}: give epsilon and delta to make one.")
            relation = Adjacency.of(adjacency or Adjacency.ZERO_OUT)
            cap = checks.positive(epsilon, "epsilon", infinite=True), checks.delta(delta)
            store = FileStore.create(path, Terms(*cap, relation.value, dataset or ""))
        else:
            store = FileStore(path)
        terms = store.terms
        if dataset is not None and dataset != terms.dataset:
            raise LedgerError(
                f"the ledger {path.name} belongs to the data set {terms.dataset!r}, not to {dataset!r}. "
                f"Use that data set's own ledger."
            )
        for name, asked, kept in (
            ("epsilon", epsilon, terms.epsilon),
            ("delta", delta, terms.delta),
            ("adjacency", None if adjacency is None else Adjacency.of(adjacency).value, terms.adjacency),
        ):
            if asked is not None and asked != kept:
                raise LedgerError(
                    f"the ledger {path.name} has {name}={kept!r}, not {asked!r}. A cap is fixed when the ledger is "
                    f"made; leave {name} out to use it as it is."
                )
        ledger = object.__new__(cls)
        ledger._setup(store, terms.epsilon, terms.delta, Adjacency.of(terms.adjacency), random_source(None))
        ledger.dataset = terms.dataset
        return ledger

    def child(self, epsilon: float, delta: float, *, label: str, random_state: int | None = None) -> "Ledger":
        """Return a ledger with a cap of its own whose charges are this ledger's too.

        Parameters
        ----------
        epsilon, delta : float
            The most that may be charged through the child.
        label : str
            Put before the label of each of its entries here.
        random_state : int, optional
            For tests only, as in `Ledger`.
        """
        ledger = object.__new__(Ledger)
        random = self._random if random_state is None else random_source(random_state)
        ledger._setup(ChildStore(self, label), epsilon, delta, self.adjacency, random)
        ledger.dataset = self.dataset
        ledger._draw = self._draw
        return ledger

    def release(self, mechanism: Mechanism, bounded: Bounded, *, label: str) -> Any:
        """Check the cap, record, then draw: the noisy value of `bounded`."""
        mechanism.scale(bounded, self.adjacency)  # refuses a statistic it can't protect, before anything is spent
        return self.start(mechanism, label=label).release(bounded)

    def start(self, plan: Plan | Mechanism, *, label: str, resumable: bool = False) -> "Run":
        """Charge a whole plan at once and return the run that may carry it out.

        Parameters
        ----------
        plan : Repeated, Sampled or Mechanism
        label : str
        resumable : bool, default=False
            Keep count of the run's releases durably, so that `resume` can go on with it after a crash. Needs a ledger
            made by `Ledger.open`, or a child of one.
        """
        if not resumable:
            return self.start_all([(plan, label)])[0]
        ready, mark = as_plan(plan), secrets.token_hex(16)
        self._charge([Entry(label, ready.event(), ready.steps, self._random.seeded)], mark=mark)
        return Run(ready, self.adjacency, self._random, self._draw, mark=mark, record=self._reserve)

    def resume(self, plan: Plan | Mechanism, mark: str, *, label: str) -> "Run":
        """Go on with a resumable run that was charged earlier, in another process perhaps; nothing new is charged.

        The run has the releases left that were neither made nor reserved when it was interrupted.

        Parameters
        ----------
        plan, label : as they were given to `start`; others are refused.
        mark : str
            The interrupted run's `mark`.
        """
        ready = as_plan(plan)
        used = self._readmit(Entry(label, ready.event(), ready.steps, self._random.seeded), mark)
        run = Run(ready, self.adjacency, self._random, self._draw, mark=mark, record=self._reserve)
        run._left -= used
        return run

    def start_all(self, plans: Sequence[tuple[Plan | Mechanism, str]]) -> list["Run"]:
        """Charge several plans, each with its label, all or none; return their runs."""
        ready = [(as_plan(plan), label) for plan, label in plans]
        self._charge([Entry(label, plan.event(), plan.steps, self._random.seeded) for plan, label in ready])
        return [Run(plan, self.adjacency, self._random, self._draw) for plan, _ in ready]

    def spent(self) -> float:
        """Return the epsilon, at this ledger's delta, of everything charged so far."""
        return cost_of(self._store.tally(), self.delta, adjacency=self.adjacency)

    def remaining(self) -> float:
        """Return the epsilon, at this ledger's delta, of the largest further release that still fits.

        Gaussian noise is meant if delta > 0, a pure release otherwise. Not the difference of cap and `spent`:
        composition is kinder than addition.
        """
        tally = self._store.tally()
        if not self.delta or math.isinf(self.epsilon):
            return max(0.0, self.epsilon - self.spent())
        mu, most = gaussian_part(tally), gaussian_mu(self.epsilon, self.delta)
        if mu is not None:
            return gaussian_epsilon(math.sqrt(max(0.0, most**2 - mu**2)), self.delta)
        low, high = 0.0, most
        while high - low > 1e-3 * most:
            middle = (low + high) / 2
            after = {**tally, GaussianEvent(1 / middle): 1}
            fits = cost_of(after, self.delta, adjacency=self.adjacency) <= self.epsilon
            low, high = (middle, high) if fits else (low, middle)
        return gaussian_epsilon(low, self.delta)

    @property
    def entries(self) -> list[Entry]:
        """Everything charged so far, oldest first."""
        return self._store.entries()

    def history(self) -> list[tuple[str, Entry]]:
        """Everything charged so far with its time (UTC; empty for a ledger in memory)."""
        if isinstance(self._store, FileStore):
            return self._store.history()
        return [("", entry) for entry in self.entries]

    def receipt(self, *, assumptions: Sequence[str] = (), warnings: Sequence[str] = ()) -> Receipt:
        """Return what was released through this ledger and what it cost."""
        return Receipt(
            epsilon=self.spent(),
            delta=self.delta,
            adjacency=self.adjacency,
            entries=tuple(self.entries),
            assumptions=tuple(assumptions),
            warnings=tuple(warnings),
        )

    def _charge(self, entries: Sequence[Entry], *, mark: str = "") -> None:
        self._store.append(entries, self._check(entries[0].label if entries else ""), mark=mark)

    def _readmit(self, entry: Entry, mark: str) -> int:
        return self._store.readmit(entry, mark, self._check(entry.label))

    def _reserve(self, mark: str, steps: int) -> None:
        self._store.reserve(mark, steps)

    def _check(self, label: str) -> Callable[[Tally], None]:
        def check(after: Tally) -> None:
            need = cost_of(after, self.delta, adjacency=self.adjacency)
            # Not `need > cap`: a cost that is not a number must not pass.
            if not need <= self.epsilon * (1 + _ROUNDING):
                raise BudgetExceeded(
                    f"{label!r} would bring the cost to epsilon={need:.4g} at delta={self.delta:.3g}, over the cap of "
                    f"{self.epsilon:.4g}. Nothing was released. Ask for less, or use a ledger with a higher cap."
                )

        return check

    def __repr__(self) -> str:
        """Show the cap and what is spent."""
        return f"Ledger(spent={self.spent():.4g} of epsilon={self.epsilon:.4g}, delta={self.delta:.3g})"

    def __copy__(self) -> NoReturn:
        """Refuse: a copy would be charged while the original forgets."""
        raise PrivacyError("a ledger can't be copied: the copy's charges would be forgotten. Pass the ledger itself.")

    def __deepcopy__(self, memo: Any) -> NoReturn:
        """Refuse, as `__copy__` does."""
        self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle a durable ledger as its path; refuse any other."""
        if isinstance(self._store, FileStore):
            return (Ledger.open, (str(self._store.path.resolve()),))
        raise PrivacyError(
            "a ledger in memory can't be sent to another process: its charges would be forgotten. "
            "Use Ledger.open(path, ...), or n_jobs=1."
        )


def _draw(mechanism: Mechanism, bounded: Bounded, scale: float, random: Random) -> Any:
    return mechanism._apply(bounded, scale=scale, random=random)
