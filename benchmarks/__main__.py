"""`python -m benchmarks NAME`: measure, and print the tables that the documentation quotes."""

import argparse
import subprocess
import sys
from collections.abc import Sequence

# Name -> module and what it measures. A new benchmark joins by one line.
BENCHMARKS: dict[str, tuple[str, str]] = {
    "performance": ("benchmarks.performance.performance", "speed and memory against non-private steps and peers"),
    "transfer": (
        "benchmarks.transfer.run",
        "the transfer estimators against public-only and plain private models: harm, gain, monotony, speed",
    ),
    "adaptation": (
        "benchmarks.adaptation.run",
        "private domain adaptation: the paper's tables, figures and privacy claims, and ours beside them",
    ),
    "mirror": (
        "benchmarks.mirror.run",
        "public data as the mirror map: the paper's figures and theorems, real tables, and ours beside them",
    ),
    "hybrid": (
        "benchmarks.hybrid.run",
        "a curator's sample and people who answer for themselves: the paper's experiments, and where a sample misleads",
    ),
    "representation": (
        "benchmarks.representation.run",
        "public subspaces and probes: the paper's Figure 3 and Section 4, and ours beside them",
    ),
    "clustering": (
        "benchmarks.clustering.run",
        "source-target clustering: the paper's figures on synthetic and real sets, and ours beside them",
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one benchmark in a process of its own and return its exit code."""
    about = "\n".join(f"  {name:15}{words}" for name, (_, words) in BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Run a benchmark and print its tables. Let nothing else run meanwhile.",
        epilog=f"benchmarks:\n{about}\n\nOptions of one benchmark: python -m benchmarks NAME --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=True,
    )
    parser.add_argument("name", choices=BENCHMARKS, metavar="NAME", help=f"one of: {', '.join(BENCHMARKS)}")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="passed to the benchmark, such as --quick")
    asked = parser.parse_args(arguments)
    module, _ = BENCHMARKS[asked.name]
    return subprocess.run([sys.executable, "-m", module, *asked.options], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
