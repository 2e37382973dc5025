"""What a command spends, and on which ledger: checked before a private cell is read, and guarded until it ends."""

import decimal
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import typer

from dpadapt.cli.options import SpendingOptions
from dpadapt.cli.screen import Incomplete, reason

if TYPE_CHECKING:
    from dpadapt.accounting.ledger import Ledger
    from dpadapt.accounting.places import Place
    from dpadapt.mechanisms.events import Event
    from dpadapt.rows import Unit


class Spending:
    """Guards a command that spends: any failure after the charge is said to be one.

    Made, it opens the ledger, or makes one in memory, which shows whether the command charged it. Until a charge was
    made, errors pass as they are: nothing was spent, and the exit code is 2. From the charge on, every error becomes
    `Incomplete`.

    Attributes
    ----------
    ledger : Ledger
    failure : str
        What could not be done if the next step fails, and what was written until then.
    receipt : str, optional
        What the error shows of what was paid for. Default: the receipt of a ledger in memory, which no file holds.
    """

    def __init__(self, plan: "LedgerPlan | None", options: SpendingOptions, failure: str) -> None:
        from dpadapt.accounting.ledger import Ledger
        from dpadapt.mechanisms.adjacency import Adjacency

        self.failure = failure
        self.receipt: str | None = None
        self._durable = plan is not None
        self.ledger: Ledger = (
            Ledger.of_one_fit(
                options.epsilon, options.delta, adjacency=Adjacency.of(options.adjacency), unit=options.unit
            )
            if plan is None
            else plan.open()
        )
        self._entries_before = len(self.ledger.entries)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Turn an error after the charge into `Incomplete`."""
        if error is None or isinstance(error, Incomplete) or not (spent := self._spent(error)):
            return
        receipt = self.receipt
        if receipt is None:
            receipt = "" if self._durable else self.ledger.receipt().to_json()
        code = 130 if isinstance(error, KeyboardInterrupt) else 1
        raise Incomplete(f"{self.failure} ({reason(error)}). {spent}.", receipt=receipt, code=code) from None

    def _spent(self, error: BaseException) -> str:
        """Return what is known about the budget, in words; empty if nothing was spent."""
        from dpadapt.errors import BudgetExceeded

        # A command charges at once. If its charge was refused, new entries in the file are those of other processes.
        if isinstance(error, BudgetExceeded) and self._durable:
            return ""
        try:
            charged = len(self.ledger.entries) > self._entries_before
        except Exception:
            return "The ledger can't be read: take the budget as spent"
        return "The budget is spent" if charged else ""


def plan_spending(
    options: SpendingOptions,
    *,
    pure: bool,
    dataset: str = "",
    stated: str = "",
    new: bool = True,
    cap_delta: float | None = None,
    default_delta: float | None = None,
    requested: bool = False,
) -> "LedgerPlan | None":
    """Return the ledger to charge, by default that beside the private file; None if one is refused.

    Parameters
    ----------
    options : SpendingOptions
    pure : bool
        Whether Laplace noise is to be drawn, not Gaussian noise.
    dataset : str
        The name of the data set in a new ledger. Empty: that of the private file.
    stated : str
        The name that the data set of a ledger must have. Empty: any.
    new : bool
        Whether rows near which there is no ledger may get a new one.
    cap_delta, default_delta : float, optional
        Delta of a new ledger: as stated, and if none is. Default: that of the options.
    requested : bool
        Whether somebody else's request fixed the epsilon.
    """
    from dpadapt.accounting.places import ServerPlace, data_set_name

    if options.no_ledger:
        return None
    path, link = found_place(options.private, options.place, new=new)
    name = path.dataset if isinstance(path, ServerPlace) else dataset or data_set_name(options.private)
    event = cost_of_budget(options.epsilon, options.delta, pure=pure)
    terms = options.adjacency, options.unit, name
    wish = Wish(event, options.epsilon, options.delta, *terms, requested)
    cap = {"epsilon": options.ledger_epsilon, "delta": cap_delta, "default_delta": default_delta}
    return plan_ledger(path, wish, **cap, dataset=stated, link=link, allowance=options.allowance)


def found_place(private: Path, given: "Place | None", *, new: bool = True) -> "tuple[Place, Path | None]":
    """Return the ledger of a private file and where a link to it is to be made; ask a person at the terminal."""
    from dpadapt.accounting.places import ledger_of

    return ledger_of(private, given=given, new=new, ask=_answer if at_a_terminal() else None)


def at_a_terminal() -> bool:
    """Return whether somebody is there to answer a question."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def _answer(why: str, own: Path) -> "Place":
    """Return the ledger that a person at the terminal names."""
    from dpadapt.accounting.places import ledger_place

    question = f"{why}. Which ledger are its rows charged to? Its path, or new if they were never charged"
    name = typer.prompt(question, err=True).strip()
    if name == "new":
        return own
    place = ledger_place(name)
    if isinstance(place, Path) and not place.exists():
        place = own.parent / place
        if not place.exists():
            raise ValueError(f"--ledger {name}: there is no such ledger. Nothing was spent.")
    return place


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
    requested : bool
        Whether somebody else's request fixed the epsilon.
    """

    event: "Event"
    epsilon: float
    delta: float
    adjacency: str
    unit: "Unit"
    dataset: str
    requested: bool = False

    def less(self, left: float) -> str:
        """Return the advice to spend at most what is left; empty if that is next to nothing."""
        most = _rounded_down(left)
        if not most > 0:
            return ""
        if self.requested:
            return f"Ask for a request with an --epsilon of {most:g} or less"
        return f"Use an --epsilon of {most:g} or less"


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
    link : Path, optional
        The place beside the private file that shall lead to the ledger.
    allowance : str, optional
        The allowance to charge under.
    """

    path: "Place"
    wish: Wish
    cap: tuple[float, float] | None = None
    note: str = ""
    link: Path | None = None
    allowance: str | None = None

    def open(self) -> "Ledger":
        """Open the ledger, or make it, and what leads to it; return the allowance, if one is to be charged."""
        from dpadapt.accounting.ledger import Ledger
        from dpadapt.accounting.places import make_link
        from dpadapt.mechanisms.adjacency import Adjacency

        self._require_link_free()
        epsilon, delta = self.cap or (None, None)
        terms: dict[str, Any] = {"adjacency": Adjacency.of(self.wish.adjacency), "unit": self.wish.unit}
        if self.cap is not None:
            terms["dataset"] = self.wish.dataset
        try:
            ledger = Ledger.open(self.path, epsilon=epsilon, delta=delta, **terms)
        except OSError as error:
            raise _not_opened(self.path, error) from None
        # Before anything is charged: a charge that no later fit finds would not be added up.
        if self.link is not None:
            make_link(self.link, self.path)
        self._require_link_free()
        return ledger if self.allowance is None else ledger.allowance(self.allowance)

    def _require_link_free(self) -> None:
        """Refuse another ledger in the place of the link: a fit at the same time has begun one after this plan."""
        from dpadapt.accounting.places import leads_elsewhere

        if self.link is not None and leads_elsewhere(self.link, self.path):
            raise ValueError(
                f"--ledger {self.path}: meanwhile another fit has begun the ledger {self.link} for these rows. Nothing "
                f"was spent. Leave --ledger out, and fit again."
            )

    @property
    def notes(self) -> list[str]:
        """What a person should know about the ledger, once it is open."""
        lost = (
            f"No link to the ledger {self.path} could be made at {self.link}: name the ledger by --ledger in every "
            f"further fit on these rows."
        )
        lacks_link = self.link is not None and not self.link.exists()
        return [*([self.note] if self.note else []), *([lost] if lacks_link else [])]


