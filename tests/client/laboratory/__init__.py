"""Random programs for the readers of live threads and tasks, with an oracle that lets them run on, and mutants."""
