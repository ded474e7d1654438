"""The detector's other requests to a process besides a cut: a look, stacks, a cure."""
