"""Commands that run a server or program, and those that back up and restore its state."""
