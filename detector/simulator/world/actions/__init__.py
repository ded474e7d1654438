"""What may happen in a world: steps of parties, what becomes of calls, streams and locks, and faults from outside."""
