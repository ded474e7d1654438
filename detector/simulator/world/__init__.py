"""A seeded world of processes with real recorders: its state and its possible actions."""
