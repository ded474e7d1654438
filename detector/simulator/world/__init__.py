"""A seeded world of processes with real recorders: its state, and everything that can happen in it."""
