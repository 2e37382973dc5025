"""Run `crash_driver`, and compare the ledger with what its workers noted."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

from crash_driver import DELTA, NOISE, cap, notes

from dpadapt.accounting import Ledger
from dpadapt.errors import BudgetExceeded

DRIVER = Path(__file__).with_name("crash_driver.py")


def drive(mode, folder, *arguments, command=()):
    """Run the driver in a process of its own and return what it counted."""
    done = subprocess.run(
        [*command, sys.executable, str(DRIVER), mode, str(folder), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr
    assert [error.read_text() for error in folder.glob("error*")] == []
    return json.loads(done.stdout)


def accepted(allowed):
    """Return how many charges the cap for `allowed` charges lets through, one after the other."""
    ledger = Ledger(cap(allowed), DELTA)
    with contextlib.suppress(BudgetExceeded):
        for _ in range(allowed + 1):
            ledger.start(NOISE, label="x")
    return len(ledger.entries)


def check_books(folder, workers, ledger=None):
    """Compare the ledger with what the workers noted: every used charge is there, and nothing that nobody tried."""
    files = {"ledger"} if ledger is None else set()
    ledger = ledger or Ledger.open(folder / "ledger")
    labels = [entry.label for entry in ledger.entries]
    assert len(labels) == len(set(labels))
    assert ledger.spent() <= ledger.epsilon * (1 + 1e-9)
    recorded = {worker: set() for worker in range(workers)}
    for label in labels:
        worker, k = map(int, label.split(":"))
        recorded[worker].add(k)
    for worker in range(workers):
        assert notes(folder, worker, "drawn") <= recorded[worker] <= notes(folder, worker, "intend")
    assert {name for name in os.listdir(folder) if not name.startswith("worker")} == files
    return len(labels)
