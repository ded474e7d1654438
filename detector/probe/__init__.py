"""Probes: members that speak for a server which has no agent, such as a database (docs/databases.md)."""
