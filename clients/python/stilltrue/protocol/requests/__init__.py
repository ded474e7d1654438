"""What the detector asks of a process beside a cut: a look, stacks, a cure."""
