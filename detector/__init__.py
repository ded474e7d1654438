"""The detector: the service, the command, the simulator and the pipeline; none of it runs in a user's process."""
