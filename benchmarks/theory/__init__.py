"""The papers' theorems as functions, and exact solvers of their problems. Nothing here is private."""
