"""Time to ask people in the local model: `python -m benchmarks.performance.people`.

A million simulated people; and, with the extra federated, 1,000 Flower clients in each of two rounds of Flower's
simulation (200 with `--quick`), with the CPU time of all its processes.
"""

import os
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.running import command
from benchmarks.transfer.common import claim, versions
from dpadapt.hybrid.agents import SimulatedAgents
from dpadapt.hybrid.questions import LinearHypothesis, LossQuestion

MILLION = 10**6
# Rows, whether each is a person (else a million are drawn from them), and columns.
POPULATIONS = ((MILLION, True, 10), (20_000, False, 10), (20_000, False, 98))


def simulated(repetitions: int) -> list[dict[str, Any]]:
    """Return CPU and elapsed seconds of one question to a million people, as medians."""
    random = np.random.default_rng(0)
    times = []
    for rows, own, columns in POPULATIONS:
        X = random.standard_normal((rows, columns))
        question = LossQuestion(LinearHypothesis(random.standard_normal(columns)))
        taken = []
        for _ in range(repetitions):
            agents = SimulatedAgents(X, (X[:, 0] > 0).astype(int), 1.0, n_people=None if own else MILLION)
            start, clock = time.process_time(), time.perf_counter()
            agents.ask(question, MILLION)
            taken.append((time.process_time() - start, time.perf_counter() - clock))
        cpu, wall = np.median(taken, axis=0)
        times.append({"rows": rows, "columns": columns, "cpu": float(cpu), "wall": float(wall)})
    return times


def flower(n_clients: int) -> list[dict[str, Any]]:
    """Return the time of two rounds of `n_clients` Flower clients, each client asked once."""
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"  # before Flower is imported
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    from flwr.simulation import run_simulation

    from dpadapt.integrations.device import Device
    from dpadapt.integrations.flower import client_app, server_app

    rounds: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:

        def device(context: Any) -> Device:
            person = int(context.node_config["partition-id"])
            x = np.random.default_rng(person).standard_normal(3)
            return Device(x, int(x[0] > 0), 1.0, Path(folder) / str(person))

        def survey(agents: Any) -> None:
            for number in (1, 2):
                start, clock = cpu_of_all(), time.perf_counter()
                answers = agents.ask(LossQuestion(LinearHypothesis([1.0, 0.5, 0.0])), n_clients)
                taken = {"cpu": cpu_of_all() - start, "wall": time.perf_counter() - clock}
                rounds.append({"round": number, "asked": n_clients, "answers": len(answers), **taken})

        server = server_app(survey, 1.0, n_people=2 * n_clients, timeout=600.0)
        worker = {"init_args": {"num_cpus": 1, "include_dashboard": False}, "client_resources": {"num_cpus": 1.0}}
        run_simulation(server, client_app(device), 2 * n_clients, backend_config=worker)
    return rounds


def cpu_of_all() -> float:
    """Return the CPU seconds of this process and all its descendants. Needs /proc."""
    tick = os.sysconf("SC_CLK_TCK")
    parent: dict[int, int] = {}
    used: dict[int, float] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path("/proc", name, "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # the process has ended
        parent[int(name)] = int(fields[1])
        used[int(name)] = sum(map(int, fields[11:15])) / tick

    def mine(process: int) -> bool:
        while process > 1 and process != os.getpid():
            process = parent.get(process, 0)
        return process == os.getpid()

    return sum(seconds for process, seconds in used.items() if mine(process))


def run(*, quick: bool) -> dict[str, Any]:
    """Measure simulated people and, where Flower is installed, clients."""
    clients = flower(200 if quick else 1_000) if find_spec("flwr") else []
    return {"quick": quick, "simulated": simulated(3 if quick else 7), "flower": clients, "versions": versions()}


def show(results: dict[str, Any]) -> None:
    """Print the tables and the claim."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table("rows", "columns", "CPU s", "waiting s", title="a million simulated people, one question")
    for row in results["simulated"]:
        table.add_row(f"{row['rows']:,}", f"{row['columns']}", f"{row['cpu']:.2f}", f"{row['wall']:.2f}")
    console.print(table)
    if results["flower"]:
        table = Table("round", "asked", "answers", "CPU s", "waiting s", title="Flower clients, simulation, one worker")
        for row in results["flower"]:
            shown = f"{row['round']}", f"{row['asked']:,}", f"{row['answers']:,}"
            table.add_row(*shown, f"{row['cpu']:.0f}", f"{row['wall']:.0f}")
        console.print(table)
    else:
        console.print("Flower clients: skipped, Flower is not installed (extra federated)")
    slowest = max(row["cpu"] for row in results["simulated"])
    speed = claim("a million simulated people asked in 0.5 s of CPU", f"{slowest:.2f} s at most", slowest < 0.5)
    console.print(f"{speed['claim']}: {speed['measured']}, {speed['verdict']}")
    console.print(results["versions"])


if __name__ == "__main__":
    command(__spec__.name, __doc__, run, show)
