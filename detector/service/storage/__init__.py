"""Storage: snapshots and incidents in SQLite, the analytical archive in Parquet."""
