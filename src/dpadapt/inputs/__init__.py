"""The one gate for private and public input: arrays, labels, persons, weights, files and sources."""
