"""How many charges a second a durable ledger takes: in a file and, if an address is given, on a PostgreSQL server."""

import os
import secrets
import tempfile
import threading
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from dpadapt.accounting.ledger import Ledger
from dpadapt.mechanisms import RandomizedResponse

# The environment variable with the address of a server, such as postgresql://anna@host/database.
ADDRESS = "DPADAPT_LEDGER_SERVER"
# Processes, threads of each.
WRITERS = [(1, 1), (4, 1), (4, 16)]


def places() -> dict[str, str | None]:
    """Return the places to measure: a file in a temporary folder (None), and the server if there is one."""
    return {"file": None, **({"server": os.environ[ADDRESS]} if ADDRESS in os.environ else {})}


def rate(address: str | None, processes: int, threads: int, charges: int) -> float:
    """Return charges a second of so many processes and threads, each of which makes `charges`."""
    with tempfile.TemporaryDirectory() as folder:
        where: dict[str, Any] = {"path": Path(folder) / "ledger"}
        if address is not None:
            where = {"path": address, "dataset": f"benchmark {secrets.token_hex(8)}"}
        ledger = Ledger.open(**where, epsilon=1.0, delta=0.0)
        context = get_context("spawn")
        ready, go = context.Semaphore(0), context.Event()
        workers = [context.Process(target=_charge, args=(where, threads, charges, ready, go)) for _ in range(processes)]
        for worker in workers:
            worker.start()
        for _ in workers:
            ready.acquire()
        began = time.monotonic()
        go.set()
        for worker in workers:
            worker.join()
        seconds = time.monotonic() - began
        made = len(ledger.entries)
        if made != processes * threads * charges:
            raise RuntimeError(f"{made} charges were made, not {processes * threads * charges}.")
        return made / seconds


def _charge(where: dict[str, Any], threads: int, charges: int, ready: Any, go: Any) -> None:
    ledger = Ledger.open(**where)

    def work() -> None:
        for k in range(charges):
            ledger.start(RandomizedResponse(1e-6), label=str(k))

    workers = [threading.Thread(target=work) for _ in range(threads)]
    ready.release()
    go.wait()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def measure(*, quick: bool) -> list[dict[str, Any]]:
    """Return one row per place and number of writers."""
    return [
        {
            "place": place,
            "processes": processes,
            "threads": threads,
            "rate": rate(address, processes, threads, (40 if quick else 500) // min(threads, 4)),
        }
        for place, address in places().items()
        for processes, threads in WRITERS
    ]
