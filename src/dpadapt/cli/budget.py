"""The ledger of a command that spends: where it is, its cap, and whether it has room, before a private cell is read."""

import decimal
import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from dpadapt.accounting.ledger import Ledger
    from dpadapt.mechanisms.mechanism import Event
    from dpadapt.persons import Unit

# Characters: the longest name of a ledger that is named after a data set. File systems allow about 250 bytes.
_LONGEST_LEDGER_NAME = 60


@dataclass(frozen=True)
class ServerPlace:
    """The place of a ledger on a PostgreSQL server; it is shown without passwords."""

    address: str = field(repr=False)
    shown: str

    def __str__(self) -> str:
        return self.shown


# Where a ledger is.
Place = Path | ServerPlace


def ledger_place(given: str) -> Place:
    """Return the place that an option names: a file, or postgresql://user@host/database."""
    from dpadapt.accounting.postgres import is_address, without_passwords

    return ServerPlace(given, without_passwords(given)) if is_address(given) else Path(given)


def open_ledger(place: Place, **terms: Any) -> "Ledger":
    """Open the ledger at a place; the arguments are those of `Ledger.open`."""
    from dpadapt.accounting.ledger import Ledger

    return Ledger.open(place.address if isinstance(place, ServerPlace) else place, **terms)


def ledger_exists(place: Place, dataset: str) -> bool:
    """Return whether there is a ledger of the data set; refuse if that can't be known."""
    if isinstance(place, ServerPlace):
        from dpadapt.accounting.postgres import Address, PostgresStore

        return PostgresStore.exists(Address.of(place.address, dataset))
    try:
        return place.exists()
    except OSError as error:
        raise _not_opened(place, error) from None


@dataclass(frozen=True)
class Wish:
    """What a command wants to spend, and on what terms.

    Parameters
    ----------
    event : Event
        One release that costs what the command may spend in all.
    epsilon, delta : float
        The same in numbers.
    adjacency : str
    unit : {"row", "person"}
    dataset : str
        The name of the private data set.
    """

    event: "Event"
    epsilon: float
    delta: float
    adjacency: str
    unit: "Unit"
    dataset: str


@dataclass(frozen=True)
class LedgerPlan:
    """A ledger that has room for what a command wants to spend. A new one is made by `open`, after all input was read.

    Parameters
    ----------
    path : Path or ServerPlace
    wish : Wish
    cap : tuple of (float, float), optional
        Epsilon and delta of a new ledger. None: it exists.
    note : str
        What a person should know about a new ledger.
    """

    path: Place
    wish: Wish
    cap: tuple[float, float] | None = None
    note: str = ""

    def open(self) -> "Ledger":
        """Open the ledger, or make it."""
        from dpadapt.mechanisms.adjacency import Adjacency

        epsilon, delta = self.cap or (None, None)
        terms = {"adjacency": Adjacency.of(self.wish.adjacency), "unit": self.wish.unit, "dataset": self.wish.dataset}
        try:
            return open_ledger(self.path, epsilon=epsilon, delta=delta, **terms)
        except OSError as error:
            raise _not_opened(self.path, error) from None


def default_ledger(dataset: str, folder: Path) -> Path:
    """Return the file of a data set's ledger: its name, without characters that no file should have, in `folder`.

    Examples
    --------
    >>> default_ledger("clinic A/2024", Path("data")).name
    'clinic-A-2024.ledger'
    """
    name = re.sub(r"[^\w.-]+", "-", dataset).strip("-.")[:_LONGEST_LEDGER_NAME]
    return folder / f"{name or 'private'}.ledger"


def cost_of_budget(epsilon: float, delta: float, *, pure: bool) -> "Event":
    """Return a release that costs the whole budget: with Laplace noise if `pure`, else with Gaussian noise."""
    from dpadapt.accounting.closed_forms import gaussian_mu
    from dpadapt.mechanisms.mechanism import GaussianEvent, LaplaceEvent

    try:
        return LaplaceEvent(1 / epsilon) if pure else GaussianEvent(1 / gaussian_mu(epsilon, delta))
    except (OverflowError, ZeroDivisionError, ValueError):
        raise ValueError("--epsilon, --delta: the cost can't be computed for numbers as extreme as these.") from None


