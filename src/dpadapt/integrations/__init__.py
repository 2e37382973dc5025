"""What needs an extra: rows on the workers of Dask, people who are asked through Flower."""
