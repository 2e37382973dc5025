"""The chain of records of a durable ledger: what a record says, and what the records add up to.

Each record has a time, a text in JSON and a hash of itself and of the record before it. The first one holds the terms
and a random id. The id makes the hashes of each ledger its own, so that it can't pass for another ledger with equal
terms. The other records are charges, how many releases of a resumable run may have been made, and allowances: limits
below the cap on what is charged under a name. Where the records are kept (a file, a table) and how they are committed
is up to the stores.
"""

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from dpadapt.accounting.filter import Filter, Sums
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.mechanisms.events import Entry, entry_from_dict
from dpadapt.rows import UNITS, Unit

Charge = tuple[Entry, ...]
# Hash, time (UTC) and text.
Record = tuple[str, str, str]
# What the text of a record says, before it is written as JSON. Readers ignore fields that they don't know.
Content = Mapping[str, Any]

# The name of the format, from which the first hash is made.
FORMAT = "dpadapt ledger 2"
# What a text of unknown form raises when it is read.
_UNREADABLE = (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError)


class BrokenChain(Exception):
    """Records that no store wrote, although their hashes are valid; the message says what is wrong with them."""


class UnknownTerms(Exception):
    """Terms that only a later version can have written."""


@dataclass(frozen=True)
class Terms:
    """What a durable ledger is for, fixed when it is made.

    Parameters
    ----------
    epsilon, delta : float
        The cap.
    adjacency, dataset : str
    share, order, plain_share : float, int, float
        The filter's; see `Filter`.
    unit : {"row", "person"}
        What is protected.
    """

    epsilon: float
    delta: float
    adjacency: str
    dataset: str
    share: float
    order: int
    unit: Unit = "row"
    plain_share: float = 0.0

    def __post_init__(self) -> None:
        _ = self.filter  # checks
        if self.unit not in UNITS:
            raise ValueError("made by a later version")

    @property
    def filter(self) -> Filter:
        """The filter that decides on charges."""
        return Filter(self.epsilon, self.delta, Adjacency.of(self.adjacency), self.share, self.order, self.plain_share)


@dataclass(frozen=True)
class Allowance:
    """A limit below the cap on what is charged under one name: a filter of its own, and what was charged.

    It sets nothing aside. Its epsilon may be changed. Its delta and the order of its Rényi sum stay as they were when
    it was made: the sums depend on them, and no proof covers an order that is chosen after the charges.
    """

    filter: Filter
    sums: Sums = field(default_factory=Sums)


@dataclass(frozen=True)
class Past:
    """A charge, or an allowance that was made or changed, as people want to see it.

    `time` is in UTC. `allowance` is the name of the allowance that was charged or changed, if any. `limit` has the
    allowance's new epsilon and its delta; then there is no `charge`.
    """

    time: str
    charge: Charge
    allowance: str = ""
    limit: tuple[float, float] | None = None


@dataclass(frozen=True)
class State:
    """What the first records of a chain add up to.

    `records` is their number, not counting the terms, and `head` the hash of the last one. `runs` has, by mark, the
    entry that a run was charged with, how many of its releases may have been made, and the allowance that it was
    charged under.
    """

    records: int
    head: str
    sums: Sums = field(default_factory=Sums)
    runs: Mapping[str, tuple[Entry, int, str]] = field(default_factory=dict)
    allowances: Mapping[str, Allowance] = field(default_factory=dict)


def link(head: str, *parts: str) -> str:
    """Return the hash of the link after `head`."""
    return hashlib.sha256("\n".join([head, *map(str, parts)]).encode()).hexdigest()


def now() -> str:
    """Return the time as records have it."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")


def text_of(content: Content) -> str:
    """Return the text of a record."""
    return json.dumps(content, sort_keys=True)


def chained(head: str, time: str, contents: Iterable[Content]) -> list[Record]:
    """Return new records after the one whose hash is `head`."""
    records = []
    for content in contents:
        text = text_of(content)
        head = link(head, time, text)
        records.append((head, time, text))
    return records


def first_text(terms: Terms) -> str:
    """Return the text of the first record of a new ledger."""
    return text_of({"id": secrets.token_hex(16), "terms": asdict(terms)})


def id_of(first_text: str) -> str:
    """Return the id in the text of a first record."""
    return str(json.loads(first_text).get("id", ""))


def charged(charge: Charge, sums: Sums) -> Content:
    """Return the content of a charge's record, with what it adds to the filter's sums."""
    return {"sums": _listed(sums), "sampled": sums.sampled, "charge": [entry.to_dict() for entry in charge]}


def under(name: str, sums: Sums) -> Content:
    """Return the further fields of a charge under an allowance, with what it adds to the allowance's sums."""
    return {"allowance": name, "allowance sums": _listed(sums)}


def _listed(sums: Sums) -> list[float]:
    return [sums.plain, sums.gaussian, sums.renyi, sums.parts]


def allowed(name: str, limit: Filter) -> Content:
    """Return the content of the record that makes or changes an allowance."""
    terms = {name: getattr(limit, name) for name in ("epsilon", "delta", "share", "order", "plain_share")}
    return {"allow": name, "limit": terms}


