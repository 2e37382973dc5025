"""Benchmark of `evaluate`."""
