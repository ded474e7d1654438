"""Completed points as files: versioned and checksummed; restore to the same or another parallelism."""
