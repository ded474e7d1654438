"""One deadlock seen in many snapshots: incidents, their cores, labels and waits."""
