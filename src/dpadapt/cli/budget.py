"""The ledger of a command that spends: where it is, its cap, and whether it has room, before a private cell is read.

A budget belongs to the private rows, so their holder alone says which ledger is charged. There are two ways: the ledger
lies beside the private file and is named after it, or --ledger names it. In the second case a link beside the private
file leads to it, and the next command on the file finds it. A model folder, a request, a schema and a public file may
come from somebody else: nothing that they state, and nothing that lies beside them, is looked for, opened or charged.
A copy or a new name of a private file would get a second budget. A digest of the rows could tell, but would itself be a
release. So where another ledger lies in the folder, a person says which one the rows are charged to.

A folder of private files is a table, and so is each of its files. They hold the same rows, so they share a ledger: a
fit on a file finds that of its folder, and a fit on a folder those of its files.
"""

import decimal
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dpadapt.cli.options import at_a_terminal

if TYPE_CHECKING:
    from dpadapt.accounting.ledger import Ledger
    from dpadapt.mechanisms.mechanism import Event
    from dpadapt.persons import Unit

_LEDGER_ENDING, _GZIP_ENDING = ".ledger", ".gz"
# Bytes of a file that are read to find the address of a server in it.
_LONGEST_POINTER = 4096


@dataclass(frozen=True)
class ServerPlace:
    """The place of a data set's ledger on a PostgreSQL server; it is shown without passwords."""

    address: str = field(repr=False)
    shown: str
    dataset: str

    def __str__(self) -> str:
        return self.shown


# Where a ledger is.
Place = Path | ServerPlace


def ledger_place(given: str, dataset: str = "") -> Place:
    """Return the place that an option names: a file, or postgresql://user@host/database."""
    from dpadapt.accounting.postgres import is_address, without_passwords

    try:
        os.fsencode(given)
    except UnicodeEncodeError:
        raise ValueError("--ledger: no file can have this name. Leave out what is no character.") from None
    return ServerPlace(given, without_passwords(given), dataset) if is_address(given) else Path(given)


def given_place(ledger: str | None, dataset: str | None) -> Place | None:
    """Return the place that --ledger and --dataset name."""
    place = None if ledger is None else ledger_place(ledger, dataset or "")
    if dataset is not None and (not isinstance(place, ServerPlace) or not dataset or not dataset.isprintable()):
        raise ValueError("--dataset names the data set on the server that --ledger names. Give both, or leave it out.")
    return place


def open_ledger(place: Place, **terms: Any) -> "Ledger":
    """Open the ledger at a place; the arguments are those of `Ledger.open`. On a server its data set is known."""
    from dpadapt.accounting.ledger import Ledger

    if isinstance(place, ServerPlace):
        return Ledger.open(place.address, **(terms | {"dataset": place.dataset}))
    return Ledger.open(place, **terms)


