"""Evaluates documents offline: one predicate, many documents in parallel, a limit on the time."""
