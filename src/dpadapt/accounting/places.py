"""Which ledger private rows are charged to: the one beside them, or the one that their holder names.

A budget belongs to the private rows, so their holder alone says which ledger is charged. There are two rules:

1. The ledger of a file or folder lies beside it and has its name: that of `patients.csv` is `patients.ledger`.
2. The holder names another one. A link in the first place then leads to it, and the next command finds it.

Nothing else is opened or charged. A model, a request, a schema and a public file may come from somebody else: nothing
that they state, and nothing that lies beside them, is looked for. A copy or a new name of a private file would get a
second budget. A digest of the rows could tell, but would itself be a release. So where no rule applies and a ledger
lies near that may be that of the rows, a person says which one it is.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpadapt.accounting.store import FileStore

_SERVER_SCHEMES = ("postgresql://", "postgres://")
_LEDGER_ENDING = ".ledger"
# Endings of tables in all formats of `inputs.files`, without that of a compressed one. A folder with such a name is a
# table in parts.
_TABLE_ENDINGS = (".csv", ".tsv", ".tab", ".txt", ".parquet", ".pq", ".xlsx", ".xlsm")
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
# Takes why nothing says which ledger is charged, and the place of a new one; returns the place that a person names.
Ask = Callable[[str, Path], Place]


def is_address(place: object) -> bool:
    """Return whether `place` is the address of a server, not the path of a file."""
    return isinstance(place, str) and place.startswith(_SERVER_SCHEMES)


def store_at(path: str | Path, dataset: str | None) -> tuple[Any, Any]:
    """Return where a ledger is, and the class of the stores there."""
    if is_address(path):
        return _server().Address.of(str(path), dataset), _server().PostgresStore
    if isinstance(path, Path) and path.parts[:1] in (("postgresql:",), ("postgres:",)):
        raise TypeError("the address of a server must be a str: a Path drops one of its slashes.")
    return Path(path), FileStore


def _server() -> Any:
    """Return the module for ledgers on a server: the seam by which it is reached, imported only if there is one."""
    from dpadapt.integrations import postgres

    return postgres


def ledger_place(given: str, dataset: str = "") -> Place:
    """Return the place that a text names: a file, or postgresql://user@host/database."""
    try:
        os.fsencode(given)
    except UnicodeEncodeError:
        raise ValueError("--ledger: no file can have this name. Leave out what is no character.") from None
    return ServerPlace(given, _server().without_passwords(given), dataset) if is_address(given) else Path(given)


def ledger_exists(place: Place) -> bool:
    """Return whether there is a ledger; an error of the system if that can't be known."""
    if isinstance(place, ServerPlace):
        return bool(_server().PostgresStore.exists(_server().Address.of(place.address, place.dataset)))
    return place.exists()


def table_name(file: Path) -> str:
    """Return the name of a table's file without its endings; of a folder, its name without that of a table.

    Examples
    --------
    >>> table_name(Path("patients.2026.csv.gz")), table_name(Path("ROWS.CSV.GZ")), table_name(Path("rows.parquet"))
    ('patients.2026', 'ROWS', 'rows')
    """
    name = file.name[: -len(".gz")] if file.name.lower().endswith(".gz") else file.name
    if file.is_dir() and not name.lower().endswith(_TABLE_ENDINGS):
        return file.name
    return Path(name).stem


def data_set_name(private: Path) -> str:
    """Return the name of a private file as that of its data set."""
    return "".join(c if c.isprintable() else "-" for c in table_name(private.resolve()))


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


def ledger_of(
    private: Path, *, given: Place | None = None, new: bool = True, ask: Ask | None = None
) -> tuple[Place, Path | None]:
    """Return the ledger of a private file or folder, and where a link to it is to be made, if anywhere.

    Parameters
    ----------
    private : Path
        A file, or a folder of files.
    given : Path or ServerPlace, optional
        The ledger that the holder names. On a server, an empty data set stands for that of the private file.
    new : bool
        Whether a file without a ledger may get a new one unasked, if no ledger lies near.
    ask : callable, optional
        Asks a person where nothing says which ledger is charged. Default: that is refused.
    """
    # Claim: nothing that was received chooses the ledger. The place is a function of the private file's path, of what
    # the holder names, and of the file at `own`; other ledgers are only named in a question.
    # Not proved: that nobody else can write to the folder of the private file.
    own = own_ledger(private)
    for place in (own, given):
        if isinstance(place, Path) and place.is_symlink() and not place.exists():
            raise ValueError(
                f"{place}: the ledger that this link leads to, {os.readlink(place)}, is not there. Rows of {private} "
                f"were charged to it: bring it back to its place, or make the link lead to its new one."
            )
    charged = _led_to(own) if own.exists() else None
    if given is None:
        if charged is not None:
            return charged, None
        others = sorted(set(_ledgers_near(private, own)) - {own})
        # Claim: no second ledger is begun in silence where one lies near. Every path to a new one that is not named
        # passes this branch, and a copy or a new name of a private file, of its folder or of a link to it is near.
        # Not proved: that a copy in another folder, or the same persons in another file, has the same ledger.
        if new and not others:
            return own, None
        beside = f", and {_listed(others)} may be that of its rows" if others else ""
        why = f"{private} has no ledger of its own{beside}"
        if ask is None:
            raise ValueError(
                f"--ledger: {why}. If its rows were charged before (a copy, a part or a new name of another file), "
                f"name that ledger with --ledger, once; if not, --ledger {own} makes a new one. In Python, "
                f"Ledger.open names it. Nothing was spent."
            )
        given = ask(why, own)
    path = _led_to(given) if isinstance(given, Path) else _on_server(given, private, own, charged)
    if charged is not None and _identity(charged) != _identity(path):
        raise ValueError(
            f"--ledger {given}: rows of {private} are charged to {charged}, and another ledger would lack what was "
            f"already spent. Leave --ledger out; if the file holds other rows now, give it another name."
        )
    return path, None if own.exists() or _identity(path) == _identity(own) else own