def ledger_exists(place: Place) -> bool:
    """Return whether there is a ledger; refuse if that can't be known."""
    if isinstance(place, ServerPlace):
        from dpadapt.accounting.postgres import Address, PostgresStore

        return PostgresStore.exists(Address.of(place.address, place.dataset))
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
    links : tuple of Path
        Places beside the private file that shall lead to the ledger.
    allowance : str, optional
        The allowance to charge under.
    """

    path: Place
    wish: Wish
    cap: tuple[float, float] | None = None
    note: str = ""
    links: tuple[Path, ...] = ()
    allowance: str | None = None

    def open(self) -> "Ledger":
        """Open the ledger, or make it, and what leads to it; return the allowance, if one is to be charged."""
        from dpadapt.mechanisms.adjacency import Adjacency

        self._require_links_free()
        epsilon, delta = self.cap or (None, None)
        terms: dict[str, Any] = {"adjacency": Adjacency.of(self.wish.adjacency), "unit": self.wish.unit}
        if self.cap is not None:
            terms["dataset"] = self.wish.dataset
        try:
            ledger = open_ledger(self.path, epsilon=epsilon, delta=delta, **terms)
        except OSError as error:
            raise _not_opened(self.path, error) from None
        # Before anything is charged: a charge that no later fit finds would not be added up.
        for link in self.links:
            with suppress(OSError, ValueError):  # a folder that can't be written to, a file system without links
                if isinstance(self.path, ServerPlace):
                    with link.open("x", encoding="utf-8") as file:
                        file.write(f"{self.path.shown}\n{self.path.dataset}\n")
                else:
                    link.symlink_to(os.path.relpath(self.path.resolve(), link.parent))
        self._require_links_free()
        return ledger if self.allowance is None else ledger.allowance(self.allowance)

    def _require_links_free(self) -> None:
        """Refuse another ledger in the place of a link: a fit at the same time has begun one since this was planned."""
        taken = [link for link in self.links if link.exists() and _identity(_led_to(link)) != _identity(self.path)]
        if taken:
            raise ValueError(
                f"--ledger {self.path}: meanwhile another fit has begun the ledger {taken[0]} for these rows. Nothing "
                f"was spent. Leave --ledger out, and fit again."
            )

    @property
    def notes(self) -> list[str]:
        """What a person should know about the ledger, once it is open."""
        unlinked = [link for link in self.links if not link.exists()]
        lost = [
            f"No link to the ledger {self.path} could be made at {link}: name the ledger by --ledger in every further "
            f"fit on these rows."
            for link in unlinked[:1]
        ]
        return [*([self.note] if self.note else []), *lost]


def charge_in_words(plan: LedgerPlan, ledger: "Ledger") -> str:
    """Return which ledger was charged, and what is left of it or of the allowance."""
    under = "" if plan.allowance is None else f", allowance {plan.allowance}"
    data_set = f" ({ledger.dataset})" if ledger.dataset else ""
    return (
        f"Charged to {plan.path}{data_set}{under}: epsilon = {ledger.spent():.4g} of {ledger.epsilon:.4g} spent, "
        f"{ledger.remaining():.4g} left at delta = {ledger.delta:.3g}."
    )


def own_ledger(private: Path) -> Path:
    """Return the place of the ledger that is named after a private file or folder: beside it, not beside a link to it.

    Examples
    --------
    >>> own_ledger(Path("data/patients.csv.gz")).name
    'patients.ledger'
    """
    try:
        file = private.resolve()
    except RuntimeError:
        raise ValueError(f"--private {private}: this is a symbolic link that leads back to itself.") from None
    if not file.name:
        raise ValueError(f"--private {private}: give the name of a file or folder.")
    return file.with_name(table_name(file) + _LEDGER_ENDING)


def table_name(file: Path) -> str:
    """Return the name of a table's file without its endings; of a folder, its name without that of a table.

    Examples
    --------
    >>> table_name(Path("patients.2026.csv.gz")), table_name(Path("ROWS.CSV.GZ")), table_name(Path("rows.parquet"))
    ('patients.2026', 'ROWS', 'rows')
    """
    from dpadapt.tables.reading import is_table

    name = file.name
    if file.is_dir() and not is_table(file):
        return name
    return Path(name[: -len(_GZIP_ENDING)] if name.lower().endswith(_GZIP_ENDING) else name).stem


def _ledgers_of_same_rows(private: Path) -> list[Path]:
    """Return the ledgers of the folder of a private file, or those inside a private folder and of its files."""
    from dpadapt.tables.reading import is_table

    def begun(place: Path) -> bool:
        return place.exists() or place.is_symlink()

    table = private.resolve()
    if not table.is_dir():
        return [place for place in ([own_ledger(table.parent)] if table.parent.name else []) if begun(place)]
    inside = sorted(file for file in table.iterdir() if is_table(file) or file.suffix == _LEDGER_ENDING)
    # Also the place of a missing one if a file is a link to elsewhere: a fit on it there does not find this folder.
    return [place for place in map(own_ledger, inside) if begun(place) or place.parent != table]


def _led_to(file: Path) -> Place:
    """Return the ledger that a file beside the private one leads to: itself, that of a link, or one on a server."""
    from dpadapt.accounting.postgres import is_address

    with suppress(OSError, ValueError):
        # Only a regular file: to open a pipe would wait for somebody who writes to it.
        if file.is_file():
            with file.open("rb") as opened:
                lines = opened.read(_LONGEST_POINTER).decode().splitlines()
            # A ledger's own first line is the name of its format.
            if len(lines) == 2 and is_address(lines[0]):
                return ledger_place(*lines)
    return file


def _identity(place: Place) -> object:
    return (place.shown, place.dataset) if isinstance(place, ServerPlace) else place.resolve()


def ledger_of(private: Path, *, given: Place | None = None, new: bool = True) -> tuple[Place, tuple[Path, ...]]:
    """Return the ledger of a private file and the links to make to it, or refuse a second one for the same rows.

    Parameters
    ----------
    private : Path
        A file, or a folder of files.
    given : Path or ServerPlace, optional
        What --ledger names. On a server, an empty data set stands for that of the private file.
    new : bool
        Whether a file without a ledger may get a new one unasked, if no other ledger lies in its folder.
    """
    # Claim: nothing that was received chooses the ledger. The place is a function of the private file's path, of the
    # options of the holder's command or answer, and of what lies where that path says; a model, request, schema or
    # public file is no argument here, and no other function of the commands that charge returns a place.
    # Not proved: that nobody else can write to the folder of the private file.
    own = own_ledger(private)
    places = list(dict.fromkeys([own, *_ledgers_of_same_rows(private)]))
    for place in (*places, *([given] if isinstance(given, Path) else [])):
        if place.is_symlink() and not place.exists():
            raise ValueError(
                f"{place}: the ledger that this link leads to, {os.readlink(place)}, is not there. Rows of {private} "
                f"were charged to it: bring it back to its place, or make the link lead to its new one."
            )
    charged = {_identity(ledger): ledger for ledger in (_led_to(place) for place in places if place.exists())}
    if given is not None:
        path = _led_to(given) if isinstance(given, Path) else _on_server(given, private, list(charged.values()))
        charged.pop(_identity(path), None)
        if charged:
            raise ValueError(
                f"--ledger {given}: rows of {private} are charged to {_listed(charged.values())}, and another ledger "
                f"would lack what was already spent. Leave --ledger out; if the file holds other rows now, give it "
                f"another name."
            )
    elif len(charged) > 1:
        raise ValueError(
            f"--ledger: there are several ledgers for rows of {private}: {_listed(charged.values())}. What one of them "
            f"holds is not added up in the other. Take what both hold as spent, move one away, and go on with the "
            f"other."
        )
    elif charged:
        (path,) = charged.values()
    elif others := _others_beside(own):
        # Claim: no second ledger is begun in silence in a folder that has one. Every path to a new one without --ledger
        # passes this branch, and a copy or a new name of a private file is in such a folder.
        # Not proved: that a copy in another folder, or the same persons in another file, has the same ledger.
        return ledger_of(private, given=_answer(private, own, others))
    elif not new:
        return ledger_of(private, given=_answer(private, own, []))
    else:
        path = own
    return path, tuple(place for place in places if _identity(place) != _identity(path) and not place.exists())


def _listed(places: Iterable[Place]) -> str:
    return " and ".join(str(place) for place in places)


def _on_server(given: ServerPlace, private: Path, charged: list[Place]) -> ServerPlace:
    """Return the place with the name of the data set: the holder's, or that of the private file."""
    if given.dataset:
        return given
    for place in charged:
        if isinstance(place, ServerPlace) and place.shown == given.shown:
            return replace(given, dataset=place.dataset)
    name = data_set_name(private)
    if others := _others_beside(own_ledger(private)):
        # On a server the name is the key: a file under another name would get a second budget.
        raise ValueError(
            f"--ledger {given}: {_listed(others)} in the folder of {private} may be the ledger of its rows under "
            f"another name. Say which data set they are by --dataset; --dataset {name} makes a new one."
        )
    return replace(given, dataset=name)


