"""What needs an extra: ledgers on a PostgreSQL server, rows on the workers of Dask, people asked through Flower."""
