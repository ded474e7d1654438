"""Locks and semaphores whose holder has ended without releasing them: the proof, and when it is tried."""
