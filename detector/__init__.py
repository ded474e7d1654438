"""Who asks a running distributed system whether a stable property holds: the service and all that never runs in a stranger's process."""