def charge_in_words(plan: LedgerPlan, ledger: "Ledger") -> str:
    """Return which ledger was charged, and what is left of it or of the allowance."""
    under = "" if plan.allowance is None else f", allowance {plan.allowance}"
    data_set = f" ({ledger.dataset})" if ledger.dataset else ""
    return (
        f"Charged to {plan.path}{data_set}{under}: epsilon = {ledger.spent():.4g} of {ledger.epsilon:.4g} spent, "
        f"{ledger.remaining():.4g} left at delta = {ledger.delta:.3g}."
    )


def cost_of_budget(epsilon: float, delta: float, *, pure: bool) -> "Event":
    """Return a release that costs the whole budget: with Laplace noise if `pure`, else with Gaussian noise."""
    from dpadapt.accounting.cost import gaussian_mu
    from dpadapt.mechanisms.events import GaussianEvent, LaplaceEvent

    try:
        return LaplaceEvent(1 / epsilon) if pure else GaussianEvent(1 / gaussian_mu(epsilon, delta))
    except (OverflowError, ZeroDivisionError, ValueError):
        raise ValueError("--epsilon, --delta: the cost can't be computed for numbers as extreme as these.") from None


def plan_ledger(
    path: "Place",
    wish: Wish,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    default_delta: float | None = None,
    dataset: str = "",
    link: Path | None = None,
    allowance: str | None = None,
) -> LedgerPlan:
    """Return the plan to charge the ledger at `path`, or refuse one that is of other rows or has no room.

    Nothing is charged, and a new ledger is not made yet. Its cap is `epsilon` and `delta`; a missing epsilon is asked
    for if somebody is there to answer, and is otherwise a multiple of what is to be spent. A missing delta is
    `default_delta`, or else that of the wish. A `dataset` must be the name of the data set that the ledger was made
    for, and an `allowance` one that the ledger has.
    """
    from dpadapt.accounting.places import ledger_exists

    try:
        exists = ledger_exists(path)
    except OSError as error:
        raise _not_opened(path, error) from None
    if exists:
        ledger = _require_room(path, wish, epsilon, delta, dataset)
        if allowance is not None:
            _require_allowance(ledger, path, wish, allowance)
        return LedgerPlan(path, wish, link=link, allowance=allowance)
    if allowance is not None:
        raise ValueError(
            f"--allowance {allowance}: the ledger {path} does not exist yet. Make it with dpadapt ledger new, and the "
            f"allowance with dpadapt ledger allow. Nothing was spent."
        )
    from dpadapt.accounting.filter import Filter
    from dpadapt.learning.base import PROPOSED_FITS
    from dpadapt.mechanisms.adjacency import Adjacency

    proposed, why = PROPOSED_FITS * wish.epsilon, "as asked for"
    if epsilon is None:
        epsilon = _asked_cap(path, wish, proposed)
        why = "three times this --epsilon, because --ledger-epsilon was not given" if epsilon == proposed else why
    delta = next(part for part in (delta, default_delta, wish.delta) if part is not None)
    if not Filter.of("mixed", epsilon, delta, Adjacency.of(wish.adjacency)).allows(wish.event):
        raise ValueError(
            f"--ledger-epsilon {epsilon:g}: the cap of a new ledger must allow for this --epsilon, {wish.epsilon:g} at "
            f"--delta {wish.delta:g}. Nothing was spent."
        )
    note = (
        f"New ledger {path}: at most epsilon = {epsilon:.4g} at delta = {delta:.3g} may ever be spent on "
        f"{wish.dataset} ({why})."
    )
    return LedgerPlan(path, wish, (epsilon, delta), note, link)


