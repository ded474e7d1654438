"""Semaphores of ``multiprocessing`` that nobody will release: the process that held one has ended."""
