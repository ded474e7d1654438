"""What several commands share: input, rendering, errors, the connection to a detector."""
