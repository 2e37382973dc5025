"""`dpadapt bench`: measure, and print the tables that the documentation quotes."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from dpadapt._validate import one_of
from dpadapt.benchmarks import BENCHMARKS
from dpadapt.cli._options import teach

_HELP = teach(
    f"""
Run a benchmark and print its tables.

Benchmarks: {"; ".join(f"{name} ({about})" for name, (_, about) in BENCHMARKS.items())}. Let nothing else run meanwhile.

Example:

\b
  dpadapt bench transfer --quick --report transfer.html
"""
)


def mount(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("bench", help=_HELP)(_bench)


def _bench(
    name: Annotated[str, typer.Argument(help=f"One of: {', '.join(BENCHMARKS)}.")],
    quick: Annotated[bool, typer.Option("--quick", help="Fewer repetitions; a few minutes at most.")] = False,
    out: Annotated[Path | None, typer.Option(help="Also write the results here, as JSON.")] = None,
    report: Annotated[
        Path | None, typer.Option(help="Also write a page with plots here (all but performance).")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Also write the tables into this page (all but performance).")
    ] = None,
    results: Annotated[Path | None, typer.Option(help="Measure nothing; show what --out wrote earlier.")] = None,
) -> int:
    """Run the benchmark's module in a process of its own, which it may set up as it needs."""
    module, _ = BENCHMARKS[one_of(name, BENCHMARKS, "name")]
    files = {"--out": out, "--report": report, "--markdown": markdown, "--results": results}
    options = [*(["--quick"] if quick else []), *(f"{name}={path}" for name, path in files.items() if path)]
    return subprocess.run([sys.executable, "-m", module, *options], check=False).returncode
