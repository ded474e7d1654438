"""The detector: service, command, simulator and pipeline. None of it runs in a user's process."""
