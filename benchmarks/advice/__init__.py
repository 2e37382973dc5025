"""Benchmark of the adviser."""
