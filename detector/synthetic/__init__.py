"""Generated data: fleets with planted deadlocks, and random snapshots for tests and benchmarks."""