def _others_beside(own: Path) -> list[Path]:
    """Return the other ledgers in the folder of a private file."""
    try:
        return sorted(file for file in own.parent.iterdir() if file.suffix.lower() == _LEDGER_ENDING and file != own)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ValueError(
            f"--ledger: the folder {own.parent} can't be listed ({error.strerror}). Name the ledger with --ledger."
        ) from None


def _answer(private: Path, own: Path, others: list[Path]) -> Place:
    """Return the ledger that a person at the terminal names; without a terminal refuse, and name --ledger."""
    beside = f", and {_listed(others)} may be that of its rows" if others else ""
    why = f"{private} has no ledger of its own{beside}"
    if not at_a_terminal():
        raise ValueError(
            f"--ledger: {why}. If its rows were charged before (a copy, a part or a new name of another file), name "
            f"that ledger with --ledger, once; if not, --ledger {own} makes a new one. Nothing was spent."
        )
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


def data_set_name(private: Path) -> str:
    """Return the name of a private file as that of its data set."""
    return "".join(c if c.isprintable() else "-" for c in table_name(private.resolve()))


def cost_of_budget(epsilon: float, delta: float, *, pure: bool) -> "Event":
    """Return a release that costs the whole budget: with Laplace noise if `pure`, else with Gaussian noise."""
    from dpadapt.accounting.closed_forms import gaussian_mu
    from dpadapt.mechanisms.mechanism import GaussianEvent, LaplaceEvent

    try:
        return LaplaceEvent(1 / epsilon) if pure else GaussianEvent(1 / gaussian_mu(epsilon, delta))
    except (OverflowError, ZeroDivisionError, ValueError):
        raise ValueError("--epsilon, --delta: the cost can't be computed for numbers as extreme as these.") from None


