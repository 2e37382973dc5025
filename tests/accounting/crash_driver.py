"""Charge one durable ledger from many processes and kill them at random; test_store.py runs this as a process.

Each worker writes "intend k" to its own file, synchronised, before charge k, and "drawn k" right after the draw. A
killed worker is started again and continues with the next k.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from dpadapt.accounting import Ledger, epsilon
from dpadapt.errors import BudgetExceeded
from dpadapt.mechanisms import Gaussian, clipped_sum
from dpadapt.mechanisms.mechanism import Repeated

NOISE = Gaussian(50.0)
DELTA = 1e-6
SUM = clipped_sum([[0.5]], 1.0)


def cap(charges):
    """Return the epsilon that allows exactly `charges` charges."""
    return epsilon(Repeated(NOISE, charges), DELTA)


def work(ledger, folder, worker, charges):
    """Charge until all charges are made or the budget is spent."""
    path = folder / f"worker{worker}"
    done = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    # The last line may have been cut short by a kill.
    first = max((int(words[1]) for words in done if words[:1] == ["intend"] and len(words) == 3), default=-1) + 1
    with path.open("a") as notes:
        if path.stat().st_size:
            notes.write("\n")

        def note(text):
            notes.write(f"{text} .\n")
            notes.flush()
            os.fsync(notes.fileno())

        for k in range(first, charges):
            note(f"intend {k}")
            try:
                ledger.release(NOISE, SUM, label=f"{worker}:{k}")
            except BudgetExceeded:
                return
            note(f"drawn {k}")


def start(shared, folder, worker, charges):
    """Fork a worker; workers with odd numbers use the ledger that they inherit, the others open it themselves."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work(shared if worker % 2 else Ledger.open(folder / "ledger"), folder, worker, charges)
        code = 0
    except BaseException as error:
        (folder / f"error{worker}").write_text(repr(error))
    finally:
        os._exit(code)


def main(folder, workers, charges, kills, allowed, seed):
    """Run until all workers are done; print how many were killed while they worked."""
    shared = Ledger.open(folder / "ledger", epsilon=cap(allowed), delta=DELTA)
    chance = random.Random(seed)
    running = {worker: start(shared, folder, worker, charges) for worker in range(workers)}
    killed = 0
    while running:
        time.sleep(chance.uniform(0.0, 0.02))
        if killed < kills and running:
            worker = chance.choice(sorted(running))
            os.kill(running[worker], signal.SIGKILL)
            _, status = os.waitpid(running[worker], 0)
            # It may have finished just before the signal.
            if os.WIFSIGNALED(status):
                killed += 1
                running[worker] = start(shared, folder, worker, charges)
            else:
                del running[worker]
        for worker, pid in list(running.items()):
            if os.waitpid(pid, os.WNOHANG)[0]:
                del running[worker]
    print(json.dumps({"killed": killed}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
