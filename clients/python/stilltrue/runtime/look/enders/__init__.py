"""Who can end a wait from outside: actors in this process, what each can reach, and what it does with it."""
