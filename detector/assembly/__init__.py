"""Snapshots that are assembled away from the detector's own process: what travels, and what is made of it."""
