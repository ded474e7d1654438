"""Asynchronous barrier snapshots: barriers, the coordinator, pending and completed points."""