def used(mark: str, releases: int) -> Content:
    """Return the content of the record that the run with this mark may have made this many releases."""
    return {"mark": mark, "used": releases}


def begin(record: Record) -> tuple[str, Terms, State] | None:
    """Return the id, the terms and the state after the first record; None if the record is altered."""
    digest, time, text = record
    if digest != link(FORMAT, time, text):
        return None
    try:
        fields = json.loads(text)["terms"]
        return id_of(text), Terms(**fields), State(0, digest)
    except _UNREADABLE:
        raise UnknownTerms from None


def follow(known: State, records: Iterable[Record], terms: Terms) -> tuple[State, list[Past]]:
    """Follow the chain from a known state as far as records are unaltered; return the new state and past charges."""
    number, head = known.records, known.head
    sums, runs, allowances = known.sums, dict(known.runs), dict(known.allowances)
    past: list[Past] = []
    # Claim: no record that was altered, left out or put elsewhere is followed. Each digest holds that of the record
    # before.
    # Not proved: that nobody rewrites the whole chain; a hash is no signature.
    for digest, time, text in records:
        if digest != link(head, time, text):
            break
        number, head = number + 1, digest
        fields = _fields(text)
        if "mark" in fields:
            _count_releases(fields, runs, past[-1] if past else None)
        elif "allow" in fields:
            past.append(_limit(fields, time, allowances, terms))
        else:
            charge, added = _charge(fields)
            name = _charge_allowance(fields, added, allowances)
            past.append(Past(time, charge, name))
            sums += added
    return State(number, head, sums, runs, allowances), past


_UNKNOWN_FORM = "it holds an entry of unknown form"


def _fields(text: str) -> dict[str, Any]:
    try:
        fields = json.loads(text)
    except _UNREADABLE:
        fields = None
    if not isinstance(fields, dict):
        raise BrokenChain(_UNKNOWN_FORM)
    return fields


def _count_releases(fields: dict[str, Any], runs: dict[str, tuple[Entry, int, str]], before: Past | None) -> None:
    """Set how many releases of a run may have been made."""
    try:
        mark, releases = str(fields["mark"]), int(fields["used"])
    except _UNREADABLE:
        raise BrokenChain(_UNKNOWN_FORM) from None
    # The first record of a mark was written together with the charge before it.
    if mark not in runs and (releases or before is None or not before.charge):
        raise BrokenChain("it counts releases of an unknown run")
    if mark not in runs and before is not None:
        runs[mark] = before.charge[-1], 0, before.allowance
    entry, earlier, allowance = runs[mark]
    if not earlier <= releases <= entry.times:
        raise BrokenChain("it counts releases that were not charged")
    runs[mark] = entry, releases, allowance


def _limit(fields: dict[str, Any], time: str, allowances: dict[str, Allowance], terms: Terms) -> Past:
    """Make or change an allowance."""
    try:
        name, given = str(fields["allow"]), fields["limit"]
        limit = Filter(
            float(given["epsilon"]),
            float(given["delta"]),
            terms.filter.adjacency,
            float(given["share"]),
            int(given["order"]),
            float(given["plain_share"]),
        )
    except _UNREADABLE:
        raise BrokenChain(_UNKNOWN_FORM) from None
    known = allowances.get(name, Allowance(limit))
    if replace(known.filter, epsilon=limit.epsilon) != limit:
        raise BrokenChain("it changes what is fixed about an allowance")
    allowances[name] = replace(known, filter=limit)
    return Past(time, (), name, (limit.epsilon, limit.delta))


def _charge(fields: dict[str, Any]) -> tuple[Charge, Sums]:
    """Return a charge and what it adds to the filter's sums."""
    try:
        charge = tuple(entry_from_dict(entry) for entry in fields["charge"])
        sums = _sums(fields["sums"], int(fields["sampled"]))
    except _UNREADABLE:
        raise BrokenChain(_UNKNOWN_FORM) from None
    if not charge or any(entry.times < 1 for entry in charge):
        raise BrokenChain(_UNKNOWN_FORM)
    return charge, sums


def _charge_allowance(fields: dict[str, Any], added: Sums, allowances: dict[str, Allowance]) -> str:
    """Add a charge to the allowance that it was made under; return the allowance's name, empty if there is none."""
    if "allowance" not in fields:
        return ""
    name = str(fields["allowance"])
    if name not in allowances:
        raise BrokenChain("it holds a charge under an unknown allowance")
    try:
        more = _sums(fields["allowance sums"], added.sampled)
    except _UNREADABLE:
        raise BrokenChain(_UNKNOWN_FORM) from None
    allowances[name] = replace(allowances[name], sums=allowances[name].sums + more)
    return name


def _sums(values: Any, sampled: int) -> Sums:
    plain, gaussian, renyi, parts = map(float, values)
    # Each comparison is false for NaN.
    if not (plain >= 0 and gaussian >= 0 and renyi >= 0 and sampled >= 0 and parts in (0, 1)):
        raise ValueError("a sum is negative, or of no charge")
    return Sums(plain, gaussian, renyi, sampled, 1, int(parts))
