"""Speed and memory against non-private steps and other libraries."""
