"""Private rows in blocks: in memory, in files larger than memory, or on the workers of a cluster."""