def plan_ledger(
    path: Place,
    wish: Wish,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    dataset: str = "",
    links: tuple[Path, ...] = (),
    allowance: str | None = None,
) -> LedgerPlan:
    """Return the plan to charge the ledger at `path`, or refuse one that is of other rows or has no room.

    Nothing is charged, and a new ledger is not made yet. Its cap is `epsilon` and `delta`; a missing epsilon is asked
    for if somebody is there to answer, and is otherwise a multiple of what is to be spent. A `dataset` must be the name
    of the data set that the ledger was made for, and an `allowance` one that it has.
    """
    if ledger_exists(path):
        ledger = _require_room(path, wish, epsilon, delta, dataset)
        if allowance is not None:
            _require_allowance(ledger, path, wish, allowance)
        return LedgerPlan(path, wish, links=links, allowance=allowance)
    if allowance is not None:
        raise ValueError(
            f"--allowance {allowance}: the ledger {path} does not exist yet. Make it with dpadapt ledger new, and the "
            f"allowance with dpadapt ledger allow. Nothing was spent."
        )
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
    return LedgerPlan(path, wish, (epsilon, delta), note, links)


def _asked_cap(path: Place, wish: Wish, proposed: float) -> float:
    """Return the cap of a new ledger: the answer of a person at the terminal, or `proposed`."""
    from dpadapt import checks

    if not at_a_terminal():
        return proposed
    question = (
        f"{path} is a new ledger. The most epsilon that may ever be spent on {wish.dataset}, this --epsilon included "
        f"(it can't be changed later)"
    )
    return checks.positive(typer.prompt(question, default=proposed, type=float, err=True), "the cap")


def _require_room(path: Place, wish: Wish, epsilon: float | None, delta: float | None, dataset: str) -> "Ledger":
    """Return the ledger; refuse one of other rows, on other terms, or without room."""
    from dpadapt.errors import BudgetExceeded, LedgerError

    if isinstance(path, Path) and not path.is_file():
        raise ValueError(f"--ledger {path}: this is not a file. Give the ledger's file.")
    try:
        ledger = open_ledger(path, dataset=dataset or None)
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
        remedy = wish.less(left) or "Use the models that were fitted"
        raise BudgetExceeded(
            f"--epsilon {wish.epsilon:g} is more than what is left: the ledger {path} has epsilon = {left:.3g} left of "
            f"its cap of {ledger.epsilon:.4g} at delta = {ledger.delta:.3g}. No private cell was read and nothing was "
            f"spent. {remedy}; another ledger for the same rows would lack what was already spent."
        )
    return ledger


def _require_allowance(ledger: "Ledger", path: Place, wish: Wish, name: str) -> None:
    """Refuse an allowance that the ledger does not have, or that has no room."""
    from dpadapt.errors import BudgetExceeded

    known = ledger.allowances
    if name not in known:
        have = f"Its allowances are {', '.join(known)}" if known else "It has none"
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


def _not_opened(path: Place, error: OSError) -> ValueError:
    cause = error.strerror or os.strerror(error.errno or 0)
    return ValueError(
        f"--ledger {path}: can't be opened or made ({cause}). Name another place with --ledger, or refuse a ledger by "
        f"--no-ledger."
    )
