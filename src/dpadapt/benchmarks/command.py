"""What every benchmark's command shares: its options, one thread, and where the results go."""

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def one_thread() -> dict[str, str]:
    """Return the environment that holds numerical libraries to one thread."""
    return dict.fromkeys(_THREADS, "1")


def command(
    module: str, about: str | None, run: Callable[..., dict[str, Any]], show: Callable[[dict[str, Any]], None]
) -> None:
    """Run a benchmark's module as a command: measure, print the tables, and write JSON if asked."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0] if about else None)
    parser.add_argument("--quick", action="store_true", help="a few minutes at most: fewer repetitions, sets or seeds")
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    options = parser.parse_args()
    if not all(os.environ.get(name) == "1" for name in _THREADS):
        # The numerical libraries read this when they are loaded, so start over with it set.
        os.execve(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]], {**os.environ, **one_thread()})
    results = run(quick=options.quick)
    show(results)
    if options.out:
        options.out.write_text(json.dumps(results, indent=2))
