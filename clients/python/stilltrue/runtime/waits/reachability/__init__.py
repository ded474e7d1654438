"""Waits for objects that only blocked parties can reach: the proof, and when it is tried."""
