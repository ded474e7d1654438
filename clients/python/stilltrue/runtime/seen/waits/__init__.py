"""The waits of one library each: what somebody stands in, and who can end it."""
