"""Connections to PostgreSQL: who waits for an answer on one, and who has a transaction open on one (docs/databases.md)."""