def plan_ledger(path: Place, wish: Wish, *, epsilon: float | None = None, delta: float | None = None) -> LedgerPlan:
    """Return the plan to charge the ledger at `path`, or refuse one that is of other rows or has no room.

    Nothing is charged, and a new ledger is not made yet. Its cap is `epsilon` and `delta`; a missing epsilon is asked
    for if somebody is there to answer, and is otherwise a multiple of what is to be spent.
    """
    if ledger_exists(path, wish.dataset):
        _require_room(path, wish, epsilon, delta)
        return LedgerPlan(path, wish)
    from dpadapt.accounting.ledger import Ledger
    from dpadapt.learning.estimator import PROPOSED_FITS
    from dpadapt.mechanisms.adjacency import Adjacency

    proposed, why = PROPOSED_FITS * wish.epsilon, "as asked for"
    if epsilon is None:
        epsilon = _asked_cap(path, wish, proposed)
        why = "three times this --epsilon, because --ledger-epsilon was not given" if epsilon == proposed else why
    delta = wish.delta if delta is None else delta
    if not Ledger(epsilon, delta, adjacency=Adjacency.of(wish.adjacency)).allows(wish.event):
        raise ValueError(
            f"--ledger-epsilon {epsilon:g}: the cap of a new ledger must allow for this --epsilon, {wish.epsilon:g} at "
            f"--delta {wish.delta:g}. Nothing was spent."
        )
    note = (
        f"New ledger {path}: at most epsilon = {epsilon:.4g} at delta = {delta:.3g} may ever be spent on "
        f"{wish.dataset} ({why})."
    )
    return LedgerPlan(path, wish, (epsilon, delta), note)


def _asked_cap(path: Place, wish: Wish, proposed: float) -> float:
    """Return the cap of a new ledger: the answer of a person at the terminal, or `proposed`."""
    from dpadapt import checks

    if not all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr)):
        return proposed
    question = (
        f"{path} is a new ledger. The most epsilon that may ever be spent on {wish.dataset}, this --epsilon included "
        f"(it can't be changed later)"
    )
    return checks.positive(typer.prompt(question, default=proposed, type=float, err=True), "the cap")


def _require_room(path: Place, wish: Wish, epsilon: float | None, delta: float | None) -> None:
    """Refuse a ledger of other rows, on other terms, or without room."""
    from dpadapt.errors import BudgetExceeded, LedgerError

    if isinstance(path, Path) and not path.is_file():
        raise ValueError(f"--ledger {path}: this is not a file. Give the ledger's file.")
    try:
        ledger = open_ledger(path, dataset=wish.dataset)
    except OSError as error:
        raise _not_opened(path, error) from None
    for option, given, kept in (("epsilon", epsilon, ledger.epsilon), ("delta", delta, ledger.delta)):
        if given is not None and given != kept:
            raise LedgerError(
                f"--ledger-{option} {given:g}: the ledger {path} was made with {kept:g}, which can't be changed. Leave "
                f"the option out."
            )
    if ledger.unit != wish.unit:
        raise LedgerError(
            f"--ledger {path}: this ledger protects persons. Name the column of their ids with --person."
            if ledger.unit == "person"
            else f"--ledger {path}: this ledger protects rows, and --person asks for persons. Leave --person out; a "
            f"new ledger would lack what was already spent."
        )
    if ledger.adjacency.value != wish.adjacency:
        raise LedgerError(
            f"--ledger {path}: this ledger counts neighbours by {ledger.adjacency.value}. Use --adjacency "
            f"{ledger.adjacency.value}."
        )
    if not ledger.allows(wish.event):
        left = ledger.remaining()
        remedy = (
            f"Use an --epsilon of {_rounded_down(left):g} or less"
            if _rounded_down(left) > 0
            else "Use the models that were fitted"
        )
        raise BudgetExceeded(
            f"--epsilon {wish.epsilon:g} is more than what is left: the ledger {path} has epsilon = {left:.3g} left of "
            f"its cap of {ledger.epsilon:.4g} at delta = {ledger.delta:.3g}. No private cell was read and nothing was "
            f"spent. {remedy}; another ledger for the same rows would lack what was already spent."
        )


def _rounded_down(epsilon: float) -> float:
    """Return `epsilon` with two digits, rounded down; 0 below a thousandth."""
    rounding = decimal.Context(prec=2, rounding=decimal.ROUND_DOWN)
    return float(rounding.create_decimal(repr(epsilon))) if epsilon >= 1e-3 else 0.0


def _not_opened(path: Place, error: OSError) -> ValueError:
    cause = error.strerror or os.strerror(error.errno or 0)
    return ValueError(
        f"--ledger {path}: can't be opened or made ({cause}). Name another place with --ledger, or refuse a ledger by "
        f"--no-ledger."
    )
