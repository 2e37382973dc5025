"""Benchmark of the ledger's filter."""
