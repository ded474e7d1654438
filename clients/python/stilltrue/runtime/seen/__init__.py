"""Waits that nobody records: what threads and tasks stand in is read at the cut, and resolved to who can end it."""
