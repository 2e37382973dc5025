"""Errors of other libraries on the same work: `python -m benchmarks peers`."""
