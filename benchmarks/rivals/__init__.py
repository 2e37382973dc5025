"""What the papers' algorithms are compared with: baselines that protect nothing, and solvers by others."""
