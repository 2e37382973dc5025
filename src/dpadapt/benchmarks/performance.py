"""Speed and memory, side by side in one process: `python -m dpadapt.benchmarks.performance [--quick] [--out FILE]`.

Ratios to a non-private step that does the same two matrix products on the same rows. CPU time, one thread, the
contenders interleaved; medians. Peers are measured where they are installed.
"""

import importlib.util
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from dpadapt.benchmarks.command import command, one_thread

TARGETS = {
    "softmax, batch of 1,024": 1.2,
    "softmax, full batch": 1.2,
    "binary, full batch": 1.4,
}


def run(*, quick: bool) -> dict[str, Any]:
    """Return all results as plain data."""
    from dpadapt.benchmarks import steps

    rows: list[dict[str, Any]] = []
    for case in steps.CASES:
        contenders: dict[str, Callable[[], Any]] = steps.contenders(case, peers=not quick)
        times = interleaved(contenders, repetitions=max(5, case.repetitions // (10 if quick else 1)))
        base = times["non-private"]
        rows += [{"case": case.name, "what": name, "ms": ms, "ratio": ms / base} for name, ms in times.items()]
    return {
        "machine": {"python": platform.python_version(), "processor": platform.machine(), "cores": os.cpu_count()},
        "versions": {
            name: _version(name)
            for name in ("numpy", "scipy", "dp-accounting", "torch", "opacus", "jax", "jax-privacy")
        },
        "steps": rows,
        "memory_mb": steps_memory(),
        "calibration": calibration_times(),
        "import_s": import_time(),
    }


def interleaved(contenders: dict[str, Callable[[], Any]], *, repetitions: int) -> dict[str, float]:
    """Return the median CPU milliseconds of each contender, taking turns of up to ten steps in a row.

    Training takes many steps in a row, too; a turn ends after 50 ms, and a contender drops out after 20 s in all.
    """
    taken: dict[str, list[int]] = {name: [] for name in contenders}
    for step in contenders.values():
        step()
    for _ in range(repetitions):
        for name, step in contenders.items():
            if sum(taken[name]) > 20e9:
                continue
            turn = 0
            for _ in range(10):
                start = time.process_time_ns()
                step()
                taken[name].append(time.process_time_ns() - start)
                turn += taken[name][-1]
                if turn > 50e6:
                    break
    return {name: statistics.median(values) / 1e6 for name, values in taken.items()}


def steps_memory() -> float:
    """Return the peak memory of private steps over the data, in MB, measured in a process of its own."""
    code = "from dpadapt.benchmarks.steps import peak_over_data; print(peak_over_data())"
    return float(_python(code))


def calibration_times() -> dict[str, float]:
    """Return seconds of CPU for the two calibrations that the targets name."""
    code = (
        "import time; from dpadapt import calibrate; import dp_accounting; calibrate(2.0, 1e-5, steps=3)\n"
        "def cpu(**plan):\n"
        "    start = time.process_time(); calibrate(1.0, 1e-5, **plan); return time.process_time() - start\n"
        "print(cpu(steps=15_000), cpu(steps=5_000, rate=0.01), cpu(steps=5_000, rate=0.01))"
    )
    gaussian, sampled, cached = (float(value) for value in _python(code).split())
    return {"gaussian, 15,000 steps": gaussian, "Poisson, cold": sampled, "Poisson, cached": cached}


def import_time() -> float:
    """Return the seconds that `import dpadapt` takes, the interpreter's start not counted; best of five."""
    code = "import time; start = time.perf_counter(); import dpadapt; print(time.perf_counter() - start)"
    return min(float(_python(code)) for _ in range(5))


def show(results: dict[str, Any]) -> None:
    """Print the tables."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table("case", "what", "CPU ms", "ratio", "target", title="one step, ratio to the non-private step")
    for row in results["steps"]:
        target = f"<= {TARGETS[row['case']]}" if row["what"] == "dpadapt" else ""
        table.add_row(row["case"], row["what"], f"{row['ms']:.3f}", f"{row['ratio']:.2f}", target)
    console.print(table)
    other = Table("what", "measured", "target")
    other.add_row("peak memory over the data", f"{results['memory_mb']:.1f} MB", "<= 64 MB")
    limits = {"gaussian, 15,000 steps": "< 0.005 s", "Poisson, cold": "< 2 s", "Poisson, cached": "< 0.001 s"}
    for name, seconds in results["calibration"].items():
        other.add_row(f"calibrate: {name}", f"{seconds:.6f} s", limits[name])
    other.add_row("import dpadapt", f"{results['import_s']:.3f} s", "< 1.0 s")
    console.print(other)


def _python(code: str) -> str:
    call = [sys.executable, "-c", code]
    done = subprocess.run(call, capture_output=True, text=True, check=True, env={**os.environ, **one_thread()})
    return done.stdout.strip().splitlines()[-1]


def _version(name: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def installed(module: str) -> bool:
    """Tell whether a peer can be imported."""
    return importlib.util.find_spec(module) is not None


if __name__ == "__main__":
    command(__spec__.name, __doc__, run, show)
