"""Charge one durable ledger from many processes, kill them at random, damage what they leave; run as a process.

Each worker writes "intend k" to its own file, synchronised, before charge k, and "drawn k" right after the draw. So a
charge is used only if it was drawn, and what the ledger holds must lie between the two.
"""

import itertools
import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path
from threading import Thread

from ledger_files import FIRST_RECORD

from dpadapt.accounting import Ledger, epsilon
from dpadapt.errors import BudgetExceeded, LedgerError
from dpadapt.mechanisms import Gaussian, clipped_sum
from dpadapt.mechanisms.mechanism import Repeated

NOISE = Gaussian(50.0)
DELTA = 1e-6
SUM = clipped_sum([[0.5]], 1.0)


def cap(charges):
    """Return the epsilon that allows about `charges` charges: exactly that many, had they been charged at once."""
    return epsilon(Repeated(NOISE, charges), DELTA)


def notes(folder, worker, word):
    """Return the numbers of the charges that a worker noted with `word`, "intend" or "drawn"."""
    path = folder / f"worker{worker}"
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    # The last line may have been cut short by a kill.
    return {int(words[1]) for words in lines if words[:1] == [word] and len(words) == 3}


def work(ledger, folder, worker, charges):
    """Charge until the budget is spent, or all charges are made and no more kills are to come."""
    first = max(notes(folder, worker, "intend"), default=-1) + 1
    path = folder / f"worker{worker}"
    with path.open("a") as file:
        if path.stat().st_size:
            file.write("\n")

        def note(text):
            file.write(f"{text} .\n")
            file.flush()
            os.fsync(file.fileno())

        for k in itertools.count(first):
            if k >= charges and (folder / "stop").exists():
                return
            note(f"intend {k}")
            try:
                ledger.release(NOISE, SUM, label=f"{worker}:{k}")
            except BudgetExceeded:
                return
            note(f"drawn {k}")


def start(shared, reopen, folder, worker, charges, threads=1):
    """Fork a worker; workers with odd numbers use the ledger that they inherit, the others open it.

    With several threads, each of them is a worker: number `worker` stands for as many.
    """
    pid = os.fork()
    if pid:
        return pid
    failed = []

    def run(ledger, number):
        try:
            work(ledger, folder, number, charges)
        except BaseException as error:
            failed.append(number)
            (folder / f"error{number}").write_text(repr(error))

    try:
        ledger = shared if worker % 2 else reopen()
        mine = [Thread(target=run, args=(ledger, worker * threads + k)) for k in range(threads)]
        for thread in mine:
            thread.start()
        for thread in mine:
            thread.join()
    except BaseException as error:
        failed.append(worker)
        (folder / f"error{worker}").write_text(repr(error))
    finally:
        os._exit(1 if failed else 0)


