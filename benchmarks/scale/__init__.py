"""Private rows larger than memory, and on the workers of a cluster."""
