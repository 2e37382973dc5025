"""Benchmarks: each is a module that prints tables and writes JSON; `dpadapt bench NAME` runs one by this table."""

BENCHMARKS: dict[str, tuple[str, str]] = {
    "performance": ("dpadapt.benchmarks.performance", "speed and memory against non-private steps and peers"),
    "transfer": (
        "dpadapt.benchmarks.transfer",
        "the transfer estimators against public-only and plain private models: harm, gain, monotony, speed",
    ),
    "adaptation": (
        "dpadapt.benchmarks.paper1",
        "private domain adaptation: the paper's tables, figures and privacy claims, and ours beside them",
    ),
    "mirror": (
        "dpadapt.benchmarks.paper2",
        "public data as the mirror map: the paper's figures and theorems, real tables, and ours beside them",
    ),
    "hybrid": (
        "dpadapt.benchmarks.paper3",
        "a curator's sample and people who answer for themselves: the paper's experiments, and where a sample misleads",
    ),
    "clustering": (
        "dpadapt.benchmarks.paper5",
        "source-target clustering: the paper's figures on synthetic and real sets, and ours beside them",
    ),
    "representation": (
        "dpadapt.benchmarks.paper4",
        "public subspaces and probes: the paper's Figure 3 and Section 4, and ours beside them",
    ),
}