def make_link(link: Path, place: Place) -> None:
    """Make what leads from the place beside the private file to its ledger, if the file system can."""
    with suppress(OSError, ValueError):  # a folder that can't be written to, a file system without links
        if isinstance(place, ServerPlace):
            with link.open("x", encoding="utf-8") as file:
                file.write(f"{place.shown}\n{place.dataset}\n")
        else:
            link.symlink_to(os.path.relpath(place.resolve(), link.parent))


def leads_elsewhere(link: Path, place: Place) -> bool:
    """Return whether a ledger other than that at `place` lies at the place of a link to it."""
    return link.exists() and _identity(_led_to(link)) != _identity(place)


def _ledgers_near(private: Path, own: Path) -> Iterator[Path]:
    """Yield ledgers that may be of the same rows.

    They lie in the folder of the private file; or belong to that folder, perhaps under a name that it had; or lie in
    the private folder; or are those of the files that links in it lead to, or of their folders.
    """
    table = private.resolve()
    yield from _ledgers_in(own.parent)
    if not table.is_dir():
        yield from _ledgers_of_folder(table.parent)
        return
    yield from _ledgers_in(table)
    for file in sorted(table.iterdir()):
        if file.is_symlink():
            target = file.resolve()
            yield from (place for place in (own_ledger(target), own_ledger(target.parent)) if _begun(place))


def _ledgers_of_folder(folder: Path) -> Iterator[Path]:
    """Yield the ledger of a folder, and those beside it whose table is no longer there."""
    above = folder.parent
    if not folder.name:
        return
    with suppress(OSError):  # a folder above that can't be listed
        names = {table_name(file) for file in above.iterdir() if file.suffix.lower() != _LEDGER_ENDING}
        yield from (place for place in _ledgers_in(above) if place == own_ledger(folder) or place.stem not in names)


def _ledgers_in(folder: Path) -> list[Path]:
    try:
        return sorted(file for file in folder.iterdir() if file.suffix.lower() == _LEDGER_ENDING)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ValueError(
            f"--ledger: the folder {folder} can't be listed ({error.strerror}). Name the ledger with --ledger."
        ) from None


def _begun(place: Path) -> bool:
    return place.exists() or place.is_symlink()


def _led_to(file: Path) -> Place:
    """Return the ledger that a file leads to: itself, that of a link, or one on a server."""
    with suppress(OSError, ValueError):
        # Only a regular file: to open a pipe would wait for somebody who writes to it.
        if file.is_file():
            with file.open("rb") as opened:
                lines = opened.read(_LONGEST_POINTER).decode().splitlines()
            # A ledger's own first line is the name of its format.
            if len(lines) == 2 and is_address(lines[0]):
                return ledger_place(*lines)
    return file


def _on_server(given: ServerPlace, private: Path, own: Path, charged: Place | None) -> ServerPlace:
    """Return the place with the name of the data set: the holder's, or that of the private file."""
    if given.dataset:
        return given
    if isinstance(charged, ServerPlace) and charged.shown == given.shown:
        return ServerPlace(given.address, given.shown, charged.dataset)
    name = data_set_name(private)
    if others := sorted(set(_ledgers_near(private, own)) - {own}):
        # On a server the name is the key: a file under another name would get a second budget.
        raise ValueError(
            f"--ledger {given}: {_listed(others)} near {private} may be the ledger of its rows under another name. Say "
            f"which data set they are by --dataset; --dataset {name} makes a new one."
        )
    return ServerPlace(given.address, given.shown, name)


def _identity(place: Place) -> object:
    return (place.shown, place.dataset) if isinstance(place, ServerPlace) else place.resolve()


def _listed(places: Iterable[Place]) -> str:
    return " and ".join(str(place) for place in places)
