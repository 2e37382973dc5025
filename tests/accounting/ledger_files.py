"""Ledgers as tests need them: in files and on a server, with altered records whose hashes are valid."""

import re
from pathlib import Path

from dpadapt.accounting import Ledger
from dpadapt.accounting.chain import FORMAT, link
from dpadapt.accounting.store import _COMMIT_BYTES, _Commit, _read_commit
from dpadapt.accounting.store import _FIRST_RECORD as FIRST_RECORD
from dpadapt.mechanisms import Gaussian, RandomizedResponse, clipped_sum
from dpadapt.mechanisms.mechanism import Repeated

SUM = clipped_sum([[0.5]], 1.0)
STEP = RandomizedResponse(0.125)
# Advice that would lose charges, or that sounds like it.
UNSAFE = re.compile(r"\b(back-?up|restor\w*|delet\w*|remov\w*|rm|overwrit\w*|recreat\w*|start afresh)\b", re.IGNORECASE)


def charged_three_times(ledger):
    """Charge a ledger three times, and return it."""
    ledger.release(Gaussian(20.0), SUM, label="first")
    ledger.start(Repeated(STEP, 3), label="second")
    ledger.release(Gaussian(30.0), SUM, label="third")
    return ledger


def records_of(path):
    """Return time and text of each record, the terms first."""
    lines = Path(path).read_bytes()[FIRST_RECORD:].decode().splitlines()
    return [(line[65:84], line[85:]) for line in lines]


def with_records(path, records):
    """Give a ledger other records, with valid hashes."""
    body, head = "", FORMAT
    for time, text in records:
        head = link(head, time, text)
        body += f"{head} {time} {text}\n"
    commit = _Commit(len(records) - 1, FIRST_RECORD + len(body.encode()), head).line()
    Path(path).write_bytes(f"{FORMAT}\n".encode() + commit + commit + body.encode())


def commits_of(path):
    """Return the two commit lines, None for an altered one."""
    content = Path(path).read_bytes()
    places = (FIRST_RECORD - 2 * _COMMIT_BYTES, FIRST_RECORD - _COMMIT_BYTES)
    return [_read_commit(content[place : place + _COMMIT_BYTES]) for place in places]


class FilePlace:
    """A folder of ledgers."""

    def __init__(self, folder):
        self.folder = folder

    def open(self, name="ledger", **terms):
        return Ledger.open(self.folder / name, **terms)

    def arguments(self, name="ledger"):
        """Return how `Ledger.open` finds a ledger in another process."""
        return {"path": self.folder / name}

    def alter(self, old, new):
        """Replace text in the records, but not their hashes."""
        path = self.folder / "ledger"
        path.write_text(path.read_text().replace(old, new))

    def records(self, name="ledger"):
        """Return time and text of each record, the terms first."""
        return records_of(self.folder / name)

    def set_records(self, records, name="ledger"):
        """Give a ledger other records, with valid hashes."""
        with_records(self.folder / name, records)


class ServerPlace:
    """Ledgers on a server; a prefix keeps the data sets of tests apart."""

    def __init__(self, server, prefix, database="postgres"):
        self.server, self.prefix, self.database = server, prefix, database

    def open(self, name="ledger", **terms):
        return Ledger.open(**self.arguments(name), **terms)

    def arguments(self, name="ledger"):
        return {"path": self.server.url(self.database), "dataset": f"{self.prefix}{name}"}

    def execute(self, query, *values):
        return self.server.execute(query, *values, database=self.database)

    def alter(self, old, new):
        query = "UPDATE dpadapt.records SET text = replace(text, %s, %s) WHERE ledger = %s"
        self.execute(query, old, new, self.id_of())

    def id_of(self, name="ledger"):
        return self.execute("SELECT id FROM dpadapt.ledgers WHERE dataset = %s", f"{self.prefix}{name}")[0][0]

    def records(self, name="ledger"):
        return self.execute(
            "SELECT time, text FROM dpadapt.records WHERE ledger = %s ORDER BY number", self.id_of(name)
        )

    def set_records(self, records, name="ledger"):
        ledger, head = self.id_of(name), FORMAT
        self.execute("DELETE FROM dpadapt.records WHERE ledger = %s", ledger)
        for number, (time, text) in enumerate(records):
            head = link(head, time, text)
            row = (ledger, number, time, text, head)
            self.execute(
                "INSERT INTO dpadapt.records (ledger, number, time, text, hash) VALUES (%s, %s, %s, %s, %s)", *row
            )
        query = "UPDATE dpadapt.ledgers SET records = %s, head = %s WHERE id = %s"
        self.execute(query, len(records) - 1, head, ledger)
