"""Locks and semaphores whose holder has ended without giving them back: the proof, and when it is tried."""
