"""A plan that was charged, and how much of it is left: the half of the door that opens several times."""

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from dpadapt import _validate
from dpadapt.errors import PrivacyError
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.bounded import Bounded
from dpadapt.mechanisms.mechanism import Mechanism
from dpadapt.mechanisms.plan import Plan, Repeated, Sampled
from dpadapt.mechanisms.randomness import Random

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
        steps = _validate.count(steps, "steps")
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
