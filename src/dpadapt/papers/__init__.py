"""The five papers' algorithms as published, with the papers' names and baselines. Products live elsewhere."""
