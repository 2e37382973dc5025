"""Benchmark of bounds that are too wide."""
