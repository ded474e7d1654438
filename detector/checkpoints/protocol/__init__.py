"""Asynchronous barrier snapshots: barriers, the coordinator, points pending and completed."""
