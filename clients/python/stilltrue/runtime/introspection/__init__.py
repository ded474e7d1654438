"""What the process shows of itself: frames, tasks, whose code they run, and what the agent observes there at a cut."""
