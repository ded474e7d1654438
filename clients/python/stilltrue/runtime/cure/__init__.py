"""The cure: aborts the calls of deadlocked parties when an operator asks for it, and the process allows it."""
