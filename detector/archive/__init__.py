"""The analytical archive: every finished snapshot as rows of dated Parquet files, which any data tool reads."""
