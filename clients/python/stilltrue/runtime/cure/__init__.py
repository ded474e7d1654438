"""The cure: aborts the calls of deadlocked parties if an operator asks for it and the process allows it."""
