"""`dpadapt request`: what an analyst, who does not see the private rows, asks their custodian to fit.

A request is a TOML file with the options of the fit, the schema, the hash of the public file and, where the estimator
has one, a forecast. The schema is inside: it decides which facts count as public, so what the custodian agrees to and
what is fitted must be the same, with no second file to lose or to mix up. A request has no seed, and names neither the
private file nor the ledger: those are the custodian's.
"""

import hashlib
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from dpadapt.cli.fit import check_options, read_public, unfitted
from dpadapt.cli.options import FitOptions, add_command, asked_kinds, flag_of, teach, uses
from dpadapt.cli.screen import check_parent, console, working, write_file
from dpadapt.cli.spending import LedgerPlan, at_a_terminal

if TYPE_CHECKING:
    from dpadapt.methods import Method
    from dpadapt.tables import EncodedRows, Schema, TableModel

_HELP = teach(
    """Write a request: what to fit on private rows that you don't see, for their custodian to carry out.

The file holds the method, the cost, the schema, the hash of the public file and, with --rows, a forecast. No private
row is needed to make it. The custodian runs dpadapt fit --request, sees what would be spent, and agrees or not.
""",
    "dpadapt request --public public.csv --schema schema.toml --label cost \\",
    "                --task regression --epsilon 0.5 --rows 600 -o request.toml",
)

_FORMAT = "dpadapt request 1"
# Bytes: more than the schema of a table with ten thousand columns takes.
_LONGEST_REQUEST = 10_000_000
_NEEDED = ("task", "method", "epsilon", "delta", "adjacency")


@dataclass(frozen=True)
class Request:
    """What an analyst asks for.

    `fit` has the options of the fit by name, None for those that were not chosen; `public` the name and SHA-256 of the
    public file; `forecast` the number of private rows that the analyst assumed, and the forecast in words, unchecked.
    """

    path: Path
    fit: Mapping[str, Any]
    schema: "Schema"
    public: tuple[str, str] | None
    forecast: tuple[int, str] | None

    def options(self, values: Mapping[str, Any], stated: Collection[str]) -> dict[str, Any]:
        """Return the options of `dpadapt fit` as requested, or refuse a stated one that asks for something else."""
        for name, use in uses(FitOptions).items():
            if name not in stated:
                continue
            if use.why_not:
                raise ValueError(f"{flag_of(name)}: {use.why_not}. Leave it out.")
            if use.asked and values[name] != self.fit[name]:
                requested = "none" if self.fit[name] is None else self.fit[name]
                raise ValueError(
                    f"{flag_of(name)} {values[name]}: the request {self.path} asks for another one ({requested}). "
                    f"Leave the option out, or ask for a new request. Nothing was spent."
                )
        return {**values, **self.fit, "schema": self.path}

    def agree(self, order: FitOptions, method: "Method", plan: LedgerPlan | None) -> None:
        """Show what the request would spend, and refuse to go on unless the custodian agrees."""
        from dpadapt.report.terminal import facts_table

        console().print(facts_table(f"Request {self.path.name}", self._facts(order, method, plan)))
        if order.yes:
            return
        if not at_a_terminal():
            raise ValueError(
                f"--request {self.path}: nothing was spent. To carry out what is shown above, add --yes; to be asked, "
                f"use a terminal."
            )
        if not typer.confirm("Spend this?", default=False, err=True):
            raise ValueError(f"--request {self.path}: not carried out. Nothing was spent.")

    def check_public(self, given: Path | None) -> None:
        """Refuse another public file than that of the request."""
        if self.public is None:
            if given is not None:
                raise ValueError(f"--public {given}: the request {self.path} asks for a fit without public rows.")
            return
        name, digest = self.public
        if given is None:
            raise ValueError(f"--public must be the public file of the request {self.path}, there called {name}.")
        if _digest(given) != digest:
            raise ValueError(
                f"--public {given}: this is not the public file of the request, {name}: its SHA-256 is another one. "
                f"Get that very file, or ask for a new request. Nothing was spent."
            )

    def _facts(self, order: FitOptions, method: "Method", plan: LedgerPlan | None) -> dict[str, str]:
        from dpadapt.mechanisms.adjacency import Adjacency

        what = f"{method.name} ({order.task})" + (f", to predict {order.label}" if order.label else "")
        features = [column.name for column in self.schema.features(order.label)]
        shown = ", ".join(features[:20]) + (", ..." if len(features) > 20 else "")
        facts = {
            "fits": what,
            "spends": f"at most epsilon = {order.epsilon:g} at delta = {order.delta:g}",
            "data set": self.schema.dataset if plan is None else plan.wish.dataset,
            "protects": Adjacency.of(order.adjacency).protects(order.unit),
            **_budget(plan),
            "columns": f"{len(features)}, with their ranges and values as the request states them: {shown}",
        }
        options = {name: value for name, value in self.fit.items() if name not in (*_NEEDED, "label") and value}
        if options:
            facts["options"] = ", ".join(f"{name} = {value}" for name, value in options.items())
        if self.public is not None:
            facts["public file"] = f"{self.public[0]}, SHA-256 as in the request"
        if self.forecast is not None:
            rows, words = self.forecast
            facts["forecast"] = f"by the analyst, for {rows:,} rows, not checked: {words}"
        return facts