def _asked_cap(path: "Place", wish: Wish, proposed: float) -> float:
    """Return the cap of a new ledger: the answer of a person at the terminal, or `proposed`."""
    from dpadapt import checks

    if not at_a_terminal():
        return proposed
    question = (
        f"{path} is a new ledger. The most epsilon that may ever be spent on {wish.dataset}, this --epsilon included "
        f"(it can't be changed later)"
    )
    return checks.positive(typer.prompt(question, default=proposed, type=float, err=True), "the cap")


def _require_room(path: "Place", wish: Wish, epsilon: float | None, delta: float | None, dataset: str) -> "Ledger":
    """Return the ledger; refuse one of other rows, on other terms, or without room."""
    from dpadapt.accounting.ledger import Ledger
    from dpadapt.errors import BudgetExceeded, LedgerError

    if isinstance(path, Path) and not path.is_file():
        raise ValueError(f"--ledger {path}: this is not a file. Give the ledger's file.")
    try:
        ledger = Ledger.open(path, dataset=dataset or None)
    except OSError as error:
        raise _not_opened(path, error) from None
    for option, cap, own in (("epsilon", epsilon, ledger.epsilon), ("delta", delta, ledger.delta)):
        if cap is not None and cap != own:
            raise LedgerError(
                f"--ledger-{option} {cap:g}: the ledger {path} was made with {own:g}, which can't be changed. Leave "
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
        remedy = wish.less(left) or "Use the models that were fitted"
        raise BudgetExceeded(
            f"--epsilon {wish.epsilon:g} is more than what is left: the ledger {path} has epsilon = {left:.3g} left of "
            f"its cap of {ledger.epsilon:.4g} at delta = {ledger.delta:.3g}. No private cell was read and nothing was "
            f"spent. {remedy}; another ledger for the same rows would lack what was already spent."
        )
    return ledger


def _require_allowance(ledger: "Ledger", path: "Place", wish: Wish, name: str) -> None:
    """Refuse an allowance that the ledger does not have, or that has no room."""
    from dpadapt.errors import BudgetExceeded

    allowances = ledger.allowances
    if name not in allowances:
        have = f"Its allowances are {', '.join(allowances)}" if allowances else "It has none"
        raise ValueError(
            f"--allowance {name}: the ledger {path} has no such allowance. {have}; dpadapt ledger allow makes one. "
            f"Nothing was spent."
        )
    limited = ledger.allowance(name)
    if not limited.allows(wish.event):
        less = wish.less(limited.remaining())
        remedy = f"{less}, or raise" if less else "Raise"
        raise BudgetExceeded(
            f"--epsilon {wish.epsilon:g} is more than what is left of the allowance {name}: epsilon = "
            f"{limited.remaining():.3g} of {limited.epsilon:.4g} at delta = {limited.delta:.3g}. No private cell was "
            f"read and nothing was spent. {remedy} the allowance, which the cap of the "
            f"ledger still binds, by dpadapt ledger allow."
        )


def _rounded_down(epsilon: float) -> float:
    """Return `epsilon` with two digits, rounded down; 0 below a thousandth."""
    rounding = decimal.Context(prec=2, rounding=decimal.ROUND_DOWN)
    return float(rounding.create_decimal(repr(epsilon))) if epsilon >= 1e-3 else 0.0


def _not_opened(path: "Place", error: OSError) -> ValueError:
    cause = error.strerror or os.strerror(error.errno or 0)
    return ValueError(
        f"--ledger {path}: can't be opened or made ({cause}). Name another place with --ledger, or refuse a ledger by "
        f"--no-ledger."
    )
