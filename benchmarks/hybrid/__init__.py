"""Paper 3, the hybrid model: its experiments, and populations where a sample misleads."""
