"""Unrecorded waits: reads at the cut what threads and tasks are blocked in, and resolves who can end it."""
