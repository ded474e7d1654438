"""Introspection of the process: frames, tasks, whose code they run, and what the agent observes at a cut."""
