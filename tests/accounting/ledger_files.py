"""Ledger files as tests need them: with altered records whose hashes are valid, as only deliberate tampering makes."""

import re
from pathlib import Path

from dpadapt.accounting.chain import FORMAT, link
from dpadapt.accounting.store import _COMMIT_BYTES, _Commit, _read_commit
from dpadapt.accounting.store import _FIRST_RECORD as FIRST_RECORD

# Advice that would lose charges, or that sounds like it.
UNSAFE = re.compile(r"\b(back-?up|restor\w*|delet\w*|remov\w*|rm|overwrit\w*|recreat\w*|start afresh)\b", re.IGNORECASE)


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
