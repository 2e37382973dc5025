"""`Ledger` and `Run`: the only way by which anything computed from private rows is released.

Each release is checked against the caps and recorded before noise is drawn. After a crash in between, the budget counts
as spent, and nothing was released.
"""

import math
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from dpadapt import checks, notebook
from dpadapt.accounting.chain import Past, Terms
from dpadapt.accounting.cost import gaussian_epsilon
from dpadapt.accounting.filter import Filter, Sums
from dpadapt.accounting.places import ServerPlace, ledger_of, store_at
from dpadapt.accounting.receipt import Receipt
from dpadapt.accounting.store import AllowanceStore, ChildStore, DurableStore, MemoryStore, Store
from dpadapt.errors import LedgerError, PrivacyError
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import Bounded
from dpadapt.mechanisms.events import Entry, Event
from dpadapt.mechanisms.mechanism import Mechanism, Plan, Sampled, as_plan
from dpadapt.mechanisms.randomness import NormalsAhead, Random, random_source
from dpadapt.rows import UNITS, Shares, Unit

Draw = Callable[[Mechanism, Bounded, float, Random], Any]

# Characters: the longest name of an allowance, so that tables stay readable.
_LONGEST_ALLOWANCE_NAME = 100
# Most charges that a notebook shows of a ledger, which holds all of them: more are hard to read.
_MOST_CHARGES_SHOWN = 50
# On receipts of fits without a ledger.
NOT_ADDED_UP = "no ledger was charged: further fits on the same rows are not added up"


# The rows of a batch: their indices, or all of them.
Index = NDArray[np.int64] | slice
_ALL_ROWS = slice(None)


class Batch:
    """The rows of one step of a run, handed out by `Run.batches`.

    The indices are passed to the function that computes the statistic, and to nothing else: a statistic made by `of`
    carries the batch, and `Run.release` refuses one that carries the batch of another run or of another step. Poisson
    sampling lowers the cost of a release only if the release uses the sample that was drawn for it alone.
    """

    def __init__(self, index: Index) -> None:
        self._index = index

    def of(self, statistic: Callable[[Any], Bounded]) -> Bounded:
        """Return ``statistic(index)``, computed from the rows at the indices of this batch."""
        bounded = statistic(self._index)
        if bounded.batch is not None:
            raise PrivacyError("a statistic of one batch can't be given out as that of another. Compute it anew.")
        return bounded.of_batch(self)


