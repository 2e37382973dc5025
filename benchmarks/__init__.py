"""Experiments: the papers' figures and claims, measured. `python -m benchmarks NAME [--quick]` runs one."""
