"""What the papers' algorithms are compared with: private baselines, baselines that protect nothing, other solvers."""
