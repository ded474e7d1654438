"""Incidents: one deadlock seen in many snapshots, with its cores, labels and waits."""
