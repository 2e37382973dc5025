"""The algorithms of the five papers as published, with the papers' names.

For real work use the estimators outside this folder; the benchmarks compare them with these.
"""