def kills(folder, workers, charges, n_kills, allowed, seed, *names):
    """Let workers charge, under one or several names of the ledger, and kill some at random, until all are done."""
    names = [Path(name) for name in names] or [folder / "ledger"]
    shared = Ledger.open(names[0], epsilon=cap(allowed), delta=DELTA)

    def begin(worker):
        name = names[worker // 2 % len(names)]
        return start(shared, lambda: Ledger.open(name), folder, worker, charges)

    return {"killed": campaign(folder, begin, workers, n_kills, seed)}


def allowance_kills(folder, workers, charges, n_kills, allowed, seed, path, dataset=None):
    """Let workers charge one allowance of a ledger that has much more room, and kill some at random."""
    place = {"path": path, "dataset": dataset}
    shared = Ledger.open(epsilon=cap(100 * allowed), delta=DELTA, **place).allow("analyst", cap(allowed))

    def begin(worker):
        return start(shared, lambda: Ledger.open(**place).allowance("analyst"), folder, worker, charges)

    return {"killed": campaign(folder, begin, workers, n_kills, seed)}


def server_kills(folder, processes, threads, charges, n_kills, allowed, seed, url):
    """Let the threads of several processes charge a ledger on a server, and kill processes at random."""
    dataset = str(folder)
    shared = Ledger.open(url, epsilon=cap(allowed), delta=DELTA, dataset=dataset)

    def reopen():
        # A charge waits for a server that restarts; opening a ledger does not, so that a wrong address is told at once.
        for _ in range(600):
            try:
                return Ledger.open(url, dataset=dataset)
            except LedgerError:
                time.sleep(0.1)
        return Ledger.open(url, dataset=dataset)

    def begin(process):
        return start(shared, reopen, folder, process, charges, threads)

    began = time.monotonic()
    killed = campaign(folder, begin, processes, n_kills, seed)
    return {"killed": killed, "seconds": time.monotonic() - began}


def campaign(folder, begin, workers, n_kills, seed):
    """Begin workers, kill some at random and begin them anew, until all are done; return the number of kills."""
    chance = random.Random(seed)
    running = {worker: begin(worker) for worker in range(workers)}
    killed = 0
    while running:
        time.sleep(chance.uniform(0.0, 0.02))
        if killed == n_kills:
            (folder / "stop").touch()
        if killed < n_kills and running:
            worker = chance.choice(sorted(running))
            os.kill(running[worker], signal.SIGKILL)
            _, status = os.waitpid(running[worker], 0)
            # It may have finished just before the signal.
            if os.WIFSIGNALED(status):
                killed += 1
                running[worker] = begin(worker)
            else:
                del running[worker]
        for worker, pid in list(running.items()):
            if os.waitpid(pid, os.WNOHANG)[0]:
                del running[worker]
    (folder / "stop").unlink(missing_ok=True)
    return killed


def flips(folder, workers, n_ledgers, n_rounds, n_flips, seed):
    """Kill all workers at one moment, flip one bit of what they leave, look, and flip it back; again and again.

    A ledger with a flipped bit must be refused, or show every charge that was used.
    """
    chance = random.Random(seed)
    counts = dict.fromkeys(["killed", "flips", "refused", "shown", "charged", "lost", "over", "charges"], 0)
    messages = set()
    for number in range(n_ledgers):
        place = folder / str(number)
        place.mkdir()
        path, damaged = place / "ledger", folder / "damaged"
        shared = Ledger.open(path, epsilon=cap(2000), delta=DELTA)
        for _ in range(n_rounds):
            pids = [start(shared, lambda: Ledger.open(path), place, worker, 10_000) for worker in range(workers)]  # noqa: B023
            time.sleep(chance.uniform(0.0, 0.06))
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
                counts["killed"] += os.WIFSIGNALED(os.waitpid(pid, 0)[1])
            used = {f"{worker}:{k}" for worker in range(workers) for k in notes(place, worker, "drawn")}
            for _ in range(n_flips):
                counts["flips"] += 1
                names = flipped(path, damaged, chance)
                assert names
                try:
                    outcome(damaged / "ledger", used, counts, charge=chance.random() < 0.25)
                except LedgerError as error:
                    counts["refused"] += 1
                    messages.add(str(error))
        errors = [error.read_text() for error in place.glob("error*")]
        assert not errors, errors
        outcome(path, used, counts, charge=True)
        counts["charges"] += len(Ledger.open(path).entries)
    return {**counts, "messages": sorted(messages)}


# Names beside a ledger that databases use, and one that a killed process may leave.
BESIDE = ("-journal", "-wal", "-shm", ".x.new")


def flipped(path, folder, chance):
    """Copy the ledger into `folder`, at times with files beside it, and flip one bit of one of the files."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    content = path.read_bytes()
    (folder / "ledger").write_bytes(content)
    target = folder / "ledger"
    if chance.random() < 0.2:
        # An earlier state of the ledger, or noise, where something might mistake it for a journal.
        target = folder / f"ledger{chance.choice(BESIDE)}"
        target.write_bytes(content[: chance.randrange(1, len(content))] if chance.random() < 0.5 else os.urandom(2000))
    data = bytearray(target.read_bytes())
    # Most bytes are old records; half of the flips hit the commit lines or what was written last.
    near = [chance.randrange(len(data)), chance.randrange(FIRST_RECORD), len(data) - 1 - chance.randrange(600)]
    at = min(max(0, chance.choice([near[0], *near])), len(data) - 1)
    data[at] ^= 1 << chance.randrange(8)
    target.write_bytes(data)
    return target.name


def outcome(path, used, counts, *, charge):
    """Open a ledger and count what is wrong with it; at times charge it first."""
    ledger = Ledger.open(path)
    if charge:
        ledger.release(NOISE, SUM, label=f"after {counts['flips']}")
        used = {*used, f"after {counts['flips']}"}
        counts["charged"] += 1
        ledger = Ledger.open(path)
    counts["lost"] += not used <= {entry.label for entry in ledger.entries}
    counts["over"] += not ledger.spent() <= ledger.epsilon * (1 + 1e-9)
    counts["shown"] += 1


if __name__ == "__main__":
    mode, folder, *numbers = sys.argv[1:]
    arguments = [int(number) if number.isdigit() else number for number in numbers]
    modes = {"kills": kills, "flips": flips, "server_kills": server_kills, "allowance_kills": allowance_kills}
    print(json.dumps(modes[mode](Path(folder), *arguments)))
