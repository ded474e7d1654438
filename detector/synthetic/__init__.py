"""Generated archives: synthetic fleets with planted deadlocks."""