def _budget(plan: LedgerPlan | None) -> dict[str, str]:
    """Return the state of the ledger and of the allowance before the fit."""
    if plan is None:
        return {"ledger": "none (--no-ledger): nothing adds up what several fits cost"}
    if plan.cap is not None:
        return {"ledger": plan.note}
    from dpadapt.accounting.ledger import Ledger

    ledger = Ledger.open(plan.path, read_only=True)
    facts = {"ledger": f"{plan.path}: epsilon = {ledger.remaining():.4g} left of {ledger.epsilon:.4g}"}
    if plan.allowance is not None:
        limited = ledger.allowance(plan.allowance)
        facts["allowance"] = f"{plan.allowance}: epsilon = {limited.remaining():.4g} left of {limited.epsilon:.4g}"
        facts["allowance"] += ", if the cap of the ledger lets it through"
    elif ledger.allowances:
        # Whoever forgets --allowance would charge no analyst at all.
        facts["allowance"] = f"none (this ledger has: {', '.join(ledger.allowances)})"
    return facts


# Reading


def read_request(path: Path) -> Request:
    """Read a request; refuse a file that `dpadapt request` has not written."""
    from dpadapt.tables import Schema

    where = f"--request {path}"
    fields = _parsed(path, where)
    if fields.get("format") != _FORMAT:
        later = str(fields.get("format", "")).startswith(_FORMAT.rpartition(" ")[0])
        _refuse(where, "it was made by another version of dpadapt" if later else "this is no request")
    _only(fields, {"format", "made_by", "fit", "public", "forecast", "schema"}, where, "")
    kinds = asked_kinds()
    fit = _table(fields, "fit", where, set(kinds))
    for name in _NEEDED:
        if name not in fit:
            _refuse(where, f"[fit] lacks {name}")
    chosen: dict[str, Any] = {
        name: _typed(fit[name], kind, f"{where}: {name} in [fit]") if name in fit else False if kind is bool else None
        for name, kind in kinds.items()
    }
    public = forecast = None
    if "public" in fields:
        table = _table(fields, "public", where, {"name", "sha256"})
        name, digest = (_typed(table.get(key), str, f"{where}: {key} in [public]") for key in ("name", "sha256"))
        public = name, digest.lower()
    if "forecast" in fields:
        table = _table(fields, "forecast", where, {"rows", "words"})
        forecast = (
            _typed(table.get("rows"), int, f"{where}: rows in [forecast]"),
            _typed(table.get("words"), str, f"{where}: words in [forecast]"),
        )
    schema = Schema.from_dict(fields.get("schema", {}), origin=f"{where}, [schema]")
    return Request(path, chosen, schema, public, forecast)


def _parsed(path: Path, where: str) -> dict[str, Any]:
    try:
        if not path.is_file():
            raise ValueError(f"{where}: there is no such file. An analyst makes it with dpadapt request.")
        with path.open("rb") as file:
            data = file.read(_LONGEST_REQUEST + 1)
    except OSError as error:
        raise ValueError(f"{where}: can't be read ({error.strerror}).") from None
    if len(data) > _LONGEST_REQUEST:
        _refuse(where, "it is too long")
    try:
        return tomllib.loads(data.decode())
    except (ValueError, RecursionError):  # also what is no UTF-8, no TOML, or nested too deeply
        pass
    _refuse(where, "it is damaged (no valid TOML)")


def _refuse(where: str, what: str) -> NoReturn:
    raise ValueError(f"{where}: {what}. Ask the analyst for a new one, made by dpadapt request. Nothing was spent.")


def _only(fields: Mapping[str, Any], known: set[str], where: str, table: str) -> None:
    unknown = sorted(set(fields) - known)
    if unknown:
        _refuse(where, f"it has an unknown key {unknown[0][:50]!r}{table}")


def _table(fields: Mapping[str, Any], name: str, where: str, known: set[str]) -> Mapping[str, Any]:
    table = fields.get(name)
    if not isinstance(table, Mapping):
        _refuse(where, f"it lacks the table [{name}]")
    _only(table, known, where, f" in [{name}]")
    return table


