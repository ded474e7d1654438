"""Waits of threads for the other end of a pipe of ``multiprocessing``."""
