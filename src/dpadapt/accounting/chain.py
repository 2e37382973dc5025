"""The chain of records of a durable ledger: what a record says, and what the records add up to.

Each record has a time, a text in JSON and a hash of itself and of the record before it. The first one holds the terms
and a random id. The id makes the hashes of each ledger its own, so that it can't pass for another ledger with equal
terms. The other records are charges, and how many releases of a resumable run may have been made. Where the records are
kept (a file, a table) and how they are committed is up to the stores.
"""

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from dpadapt.accounting.filter import Filter, Sums
from dpadapt.accounting.receipt import Entry, entry_from_dict
from dpadapt.mechanisms.adjacency import Adjacency
from dpadapt.persons import UNITS, Unit

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
    share, order : float, int
        The filter's; see `Filter`.
    unit : {"row", "person"}
        What is protected.
    allowances : dict
        Parts of the cap that are set aside under a name: none.
    """

    epsilon: float
    delta: float
    adjacency: str
    dataset: str
    share: float
    order: int
    unit: Unit = "row"
    allowances: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _ = self.filter  # checks
        if self.unit not in UNITS or self.allowances:
            raise ValueError("made by a later version")

    @property
    def filter(self) -> Filter:
        """The filter that decides on charges."""
        return Filter(self.epsilon, self.delta, Adjacency.of(self.adjacency), self.share, self.order)


@dataclass(frozen=True)
class State:
    """What the first records of a chain add up to.

    `records` is their number, not counting the terms, and `head` the hash of the last one. `runs` has, by mark, the
    entry that a run was charged with and how many of its releases may have been made. `closed` says that the charges of
    a converted file exceed the cap under the filter.
    """

    records: int
    head: str
    sums: Sums = field(default_factory=Sums)
    runs: Mapping[str, tuple[Entry, int]] = field(default_factory=dict)
    closed: bool = False


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
    entries = [entry.to_dict() for entry in charge]
    return {"charge": entries, "sums": [sums.pure, sums.gaussian, sums.renyi], "sampled": sums.sampled}


def used(mark: str, releases: int) -> Content:
    """Return the content of the record that the run with this mark may have made this many releases."""
    return {"mark": mark, "used": releases}


def begin(record: Record) -> tuple[str, Terms, State] | None:
    """Return the id, the terms and the state after the first record; None if the record is altered."""
    digest, time, text = record
    if digest != link(FORMAT, time, text):
        return None
    try:
        return id_of(text), Terms(**json.loads(text)["terms"]), State(0, digest)
    except _UNREADABLE:
        raise UnknownTerms from None


def follow(known: State, records: Iterable[Record], terms: Terms) -> tuple[State, list[tuple[str, Charge]]]:
    """Follow the chain from a known state as far as the records are unaltered; return also the charges on the way."""
    number, head = known.records, known.head
    sums, runs, closed = known.sums, dict(known.runs), known.closed
    charges: list[tuple[str, Charge]] = []
    for digest, time, text in records:
        if digest != link(head, time, text):
            break
        number, head = number + 1, digest
        first, second = _parsed(text)
        if isinstance(second, Sums):
            charges.append((time, first))
            sums += second
        elif first is None:
            closed = sums.charges > 1 and not terms.filter.level(sums) <= terms.epsilon
        else:
            # The first record of a mark was written together with the charge before it.
            mark, releases = first, second
            if mark not in runs and (releases or not charges):
                raise BrokenChain("it counts releases of an unknown run")
            entry, before = runs.get(mark) or (charges[-1][1][-1], 0)
            if not before <= releases <= entry.times:
                raise BrokenChain("it counts releases that were not charged")
            runs[mark] = entry, releases
    return State(number, head, sums, runs, closed), charges


def _parsed(text: str) -> tuple[Any, Any]:
    """Return a charge and what it adds up to; a run's mark and how many releases it may have made; or two Nones.

    Two Nones stand for the record that ends the charges of a converted file.
    """
    try:
        fields = json.loads(text)
        if "converted" in fields:
            return None, None
        if "mark" in fields:
            return str(fields["mark"]), int(fields["used"])
        charge = tuple(entry_from_dict(entry) for entry in fields["charge"])
        pure, gaussian, renyi = map(float, fields["sums"])
        sums = Sums(pure, gaussian, renyi, int(fields["sampled"]), 1)
    except _UNREADABLE:
        raise BrokenChain("it holds an entry of unknown form") from None
    # Each comparison is false for NaN.
    valid = sums.pure >= 0 and sums.gaussian >= 0 and sums.renyi >= 0 and sums.sampled >= 0
    if not valid or not charge or any(entry.times < 1 for entry in charge):
        raise BrokenChain("it holds an entry of unknown form")
    return charge, sums
