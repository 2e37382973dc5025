"""Paper 3, the hybrid model: its experiments, and populations that differ from the curator's sample."""
