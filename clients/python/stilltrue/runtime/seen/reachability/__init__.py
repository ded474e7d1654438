"""Waits for what nobody but the blocked can reach: the proof, and when it is tried."""
