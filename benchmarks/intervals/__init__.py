"""Benchmark of persons as the unit of privacy."""
