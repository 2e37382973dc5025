"""Benchmark of prediction intervals and sets."""