class Run:
    """A plan that was charged: it makes as many releases as were charged, and draws its own samples.

    A resumable run has a `mark`, by which `Ledger.resume` finds it. The mark of any other run is empty.
    """

    def __init__(
        self,
        plan: Plan,
        adjacency: Adjacency,
        random: Random,
        draw: Draw,
        *,
        unit: Unit = "row",
        mark: str = "",
        record: Callable[[str, int], None] | None = None,
    ) -> None:
        self.plan = plan
        self.unit = unit
        self.mark = mark
        self._record = record
        self._reserved = 0
        self._adjacency = adjacency
        self._random = random
        self._draw = draw
        self._left = plan.steps
        self._sampled = isinstance(plan, Sampled)
        self._batch: Batch | None = None
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def batches(self, n_rows: int, shares: Shares | None = None) -> Iterator[Batch]:
        """Yield the batch of each step: a Poisson sample of range(n_rows), or all rows if the plan does not sample.

        If persons are protected, persons are sampled, and a batch holds all rows of those drawn: `shares` says whose
        the rows are. Release once per batch: ``run.release(batch.of(statistic))``.
        """
        if self._sampled and self.unit == "person" and (shares is None or shares.unit != "person"):
            raise PrivacyError(
                "a run that samples persons needs the shares of their rows: run.batches(n_rows, shares)."
            )
        self._require_releases_left()
        while self._left:
            with self._lock:
                self._require_same_process()
                if self._batch is not None:
                    raise PrivacyError(
                        "the last batch was not released. Release every batch, an empty one too: skipping a batch "
                        "would select samples by their content, which was not charged."
                    )
                if isinstance(self.plan, Sampled):
                    # Claim: the samples of a run are drawn once, one per release charged. A step is recorded before its
                    # sample is drawn: otherwise one could resume, and draw again, until a sample suits.
                    self._use_one()
                    batch = Batch(self._sample(n_rows, shares, self.plan.rate))
                else:
                    batch = Batch(_ALL_ROWS)
                self._batch = batch
            yield batch

    def _sample(self, n_rows: int, shares: Shares | None, rate: float) -> NDArray[np.int64]:
        """Return the rows of a Poisson sample of rows, or of persons."""
        if self.unit == "row" or shares is None:
            return self._random.poisson_sample(n_rows, rate)
        # Claim: P(person is drawn) = rate, with all rows or with none, independently of all others. The extra place,
        # never drawn, is that of rows without an id, whose code is -1.
        drawn = np.full(shares.n_units + 1, False)
        drawn[self._random.poisson_sample(shares.n_units, rate)] = True
        return np.flatnonzero(drawn[shares.codes])

    def release(self, bounded: Bounded) -> Any:
        """Return the noisy value of `bounded`; of a sampled run, a statistic of its last batch alone is released."""
        mechanism = self.plan.mechanism
        _require_unit(bounded, self.unit)
        scale = mechanism.scale(bounded, self._adjacency, sampled=self._sampled)
        with self._lock:
            self._require_same_process()
            self._require_releases_left()
            if self._sampled and self._batch is None:
                raise PrivacyError(
                    "a sampled run releases once per batch: take the next batch from run.batches(n_rows)."
                )
            # Claim: the number of releases of a run <= the steps charged, and a sampled one is a statistic of its own
            # batch. A run on all rows also takes a statistic that was made without `batches`.
            # Not proved: which rows a statistic was computed from; a run can't see it.
            if bounded.batch is not self._batch and (self._sampled or bounded.batch is not None):
                raise PrivacyError(
                    "this is not a statistic of the run's last batch. Compute it from that batch: "
                    "run.release(batch.of(statistic))."
                )
            if not self._sampled:
                self._use_one()
            self._left -= 1
            self._batch = None
        return self._draw(mechanism, bounded, scale, self._random)

    def release_each(self, statistics: Iterable[Bounded], steps: int) -> Iterator[Any]:
        """Yield the noisy values of the next `steps` statistics; each may depend on the values before.

        These are the releases that `release` makes, in less time. All of them are counted before the first is drawn: if
        the caller stops early, those that are left count as made. The noise is drawn for many releases at once; it
        depends on the bounds alone, so every statistic must have the bounds of the first.
        """
        steps = checks.count(steps, "steps")
        mechanism, draw, ahead = self.plan.mechanism, self._draw, NormalsAhead(self._random, steps)
        first, scale = None, math.nan
        for bounded in islice(statistics, steps):
            if bounded.batch is not None:
                raise PrivacyError("a statistic of one batch is released by itself: run.release(batch.of(statistic)).")
            if first is None:
                _require_unit(bounded, self.unit)
                # Claim: each release has fresh noise of the scale that its own bounds need. All have the bounds of the
                # first, and all are counted before the first is drawn. A sampled run is refused by `_use`.
                scale = mechanism.scale(bounded, self._adjacency)
                self._use(steps)
                first = bounded
            elif not bounded.bounded_as(first):
                raise PrivacyError("statistics that are released together must have the same bounds.")
            # Also between two releases: noise that was drawn ahead must not be used on both sides of a fork.
            if self._pid != os.getpid():
                self._require_same_process()
            yield draw(mechanism, bounded, scale, ahead)

    def _use(self, steps: int) -> None:
        """Count several releases on all rows as made."""
        with self._lock:
            self._require_same_process()
            self._require_releases_left()
            if self._sampled or self._batch is not None:
                raise PrivacyError("a run with batches releases once per batch: run.release(batch.of(statistic)).")
            if steps > self._left:
                raise PrivacyError(f"this run was charged for {self._left} more releases, not for {steps!r}.")
            if self._record is not None:
                if steps > self._reserved:
                    self._record(self.mark, steps - self._reserved)
                    self._reserved = steps
                self._reserved -= steps
            self._left -= steps

    def _require_releases_left(self) -> None:
        if self._left <= 0:
            raise PrivacyError(
                f"this run was charged for {self.plan.steps} releases and has made them all. For more releases start "
                f"a new run, which is charged again."
            )

    def _require_same_process(self) -> None:
        if self._pid != os.getpid():
            raise PrivacyError(
                "a run can't be shared by processes: each would make the releases that were charged once. Start the "
                "run in the process that uses it."
            )

    def _use_one(self) -> None:
        """If the run is resumable, record durably that one more release may have been made."""
        if self._record is None:
            return
        if self._reserved == 0:
            self._record(self.mark, 1)
            self._reserved = 1
        self._reserved -= 1

    def reserve(self, steps: int) -> None:
        """Record durably that the next `steps` releases may have been made: quicker than one record for each.

        After a crash all reserved releases count as made, whether they were or not.
        """
        if self._record is None:
            raise PrivacyError("this run can't be resumed, so nothing can be reserved. Start it with resumable=True.")
        steps = checks.count(steps, "steps")
        with self._lock:
            self._record(self.mark, steps)
            self._reserved += steps

    @property
    def left(self) -> int:
        """Number of releases that were charged and not yet made."""
        return self._left

    def __copy__(self) -> NoReturn:
        """Refuse: two copies would make twice the releases that were charged."""
        raise PrivacyError("a run can't be copied or pickled: the releases of the copy would not be charged.")

    def __deepcopy__(self, memo: Any) -> NoReturn:
        """Refuse, as `__copy__` does."""
        self.__copy__()

    def __reduce__(self) -> NoReturn:
        """Refuse, as `__copy__` does."""
        self.__copy__()


