"""Event loops in the proof: what they run, which of them have stopped, and what their tasks are about to do."""
