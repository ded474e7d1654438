"""The detector: the service, the command, the simulator and the pipeline; none of it ever runs in a stranger's process."""
