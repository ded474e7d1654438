"""Probes: members that report for a server without an agent, such as a database (docs/databases.md)."""
