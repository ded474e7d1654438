"""Waits for PostgreSQL statements and Redis locks, and the owners of sessions and locks (docs/databases.md)."""
