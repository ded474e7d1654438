"""Code shared by several commands: input, rendering, errors, the connection to a detector."""
