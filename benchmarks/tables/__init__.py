"""Benchmark of tables as they come."""