class Ledger:
    """The budget of one private data set, the record of its charges, and the only way to release from it.

    Parameters
    ----------
    epsilon, delta : float
        The cap on the cost of everything ever released about this data set: a limit, not a target.
    adjacency : Adjacency, default=Adjacency.ZERO_OUT
        Which data sets count as neighbours.
    unit : {"row", "person"}, default="row"
        What is protected: single rows, or all rows of one person. A fit must protect the same.
    rule : {"mixed", "gaussian", "renyi"}, default="mixed"
        How delta is shared between the ways in which charges are added up. "gaussian" adds up Gaussian noise without
        any loss and other noise dearly, "renyi" the reverse; "mixed" suits both (docs/benchmarks/ledger.md).
    random_state : int, optional
        For tests only: seeds the noise and marks every entry, because then there is no guarantee.

    Notes
    -----
    The ledger is a privacy filter: the cap holds however each charge is chosen, also by what was released before. What
    is charged together, such as the whole plan of a fit, was fixed before its first release; if nothing else was
    charged, its exact cost counts. Several charges add up to a little more than the exact cost of all their events,
    which would be wrong for charges that depend on earlier releases. The rule and its proof: `Filter.needs`.

    A ledger can't be copied, and a ledger in memory can't be pickled: charges to the copy would be missing in the
    original. For several processes use `Ledger.open`.

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
        unit: Unit = "row",
        rule: str = "mixed",
        random_state: int | None = None,
    ) -> None:
        filter = Filter.of(rule, epsilon, delta, Adjacency.of(adjacency))
        checks.one_of(unit, UNITS, "unit")
        self._setup(MemoryStore(filter), filter, random_source(random_state), unit)

    def _setup(self, store: Store, filter: Filter, random: Random, unit: Unit) -> None:
        self._filter = filter
        self._unit = unit
        self.dataset = ""
        self._store = store
        self._random = random
        self._draw: Draw = _draw
        self._notes: tuple[str, ...] = ()

    @property
    def epsilon(self) -> float:
        """The cap; it can't be changed."""
        return self._filter.epsilon

    @property
    def delta(self) -> float:
        """The delta that goes with the cap; it can't be changed."""
        return self._filter.delta

    @property
    def adjacency(self) -> Adjacency:
        """Which data sets count as neighbours."""
        return self._filter.adjacency

    @property
    def unit(self) -> Unit:
        """What is protected: a row or a person."""
        return self._unit

    @property
    def fixed_rows(self) -> bool:
        """Whether neighbours have equally many rows; how many rows a person has is private."""
        return self.adjacency is not Adjacency.ADD_REMOVE and self.unit == "row"

    @property
    def rule(self) -> str:
        """How delta is shared between the ways in which charges are added up."""
        return self._filter.rule

    @property
    def n_charges(self) -> int:
        """Number of charges so far; one charge may have several entries."""
        return len(self._store.charges())

    @classmethod
    def open(
        cls,
        path: str | Path | ServerPlace,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        adjacency: Adjacency | None = None,
        dataset: str | None = None,
        unit: Unit | None = None,
        rule: str | None = None,
        read_only: bool = False,
    ) -> "Ledger":
        """Open the durable ledger at `path`, or make it if there is none.

        Parameters
        ----------
        path : str or Path
            A file, which several processes of one machine may use at the same time; it must lie on a local disk. Or
            the address of a PostgreSQL server, for several machines: ``postgresql://user@host/database`` (extra
            ``postgres``). Passwords are best given by PGPASSWORD or in ~/.pgpass: a pickled ledger has none.
        epsilon, delta : float, optional
            The cap. Needed for a new ledger; for an existing ledger they must equal its cap.
        adjacency : Adjacency, optional
            Default for a new ledger: Adjacency.ZERO_OUT.
        dataset : str, optional
            Name of the private data set. An existing ledger of another data set is refused. On a server the name is
            needed, and finds the ledger: there is one for each name.
        unit : {"row", "person"}, optional
            As in `Ledger`. Default for a new ledger: "row".
        rule : {"mixed", "gaussian", "renyi"}, optional
            As in `Ledger`. Default for a new ledger: "mixed".
        read_only : bool, default=False
            Only read the ledger, which needs no right to write to it. Otherwise a ledger that can't be written to is
            refused at once.
        """
        if isinstance(path, ServerPlace):
            dataset, path = path.dataset, path.address
        place, kind = store_at(path, dataset)
        if not kind.exists(place):
            if epsilon is None or delta is None or read_only:
                raise ValueError(
                    f"there is no ledger {place.name}: give epsilon and delta to make one for data about which nothing "
                    f"was released yet. If there was a ledger before, its budget must be taken as spent."
                )
            made = Filter.of(rule or "mixed", epsilon, delta, Adjacency.of(adjacency or Adjacency.ZERO_OUT))
            cap = made.epsilon, made.delta, made.adjacency.value
            kept_unit = checks.one_of("row" if unit is None else unit, UNITS, "unit")
            terms = Terms(*cap, dataset or "", made.share, made.order, kept_unit, made.plain_share)
            store = kind.create(place, terms)
        else:
            store = kind(place, read_only=read_only)
        terms = store.terms
        if dataset is not None and dataset != terms.dataset:
            raise LedgerError(
                f"the ledger {place.name} belongs to the data set {terms.dataset!r}, not to {dataset!r}. "
                f"Use that data set's own ledger."
            )
        for name, given, kept in (
            ("epsilon", epsilon, terms.epsilon),
            ("delta", delta, terms.delta),
            ("adjacency", None if adjacency is None else Adjacency.of(adjacency).value, terms.adjacency),
            ("unit", unit, terms.unit),
            ("rule", rule, terms.filter.rule),
        ):
            if given is not None and given != kept:
                raise LedgerError(
                    f"the ledger {place.name} has {name}={kept!r}, not {given!r}. It is fixed when the ledger is made; "
                    f"leave {name} out to use the ledger as it is."
                )
        ledger = object.__new__(cls)
        ledger._setup(store, terms.filter, random_source(None), terms.unit)
        ledger.dataset = terms.dataset
        return ledger

    @classmethod
    def beside(cls, private: str | Path, **terms: Any) -> "Ledger":
        """Open the ledger of a private file or folder, which lies beside it and has its name, or make it.

        Refused if there is none and another ledger lies near, which may be that of the same rows under another name:
        `Ledger.open` then names the one to charge.

        Parameters
        ----------
        private : str or Path
            The file or folder with the private rows, which is not read.
        **terms : object
            As in `Ledger.open`.
        """
        place, _ = ledger_of(Path(private))
        return cls.open(place, **terms)

    def child(
        self, epsilon: float, delta: float, *, label: str, unit: Unit | None = None, random_state: int | None = None
    ) -> "Ledger":
        """Return a ledger with a cap of its own whose charges are also charged to this ledger.

        Parameters
        ----------
        epsilon, delta : float
            The cap on what is charged through the child.
        label : str
            Put before the label of each of the child's entries in this ledger.
        unit : {"row", "person"}, optional
            What the child protects, which must be what this ledger protects.
        random_state : int, optional
            For tests only, as in `Ledger`.
        """
        ledger = object.__new__(Ledger)
        random = self._random if random_state is None else random_source(random_state)
        filter = Filter.of(self._filter.rule, epsilon, delta, self.adjacency)
        own = self.unit if unit is None else checks.one_of(unit, UNITS, "unit")
        if own != self.unit:
            # Nor does a ledger of rows take persons: moving one row to another person changes the number of persons,
            # which divides every sum and is public only if a person is the unit.
            raise PrivacyError(
                "the ledger protects persons, this fit only rows. Give the fit the id of each row's person: persons=..."
                if own == "row"
                else 'the ledger protects rows, this fit persons. Use a ledger of persons: Ledger(..., unit="person").'
            )
        ledger._setup(ChildStore(filter, self, label), filter, random, own)
        ledger.dataset = self.dataset
        ledger._draw = self._draw
        ledger._notes = self._notes
        return ledger

    def allow(self, name: str, epsilon: float, delta: float | None = None) -> "Ledger":
        """Make an allowance, or raise or lower its epsilon, and return it as `allowance` does.

        An allowance limits what is charged under its name, such as that of an analyst. It sets nothing aside: all
        allowances together may exceed the cap, which binds each of them. Each change is a further record of the ledger.
        An epsilon below what was spent under the name lets nothing more through.

        Parameters
        ----------
        name : str
        epsilon : float
            At most the cap.
        delta : float, optional
            At most that of the cap, which is the default. It can't be changed later.
        """
        store = self._require_durable()
        if not isinstance(name, str) or name != name.strip() or not 0 < len(name) <= _LONGEST_ALLOWANCE_NAME:
            raise ValueError(
                f"the name of an allowance must be a text of 1 to {_LONGEST_ALLOWANCE_NAME} characters, without spaces "
                f"at its ends."
            )
        if not name.isprintable():
            raise ValueError("the name of an allowance must be a text without control characters.")
        epsilon = checks.positive(epsilon, "epsilon")
        delta = None if delta is None else checks.delta(delta)
        # A larger limit would never be reached: the cap is. So it is a slip of the pen, or a misunderstanding.
        for what, given, cap in (("epsilon", epsilon, self.epsilon), ("delta", delta, self.delta)):
            if given is not None and given > cap:
                raise ValueError(
                    f"{what} (--{what}) of an allowance must be at most that of the ledger's cap, {cap!r}, which binds "
                    f"every allowance; got {given!r}. Nothing was changed."
                )
        store.allow(name, epsilon, delta)
        return self.allowance(name)

    def allowance(self, name: str) -> "Ledger":
        """Return the child of this ledger that is limited by an allowance: charges to it are charges to both.

        A charge that passes the allowance's epsilon, or this ledger's cap, is refused. Unlike the cap of other
        children, the limit is kept in the ledger, with what was charged under the name, and holds for all processes
        together. `epsilon` of the returned ledger is the limit now; the limit at the moment of a charge decides.
        """
        ledger = object.__new__(Ledger)
        store = AllowanceStore(self._require_durable(), name)
        ledger._setup(store, store.filter, self._random, self._unit)
        ledger.dataset = self.dataset
        ledger._draw = self._draw
        return ledger

    @property
    def allowances(self) -> list[str]:
        """The names of all allowances, oldest first."""
        return list(self._store.state().allowances) if isinstance(self._store, DurableStore) else []

    def _require_durable(self) -> DurableStore:
        if not isinstance(self._store, DurableStore):
            raise PrivacyError(
                "only a ledger made by Ledger.open has allowances. Elsewhere, limit single fits by their own epsilon, "
                "or several by ledger.child(epsilon, delta, label=...)."
            )
        return self._store

    @classmethod
    def of_one_fit(
        cls,
        epsilon: float,
        delta: float,
        *,
        adjacency: Adjacency,
        unit: Unit = "row",
        random_state: int | None = None,
    ) -> "Ledger":
        """Return a ledger in memory for a fit that nobody keeps a ledger for: its receipts warn of that."""
        ledger = cls(epsilon, delta, adjacency=adjacency, unit=unit, random_state=random_state)
        ledger._notes = (NOT_ADDED_UP,)
        return ledger

    def release(self, mechanism: Mechanism, bounded: Bounded, *, label: str) -> Any:
        """Check the cap, record the event, then return the noisy value of `bounded`."""
        # Claim: a charge is checked and recorded before its noise is drawn. `start` charges, or raises; only the run
        # that it returns draws. The next two lines refuse an unsuitable statistic before anything is charged.
        _require_unit(bounded, self.unit)
        mechanism.scale(bounded, self.adjacency)
        return self.start(mechanism, label=label).release(bounded)

    def start(self, plan: Plan | Mechanism, *, label: str, resumable: bool = False) -> "Run":
        """Charge a whole plan at once and return the run that makes its releases.

        Parameters
        ----------
        plan : Repeated, Sampled or Mechanism
        label : str
        resumable : bool, default=False
            Record the number of the run's releases durably, so that `resume` can continue it after a crash. Needs a
            ledger made by `Ledger.open`, or a child of one.
        """
        if not resumable:
            return self.start_all([(plan, label)])[0]
        ready, mark = self._planned(plan), secrets.token_hex(16)
        self._charge([Entry(label, ready.event(), ready.steps, self._random.seeded)], mark=mark)
        return self._run(ready, mark=mark, record=self._reserve)

    def _planned(self, plan: Plan | Mechanism) -> Plan:
        ready = as_plan(plan)
        if isinstance(ready, Sampled) and ready.unit != self.unit:
            # A person with many rows would nearly always be in a sample of rows, which is not what would be charged.
            raise PrivacyError(
                f"the ledger protects one {self.unit}, and this run would sample {ready.unit}s. Make the plan with "
                f'Sampled(..., unit="{self.unit}"), or use a run on all rows.'
            )
        return ready

    def _run(self, plan: Plan, **resumable: Any) -> "Run":
        return Run(plan, self.adjacency, self._random, self._draw, unit=self.unit, **resumable)

    def resume(self, plan: Plan | Mechanism, mark: str, *, label: str) -> "Run":
        """Continue a resumable run that was charged earlier, perhaps by another process; nothing is charged again.

        The run makes the releases that were neither made nor reserved when it was interrupted.

        Parameters
        ----------
        plan, label : as they were given to `start`; others are refused.
        mark : str
            The `mark` of the interrupted run.
        """
        ready = self._planned(plan)
        used = self._readmit(Entry(label, ready.event(), ready.steps, self._random.seeded), mark)
        run = self._run(ready, mark=mark, record=self._reserve)
        run._left -= used
        return run

    def start_all(self, plans: Sequence[tuple[Plan | Mechanism, str]]) -> list["Run"]:
        """Charge several plans, each with its label, all of them or none; return their runs."""
        ready = [(self._planned(plan), label) for plan, label in plans]
        if not ready:
            return []
        self._charge([Entry(label, plan.event(), plan.steps, self._random.seeded) for plan, label in ready])
        return [self._run(plan) for plan, _ in ready]

    def spent(self) -> float:
        """Return the least cap epsilon, at this ledger's delta, that would have let through everything charged so far.

        After one charge this is its exact cost. After several it is the filter's number, a little more than the exact
        cost of the same events fixed in advance. The guarantee is always the cap: stopping as soon as `spent` would
        pass a level that was fixed beforehand is private at that level, but a value of `spent` that is read at a time
        chosen by looking at releases guarantees nothing by itself.
        """
        charges = self._store.charges()
        if not charges:
            return 0.0
        if len(charges) == 1:
            return self._filter.needs(Sums(), charges[0])
        return self._filter.level(self._store.sums())

    def spending(self) -> list[float]:
        """Return what `spent` was after each charge, oldest first."""
        levels, sums = [], Sums()
        for charge in self._store.charges():
            levels.append(self._filter.needs(sums, charge))
            sums += self._filter.sums(charge, sums)
        return levels

    def remaining(self) -> float:
        """Return the epsilon, at this ledger's delta, of the largest further release that is let through.

        The release has Gaussian noise if delta > 0 and is pure otherwise. With delta > 0 this can be more than the cap
        minus `spent`, because several releases together can cost less than the sum of their epsilons. It is about this
        ledger's own cap; a ledger that this one is a child of may let through less.
        """
        if math.isinf(self.epsilon):
            return math.inf
        sums = self._store.sums()
        if not self.delta:
            return max(0.0, self.epsilon - sums.plain)
        return gaussian_epsilon(self._filter.room(sums), self.delta)

    def allows(self, plan: Plan | Mechanism | Event) -> bool:
        """Return whether `plan` would be let through now; nothing is charged. For a new ledger: `Filter.allows`."""
        return self._filter.allows(plan, self._store.sums())

    @property
    def entries(self) -> list[Entry]:
        """Everything charged so far, oldest first."""
        return [entry for charge in self._store.charges() for entry in charge]

    def history(self) -> list[tuple[str, Entry]]:
        """Return everything charged so far with its time (UTC; empty for a ledger in memory)."""
        return [(past.time, entry) for past in self.records() for entry in past.charge]

    def records(self) -> list[Past]:
        """Return all charges, and how allowances were made and changed, oldest first."""
        return self._store.history()

    def receipt(self, *, assumptions: Sequence[str] = (), warnings: Sequence[str] = ()) -> Receipt:
        """Return what was released through this ledger and what it cost; `Receipt.meaning` says what its epsilon is."""
        charges = self._store.charges()
        return Receipt(
            epsilon=self.spent(),
            delta=self.delta,
            adjacency=self.adjacency,
            entries=tuple(entry for charge in charges for entry in charge),
            assumptions=tuple(assumptions),
            warnings=tuple(dict.fromkeys([*self._notes, *warnings])),
            charges=max(1, len(charges)),
            cap=self.epsilon,
            unit=self.unit,
        )

    def _charge(self, entries: Sequence[Entry], *, mark: str = "") -> None:
        self._store.append(tuple(entries), mark=mark)

    def _readmit(self, entry: Entry, mark: str) -> int:
        return self._store.readmit(entry, mark)

    def _reserve(self, mark: str, steps: int) -> None:
        self._store.reserve(mark, steps)

    def __repr__(self) -> str:
        """Return a text with the cap and what is spent."""
        return f"Ledger(spent={self.spent():.4g} of epsilon={self.epsilon:.4g}, delta={self.delta:.3g})"

    def _repr_html_(self) -> str:
        receipt, past = self.receipt(), self.records()
        spent = receipt.epsilon
        limited = isinstance(self._store, AllowanceStore)
        shown = {
            "left": f"epsilon = {self.remaining():.4g}, for one more release"
            + (", if the cap of the ledger lets it through" if limited else ""),
            "protects": f"{self.adjacency.protects(self.unit)}; {self.adjacency.counted(self.unit)}",
        }
        for name in self.allowances:
            own = self.allowance(name)
            shown[f"allowance {name}"] = f"epsilon = {own.spent():.4g} of {own.epsilon:.4g} spent"
        lines = [
            " · ".join(text for text in (each.time, each.allowance, str(entry)) if text)
            for each in past
            for entry in each.charge
        ]
        which = f"charged, the newest of {len(lines):,}" if len(lines) > _MOST_CHARGES_SHOWN else "charged"
        kind = f"Allowance {self._store.allowance}" if isinstance(self._store, AllowanceStore) else "Ledger"
        return notebook.card(
            f"{kind} of {self.dataset}" if self.dataset else kind,
            notebook.headline(f"epsilon = {spent:.4g} of {self.epsilon:.4g} spent, delta = {self.delta:.3g}"),
            notebook.meter(spent / self.epsilon if math.isfinite(self.epsilon) else 0.0),
            notebook.note(receipt.meaning),
            *(notebook.warning(text) for text in receipt.all_warnings),
            notebook.facts(shown),
            notebook.folded(which, lines[-_MOST_CHARGES_SHOWN:]),
        )

    def __copy__(self) -> NoReturn:
        """Refuse: charges to the copy would be missing in the original."""
        raise PrivacyError("a ledger can't be copied: charges to the copy would be lost. Pass the ledger itself.")

    def __deepcopy__(self, memo: Any) -> NoReturn:
        """Refuse, as `__copy__` does."""
        self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle a durable ledger as its path or address; refuse any other."""
        if isinstance(self._store, DurableStore):
            return (_reopened, self._store.reopening)
        if isinstance(self._store, AllowanceStore):
            return (_reopened_allowance, (self._store.allowance, *self._store.ledger.reopening))
        raise PrivacyError(
            "a ledger in memory can't be sent to another process: charges made there would be lost. Start with "
            "Ledger.open(path, ...), or use n_jobs=1."
        )


def _require_unit(bounded: Bounded, unit: Unit) -> None:
    if bounded.unit != unit:
        raise PrivacyError(
            "this statistic is bounded for single rows, and the ledger protects persons. Make it with the shares of "
            "the persons' rows."
            if unit == "person"
            else 'this statistic is bounded for persons, and the ledger protects rows. Use a ledger with unit="person".'
        )


def _reopened(path: str, read_only: bool, dataset: str | None = None, id: str = "") -> Ledger:
    """Open the ledger of a pickle; refuse another one that has its place now."""
    ledger = Ledger.open(path, read_only=read_only, dataset=dataset)
    store = ledger._store
    if id and isinstance(store, DurableStore) and store.id != id:
        raise LedgerError(
            f"the ledger {store.name} is not the one that was pickled, although it has the same name: the address may "
            f"lead to another server here. Use the server that the ledger was opened on."
        )
    return ledger


def _reopened_allowance(name: str, *reopening: Any) -> Ledger:
    """Open the allowance of a pickle."""
    return _reopened(*reopening).allowance(name)


def _draw(mechanism: Mechanism, bounded: Bounded, scale: float, random: Random) -> Any:
    return mechanism._apply(bounded, scale=scale, random=random)
