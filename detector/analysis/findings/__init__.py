"""What an analysis finds beyond verdicts: incidents, near misses, potential deadlocks, coverage."""
