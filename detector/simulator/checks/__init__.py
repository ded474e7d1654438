"""What a world is held to: the oracle, the promises, and mutants that must be caught."""
