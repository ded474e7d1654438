"""Locks on files that the kernel keeps: who waits for one, and who holds it (Linux)."""
