"""Many processes, one durable ledger, kill -9 at any moment: the cap holds, nothing is lost or drawn unrecorded."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dpadapt.accounting import Ledger

DRIVER = Path(__file__).with_name("crash_driver.py")


def notes(path, word):
    lines = [line.split() for line in path.read_text().splitlines()]
    return {int(words[1]) for words in lines if words[:1] == [word] and len(words) == 3}


def charge_and_kill(folder, *, workers, charges, kills, allowed, seed=0):
    arguments = [str(folder), *map(str, (workers, charges, kills, allowed, seed))]
    done = subprocess.run([sys.executable, str(DRIVER), *arguments], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert [path.read_text() for path in folder.glob("error*")] == []
    ledger = Ledger.open(folder / "ledger")
    labels = [entry.label for entry in ledger.entries]
    assert len(labels) == len(set(labels)) <= allowed
    assert ledger.spent() <= ledger.epsilon * (1 + 1e-9)
    recorded = {worker: set() for worker in range(workers)}
    for label in labels:
        worker, k = map(int, label.split(":"))
        recorded[worker].add(k)
    for worker in range(workers):
        path = folder / f"worker{worker}"
        assert notes(path, "drawn") <= recorded[worker] <= notes(path, "intend")
    return json.loads(done.stdout)["killed"], labels


def test_a_ledger_survives_kills(tmp_path):
    killed, labels = charge_and_kill(tmp_path, workers=4, charges=100, kills=40, allowed=10_000)
    assert killed >= 20
    assert len(labels) >= 200


def test_the_cap_holds_across_processes_and_kills(tmp_path):
    killed, labels = charge_and_kill(tmp_path, workers=4, charges=100, kills=20, allowed=150, seed=1)
    assert killed >= 10
    assert len(labels) == 150


@pytest.mark.slow
def test_eight_processes_five_hundred_charges_two_hundred_kills(tmp_path):
    killed, labels = charge_and_kill(tmp_path, workers=8, charges=500, kills=200, allowed=3000, seed=2)
    assert killed == 200
    assert len(labels) == 3000
