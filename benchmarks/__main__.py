"""`python -m benchmarks NAME`: run one benchmark and print the tables that the documentation quotes."""

import argparse
import subprocess
import sys
from collections.abc import Sequence

# Name -> module and what it measures. A new benchmark needs one line here.
BENCHMARKS: dict[str, tuple[str, str]] = {
    "performance": (
        "benchmarks.performance.performance",
        "speed and memory of a private step against non-private steps and other libraries",
    ),
    "ledger": (
        "benchmarks.ledger.run",
        "the ledger: what each rule leaves unused of a cap, how far an adaptive analyst gets, charges a second",
    ),
    "peers": (
        "benchmarks.peers.run",
        "errors of public models, DP-SGD, DP-EBM, Opacus and diffprivlib on the same rows of bundled sets",
    ),
    "bounds": (
        "benchmarks.bounds.run",
        "bounds ten times too wide: what they cost a private fit without public data, with and without ranges",
    ),
    "tables": (
        "benchmarks.tables.run",
        "raw tables to predictions without an edit by hand, against a careful encoding by hand; wide and long tables",
    ),
    "transfer": (
        "benchmarks.transfer.run",
        "the transfer estimators against public models and what else a user has: harm, gain, robustness, speed",
    ),
    "scale": (
        "benchmarks.scale.run",
        "more rows than memory: fits from Parquet files and on workers of Dask against fits from memory",
    ),
    "scale-huge": (
        "benchmarks.scale.huge",
        "a hundred million rows in two gigabytes: both transfer estimators, once; needs 60 GB of disk and an hour",
    ),
    "persons": (
        "benchmarks.persons.run",
        "persons with several rows as the unit of privacy, against single rows and simpler ways to protect persons",
    ),
    "intervals": (
        "benchmarks.intervals.run",
        "prediction intervals and sets: coverage, widths against calibration without privacy, cost to the model",
    ),
    "advice": (
        "benchmarks.advice.run",
        "the adviser: gains that it foresees from public rows against those of the fits that it advises",
    ),
    "evaluate": (
        "benchmarks.evaluate.run",
        "scores released by `evaluate`: how often their intervals cover the score of the population, and their widths",
    ),
    "adaptation": (
        "benchmarks.adaptation.run",
        "private domain adaptation: the paper's tables, figures and privacy claims, and our estimators",
    ),
    "adaptation-limits": (
        "benchmarks.adaptation.limits",
        "private domain adaptation: problem (7) solved exactly, section 7, kernel mean matching over its parameters",
    ),
    "adaptation-steps": (
        "benchmarks.adaptation.steps",
        "private domain adaptation with 15,000 and 200,000 steps, with and without noise: what the paper's steps miss",
    ),
    "mirror": (
        "benchmarks.mirror.run",
        "public data as the mirror map: the paper's figures and theorems, real tables, and our estimators",
    ),
    "mirror-networks": (
        "benchmarks.mirror.table2",
        "the paper's network for EMNIST on MNIST, at the paper's number of epochs (an hour); time of the others",
    ),
    "hybrid": (
        "benchmarks.hybrid.run",
        "a curator and people in the local model: the paper's experiments, and populations that differ",
    ),
    "reweigh": (
        "benchmarks.hybrid.figures",
        "Subsample-Test-Reweigh: Figures 1 to 3 of the paper, at smaller sizes",
    ),
    "representation": (
        "benchmarks.representation.run",
        "public subspaces and probes: the paper's Figure 3 and Section 4, and our estimators",
    ),
    "clustering": (
        "benchmarks.clustering.run",
        "source-target clustering: our estimator and the paper's algorithms on synthetic and real sets",
    ),
    "clustering-appendix": (
        "benchmarks.clustering.appendix",
        "source-target clustering: the paper's figures on all of its sets: costs, coresets, zCDP, run times",
    ),
    "clustering-reasons": (
        "benchmarks.clustering.reasons",
        "source-target clustering: why claims of the paper are missed, with what it leaves open changed in turn",
    ),
    "clustering-scale": (
        "benchmarks.clustering.scale",
        "source-target clustering with a million targets and ten million sources: time, memory and gap",
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one benchmark in a process of its own and return its exit code; without a name, list the benchmarks."""
    descriptions = "\n".join(f"  {name:21}{text}" for name, (_, text) in BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Run one benchmark and print its tables. Run nothing else meanwhile: times are measured.",
        epilog=f"benchmarks:\n{descriptions}\n\nOptions of one benchmark: python -m benchmarks NAME --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="?", choices=BENCHMARKS, metavar="NAME", help=f"one of: {', '.join(BENCHMARKS)}")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="passed to the benchmark, such as --quick")
    given = parser.parse_args(arguments)
    if given.name is None:
        parser.print_help()
        return 0
    module, _ = BENCHMARKS[given.name]
    return subprocess.run([sys.executable, "-m", module, *given.options], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
