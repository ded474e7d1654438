"""Snapshots with payloads as files, and back: versioned and checksummed; restore to the same or another parallelism."""
