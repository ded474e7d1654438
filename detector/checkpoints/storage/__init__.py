"""Completed points in versioned and checksummed files, restored at the same or another parallelism."""