def _typed(value: Any, kind: type, where: str) -> Any:
    """Return a value of this type; a whole number may stand for a float, a text for one of a few choices."""
    if issubclass(kind, StrEnum):
        if value not in list(kind):
            _refuse(where, f"expected one of {', '.join(kind)}")
        return kind(value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) < 2**53 else value
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        words = {str: "a text", float: "a number", int: "a whole number", bool: "true or false"}
        _refuse(where, f"expected {words[kind]}")
    if isinstance(value, str) and not value.isprintable():
        # A line break could draw a second line of what the custodian is asked to agree to.
        _refuse(where, "expected a text of one line")
    return value


def _digest(path: Path) -> str:
    try:
        if not path.is_file():
            raise ValueError(f"--public {path}: there is no such file.")
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ValueError(f"--public {path}: can't be read ({error.strerror}).") from None


# Writing


def mount(app: typer.Typer) -> None:
    """Add the command to `app`."""
    changes = {
        "rows": (
            Annotated[
                int | None,
                typer.Option(help="How many private rows there are, as far as is publicly known: for a forecast."),
            ],
            None,
        ),
        "out": (Annotated[Path, typer.Option("--out", "-o", help="TOML file to write.")], Path("request.toml")),
    }
    only = (*asked_kinds(), "schema", "public", "encoding")
    add_command(app, "request", _request, FitOptions, help=_HELP, only=only, changes=changes)


def _request(values: dict[str, Any], _stated: set[str]) -> None:
    from dpadapt import __version__, checks
    from dpadapt.tables import read_schema
    from dpadapt.tables.schema import toml_value

    out, rows = values["out"], values["rows"]
    if rows is not None:
        checks.count(rows, "--rows")
    # Unless the number of rows is private, the custodian's file has it; the forecast alone needs it here.
    values["rows"] = rows if values["adjacency"] == "add-remove" else None
    # The custodian's file and folder are not known, and not needed: nothing of them is opened.
    order = FitOptions(**values | {"private": Path("private"), "out": Path("model")})
    chosen = check_options(order)
    if chosen.beside == "agents":
        raise ValueError(
            f"--method {chosen.name}: people answer for themselves, and only who has them can ask them. A request "
            f"can't. Choose another method."
        )
    check_parent(out, "--out")
    schema, public = order.schema, order.public
    known = read_schema(schema, origin=f"--schema {schema}")
    model = unfitted(order, chosen, known)
    fit = {name: getattr(order, name) for name in asked_kinds()} | {"method": chosen.name}
    asked = {name: value for name, value in fit.items() if value is not None}
    lines = [
        "# What an analyst asks the custodian of private rows to fit. No private row was read to make this file.",
        "#",
        f"#   dpadapt fit --request {out.name} --private PRIVATE.csv --public PUBLIC.csv --allowance NAME --out MODEL/",
        "#",
        "# shows what it would spend and asks before it spends. [schema] states what counts as publicly known.",
        f"format = {toml_value(_FORMAT)}",
        f"made_by = {toml_value(f'dpadapt {__version__}')}",
        *_toml_table("fit", asked),
    ]
    if public is not None:
        lines += _toml_table("public", {"name": public.name, "sha256": _digest(public)})
        with working("reading"):
            declared = read_public(model, public, tasks=order.tasks)
        lines += _forecast(model, declared, rows)
    fields = known.to_dict()
    lines += _toml_table("schema", {"dataset": fields["dataset"]})
    for name, column in fields["columns"].items():
        lines += _toml_table(f"schema.columns.{toml_value(name)}", column)
    write_file(out, "--out", ("\n".join(lines) + "\n").encode())
    screen = console()
    screen.print(f"Asks for at most epsilon = {order.epsilon:g} at delta = {order.delta:g}. No private row was read.")
    screen.print(f"Wrote {out}", soft_wrap=True, markup=False)


def _toml_table(name: str, fields: Mapping[str, Any]) -> list[str]:
    from dpadapt.tables.schema import toml_value

    return ["", f"[{name}]", *(f"{key} = {toml_value(value)}" for key, value in fields.items())]


def _forecast(model: "TableModel", public: "EncodedRows", rows: int | None) -> list[str]:
    """Return the forecast of a method that has one, if the number of private rows is known."""
    from dpadapt.transfer.preview import CAVEAT

    estimator = model.configured()
    if rows is None or not hasattr(estimator, "forecast") or (model.label is not None and public.y is None):
        return []
    with working("forecasting"):
        words = f"{' '.join(estimator.forecast(public.declared, rows).words)} {CAVEAT}"
    return _toml_table("forecast", {"rows": rows, "words": " ".join(words.split())})
