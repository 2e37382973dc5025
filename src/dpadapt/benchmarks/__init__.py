"""Benchmarks: each is a module that prints tables and writes JSON; `dpadapt bench NAME` runs one by this table."""

BENCHMARKS: dict[str, tuple[str, str]] = {
    "performance": ("dpadapt.benchmarks.performance", "speed and memory against non-private steps and peers"),
    "transfer-regression": (
        "dpadapt.benchmarks.transfer_regression",
        "the transfer regressor against public-only and plain private models: harm, gain, monotony, speed",
    ),
    "transfer-classification": (
        "dpadapt.benchmarks.transfer_classification",
        "the transfer classifier against public-only and plain private models: harm, gain, monotony, speed",
    ),
}
