"""A survey by Flower: one noisy bit from each person."""
