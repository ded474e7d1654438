"""What a process asks of its system: signals that end it, file descriptors, worker processes."""
