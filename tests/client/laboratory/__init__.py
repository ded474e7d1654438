"""A laboratory for what is read of live threads and tasks: random programs, an oracle that lets them run on, and mutants."""
