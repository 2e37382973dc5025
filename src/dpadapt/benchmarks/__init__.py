"""Benchmarks: `performance` against peers; one file per paper."""
