"""What needs another system: a PostgreSQL server. Each is reached by a seam, and imported when it is used."""
