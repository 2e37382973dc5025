"""Experiments: the papers' figures and claims, speed, and harm. `python -m benchmarks NAME [--quick]` runs one."""
